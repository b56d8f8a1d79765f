//! The key that a rule counts a request on.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::expression::{Expression, KeyText};
use crate::matching::{client_address, in_lower_case, without_dot};
use crate::network::truncate;
use crate::path::fold;
use crate::policy::Question;
use crate::rule::{KeyMade, Rule};
use crate::schema::PathCase;

/// A part of a key.
#[derive(Debug)]
pub(crate) enum Part {
    /// The client's address, cut to these lengths.
    Address {
        v4_length: u8,
        v6_length: u8,
    },
    Method,
    Host,
    Path(PathCase),
    Entry(Box<str>),
    EntryAt(usize),
    Header(Box<str>),
    Cookie(Box<str>),
    Query(Box<str>),
    Expression(Box<Expression>),
    /// These bytes, whatever the request is.
    Fixed(Box<[u8]>),
}

impl Rule {
    /// Appends the parts of the key that this rule counts a request on, each with its length before it. Distinct parts
    /// give distinct bytes.
    pub fn key(&self, question: &Question<'_>, bytes: &mut Vec<u8>) -> KeyMade {
        let start = bytes.len();
        for part in &self.key {
            let made = part.append(question, start.saturating_add(self.key_room), bytes);
            if made != KeyMade::Whole {
                bytes.truncate(start);
                return made;
            }
        }
        KeyMade::Whole
    }

    /// Whether it may look at an entry of this name, to match it or to count on it. Descriptors may have others too, which
    /// are in vain as far as this rule goes.
    #[must_use]
    pub fn looks_at_entry(&self, name: &str) -> bool {
        let of_expression = |expression: &Option<Box<Expression>>| {
            expression.as_ref().is_some_and(|expression| expression.looks_at_entry(name))
        };
        let of_key = |part: &Part| match part {
            Part::Entry(entry) => &**entry == name,
            // Whichever stands there.
            Part::EntryAt(_) => true,
            Part::Expression(expression) => expression.looks_at_entry(name),
            Part::Address { .. } | Part::Method | Part::Host | Part::Path(_) => false,
            Part::Header(_) | Part::Cookie(_) | Part::Query(_) | Part::Fixed(_) => false,
        };
        self.matching.looks_at_entry(name)
            || self.key.iter().any(of_key)
            || [&self.cost, &self.count].into_iter().any(of_expression)
            || self.metric_entries.iter().any(|entry| &**entry == name)
    }

    /// Whether it looks at any entry, to match a request or to count it.
    pub(crate) fn looks_at_entries(&self) -> bool {
        let of_key = |part: &Part| matches!(part, Part::Entry(_) | Part::EntryAt(_));
        let others = [&self.matching.when, &self.cost, &self.count].into_iter().flatten();
        let mut expressions = self.key_expressions().chain(others.map(|expression| &**expression));
        self.matching.has_entries()
            || self.key.iter().any(of_key)
            || expressions.any(|expression| expression.looks_at_entries())
    }

    /// The expressions among the parts of its key.
    pub(crate) fn key_expressions(&self) -> impl Iterator<Item = &Expression> {
        self.key.iter().filter_map(|part| match part {
            Part::Expression(expression) => Some(&**expression),
            _ => None,
        })
    }

    /// How many bytes the values of its key may have in all: the names that stand before them, and two bytes for the
    /// length of each, are taken off.
    #[must_use]
    pub fn key_values_bytes_max(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Fixed(bytes) => bytes.len(),
            _ => LENGTH_BYTES,
        };
        self.key_room.saturating_sub(self.key.iter().map(bytes).sum())
    }
}

/// What stands before each part.
const LENGTH_BYTES: usize = size_of::<u16>();

fn append(value: &[u8], end: usize, bytes: &mut Vec<u8>) -> KeyMade {
    match u16::try_from(value.len()) {
        Ok(length) if bytes.len() + LENGTH_BYTES + value.len() <= end => {
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(value);
            KeyMade::Whole
        }
        _ => KeyMade::TooLong,
    }
}

impl Part {
    fn append(&self, question: &Question<'_>, end: usize, bytes: &mut Vec<u8>) -> KeyMade {
        match self {
            Part::Address { v4_length, v6_length } => {
                let address = client_address(question).map(|address| truncate(address, *v4_length, *v6_length));
                match address {
                    Some(IpAddr::V4(address)) => append(&address.octets(), end, bytes),
                    Some(IpAddr::V6(address)) => append(&address.octets(), end, bytes),
                    None => KeyMade::Missing,
                }
            }
            Part::Expression(expression) => match expression.key_text(question) {
                KeyText::Made(text) => append(&text, end, bytes),
                KeyText::Missing => KeyMade::Missing,
                KeyText::TooLong => KeyMade::TooLong,
            },
            Part::Fixed(fixed) if bytes.len() + fixed.len() > end => KeyMade::TooLong,
            Part::Fixed(fixed) => {
                bytes.extend_from_slice(fixed);
                KeyMade::Whole
            }
            part => part.plain(question).map_or(KeyMade::Missing, |value| append(&value, end, bytes)),
        }
    }

    /// Where a name stands several times, its first value is the one that counts.
    fn plain<'a>(&self, question: &Question<'a>) -> Option<Cow<'a, [u8]>> {
        let borrowed = |text: &'a str| Cow::Borrowed(text.as_bytes());
        match self {
            Part::Method => question.http.map(|http| borrowed(http.method)),
            Part::Host => question.http.map(|http| in_lower_case(without_dot(http.host))),
            Part::Path(PathCase::Exact) => question.http.map(|http| Cow::Borrowed(http.path_forms().key())),
            Part::Path(PathCase::Ignore) => question.http.map(|http| fold(http.path_forms().key())),
            Part::Entry(name) => {
                question.entries.iter().find(|entry| *entry.key == **name).map(|entry| borrowed(entry.value))
            }
            Part::EntryAt(place) => question.entries.get(*place).map(|entry| borrowed(entry.value)),
            Part::Header(name) => question.http?.header(name).next().map(borrowed),
            Part::Cookie(name) => {
                question.http?.cookies().find(|(key, _)| *key == &**name).map(|(_, value)| borrowed(value))
            }
            Part::Query(name) => {
                question.http?.parameters().find(|(key, _)| **key == *name.as_bytes()).map(|(_, value)| value)
            }
            Part::Address { .. } | Part::Expression(_) | Part::Fixed(_) => None,
        }
    }
}
