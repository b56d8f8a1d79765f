//! Commands as people type them: words between spaces, with quotes and escapes.

use super::parse::{Span, span};

/// Appends the words of a line to `unquoted`, and where they lie to `spans`; of more than `words_max`, one more. Returns false if
/// a quote does not end well.
pub(super) fn split(line: &[u8], words_max: usize, unquoted: &mut Vec<u8>, spans: &mut Vec<Span>) -> bool {
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        // One too many tells the caller that there are too many.
        if rest.is_empty() || spans.len() > words_max {
            return true;
        }
        let start = unquoted.len();
        match word(rest, unquoted) {
            Some(after) => rest = after,
            None => return false,
        }
        spans.push(span(start, unquoted.len()));
    }
}

/// Appends one word without its quotes and tells what follows it.
fn word<'a>(mut rest: &'a [u8], unquoted: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (first, after) = match rest.split_first() {
            None => return Some(rest),
            Some((first, _)) if first.is_ascii_whitespace() => return Some(rest),
            Some(split) => split,
        };
        match first {
            // A word ends with its closing quote.
            b'"' => return ends(double_quoted(after, unquoted)?),
            b'\'' => return ends(single_quoted(after, unquoted)?),
            _ => unquoted.push(*first),
        }
        rest = after;
    }
}

/// What follows a closing quote must be a space or nothing.
fn ends(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(u8::is_ascii_whitespace).then_some(rest)
}

fn double_quoted<'a>(mut rest: &'a [u8], unquoted: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                unquoted.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                unquoted.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                unquoted.push(*byte);
                after
            }
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], unquoted: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                unquoted.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                unquoted.push(*byte);
                after
            }
        };
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
