//! All rules, compiled, and the way from a request to those that apply.

use crate::request::{Entry, Http, Response};
use crate::rule::{Count, Rule, RuleId};

/// All rules, compiled.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    stores: Vec<StoreSpec>,
}

/// A domain of a policy.
#[derive(Clone, Copy, Debug)]
pub struct DomainId(pub(crate) u32);

/// A store that rules name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Its name; the first one is `default`.
    pub name: Box<str>,
    /// Where it is.
    pub url: Option<Box<str>>,
    /// Keys that find an exact place.
    pub keys: Option<usize>,
    /// Entries of all logs together.
    pub log_entries: Option<usize>,
}

/// One descriptor of a request, with all that rules may look at.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The domain that is asked.
    pub domain: &'a str,
    /// The entries of the descriptor.
    pub entries: &'a [Entry<'a>],
    /// The HTTP request.
    pub http: Option<&'a Http<'a>>,
    /// Units that the caller asks for.
    pub cost: u64,
}

impl Policy {
    /// All rules, in the order of the configuration.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The stores that rules name; the first one is `default`.
    #[must_use]
    pub fn stores(&self) -> &[StoreSpec] {
        &self.stores
    }

    /// The domain of this name.
    #[must_use]
    pub fn domain(&self, _name: &str) -> Option<DomainId> {
        None
    }

    /// Appends the rules of a domain that apply, in the order of the configuration.
    pub fn find(&self, _domain: DomainId, _question: &Question<'_>, _found: &mut Vec<RuleId>) {}
}

impl Rule {
    /// Appends the parts of the key that this rule counts a request on, each with its length before it; false, with
    /// nothing appended, if the request lacks one.
    pub fn key(&self, _question: &Question<'_>, _bytes: &mut Vec<u8>) -> bool {
        true
    }

    /// When this rule counts a request, and how much.
    pub fn count(&self, question: &Question<'_>) -> Count {
        Count::Now(question.cost)
    }

    /// What this rule counts of a request whose response is known; 0 if it counted before.
    pub fn count_response(&self, _question: &Question<'_>, _response: &Response) -> u64 {
        0
    }
}
