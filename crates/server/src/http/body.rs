//! Bodies: read within bounds of size and time, then taken apart field by field so that every error names its field.

use std::borrow::Cow;
use std::fmt;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::answer::{Failure, quote};
use super::query;
use crate::bounds::{HTTP_BODY_BYTES_MAX, JSON_FIELDS_MAX, STALL};

/// Reads a body.
pub(super) async fn read(body: Incoming) -> Result<Bytes, Failure> {
    if body.size_hint().lower() > HTTP_BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut collecting = pin!(collect(body));
    if let Some(bytes) = soon(collecting.as_mut()).await {
        return bytes;
    }
    match tokio::time::timeout(STALL, collecting).await {
        Ok(bytes) => bytes,
        Err(_) => {
            let detail = format!("body: not there after {} s; send it at once", STALL.as_secs());
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, detail).closing())
        }
    }
}

/// What comes within a few polls. Mostly the body came with the head, and hyper hands it over as soon as it is asked
/// again: a timer for each request would cost more than reading it.
async fn soon<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut polls = 0;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == 2 => Poll::Ready(None),
        Poll::Pending => {
            polls += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn collect(mut body: Incoming) -> Result<Bytes, Failure> {
    let mut whole = Bytes::new();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Failure::bad("body", "cut off", "send as much as the head promises").closing())?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.is_empty() && pieces.is_empty() {
            // Mostly the first piece is all there is, and need not be copied.
            whole = data;
            continue;
        }
        if pieces.is_empty() {
            pieces.extend_from_slice(&whole);
        }
        if pieces.len() + data.len() > HTTP_BODY_BYTES_MAX {
            return Err(too_large());
        }
        pieces.extend_from_slice(&data);
    }
    Ok(if pieces.is_empty() { whole } else { pieces.into() })
}

fn too_large() -> Failure {
    let detail = format!("body: too large; send at most {HTTP_BODY_BYTES_MAX} bytes");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, detail).closing()
}

/// The text of a body.
pub(super) fn utf8(body: &[u8]) -> Result<&str, Failure> {
    str::from_utf8(body).map_err(|error| {
        Failure::bad("body", format_args!("not UTF-8 after byte {}", error.valid_up_to()), "write JSON in UTF-8")
    })
}

/// The fields of an object. What is taken is what the object may hold: [`Fields::finish`] refuses the rest.
pub(super) struct Fields<'a> {
    left: Vec<(Cow<'a, str>, &'a RawValue)>,
    taken: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Reads the object that `name` holds.
    pub(super) fn parse(name: &str, text: &'a str, example: &str) -> Result<Fields<'a>, Failure> {
        let text = text.trim_ascii();
        if !text.starts_with('{') {
            let problem = match text {
                "" => "empty".to_owned(),
                text => format!("{} is not a JSON object", quote(text)),
            };
            return Err(Failure::bad(name, problem, format_args!("write an object like {example}")));
        }
        let Object(left) = grammar(name, text, example)?;
        Ok(Fields { left, taken: Vec::new() })
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a RawValue> {
        self.taken.push(name);
        let index = self.left.iter().position(|(field, _)| field == name)?;
        Some(self.left.swap_remove(index).1)
    }

    /// Takes a field that has two names.
    pub(super) fn take_either(&mut self, name: &'static str, other: &'static str) -> Option<&'a RawValue> {
        let first = self.take(name);
        self.take(other).or(first)
    }

    /// Whether a field is left.
    pub(super) fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(field, _)| field == name)
    }

    /// A field that must be there.
    pub(super) fn need(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<&'a RawValue, Failure> {
        self.take(name).ok_or_else(|| Failure::bad(name, "missing", remedy))
    }

    /// A whole number, if the field is there.
    pub(super) fn whole(&mut self, name: &'static str, remedy: impl fmt::Display) -> Result<Option<u64>, Failure> {
        self.take(name).map(|value| query::whole(name, value.get(), remedy)).transpose()
    }

    /// Text, if the field is there.
    pub(super) fn text(
        &mut self,
        name: &'static str,
        remedy: impl fmt::Display,
    ) -> Result<Option<Cow<'a, str>>, Failure> {
        self.take(name).map(|value| text(name, value, remedy)).transpose()
    }

    /// True or false, if the field is there.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Failure> {
        match self.take(name).map(RawValue::get) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => {
                Err(Failure::bad(name, format_args!("{} is not true or false", quote(other)), "use one of them"))
            }
        }
    }

    /// All fields that are left, in their order.
    pub(super) fn rest(self) -> Vec<(Cow<'a, str>, &'a RawValue)> {
        self.left
    }

    /// Refuses what was not taken.
    pub(super) fn finish(self, owner: &str) -> Result<(), Failure> {
        match self.left.first() {
            None => Ok(()),
            Some((field, _)) => {
                let remedy = format_args!("{owner} takes {}", self.taken.join(", "));
                Err(Failure::bad(quote(field), "unknown field", remedy))
            }
        }
    }
}

/// The text of a JSON string.
pub(super) fn text<'a>(name: &str, value: &'a RawValue, remedy: impl fmt::Display) -> Result<Cow<'a, str>, Failure> {
    match serde_json::from_str::<Text<'a>>(value.get()) {
        Ok(Text(text)) => Ok(text),
        Err(_) => Err(Failure::bad(name, format_args!("{} is not text", quote(value.get())), remedy)),
    }
}

/// The items of a JSON list.
pub(super) fn list<'a>(name: &str, text: &'a str, example: &str) -> Result<Vec<&'a RawValue>, Failure> {
    let text = text.trim_ascii();
    if !text.starts_with('[') {
        let problem = format_args!("{} is not a list", quote(text));
        return Err(Failure::bad(name, problem, format_args!("write a list like {example}")));
    }
    let Items(items) = grammar(name, text, example)?;
    Ok(items)
}

fn grammar<'a, T: Deserialize<'a>>(name: &str, text: &'a str, example: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let reason = message.rsplit_once(" at line ").map_or(&*message, |(reason, _)| reason);
        // An error of the data is one of the visitor's own, any other one of the grammar.
        let problem = match error.is_data() {
            true => reason.to_owned(),
            false => format!("not JSON, {reason} at line {} column {}", error.line(), error.column()),
        };
        Failure::bad(name, problem, format_args!("write it like {example}"))
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
        let mut fields = Vec::with_capacity(4);
        while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            if fields.len() == JSON_FIELDS_MAX {
                return Err(A::Error::custom(format_args!("more than {JSON_FIELDS_MAX} fields")));
            }
            if fields.iter().any(|(field, _)| *field == name) {
                return Err(A::Error::custom(format_args!("{} is given twice", quote(&name))));
            }
            fields.push((name, value));
        }
        Ok(fields)
    }
}

/// The items in their order, unread.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor).map(Items)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() == JSON_FIELDS_MAX {
                return Err(A::Error::custom(format_args!("more than {JSON_FIELDS_MAX} items")));
            }
            items.push(item);
        }
        Ok(items)
    }
}
