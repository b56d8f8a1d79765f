//! All rules, compiled, and the way from a request to those that apply.

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

/// All rules, compiled.
#[derive(Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) stores: Vec<StoreSpec>,
    pub(crate) domains: HashMap<Box<str>, DomainId, RandomState>,
    /// The way to the rules of each domain.
    pub(crate) guides: Vec<Guide>,
    pub(crate) client_address: ClientAddress,
    pub(crate) digest: Digest,
    pub(crate) expression_errors: Arc<AtomicU64>,
}

/// Rules that apply. Mostly they are few, and need no allocation.
pub type FoundRules = SmallVec<[RuleId; 8]>;

/// A domain of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainId(pub(crate) u32);

impl DomainId {
    /// Its number among the domains of its policy, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The way to the rules of a domain.
#[derive(Debug)]
pub(crate) struct Guide {
    index: Index,
    /// What any of them looks at.
    parts: HttpParts,
    /// Whether they are of a file of envoyproxy/ratelimit.
    of_envoy: bool,
}

impl Guide {
    /// The way to rules, which are told by their numbers.
    pub(crate) fn new<'a>(rules: impl Iterator<Item = (u32, &'a Rule)> + Clone, of_envoy: bool) -> Guide {
        let parts = rules.clone().fold(HttpParts::default(), |parts, (_, rule)| parts.or(rule.http_parts()));
        Guide { index: Index::new(rules.map(|(number, rule)| (number, &rule.matching))), parts, of_envoy }
    }
}

/// A store that rules name.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Its name; the first one is `default`.
    pub name: Box<str>,
    /// Where it is; nothing for a default store of which the configuration does not say it.
    pub place: Option<StorePlace>,
    /// What is known of one that is not in memory; nothing if its URL stands in a variable that was not looked up.
    pub facts: Option<StoreFacts>,
    /// Keys that find an exact place.
    pub keys: Option<usize>,
    /// Entries of all logs together.
    pub log_entries: Option<usize>,
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// In the memory of this process.
    Memory,
    /// Where this URL says, or the variable of the environment that it names.
    At(Box<str>),
}

impl StoreSpec {
    /// Its URL, if it is said to be somewhere else than in the memory of this process.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match &self.place {
            Some(StorePlace::At(url)) => Some(url),
            Some(StorePlace::Memory) | None => None,
        }
    }
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

impl Default for Policy {
    /// No rules, and the store `default`.
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
    pub fn domain(&self, name: &str) -> Option<DomainId> {
        self.domains.get(name).copied()
    }

    /// The names of all domains, each at its place.
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        let mut names: Vec<(&str, DomainId)> = self.domains.iter().map(|(name, id)| (&**name, *id)).collect();
        names.sort_by_key(|(_, id)| id.0);
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Appends the rules of a domain that apply, in the order of the configuration.
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

    /// The same by a look at each rule: what `find` is tested against and measured beside.
    #[doc(hidden)]
    pub fn find_by_scan(&self, question: &Question<'_>, found: &mut FoundRules) {
        let facts = Facts::new(question, true);
        let rules = (0..).zip(&self.rules).filter(|(_, rule)| *rule.domain == *question.domain);
        found.extend(rules.filter(|(_, rule)| rule.matching.holds(&facts)).map(|(number, _)| RuleId(number)));
    }

    /// The address of the client behind a peer, from headers with names in lower case. Only what your own proxies wrote
    /// is believed.
    #[must_use]
    pub fn client_address(&self, peer: IpAddr, headers: &[(&str, &str)]) -> IpAddr {
        self.client_address.find(peer, headers)
    }

    /// What is looked at of HTTP requests to a domain, by its rules and to find the address of the client. Of other parts
    /// it makes no difference what they are.
    #[must_use]
    pub fn http_parts(&self, domain: DomainId) -> HttpParts {
        let parts = self.guides.get(domain.index()).map(|guide| guide.parts).unwrap_or_default();
        HttpParts { headers: parts.headers || self.client_address.reads_headers(), ..parts }
    }

    /// Whether the rules of a domain are of a file of envoyproxy/ratelimit: then limits that requests bring come from the
    /// same Envoy.
    #[must_use]
    pub fn is_of_envoy(&self, domain: DomainId) -> bool {
        self.guides.get(domain.index()).is_some_and(|guide| guide.of_envoy)
    }

    /// Whether the cost of a request can change which rules of a domain apply to it, or whom they count it on. How much they
    /// count is another matter.
    #[must_use]
    pub fn looks_at_cost(&self, domain: &str) -> bool {
        self.rules.iter().any(|rule| &*rule.domain == domain && rule.looks_at_cost())
    }

    /// Whether any rule of a domain that is not off looks at entries, to match a request or to count it.
    #[must_use]
    pub fn looks_at_entries(&self, domain: &str) -> bool {
        let is_on = |rule: &&Rule| &*rule.domain == domain && rule.mode != Mode::Off;
        self.rules.iter().filter(is_on).any(Rule::looks_at_entries)
    }

    /// How many expressions could not be evaluated so far.
    #[must_use]
    pub fn expression_errors(&self) -> u64 {
        self.expression_errors.load(Ordering::Relaxed)
    }
}

/// Sorts what follows `start` and drops what stands there twice.
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
    /// When this rule counts a request, and how much. Who asks for nothing takes nothing, whatever the rule says.
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

    /// What this rule counts of a request whose response is known; 0 if it counted before, or denied it since its cost could
    /// not be computed.
    pub fn count_response(&self, question: &Question<'_>, response: &Response) -> u64 {
        match &self.count {
            Some(count) if count.mentions_response() && question.cost > 0 => {
                self.cost_of(question).map_or(0, |cost| count.units(question, Some(response), cost))
            }
            _ => 0,
        }
    }

    /// Whether this rule counts responses, so that somebody has to report them.
    #[must_use]
    pub fn counts_responses(&self) -> bool {
        self.count.as_ref().is_some_and(|count| count.mentions_response())
    }

    /// Whether an expression tells whom or what it counts.
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
