//! Texts within names: what can be read stays as it is, all else is written as %XX.

use std::ops::RangeInclusive;

/// Characters beyond ASCII that cannot be seen, or that change how others are shown. The list is fixed: one that followed
/// the versions of Unicode would give a key another name one day.
const UNSEEN: [RangeInclusive<char>; 16] = [
    '\u{80}'..='\u{a0}',
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{1680}'..='\u{1680}',
    '\u{180b}'..='\u{180f}',
    '\u{2000}'..='\u{200f}',
    '\u{2028}'..='\u{202f}',
    '\u{205f}'..='\u{206f}',
    '\u{3000}'..='\u{3000}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff0}'..='\u{ffff}',
    '\u{e0000}'..='\u{10ffff}',
];

/// Appends bytes such that they can be read back: printable characters but for `%`, braces and those of `marks` as they are,
/// every other byte as `%` and two digits. `marks` are ASCII.
pub(super) fn push_escaped(name: &mut Vec<u8>, bytes: &[u8], marks: &[u8]) {
    let is_kept = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'{' | b'}') && !marks.contains(&byte);
    if bytes.iter().all(|byte| is_kept(*byte)) {
        name.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer).as_bytes();
            match u8::try_from(character).ok().filter(u8::is_ascii) {
                Some(byte) if is_kept(byte) => name.push(byte),
                None if is_seen(character) => name.extend_from_slice(encoded),
                _ => encoded.iter().for_each(|byte| push_byte(name, *byte)),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(name, *byte));
    }
}

/// Whether a character beyond ASCII is shown as it is.
fn is_seen(character: char) -> bool {
    !UNSEEN.iter().any(|range| range.contains(&character))
}

/// Appends one byte as `%` and two digits.
pub(super) fn push_byte(name: &mut Vec<u8>, byte: u8) {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'A' + half - 10 };
    name.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 0xf)]);
}

/// Appends a number.
pub(super) fn push_decimal(name: &mut Vec<u8>, mut number: u64) {
    let start = name.len();
    loop {
        name.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
        number /= 10;
        if number == 0 {
            break;
        }
    }
    if let Some(digits) = name.get_mut(start..) {
        digits.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(bytes: &[u8], marks: &[u8]) -> String {
        let mut name = Vec::new();
        push_escaped(&mut name, bytes, marks);
        String::from_utf8(name).expect("a name is text")
    }

    #[test]
    fn what_can_be_read_is_kept() {
        for (bytes, marks, expected) in [
            (&b"ann"[..], &b""[..], "ann"),
            (b"login:42", b"", "login:42"),
            (b"login:42", b":", "login%3A42"),
            (b"/v1/a?b=c&d=*", b":/", "%2Fv1%2Fa?b=c&d=*"),
            (b"a b\tc\r\n\0\x7f", b"", "a%20b%09c%0D%0A%00%7F"),
            (b"{x}100%", b"", "%7Bx%7D100%25"),
            ("Ünïcode-日本語-😀".as_bytes(), b":", "Ünïcode-日本語-😀"),
            ("a\u{a0}b\u{200b}c\u{202e}d\u{feff}".as_bytes(), b"", "a%C2%A0b%E2%80%8Bc%E2%80%AEd%EF%BB%BF"),
            (b"\xff\xc3\xc3\xbc", b"", "%FF%C3ü"),
        ] {
            assert_eq!(escaped(bytes, marks), expected);
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_printed() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            let mut name = b"x".to_vec();
            push_decimal(&mut name, number);
            assert_eq!(String::from_utf8(name).expect("digits"), format!("x{number}"));
        }
    }
}
