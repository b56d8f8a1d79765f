//! Durations as people write them: `10m`, `1h30m`, `90s`.

use std::time::Duration;

use crate::json::quote;

/// Reads a duration such as `90s`, `10m`, `1h30m`, `500ms` or `7d`: whole numbers with the units `w`, `d`, `h`, `m`, `s` and
/// `ms`, each unit smaller than the one before.
///
/// Returns `None` for any other text, and for more than about 500 million years.
#[must_use]
pub fn read_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut millis = 0_u64;
    let mut last = u64::MAX;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(letters);
        let unit = unit_millis(word)?;
        if unit >= last {
            return None;
        }
        millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        (rest, last) = (tail, unit);
    }
    Some(Duration::from_millis(millis))
}

fn unit_millis(word: &str) -> Option<u64> {
    Some(match word {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return None,
    })
}

/// Returns the problem with a duration that cannot be read, is zero or is longer than `max`, and a fix.
pub(crate) fn duration_problem(text: &str, max: Duration) -> (String, String) {
    let is_allowed = |written: &String| read_duration(written).is_some_and(|duration| duration <= max);
    let bare: Vec<String> = without_unit(text).into_iter().flatten().filter(is_allowed).collect();
    let is_number = is_number(text.trim());
    match spelled_out(text).filter(is_allowed) {
        _ if !bare.is_empty() => (format!("{} has no unit", quote(text)), write_one_of(bare)),
        _ if is_number || read_duration(text).is_some() => {
            (format!("`{}` is out of bounds", quote(text)), format!("use 1ms to {}", written(max)))
        }
        Some(short) => (format!("cannot read `{}`", quote(text)), format!("write {short}")),
        None => {
            let hint = "write numbers with units, like 90s, 10m or 1h30m";
            (format!("cannot read `{}`", quote(text)), hint.to_owned())
        }
    }
}

/// Returns the durations that a number above zero without a unit may mean.
pub(crate) fn without_unit(text: &str) -> Option<[String; 3]> {
    let number = text.trim();
    let is_zero = number.bytes().all(|byte| byte == b'0');
    (is_number(number) && !is_zero).then(|| ["s", "m", "h"].map(|unit| format!("{number}{unit}")))
}

/// Returns `write 10s, 10m or 10h`.
pub(crate) fn write_one_of(all: impl IntoIterator<Item = String>) -> String {
    let mut all: Vec<String> = all.into_iter().collect();
    match (all.pop(), all.is_empty()) {
        (Some(last), false) => format!("write {} or {last}", all.join(", ")),
        (last, _) => format!("write {}", last.unwrap_or_default()),
    }
}

/// Returns the short form of a duration with a unit in words or a space before it, like `10 minutes`.
fn spelled_out(text: &str) -> Option<String> {
    let text = text.trim();
    let (number, word) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match word.trim_start() {
        unit @ ("ms" | "s" | "m" | "h" | "d" | "w") => unit,
        "millis" | "millisecond" | "milliseconds" => "ms",
        "sec" | "secs" | "second" | "seconds" => "s",
        "min" | "mins" | "minute" | "minutes" => "m",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "day" | "days" => "d",
        "week" | "weeks" => "w",
        _ => return None,
    };
    is_number(number).then(|| format!("{number}{unit}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a duration in the largest unit that it is a multiple of.
fn written(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let units = ["d", "h", "m", "s", "ms"].into_iter().filter_map(|unit| Some((unit, unit_millis(unit)?)));
    let mut exact = units.filter(|(_, unit)| millis.is_multiple_of(*unit));
    exact.next().map_or_else(String::new, |(name, unit)| format!("{}{name}", millis / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations() {
        let cases = [
            ("90s", Some(90_000)),
            ("10m", Some(600_000)),
            ("1h30m", Some(5_400_000)),
            ("1d12h", Some(129_600_000)),
            ("250ms", Some(250)),
            (" 1w ", Some(604_800_000)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("m", None),
            ("10 m", None),
            ("30m1h", None),
            ("1m1m", None),
            ("-1s", None),
            ("1.5h", None),
            ("99999999999999999999s", None),
            ("9999999999999999w", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read_duration(text), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn problems_of_durations() {
        let hour = Duration::from_secs(3600);
        for (text, expected) in [
            ("10", "10 has no unit; write 10s or 10m"),
            ("3600", "3600 has no unit; write 3600s"),
            ("3601", "`3601` is out of bounds; use 1ms to 1h"),
            ("0", "`0` is out of bounds; use 1ms to 1h"),
            ("2h", "`2h` is out of bounds; use 1ms to 1h"),
            ("0s", "`0s` is out of bounds; use 1ms to 1h"),
            ("10 minutes", "cannot read `10 minutes`; write 10m"),
            ("10 m", "cannot read `10 m`; write 10m"),
            ("2 hours", "cannot read `2 hours`; write numbers with units, like 90s, 10m or 1h30m"),
            ("1.5m", "cannot read `1.5m`; write numbers with units, like 90s, 10m or 1h30m"),
            ("", "cannot read ``; write numbers with units, like 90s, 10m or 1h30m"),
        ] {
            let (problem, hint) = duration_problem(text, hour);
            assert_eq!(format!("{problem}; {hint}"), expected, "{text}");
        }
        assert_eq!(duration_problem("10", 365 * 24 * hour).1, "write 10s, 10m or 10h");
        assert_eq!(duration_problem("2y", Duration::from_millis(1500)).0, "cannot read `2y`");
        assert_eq!(duration_problem("2s", Duration::from_millis(1500)).1, "use 1ms to 1500ms");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let problem = duration_problem(&text, Duration::MAX);
            prop_assert!(!problem.0.is_empty() && !problem.1.is_empty());
            let _ = read_duration(&text);
        }
    }
}
