//! The conditions of a rule that a request does not meet, for administrators who look for the reason.

use std::fmt::Write as _;

use crate::bounds::{MISMATCH_CHARS_MAX, MISMATCH_VALUES_MAX};
use crate::expression::Expression;
use crate::matching::{Entries, Facts, Matching, Named};
use crate::pattern::{Glob, Pattern, Set};
use crate::policy::{Policy, Question};
use crate::rule::Rule;

/// A condition that a request does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The field of the rule, like `match.entries.plan` or `match.path`.
    pub field: String,
    /// What the condition requires, shortened.
    pub expected: String,
    /// What the request has there, shortened. `None` if it has nothing.
    pub found: Option<String>,
}

/// One descriptor of a request, to be compared with rules one by one.
#[derive(Debug)]
pub struct Comparison<'a>(Facts<'a>);

impl Policy {
    /// Prepares to compare a request with rules of its domain.
    #[must_use]
    pub fn comparison<'a>(question: &'a Question<'a>) -> Comparison<'a> {
        Comparison(Facts::new(question, true))
    }
}

impl Comparison<'_> {
    /// Returns the number of conditions of a rule that the request meets, and whether it meets all of them.
    #[must_use]
    pub fn met(&self, rule: &Rule) -> (usize, bool) {
        let (mut met, mut all) = (0, true);
        for condition in conditions(&rule.matching) {
            let holds = condition.holds(&rule.matching, &self.0);
            met += usize::from(holds);
            all &= holds;
        }
        (met, all)
    }

    /// Returns the first condition of a rule that the request does not meet, or `None` if it meets all of them.
    #[must_use]
    pub fn mismatch(&self, rule: &Rule) -> Option<Mismatch> {
        let mut conditions = conditions(&rule.matching);
        let failed = conditions.find(|condition| !condition.holds(&rule.matching, &self.0))?;
        let (field, expected) = failed.described();
        Some(Mismatch { field, expected: shortened(expected), found: failed.found(&self.0).map(shortened) })
    }
}

/// One condition of a rule.
enum Condition<'m> {
    Entry(&'m Named),
    /// These entries and no others.
    Sequence(&'m [Named]),
    Path(&'m Pattern),
    Method(&'m Pattern),
    Host(&'m Pattern),
    Header(&'m Named),
    Cookie(&'m Named),
    Query(&'m Named),
    Address(&'m Matching),
    When(&'m Expression),
}

/// All conditions of a rule, in the order in which they are tested.
fn conditions(matching: &Matching) -> impl Iterator<Item = Condition<'_>> {
    let (among, sequence) = match &matching.entries {
        Entries::Among(all) => (&**all, None),
        Entries::Exactly(all) => (&[][..], Some(Condition::Sequence(all))),
    };
    let address = (!matching.around.is_empty()).then_some(Condition::Address(matching));
    among
        .iter()
        .map(Condition::Entry)
        .chain(sequence)
        .chain(matching.path.as_ref().map(Condition::Path))
        .chain(matching.method.as_ref().map(Condition::Method))
        .chain(matching.host.as_ref().map(Condition::Host))
        .chain(matching.headers.iter().map(Condition::Header))
        .chain(matching.cookies.iter().map(Condition::Cookie))
        .chain(matching.query.iter().map(Condition::Query))
        .chain(address)
        .chain(matching.when.as_deref().map(Condition::When))
}

impl Condition<'_> {
    fn holds(&self, matching: &Matching, facts: &Facts<'_>) -> bool {
        let question = facts.question;
        let http = question.http;
        match self {
            Condition::Entry(named) => {
                let is = |key: &str, value: &str| *named.name == *key && named.value.matches(value.as_bytes());
                question.entries.iter().any(|entry| is(entry.key, entry.value))
            }
            Condition::Sequence(_) => matching.entries.hold(question),
            Condition::Path(path) => http.is_some_and(|http| path.matches_path(matching.path_forms(facts, http))),
            Condition::Method(method) => http.is_some_and(|http| method.matches(http.method.as_bytes())),
            Condition::Host(host) => http.is_some() && facts.host.as_ref().is_some_and(|value| host.matches(value)),
            Condition::Header(named) => {
                http.is_some_and(|http| http.header(&named.name).any(|value| named.value.matches(value.as_bytes())))
            }
            Condition::Cookie(named) => http.is_some_and(|http| {
                http.cookies().any(|(name, value)| *named.name == *name && named.value.matches(value.as_bytes()))
            }),
            Condition::Query(named) => http.is_some_and(|http| {
                http.parameters().any(|(name, value)| named.name.as_bytes() == &*name && named.value.matches(&value))
            }),
            Condition::Address(matching) => facts.address.is_some_and(|address| matching.around.contain(address)),
            Condition::When(when) => when.holds(question),
        }
    }

    /// The field of the rule, and what it requires.
    fn described(&self) -> (String, String) {
        let named = |kind: &str, named: &Named| (format!("match.{kind}.{}", named.name), named.value.described());
        match self {
            Condition::Entry(entry) => named("entries", entry),
            Condition::Sequence(all) => {
                let entries = all.iter().map(|entry| format!("{}: {}", entry.name, entry.value.described()));
                ("match.entries".to_owned(), format!("exactly [{}]", joined(entries)))
            }
            Condition::Path(path) => ("match.path".to_owned(), path.described()),
            Condition::Method(method) => ("match.method".to_owned(), method.described()),
            Condition::Host(host) => ("match.host".to_owned(), host.described()),
            Condition::Header(header) => named("header", header),
            Condition::Cookie(cookie) => named("cookie", cookie),
            Condition::Query(parameter) => named("query", parameter),
            Condition::Address(matching) => (
                "match.address".to_owned(),
                format!("in {}", joined(matching.networks.iter().map(ToString::to_string))),
            ),
            Condition::When(when) => ("match.when".to_owned(), when.source().to_owned()),
        }
    }

    /// What the request has in place of what the condition requires.
    fn found(&self, facts: &Facts<'_>) -> Option<String> {
        let question = facts.question;
        match self {
            Condition::Entry(named) => {
                let same = question.entries.iter().filter(|entry| *named.name == *entry.key);
                some(joined(same.map(|entry| quoted(entry.value.as_bytes()))))
            }
            Condition::Sequence(_) => {
                let entries = question.entries.iter();
                let entries = entries.map(|entry| format!("{}: {}", entry.key, quoted(entry.value.as_bytes())));
                Some(format!("[{}]", joined(entries)))
            }
            Condition::Path(_) => question.http.map(|http| quoted(http.path_forms().key())),
            Condition::Method(_) => question.http.map(|http| quoted(http.method.as_bytes())),
            Condition::Host(_) => question.http.map(|http| quoted(http.host.as_bytes())),
            Condition::Header(named) => {
                some(joined(question.http?.header(&named.name).map(|value| quoted(value.as_bytes()))))
            }
            Condition::Cookie(named) => {
                let same = question.http?.cookies().filter(|(name, _)| *named.name == **name);
                some(joined(same.map(|(_, value)| quoted(value.as_bytes()))))
            }
            Condition::Query(named) => {
                let same = question.http?.parameters().filter(|(name, _)| named.name.as_bytes() == &**name);
                some(joined(same.map(|(_, value)| quoted(&value))))
            }
            Condition::Address(_) => facts.address.map(|address| address.to_string()),
            // What the expression looks at is in the request.
            Condition::When(_) => Some("not true".to_owned()),
        }
    }
}

impl Pattern {
    /// What it matches, in words.
    fn described(&self) -> String {
        match self {
            Pattern::Is(glob) => glob.described(),
            Pattern::OneOf(set) => format!("one of {}", set.described()),
            Pattern::But(glob, except) => format!("{} except {}", glob.described(), except.described()),
        }
    }
}

impl Glob {
    fn described(&self) -> String {
        let text = match self {
            Glob::Any => b"*".to_vec(),
            Glob::Exact(exact) => exact.to_vec(),
            Glob::Prefix(prefix) => [prefix, &b"*"[..]].concat(),
            Glob::Suffix(suffix) => [b"*", &**suffix].concat(),
            Glob::Parts { prefix, middle, suffix } => {
                let mut text = prefix.to_vec();
                for part in middle {
                    text.push(b'*');
                    text.extend_from_slice(part);
                }
                text.push(b'*');
                text.extend_from_slice(suffix);
                text
            }
        };
        quoted(&text)
    }
}

impl Set {
    fn described(&self) -> String {
        let mut exact: Vec<&[u8]> = self.exact.iter().map(|value| &**value).collect();
        exact.sort_unstable();
        joined(exact.into_iter().map(quoted).chain(self.globs.iter().map(Glob::described)))
    }
}

fn quoted(value: &[u8]) -> String {
    format!("\"{}\"", String::from_utf8_lossy(value))
}

/// The first of some texts, with the number of the others.
fn joined(all: impl Iterator<Item = String>) -> String {
    let (mut text, mut more) = (String::new(), 0_usize);
    for (number, one) in all.enumerate() {
        match number {
            0 => text.push_str(&one),
            1..MISMATCH_VALUES_MAX => {
                // Writing to a string cannot fail.
                let _ = write!(text, ", {one}");
            }
            _ => more += 1,
        }
    }
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MISMATCH_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
#[path = "mismatch_tests.rs"]
mod tests;
