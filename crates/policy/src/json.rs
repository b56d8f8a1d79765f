//! JSON from clients, read field by field so that every error names its field.
//!
//! The HTTP API and `tidegate decide` read requests with it. An object is parsed once into its [`Fields`] with their values
//! unparsed. The caller takes each field with its type, and [`Fields::finish`] refuses the fields that are left.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::bounds::{JSON_FIELDS_MAX, QUOTE_CHARS_MAX};

/// Characters that cannot be seen, or that change how others are shown, beside those that JSON itself escapes.
const UNSEEN: [RangeInclusive<char>; 14] = [
    '\u{7f}'..='\u{9f}',
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202f}',
    '\u{205f}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff0}'..='\u{fffb}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Whether a character of text from outside can be shown to people as it is: it can be seen, and changes nothing about
/// others.
#[must_use]
pub fn is_seen(character: char) -> bool {
    !character.is_ascii_control() && !UNSEEN.iter().any(|range| range.contains(&character))
}

/// Writes as `\u` and digits what a terminal could not show, or show otherwise. The JSON means the same.
#[must_use]
pub fn escape_unseen(json: String) -> String {
    // Line feeds can only stand between values.
    let is_kept = |character: char| character == '\n' || is_seen(character);
    if json.chars().all(is_kept) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if is_kept(character) {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            escaped += &format!("\\u{unit:04x}");
        }
    }
    escaped
}

/// A problem of a field: its name, the problem with the value, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}; {remedy}")]
pub struct FieldError {
    /// The field at fault.
    pub field: String,
    /// The problem, with the value.
    pub problem: String,
    /// A remedy.
    pub remedy: String,
}

impl FieldError {
    /// Makes an error about a field.
    pub fn new(field: impl fmt::Display, problem: impl fmt::Display, remedy: impl fmt::Display) -> FieldError {
        FieldError { field: field.to_string(), problem: problem.to_string(), remedy: remedy.to_string() }
    }
}

/// The fields of an object. Fields that are taken are allowed; [`Fields::finish`] refuses the rest.
#[derive(Debug)]
pub struct Fields<'a> {
    left: Vec<Field<'a>>,
    taken: Vec<&'static str>,
}

/// A JSON value as text, not parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// Returns its text.
    #[must_use]
    pub fn get(self) -> &'a str {
        self.0
    }
}

impl<'a> From<&'a RawValue> for Raw<'a> {
    fn from(value: &'a RawValue) -> Raw<'a> {
        Raw(value.get())
    }
}

/// A name, and its value as text.
type Field<'a> = (Cow<'a, str>, Raw<'a>);

impl<'a> Fields<'a> {
    /// Parses an object. `name` and `example` are for the error.
    ///
    /// # Errors
    /// Returns an error if the text is not an object, has more than [`JSON_FIELDS_MAX`] fields, or a duplicate field.
    pub fn parse(name: &str, text: &'a str, example: &str) -> Result<Fields<'a>, FieldError> {
        let text = text.trim_ascii();
        if !text.starts_with('{') {
            let problem = match text {
                "" => "empty".to_owned(),
                text => format!("{} is not a JSON object", quote(text)),
            };
            return Err(FieldError::new(name, problem, format_args!("write an object like {example}")));
        }
        let Object(left) = grammar(name, text, example)?;
        Ok(Fields { left, taken: Vec::new() })
    }

    /// Takes a field. Returns `None` if it is missing.
    pub fn take(&mut self, name: &'static str) -> Option<Raw<'a>> {
        self.taken.push(name);
        let index = self.left.iter().position(|(field, _)| field == name)?;
        Some(self.left.swap_remove(index).1)
    }

    /// Takes a field with two names.
    ///
    /// # Errors
    /// Returns an error if both names are present.
    pub fn take_either(&mut self, name: &'static str, other: &'static str) -> Result<Option<Raw<'a>>, FieldError> {
        match (self.take(name), self.take(other)) {
            (Some(_), Some(_)) => {
                Err(FieldError::new(other, format_args!("duplicate of {name}"), "remove one of them"))
            }
            (first, second) => Ok(first.or(second)),
        }
    }

    /// Returns whether a field is present and was not taken.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(field, _)| field == name)
    }

    /// Takes a required field.
    ///
    /// # Errors
    /// Returns an error if it is missing.
    pub fn need(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Raw<'a>, FieldError> {
        self.take(name).ok_or_else(|| FieldError::new(name, "missing", remedy))
    }

    /// Takes a field with a whole number. Returns `None` if it is missing.
    ///
    /// # Errors
    /// Returns an error if the value is not a whole number of 64 bits.
    pub fn whole(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Option<u64>, FieldError> {
        self.take(name).map(|value| whole(name, value.get(), remedy)).transpose()
    }

    /// Takes a field with text. Returns `None` if it is missing.
    ///
    /// # Errors
    /// Returns an error if the value is not a string.
    pub fn text(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Option<Cow<'a, str>>, FieldError> {
        self.take(name).map(|value| text(name, value, remedy)).transpose()
    }

    /// Takes a field with a boolean. Returns `None` if it is missing.
    ///
    /// # Errors
    /// Returns an error if the value is not `true` or `false`.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>, FieldError> {
        self.take(name).map(|value| flag(name, value)).transpose()
    }

    /// Returns the fields that were not taken.
    #[must_use]
    pub fn rest(self) -> Vec<(Cow<'a, str>, Raw<'a>)> {
        self.left
    }

    /// Refuses fields that were not taken.
    ///
    /// # Errors
    /// Returns an error about the first field that is left.
    pub fn finish(self, owner: &str) -> Result<(), FieldError> {
        match self.left.first() {
            None => Ok(()),
            Some((field, _)) => {
                let remedy = format_args!("{owner} takes {}", self.taken.join(", "));
                Err(FieldError::new(quote(field), "unknown field", remedy))
            }
        }
    }
}

/// Returns the text of a JSON string.
///
/// # Errors
/// Returns an error if the value is not a string.
pub fn text<'a>(name: &str, value: Raw<'a>, remedy: impl fmt::Display) -> Result<Cow<'a, str>, FieldError> {
    // The value is valid JSON, so without escapes its text is between the quotes.
    let quoted = value.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    if let Some(plain) = quoted.filter(|text| !text.as_bytes().contains(&b'\\')) {
        return Ok(Cow::Borrowed(plain));
    }
    match serde_json::from_str::<Text<'a>>(value.get()) {
        Ok(Text(text)) => Ok(text),
        Err(_) => Err(FieldError::new(name, format_args!("{} is not text", quote(value.get())), remedy)),
    }
}

/// Returns a JSON boolean.
///
/// # Errors
/// Returns an error if the value is not `true` or `false`.
pub fn flag(name: &str, value: Raw<'_>) -> Result<bool, FieldError> {
    match value.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(FieldError::new(name, format_args!("{} is not true or false", quote(other)), "use one of them")),
    }
}

/// Returns a whole number, from JSON or a query.
///
/// # Errors
/// Returns an error if the value is not a whole number, or is beyond 64 bits.
pub fn whole(name: &str, value: &str, remedy: impl fmt::Display) -> Result<u64, FieldError> {
    let is_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(number) if is_digits => Ok(number),
        _ if is_digits => Err(FieldError::new(name, format_args!("{} is too large", quote(value)), remedy)),
        _ => Err(FieldError::new(name, format_args!("{} is not a whole number", quote(value)), remedy)),
    }
}

/// Returns the items of a JSON list.
///
/// # Errors
/// Returns an error if the value is not a list, or has more than [`JSON_FIELDS_MAX`] items.
pub fn list<'a>(name: &str, text: &'a str, example: &str) -> Result<Vec<Raw<'a>>, FieldError> {
    let text = text.trim_ascii();
    if !text.starts_with('[') {
        let problem = format_args!("{} is not a list", quote(text));
        return Err(FieldError::new(name, problem, format_args!("write a list like {example}")));
    }
    let Items(items) = grammar(name, text, example)?;
    Ok(items)
}

/// Returns a value for use in a message: on one line, at most [`QUOTE_CHARS_MAX`] characters, and with control characters
/// escaped.
#[must_use]
pub fn quote(value: &str) -> String {
    let mut quoted = String::new();
    for letter in shortened(value).chars() {
        match letter {
            // Kept as written: only invisible characters are escaped.
            '\'' | '"' | '\\' => quoted.push(letter),
            letter => quoted.extend(letter.escape_debug()),
        }
    }
    quoted
}

/// Returns the first [`QUOTE_CHARS_MAX`] characters of a value, with `…` if there are more. Nothing is escaped.
#[must_use]
pub fn shortened(value: &str) -> String {
    let mut short: String = value.chars().take(QUOTE_CHARS_MAX).collect();
    if value.chars().nth(QUOTE_CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

fn grammar<'a, T: Deserialize<'a>>(name: &str, text: &'a str, example: &str) -> Result<T, FieldError> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let reason = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
        let problem = match (error.is_data(), error.line()) {
            // An error of the data is one of the visitor's own, any other one of the grammar.
            (true, _) => reason.to_owned(),
            (false, 1) => format!("not JSON, {reason} at byte {}", error.column()),
            (false, line) => format!("not JSON, {reason} at line {line} column {}", error.column()),
        };
        FieldError::new(name, problem, format_args!("write it like {example}"))
    })
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields in their order, with their values as text.
struct Object<'a>(Vec<Field<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor).map(Object)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Vec<Field<'de>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields: Vec<Field<'de>> = Vec::with_capacity(4);
        while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            if fields.len() == JSON_FIELDS_MAX {
                return Err(A::Error::custom(format_args!("more than {JSON_FIELDS_MAX} fields")));
            }
            if fields.iter().any(|(field, _)| *field == name) {
                return Err(A::Error::custom(format_args!("duplicate field {}", quote(&name))));
            }
            fields.push((name, Raw::from(value)));
        }
        Ok(fields)
    }
}

/// The items in their order, as text.
struct Items<'a>(Vec<Raw<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor).map(Items)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Vec<Raw<'de>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<&'de RawValue>()? {
            if items.len() == JSON_FIELDS_MAX {
                return Err(A::Error::custom(format_args!("more than {JSON_FIELDS_MAX} items")));
            }
            items.push(Raw::from(item));
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        let text = "a\u{202e}b\u{9b}c\u{7f}d\u{e0041}e\u{200b}\u{1b}\"\0<b>\u{e9}\u{65e5}";
        let json = serde_json::to_string(&[text]).unwrap();
        let escaped = escape_unseen(json);
        assert_eq!(escaped, "[\"a\\u202eb\\u009bc\\u007fd\\udb40\\udc41e\\u200b\\u001b\\\"\\u0000<b>\u{e9}\u{65e5}\"]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [text]);
        assert!(escaped.chars().all(is_seen));
    }

    #[test]
    fn numbers_have_digits_only() {
        for text in ["", "+1", "-1", "1.0", "1e3", " 1", "99999999999999999999"] {
            assert!(whole("cost", text, "").is_err(), "{text}");
        }
        assert_eq!(whole("cost", "18446744073709551615", ""), Ok(u64::MAX));
    }

    #[test]
    fn what_messages_repeat_is_short_and_harmless() {
        for (value, quoted) in [
            (r#"a "b" 'c' \d/é"#, r#"a "b" 'c' \d/é"#),
            ("a\nb\u{1b}[31m", r"a\nb\u{1b}[31m"),
            ("\u{202e}\0", r"\u{202e}\0"),
        ] {
            assert_eq!(quote(value), quoted);
        }
        assert_eq!(quote(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(quote(&"é".repeat(61)), "é".repeat(60) + "…");
    }

    #[test]
    fn a_field_of_two_names_has_one_of_them() {
        let take =
            |text| Fields::parse("body", text, "{}").unwrap().take_either("a_b", "aB").map(|one| one.map(Raw::get));
        assert_eq!(take("{}"), Ok(None));
        assert_eq!(take(r#"{"a_b":1}"#), Ok(Some("1")));
        assert_eq!(take(r#"{"aB":2}"#), Ok(Some("2")));
        let refused = take(r#"{"a_b":1,"aB":1}"#).unwrap_err();
        assert_eq!(refused.to_string(), "aB: duplicate of a_b; remove one of them");
    }

    #[test]
    fn objects_and_lists_are_bounded() {
        let object = |count: usize| {
            let fields: Vec<String> = (0..count).map(|number| format!(r#""f{number}":1"#)).collect();
            format!("{{{}}}", fields.join(","))
        };
        assert!(Fields::parse("body", &object(128), "{}").is_ok());
        let refused = Fields::parse("body", &object(129), "{}").unwrap_err();
        assert_eq!(refused.to_string(), "body: more than 128 fields; write it like {}");
        assert_eq!(list("body", &format!("[{}]", vec!["1"; 128].join(",")), "[]").unwrap().len(), 128);
        let refused = list("body", &format!("[{}]", vec!["1"; 129].join(",")), "[]").unwrap_err();
        assert_eq!(refused.to_string(), "body: more than 128 items; write it like []");
    }

    #[test]
    fn the_place_of_a_mistake_is_told() {
        let wrong = |text| Fields::parse("body", text, "{}").unwrap_err().problem;
        assert_eq!(wrong("{\"a\" 1}"), "not JSON, expected `:` at byte 6");
        assert_eq!(wrong("{\n\"a\" 1}"), "not JSON, expected `:` at line 2 column 5");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{},:\"a-c0-9\\\\ é]{0,40}") {
            let _ = Fields::parse("body", &text, "").map(Fields::rest);
            let _ = list("body", &text, "").map(|items| items.len());
        }

        #[test]
        fn any_string_comes_through(text in any::<String>()) {
            let json = format!("{{\"a\":{}}}", serde_json::Value::from(&*text));
            let read = Fields::parse("body", &json, "").and_then(|mut fields| fields.text("a", ""));
            prop_assert_eq!(read, Ok(Some(Cow::from(text))));
        }
    }
}
