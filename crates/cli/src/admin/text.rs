//! Text for terminals: names and keys from the server are escaped, since callers may have chosen them.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

const SECOND: u64 = 1_000_000_000;

/// Letters that take room and show nothing.
const FILLERS: [char; 4] = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];

/// Whether a terminal shows a character as itself, and it changes nothing about others: no control characters, escape
/// sequences, marks of direction or combining marks.
fn is_plain(character: char) -> bool {
    let is_same = character.escape_debug().len() == 1 || matches!(character, '"' | '\'');
    is_same && !FILLERS.contains(&character)
}

/// Returns text with everything escaped that a terminal could not show, as in `\u{202e}`.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut all = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            character if is_plain(character) => all.push(character),
            character if FILLERS.contains(&character) => all.extend(character.escape_unicode()),
            character => all.extend(character.escape_debug()),
        }
    }
    all.into()
}

/// Returns the same JSON with everything escaped that a terminal could not show, as in `\u202e`.
pub(super) fn escaped_json(json: &str) -> String {
    let mut all = String::with_capacity(json.len());
    for character in json.chars() {
        // JSON escapes backslashes by itself, and line breaks can only stand between values.
        if is_plain(character) || matches!(character, '\\' | '\n') {
            all.push(character);
        } else {
            character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| all += &format!("\\u{unit:04x}"));
        }
    }
    all
}

/// Returns text of at most this many columns; `…` stands for a part that is left out.
pub(super) fn shortened(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return text.into();
    }
    let mut short = String::new();
    for character in text.chars() {
        let next = format!("{short}{character}");
        if next.width() >= columns {
            break;
        }
        short = next;
    }
    format!("{short}…").into()
}

/// Returns a table with a head; its columns are aligned as by [`aligned`].
pub(super) fn table(head: &[&str], mut rows: Vec<Vec<String>>, right: usize) -> String {
    rows.insert(0, head.iter().map(|&name| name.to_owned()).collect());
    aligned(&rows, right)
}

/// Returns rows with aligned columns; those from `right` on hold numbers and are aligned to the right.
pub(super) fn aligned(rows: &[Vec<String>], right: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell: &String| cell.width()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or_default()).collect();
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width.saturating_sub(cell.width()));
            let (before, after) = if column >= right { (room.as_str(), "") } else { ("", room.as_str()) };
            line += &format!("{before}{cell}{after}  ");
        }
        table += line.trim_end();
        table.push('\n');
    }
    table
}

/// Returns a duration, rounded up to whole seconds, in its one or two largest units, like `1h30m`, `24s` or `350ms`.
pub(super) fn duration(nanos: u64) -> String {
    if nanos < SECOND {
        return format!("{}ms", nanos.div_ceil(1_000_000));
    }
    let mut left = nanos.div_ceil(SECOND);
    let mut parts = Vec::new();
    for (seconds, unit) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
        let number = left / seconds;
        left %= seconds;
        if number > 0 {
            parts.push(format!("{number}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.truncate(2);
    parts.concat()
}

/// Returns a number with its noun, like `1 limit` or `3 limits`.
pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<b>\u{1b}[2J\u{202e}x\u{0}\u{9b}31m\u{200b}\u{301}\u{3164}\u{e0041}\"'\\é日";

    #[test]
    fn what_a_terminal_could_obey_is_escaped() {
        assert_eq!(escaped(HOSTILE), r#"<b>\u{1b}[2J\u{202e}x\0\u{9b}31m\u{200b}\u{301}\u{3164}\u{e0041}"'\\é日"#);
        assert!(matches!(escaped("per-user <é>"), Cow::Borrowed("per-user <é>")));
    }

    #[test]
    fn escaped_json_means_the_same() {
        let json = serde_json::to_string(&[HOSTILE]).unwrap();
        let escaped = escaped_json(&json);
        assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [HOSTILE]);
        assert!(escaped.chars().all(|character| is_plain(character) || character == '\\'), "{escaped}");
    }

    #[test]
    fn durations() {
        for (nanos, expected) in [
            (0, "0ms"),
            (1, "1ms"),
            (350_000_000, "350ms"),
            (SECOND, "1s"),
            (SECOND + 1, "2s"),
            (90 * SECOND, "1m30s"),
            (3_600 * SECOND, "1h"),
            (3_601 * SECOND, "1h"),
            (86_400 * SECOND + 3_600 * SECOND + 60 * SECOND, "1d1h"),
        ] {
            assert_eq!(duration(nanos), expected, "{nanos}");
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "ab…");
        assert_eq!(shortened("日本語", 5), "日本…");
        assert_eq!(shortened("日本語", 4), "日…");
    }
}
