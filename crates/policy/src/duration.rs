//! Durations as people write them: `10m`, `1h30m`, `90s`.

use std::time::Duration;

/// Reads `90s`, `10m`, `1h30m`, `500ms`, `7d`: numbers with units, each unit smaller than the one before.
///
/// Returns nothing for what is none of these.
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

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = read_duration(&text);
        }
    }
}
