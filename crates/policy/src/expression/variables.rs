//! The variables of a request. Only those that an expression uses are made.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::objects::{Key, Map};
use cel::{Context, Value};

use super::check::{Names, Uses};
use crate::bounds::{EXPRESSION_MAP_MAX, EXPRESSION_TEXT_MAX};
use crate::matching::{client_address, without_dot};
use crate::policy::Question;
use crate::request::Response;

/// The request, response and cost that an expression is evaluated for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) response: Option<&'a Response>,
    pub(super) cost: u64,
}

/// A text or map that is too large for expressions.
pub(super) struct TooLarge;

/// Adds the variables that an expression uses. Values that the request does not have are not set.
pub(super) fn add(uses: &Uses, asked: &Asked<'_>, context: &mut Context<'_, '_>) -> Result<(), TooLarge> {
    let question = asked.question;
    if uses.domain {
        context.add_variable_from_value("domain", text(question.domain)?);
    }
    if uses.cost {
        context.add_variable_from_value("cost", whole(asked.cost));
    }
    if uses.entries.is_used() {
        let all = question.entries.iter().map(|entry| (entry.key, entry.value));
        context.add_variable_from_value("entries", map(&uses.entries, all)?);
    }
    if uses.request() {
        context.add_variable_from_value("request", request(uses, question)?);
    }
    if let Some(response) = asked.response {
        let mut fields = HashMap::new();
        fields.insert(key("status"), whole(response.status.into()));
        fields.insert(key("bytes"), whole(response.bytes));
        fields.insert(key("millis"), whole(response.millis));
        context.add_variable_from_value("response", Value::Map(Map { map: Arc::new(fields) }));
    }
    Ok(())
}

/// The fields of a request. Their keys are made once: making one takes two allocations.
struct Fields {
    address: Key,
    method: Key,
    path: Key,
    host: Key,
    headers: Key,
    cookies: Key,
    query: Key,
}

static FIELDS: LazyLock<Fields> = LazyLock::new(|| Fields {
    address: key("address"),
    method: key("method"),
    path: key("path"),
    host: key("host"),
    headers: key("headers"),
    cookies: key("cookies"),
    query: key("query"),
});

fn request(uses: &Uses, question: &Question<'_>) -> Result<Value, TooLarge> {
    let mut fields = HashMap::new();
    if let Some(address) = client_address(question).filter(|_| uses.address) {
        fields.insert(FIELDS.address.clone(), text(&address.to_string())?);
    }
    if let Some(http) = question.http {
        if uses.method {
            fields.insert(FIELDS.method.clone(), text(http.method)?);
        }
        if uses.path {
            fields.insert(FIELDS.path.clone(), text(http.path)?);
        }
        if uses.host {
            fields.insert(FIELDS.host.clone(), text(&without_dot(http.host).to_ascii_lowercase())?);
        }
        if uses.headers.is_used() {
            fields.insert(FIELDS.headers.clone(), map(&uses.headers, http.headers.iter().copied())?);
        }
        if uses.cookies.is_used() {
            fields.insert(FIELDS.cookies.clone(), map(&uses.cookies, http.cookies())?);
        }
        if uses.query.is_used() {
            // Values that are not UTF-8 are left out.
            let parameters = http.parameters().filter_map(|(name, value)| {
                Some((String::from_utf8(name.into_owned()).ok()?, String::from_utf8(value.into_owned()).ok()?))
            });
            fields.insert(FIELDS.query.clone(), map(&uses.query, parameters)?);
        }
    }
    Ok(Value::Map(Map { map: Arc::new(fields) }))
}

/// Returns a map of the names that are used. If a name occurs several times, its first value is taken.
fn map<N: AsRef<str>>(names: &Names, all: impl Iterator<Item = (N, N)>) -> Result<Value, TooLarge> {
    let mut values = HashMap::new();
    for (name, value) in all {
        let name = name.as_ref();
        let key = match names {
            Names::Nothing => None,
            Names::These(names) => names.get(name).cloned(),
            Names::All if name.len() > EXPRESSION_TEXT_MAX => return Err(TooLarge),
            Names::All => Some(key(name)),
        };
        let Some(key) = key else { continue };
        if values.len() >= EXPRESSION_MAP_MAX {
            return Err(TooLarge);
        }
        values.entry(key).or_insert(text(value.as_ref())?);
    }
    Ok(Value::Map(Map { map: Arc::new(values) }))
}

pub(super) fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

fn text(text: &str) -> Result<Value, TooLarge> {
    match text.len() <= EXPRESSION_TEXT_MAX {
        true => Ok(Value::String(Arc::new(text.to_owned()))),
        false => Err(TooLarge),
    }
}

fn whole(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
