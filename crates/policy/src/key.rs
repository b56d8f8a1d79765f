//! The key of a request for a rule.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::expression::{Expression, KeyText};
use crate::key_bytes::{KeyParts, SHARED, append_key};
use crate::matching::{client_address, in_lower_case, without_dot};
use crate::network::truncate;
use crate::path::fold;
use crate::policy::Question;
use crate::rule::{KeyMade, Missing, Rule};
use crate::schema::PathCase;

/// A part of a key.
#[derive(Debug)]
pub(crate) enum Part {
    /// The address of the client, cut to these prefix lengths.
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
    /// Constant bytes.
    Fixed(Box<[u8]>),
}

impl Rule {
    /// Appends the key of a request for this rule: its parts, each after its length, or the digest of a long key. Distinct
    /// parts give distinct bytes.
    pub fn key(&self, question: &Question<'_>, bytes: &mut Vec<u8>) -> KeyMade {
        let parts = |parts: &mut KeyParts<'_>| {
            let mut made = self.key.iter().map(|part| part.append(question, parts));
            made.find(|made| *made != KeyMade::Whole).unwrap_or(KeyMade::Whole)
        };
        match (append_key(bytes, parts), self.missing) {
            (KeyMade::Missing, Missing::Share) => {
                bytes.extend_from_slice(&SHARED);
                KeyMade::Whole
            }
            (made, _) => made,
        }
    }

    /// Returns whether the rule may use an entry of this name. Other entries of a descriptor have no effect on it.
    #[must_use]
    pub fn looks_at_entry(&self, name: &str) -> bool {
        let of_expression = |expression: &Option<Box<Expression>>| {
            expression.as_ref().is_some_and(|expression| expression.looks_at_entry(name))
        };
        let of_key = |part: &Part| match part {
            Part::Entry(entry) => &**entry == name,
            // It may have any name.
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

    /// Whether the rule uses any entry.
    pub(crate) fn looks_at_entries(&self) -> bool {
        let of_key = |part: &Part| matches!(part, Part::Entry(_) | Part::EntryAt(_));
        let others = [&self.matching.when, &self.cost, &self.count].into_iter().flatten();
        let mut expressions = self.key_expressions().chain(others.map(|expression| &**expression));
        self.matching.has_entries()
            || self.key.iter().any(of_key)
            || expressions.any(|expression| expression.looks_at_entries())
    }

    /// Returns the expressions in its key.
    pub(crate) fn key_expressions(&self) -> impl Iterator<Item = &Expression> {
        self.key.iter().filter_map(|part| match part {
            Part::Expression(expression) => Some(&**expression),
            _ => None,
        })
    }
}

impl Part {
    fn append(&self, question: &Question<'_>, parts: &mut KeyParts<'_>) -> KeyMade {
        match self {
            Part::Address { v4_length, v6_length } => {
                match client_address(question).map(|address| truncate(address, *v4_length, *v6_length)) {
                    Some(IpAddr::V4(address)) => parts.push(&address.octets()),
                    Some(IpAddr::V6(address)) => parts.push(&address.octets()),
                    None => return KeyMade::Missing,
                }
            }
            Part::Expression(expression) => match expression.key_text(question) {
                KeyText::Made(text) => parts.push(&text),
                KeyText::Missing => return KeyMade::Missing,
                KeyText::TooLong => return KeyMade::TooLong,
            },
            Part::Fixed(fixed) => parts.push_fixed(fixed),
            part => match part.plain(question) {
                Some(value) => parts.push(&value),
                None => return KeyMade::Missing,
            },
        }
        KeyMade::Whole
    }

    /// Returns the value of a simple part. If a name occurs several times, its first value is taken.
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
