//! The fields of one JSON object, taken out one by one.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Complaint;
use super::complaint::quote;
use crate::bounds::FIELDS_MAX;

/// The fields of an object. What is taken is what the object may hold: [`Fields::finish`] refuses the rest.
pub(super) struct Fields<'a> {
    left: Vec<(Cow<'a, str>, &'a RawValue)>,
    taken: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Reads the object that `name` holds.
    pub(super) fn parse(name: &str, text: &'a str, example: &str) -> Result<Fields<'a>, Complaint> {
        let text = text.trim();
        if !text.starts_with('{') {
            let problem = format_args!("{} is not a JSON object", quote(text));
            return Err(Complaint::new(name, problem, format_args!("write one object like {example}")));
        }
        match serde_json::from_str::<Object<'a>>(text) {
            Ok(Object(left)) => Ok(Fields { left, taken: Vec::new() }),
            Err(error) => {
                let message = error.to_string();
                let reason = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
                // An error of the data is one of the visitor's own, any other one of the grammar.
                let problem = match error.is_data() {
                    true => reason.to_owned(),
                    false => format!("not JSON, {reason} at byte {}", error.column()),
                };
                Err(Complaint::new(name, problem, format_args!("write one object like {example}")))
            }
        }
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a RawValue> {
        self.taken.push(name);
        let index = self.left.iter().position(|(field, _)| field == name)?;
        Some(self.left.swap_remove(index).1)
    }

    /// A field that must be there.
    pub(super) fn need(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<&'a RawValue, Complaint> {
        self.take(name).ok_or_else(|| Complaint::new(name, "missing", remedy))
    }

    /// A whole number, if the field is there.
    pub(super) fn whole(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Option<u64>, Complaint> {
        self.take(name).map(|value| whole(name, value, remedy)).transpose()
    }

    /// A whole number that must be there.
    pub(super) fn need_whole(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<u64, Complaint> {
        let value = self.need(name, &remedy)?;
        whole(name, value, remedy)
    }

    /// Whether a field is true; false if it is not there.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, Complaint> {
        match self.take(name).map_or("false", RawValue::get) {
            "true" => Ok(true),
            "false" => Ok(false),
            other => {
                Err(Complaint::new(name, format_args!("{} is not true or false", quote(other)), "use one of them"))
            }
        }
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self, owner: &str) -> Result<(), Complaint> {
        match self.left.first() {
            None => Ok(()),
            Some((field, _)) => {
                let remedy = format_args!("{owner} takes {}", self.taken.join(", "));
                Err(Complaint::new(quote(field), "unknown field", remedy))
            }
        }
    }
}

/// The text of a JSON string.
pub(super) fn text<'a>(name: &str, value: &'a RawValue, remedy: impl fmt::Display) -> Result<Cow<'a, str>, Complaint> {
    match serde_json::from_str::<Text<'a>>(value.get()) {
        Ok(Text(text)) => Ok(text),
        Err(_) => Err(Complaint::new(name, format_args!("{} is not text", quote(value.get())), remedy)),
    }
}

fn whole(name: &str, value: &RawValue, remedy: impl fmt::Display) -> Result<u64, Complaint> {
    let value = value.get();
    value.parse().map_err(|_| {
        let problem = match value.bytes().all(|byte| byte.is_ascii_digit()) {
            true => "is too large",
            false => "is not a whole number",
        };
        Complaint::new(name, format_args!("{} {problem}", quote(value)), remedy)
    })
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The fields in their order, values unread.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor).map(Object)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            if fields.len() == FIELDS_MAX {
                return Err(A::Error::custom(format_args!("more than {FIELDS_MAX} fields")));
            }
            if fields.iter().any(|(field, _)| *field == name) {
                return Err(A::Error::custom(format_args!("{} is given twice", quote(&name))));
            }
            fields.push((name, value));
        }
        Ok(fields)
    }
}
