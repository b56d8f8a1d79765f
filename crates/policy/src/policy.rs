//! The compiled policy, and the search for the rules that match a request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::address::ClientAddress;
use crate::digest::Digest;
use crate::index::Index;
use crate::matching::Facts;
use crate::parts::HttpParts;
use crate::request::{Entry, Http, Response};
use crate::rule::{Count, Mode, Rule, RuleId};
use crate::stores::StoreFacts;

/// A compiled configuration: all rules, with an index to find those that match a request.
#[derive(Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) stores: Vec<StoreSpec>,
    pub(crate) domains: HashMap<Box<str>, DomainId, RandomState>,
    /// The index of each domain.
    pub(crate) guides: Vec<Guide>,
    pub(crate) client_address: ClientAddress,
    pub(crate) digest: Digest,
    pub(crate) expression_errors: Arc<AtomicU64>,
}

/// Rules that match a request. Up to eight need no allocation.
pub type FoundRules = SmallVec<[RuleId; 8]>;

/// A domain of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainId(pub(crate) u32);

impl DomainId {
    /// Returns the index among the domains of the policy, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The index of a domain.
#[derive(Debug)]
pub(crate) struct Guide {
    index: Index,
    /// The parts of an HTTP request that any of its rules uses.
    parts: HttpParts,
    /// Whether its rules are from a file of envoyproxy/ratelimit.
    of_envoy: bool,
}

impl Guide {
    /// Makes the index of rules, which are identified by number.
    pub(crate) fn new<'a>(rules: impl Iterator<Item = (u32, &'a Rule)> + Clone, of_envoy: bool) -> Guide {
        let parts = rules.clone().fold(HttpParts::default(), |parts, (_, rule)| parts.or(rule.http_parts()));
        Guide { index: Index::new(rules.map(|(number, rule)| (number, &rule.matching))), parts, of_envoy }
    }
}

/// A store of a configuration.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// The name. The first store of a policy is `default`.
    pub name: Box<str>,
    /// The place, or `None` for a default store whose place is not in the configuration.
    pub place: Option<StorePlace>,
    /// Facts about a store that is not in memory, or `None` if its URL is in a variable that was not looked up.
    pub facts: Option<StoreFacts>,
    /// The number of keys that are counted exactly, or `None` for the default.
    pub keys: Option<usize>,
    /// The number of entries of all logs, or `None` for the default.
    pub log_entries: Option<usize>,
}

/// The place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// The memory of the process.
    Memory,
    /// This URL, or the environment variable that holds it, like `$REDIS_URL`.
    At(Box<str>),
}

impl StoreSpec {
    /// Returns its URL, or `None` for a store in memory or of unknown place.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match &self.place {
            Some(StorePlace::At(url)) => Some(url),
            Some(StorePlace::Memory) | None => None,
        }
    }
}

/// One descriptor of a request, with everything that rules can match.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The domain.
    pub domain: &'a str,
    /// The entries of the descriptor.
    pub entries: &'a [Entry<'a>],
    /// The HTTP request.
    pub http: Option<&'a Http<'a>>,
    /// The cost in units that the caller set.
    pub cost: u64,
}

impl Default for Policy {
    /// Makes a policy without rules, with the store `default`.
    fn default() -> Policy {
        let store = StoreSpec { name: "default".into(), ..StoreSpec::default() };
        Policy {
            rules: Vec::new(),
            stores: vec![store],
            domains: HashMap::default(),
            guides: Vec::new(),
            client_address: ClientAddress::default(),
            digest: Digest::default(),
            expression_errors: Arc::default(),
        }
    }
}

impl Policy {
    /// Returns all rules, in the order of the configuration.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns all stores. The first one is `default`.
    #[must_use]
    pub fn stores(&self) -> &[StoreSpec] {
        &self.stores
    }

    /// Returns the domain with a name, or `None` if there is none.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<DomainId> {
        self.domains.get(name).copied()
    }

    /// Returns the names of all domains, in the order of their [indexes](DomainId::index).
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        let mut names: Vec<(&str, DomainId)> = self.domains.iter().map(|(name, id)| (&**name, *id)).collect();
        names.sort_by_key(|(_, id)| id.0);
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Appends the rules of a domain that match, in the order of the configuration.
    pub fn find(&self, domain: DomainId, question: &Question<'_>, found: &mut FoundRules) {
        let Some(Guide { index, parts, .. }) = self.guides.get(domain.index()) else { return };
        let facts = Facts::new(question, parts.host);
        let start = found.len();
        index.candidates(&facts, |rules| {
            for rule in rules {
                #[cfg(test)]
                tests::VERIFIED.with(|verified| verified.set(verified.get() + 1));
                if self.rules.get(*rule as usize).is_some_and(|rule| rule.matching.holds(&facts)) {
                    found.push(RuleId(*rule));
                }
            }
        });
        sort_and_dedup(found, start);
    }

    /// Appends the same rules as `find` by testing each rule: the reference for tests and benchmarks.
    #[doc(hidden)]
    pub fn find_by_scan(&self, question: &Question<'_>, found: &mut FoundRules) {
        let facts = Facts::new(question, true);
        let rules = (0..).zip(&self.rules).filter(|(_, rule)| *rule.domain == *question.domain);
        found.extend(rules.filter(|(_, rule)| rule.matching.holds(&facts)).map(|(number, _)| RuleId(number)));
    }

    /// Returns the address of the client behind a peer. Names of headers are in lower case. Only addresses that trusted
    /// proxies added are used; without any, the peer is the client.
    #[must_use]
    pub fn client_address(&self, peer: IpAddr, headers: &[(&str, &str)]) -> IpAddr {
        self.client_address.find(peer, headers)
    }

    /// Returns the parts of an HTTP request that the rules of a domain and the search for the address of the client use. Other
    /// parts have no effect.
    #[must_use]
    pub fn http_parts(&self, domain: DomainId) -> HttpParts {
        let parts = self.guides.get(domain.index()).map(|guide| guide.parts).unwrap_or_default();
        HttpParts { headers: parts.headers || self.client_address.reads_headers(), ..parts }
    }

    /// Returns whether the rules of a domain are from a file of envoyproxy/ratelimit. Limits in requests then come from the same
    /// Envoy.
    #[must_use]
    pub fn is_of_envoy(&self, domain: DomainId) -> bool {
        self.guides.get(domain.index()).is_some_and(|guide| guide.of_envoy)
    }

    /// Returns whether the cost of a request can change which rules of a domain match it, or its key. A cost that only changes
    /// the number of units does not count here.
    #[must_use]
    pub fn looks_at_cost(&self, domain: &str) -> bool {
        self.rules.iter().any(|rule| &*rule.domain == domain && rule.looks_at_cost())
    }

    /// Returns whether any rule of a domain that is not off uses entries.
    #[must_use]
    pub fn looks_at_entries(&self, domain: &str) -> bool {
        let is_on = |rule: &&Rule| &*rule.domain == domain && rule.mode != Mode::Off;
        self.rules.iter().filter(is_on).any(Rule::looks_at_entries)
    }

    /// Returns the number of failed evaluations of expressions so far.
    #[must_use]
    pub fn expression_errors(&self) -> u64 {
        self.expression_errors.load(Ordering::Relaxed)
    }
}

/// Sorts the rules from index `start` on and removes duplicates among them.
fn sort_and_dedup(found: &mut FoundRules, start: usize) {
    let Some(tail) = found.get_mut(start..) else { return };
    if tail.len() < 2 {
        return;
    }
    tail.sort_unstable();
    let mut place = 0;
    let mut last = None;
    found.retain(|rule| {
        place += 1;
        let keep = place <= start || last != Some(*rule);
        last = (place > start).then_some(*rule);
        keep
    });
}

impl Rule {
    /// Returns when this rule counts a request, and the units. A request with a cost of 0 takes nothing.
    pub fn count(&self, question: &Question<'_>) -> Count {
        if question.cost == 0 {
            return Count::Now(0);
        }
        let Some(cost) = self.cost_of(question) else { return Count::Failed };
        match &self.count {
            None => Count::Now(cost),
            Some(count) if count.mentions_response() => Count::Later(cost),
            Some(count) => match count.units(question, None, cost) {
                0 => Count::Look(cost),
                units => Count::Now(units),
            },
        }
    }

    /// Returns the units to count for a request whose response is known: 0 if they were counted before, or if the cost could
    /// not be computed, so that the request was denied.
    pub fn count_response(&self, question: &Question<'_>, response: &Response) -> u64 {
        match &self.count {
            Some(count) if count.mentions_response() && question.cost > 0 => {
                self.cost_of(question).map_or(0, |cost| count.units(question, Some(response), cost))
            }
            _ => 0,
        }
    }

    /// Returns whether this rule counts by the response, so that responses must be reported.
    #[must_use]
    pub fn counts_responses(&self) -> bool {
        self.count.as_ref().is_some_and(|count| count.mentions_response())
    }

    /// Returns whether its key, cost or count is an expression.
    #[must_use]
    pub fn counts_by_expression(&self) -> bool {
        self.key_expressions().next().is_some() || self.cost.is_some() || self.count.is_some()
    }

    fn looks_at_cost(&self) -> bool {
        let when = self.matching.when.iter().map(|when| &**when);
        when.chain(self.key_expressions()).any(|expression| expression.mentions_cost())
    }

    fn cost_of(&self, question: &Question<'_>) -> Option<u64> {
        self.cost.as_ref().map_or(Some(question.cost), |cost| cost.cost(question))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Rules that were verified on this thread.
        pub(crate) static VERIFIED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn only_the_tail_is_sorted() {
        let mut found: FoundRules = [9, 9, 3, 1, 3, 2, 1].map(RuleId).into_iter().collect();
        sort_and_dedup(&mut found, 2);
        assert_eq!(found[..], [9, 9, 1, 2, 3].map(RuleId));
    }
}
