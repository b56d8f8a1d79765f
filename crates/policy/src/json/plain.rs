//! The quick way to read most objects. It is beside the grammar, which decides about all others.

use std::borrow::Cow;

use super::{Field, Raw};
use crate::bounds::JSON_FIELDS_MAX;

/// The fields of an object as programs write most of them: without spaces, and with no values but whole numbers, text
/// without escapes, and objects of those. Nothing for any other, right or wrong: that is for the grammar, which takes
/// nearly twice as long.
pub(super) fn fields(text: &str) -> Option<Vec<Field<'_>>> {
    // Most have fewer: one allocation will do.
    let mut fields: Vec<Field<'_>> = Vec::with_capacity(6);
    let mut rest = text.strip_prefix('{')?;
    loop {
        let (name, value, after) = field(rest, object)?;
        if fields.len() == JSON_FIELDS_MAX || fields.iter().any(|(field, _)| field == name) {
            return None;
        }
        fields.push((Cow::Borrowed(name), Raw(value)));
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return (after == "}").then_some(fields),
        }
    }
}

/// Splits text into what it begins with and what comes after that.
type Split = fn(&str) -> Option<(&str, &str)>;

/// A field's name and value, and what comes after them; `or_else` is what the value may be beside text and numbers.
fn field(text: &str, or_else: Split) -> Option<(&str, &str, &str)> {
    let (name, after) = quoted(text)?;
    let after = after.strip_prefix(':')?;
    let (value, after) = quoted(after).or_else(|| number(after)).or_else(|| or_else(after))?;
    Some((name.strip_prefix('"')?.strip_suffix('"')?, value, after))
}

/// An object that holds no other.
fn object(text: &str) -> Option<(&str, &str)> {
    let mut rest = text.strip_prefix('{')?;
    loop {
        let (_, _, after) = field(rest, |_| None)?;
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return text.split_at_checked(text.len() - after.strip_prefix('}')?.len()),
        }
    }
}

/// Bytes that text does not go on with unescaped: looked up, since comparing takes longer.
static ENDS_TEXT: [bool; 256] = {
    let mut ends = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        ends[byte] = true;
        byte += 1;
    }
    ends[b'"' as usize] = true;
    ends[b'\\' as usize] = true;
    ends
};

/// A string with its quotes, and what comes after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let end = inner.bytes().position(|byte| ENDS_TEXT[usize::from(byte)])?;
    // What it ends with is ASCII, so that it can be split there.
    inner.as_bytes().get(end).filter(|byte| **byte == b'"').and_then(|_| text.split_at_checked(end + 2))
}

fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, after) = text.split_at(end);
    (digits == "0" || !digits.is_empty() && !digits.starts_with('0')).then_some((digits, after))
}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_plain() {
        for text in [r#"{"key":"é","limit":"1/s"}"#, r#"{"cost":0,"":10}"#, r#"{"a":{"b":1,"b":"c"},"d":2}"#] {
            assert!(fields(text).is_some(), "{text}");
        }
        for text in [
            "",
            "{",
            "{}",
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":1}}"#,
            r#"{"a":1,}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":01}"#,
            r#"{"a":-1}"#,
            r#"{"a":1.5}"#,
            r#"{"a": 1}"#,
            r#"{"a":"\\n"}"#,
            "{\"a\":\"\n\"}",
            r#"{"a":null}"#,
            r#"{"a":[]}"#,
            r#"{a:1}"#,
            r#"{"a":{}}"#,
            r#"{"a":{"b":1}"#,
            r#"{"a":{"b":{"c":1}}}"#,
        ] {
            assert!(fields(text).is_none(), "{text}");
        }
    }

    /// What objects are made of, and some things that they are not.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            6 => r#""[a-c]":"#,
            4 => r#""[aé\\\t\x7f]{0,3}""#,
            3 => "0?[0-9]{1,2}",
            1 => "[-+.e ]",
            4 => Just(",".to_owned()),
            2 => r#"\{"a":1"#,
            2 => r"[\[\]{}]",
        ]
    }

    proptest! {
        #[test]
        fn plain_objects_are_what_the_grammar_makes_of_them(pieces in prop::collection::vec(piece(), 0..12)) {
            let text = format!("{{{}}}", pieces.concat());
            if let Some(fields) = fields(&text) {
                prop_assert_eq!(fields, serde_json::from_str::<Object<'_>>(&text).unwrap().0);
            }
        }
    }
}
