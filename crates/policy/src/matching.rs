//! Matches a request against the conditions of a rule.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use crate::bounds::HOST_BYTES_MAX;
use crate::expression::Expression;
use crate::network::Network;
use crate::networks::Networks;
use crate::path::{FoldedForms, Forms};
use crate::pattern::Pattern;
use crate::policy::Question;
use crate::request::Http;
use crate::rule::Rule;
use crate::schema::PathCase;

/// The conditions of a rule: a request must meet all of them.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    pub(crate) entries: Entries,
    pub(crate) method: Option<Pattern>,
    pub(crate) host: Option<Pattern>,
    pub(crate) path: Option<Pattern>,
    pub(crate) path_case: PathCase,
    pub(crate) headers: Box<[Named]>,
    pub(crate) cookies: Box<[Named]>,
    pub(crate) query: Box<[Named]>,
    pub(crate) networks: Box<[Network]>,
    /// The same networks, for lookups.
    pub(crate) around: Networks,
    pub(crate) when: Option<Box<Expression>>,
}

/// A name, and the pattern of its value. If the name occurs several times, one value must match.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Box<str>,
    pub(crate) value: Pattern,
}

impl Matching {
    /// Whether a condition is on any entry. The condition that there is no entry does not count.
    pub(crate) fn has_entries(&self) -> bool {
        let (Entries::Among(entries) | Entries::Exactly(entries)) = &self.entries;
        !entries.is_empty()
    }

    /// Whether a condition is on an entry of this name, or an expression that may use it.
    pub(crate) fn looks_at_entry(&self, name: &str) -> bool {
        let (Entries::Among(entries) | Entries::Exactly(entries)) = &self.entries;
        let is_asked = self.when.as_ref().is_some_and(|when| when.looks_at_entry(name));
        is_asked || entries.iter().any(|entry| &*entry.name == name)
    }
}

/// Entries of the descriptor.
#[derive(Debug)]
pub(crate) enum Entries {
    /// These, in any order, and any others.
    Among(Box<[Named]>),
    /// These and no others, in this order.
    Exactly(Box<[Named]>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Among(Box::default())
    }
}

/// A request with values that are computed once for all rules.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) question: &'a Question<'a>,
    pub(crate) host: Option<Cow<'a, [u8]>>,
    pub(crate) address: Option<IpAddr>,
    /// Made when the first rule needs it.
    folded_path: OnceCell<FoldedForms<'a>>,
}

impl<'a> Facts<'a> {
    /// Prepares a request. The host is left out if no rule uses it, or if it is too long.
    pub(crate) fn new(question: &'a Question<'a>, with_host: bool) -> Facts<'a> {
        let host = question.http.filter(|_| with_host).map(|http| without_dot(http.host));
        Facts {
            question,
            host: host.filter(|host| host.len() <= HOST_BYTES_MAX).map(in_lower_case),
            address: client_address(question),
            folded_path: OnceCell::new(),
        }
    }

    /// Returns the forms of a path for rules that ignore its case.
    pub(crate) fn folded_path(&self, http: &Http<'a>) -> Forms<'_> {
        self.folded_path.get_or_init(|| FoldedForms::new(http.path_forms())).forms()
    }
}

/// Returns a host in lower case. Most are already.
pub(crate) fn in_lower_case(host: &str) -> Cow<'_, [u8]> {
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        false => Cow::Borrowed(host.as_bytes()),
        true => Cow::Owned(host.to_ascii_lowercase().into_bytes()),
    }
}

/// Removes the dot at the end of `example.com.`.
pub(crate) fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Returns the address of the client. Without an HTTP request, that is the entry `remote_address`, which Envoy sends.
pub(crate) fn client_address(question: &Question<'_>) -> Option<IpAddr> {
    let address = match question.http {
        Some(http) => http.address,
        None => {
            let entry = question.entries.iter().find(|entry| entry.key == "remote_address");
            entry.and_then(|entry| entry.value.parse().ok())
        }
    };
    address.map(|address| address.to_canonical())
}

impl Matching {
    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        self.entries.hold(facts.question)
            && self.http_holds(facts)
            && (self.around.is_empty() || facts.address.is_some_and(|address| self.around.contain(address)))
            && self.when.as_ref().is_none_or(|when| when.holds(facts.question))
    }

    fn http_holds(&self, facts: &Facts<'_>) -> bool {
        let Some(http) = facts.question.http else { return !self.needs_http() };
        let is =
            |pattern: &Option<Pattern>, value: &[u8]| pattern.as_ref().is_none_or(|pattern| pattern.matches(value));
        self.path.as_ref().is_none_or(|path| path.matches_path(self.path_forms(facts, http)))
            && is(&self.method, http.method.as_bytes())
            && self.host.as_ref().is_none_or(|host| facts.host.as_ref().is_some_and(|value| host.matches(value)))
            && self
                .headers
                .iter()
                .all(|named| http.header(&named.name).any(|value| named.value.matches(value.as_bytes())))
            && self.cookies.iter().all(|named| {
                http.cookies().any(|(name, value)| *named.name == *name && named.value.matches(value.as_bytes()))
            })
            && self.query.iter().all(|named| {
                http.parameters().any(|(name, value)| named.name.as_bytes() == &*name && named.value.matches(&value))
            })
    }

    /// Whether all forms of the path match that of the rule, or the rule has no path.
    fn holds_for_all_forms(&self, http: &Http<'_>) -> bool {
        let (Some(path), Some(_)) = (&self.path, http.odd_path) else { return true };
        match self.path_case {
            PathCase::Exact => path.matches_all_forms(http.path_forms()),
            PathCase::Ignore => path.matches_all_forms(FoldedForms::new(http.path_forms()).forms()),
        }
    }

    pub(crate) fn path_forms<'f, 'a>(&self, facts: &'f Facts<'a>, http: &Http<'a>) -> Forms<'f> {
        match self.path_case {
            PathCase::Exact => http.path_forms(),
            PathCase::Ignore => facts.folded_path(http),
        }
    }

    fn needs_http(&self) -> bool {
        let values = self.path.is_some() || self.method.is_some() || self.host.is_some();
        values || !self.headers.is_empty() || !self.cookies.is_empty() || !self.query.is_empty()
    }
}

impl Rule {
    /// Returns whether a request that this rule matches certainly has its path. If servers interpret the path differently and
    /// only some forms match, the rule counts the request but must give it no advantage.
    #[must_use]
    pub fn is_sure_of(&self, http: Option<&Http<'_>>) -> bool {
        http.is_none_or(|http| self.matching.holds_for_all_forms(http))
    }
}

impl Entries {
    pub(crate) fn hold(&self, question: &Question<'_>) -> bool {
        let is = |named: &Named, key: &str, value: &str| *named.name == *key && named.value.matches(value.as_bytes());
        match self {
            Entries::Among(all) => {
                all.iter().all(|named| question.entries.iter().any(|entry| is(named, entry.key, entry.value)))
            }
            Entries::Exactly(all) => {
                all.len() == question.entries.len()
                    && all.iter().zip(question.entries).all(|(named, entry)| is(named, entry.key, entry.value))
            }
        }
    }
}
