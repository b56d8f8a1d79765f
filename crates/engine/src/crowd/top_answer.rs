//! Answers about the heaviest keys: the counts of this node, and those that other nodes published.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tidegate_core::{HeavyBy, KeyCounts, Time};
use tidegate_policy::{Rule, ShownPart};

use super::exchange::{NodeView, Others, read_tops};
use super::top::{Top, TopWindow};
use super::wire::{self, KeyNotice, RuleNotice};
use crate::bounds::{TOP_KEYS_MAX, TOP_KEYS_PUBLISHED, TOP_RULES_MAX};
use crate::engine::Engine;

/// Which heaviest keys are asked for.
#[derive(Clone, Debug)]
pub struct TopQuery {
    /// The domain of the rules; of all domains if it is not said.
    pub domain: Option<Box<str>>,
    /// The name of the rule; all rules if it is not said.
    pub rule: Option<Box<str>>,
    /// What makes a key heavy.
    pub by: HeavyBy,
    /// The span.
    pub window: TopWindow,
    /// The most keys of each rule, up to [`TOP_KEYS_MAX`].
    pub keys_max: usize,
}

/// The heaviest keys of rules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopAnswer {
    /// The rules that counted any requests, the busiest first; at most [`TOP_RULES_MAX`].
    pub rules: Vec<TopRule>,
    /// Rules beyond those.
    pub rules_left_out: usize,
    /// The nodes whose numbers these are.
    pub nodes: Vec<NodeView>,
    /// Whether a store did not answer, so that numbers of other nodes may be missing or old.
    pub is_partial: bool,
}

/// The heaviest keys of a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopRule {
    /// Its domain.
    pub domain: Box<str>,
    /// Its name.
    pub rule: Box<str>,
    /// What was seen of all its keys.
    pub total: KeyCounts,
    /// Its heaviest keys, the heaviest first.
    pub keys: Vec<TopKey>,
    /// Whether this node had no memory left for its keys.
    pub is_refused: bool,
    /// Requests that this node did not count since it started, because all threads were counting or read at that moment.
    pub missed: u64,
}

/// One of the heaviest keys of a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopKey {
    /// Its parts; none if the rule counts all requests as one.
    pub key: Vec<ShownPart>,
    /// How often it was seen: never more often than it was.
    pub counts: KeyCounts,
}

/// What is known of a rule so far.
#[derive(Debug, Default)]
struct Joined {
    total: KeyCounts,
    keys: HashMap<Vec<ShownPart>, KeyCounts>,
    is_refused: bool,
    missed: u64,
}

impl Engine {
    /// The name of this node among those that share a store. It has another one each time it starts.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.crowd.node
    }

    /// What the other nodes of the shared stores say, for [`Engine::top`]. Stores that do not answer are waited for as long
    /// as for any call.
    pub async fn others(&self) -> Others {
        let active = self.active.load_full();
        let (mut others, now) = (Others::default(), self.crowd.clock.now());
        for asked in active.stores.iter().filter_map(|backend| backend.asked()) {
            if let Some(exchange) = &asked.exchange {
                read_tops(asked, exchange, &self.crowd.node, now, &mut others).await;
            }
        }
        others
    }

    /// The heaviest keys of rules, those of this node and of others joined. It takes up to a millisecond for each rule.
    #[must_use]
    pub fn top(&self, query: &TopQuery, others: &Others) -> TopAnswer {
        let (active, now) = (self.active.load_full(), self.crowd.clock.now());
        let mut rules: BTreeMap<(Box<str>, Box<str>), Joined> = BTreeMap::new();
        for (number, rule) in active.policy.rules().iter().enumerate() {
            if let Some(top) = active.top_at(number).filter(|_| query.wants(&rule.domain, &rule.name)) {
                let joined = rules.entry((rule.domain.clone(), rule.name.clone())).or_default();
                (joined.is_refused, joined.missed) = (top.is_refused(), top.missed());
                joined.add_own(rule, top, query.window, now);
            }
        }
        let mut nodes: BTreeMap<&str, Time> = BTreeMap::new();
        for (node, at, bytes) in &others.tops {
            let oldest = nodes.entry(node).or_insert(*at);
            *oldest = (*oldest).min(*at);
            for notice in wire::read::<RuleNotice>(bytes).filter(|notice| query.wants(&notice.domain, &notice.rule)) {
                let name = (notice.domain.clone(), notice.rule.clone());
                rules.entry(name).or_default().add_notice(notice, query.window);
            }
        }
        let this = NodeView { id: (*self.crowd.node).into(), age: Duration::ZERO, is_this: true };
        let nodes = nodes.into_iter().map(|(node, at)| NodeView::new(node, at, now));
        query.answer(rules, std::iter::once(this).chain(nodes).collect(), others.is_partial)
    }
}

impl TopQuery {
    fn wants(&self, domain: &str, rule: &str) -> bool {
        self.domain.as_deref().is_none_or(|wanted| wanted == domain)
            && self.rule.as_deref().is_none_or(|wanted| wanted == rule)
    }

    fn answer(
        &self,
        rules: BTreeMap<(Box<str>, Box<str>), Joined>,
        nodes: Vec<NodeView>,
        is_partial: bool,
    ) -> TopAnswer {
        let seen = rules.into_iter().filter(|(_, joined)| joined.total != KeyCounts::default() || joined.is_refused);
        let mut rules: Vec<TopRule> = seen.map(|((domain, rule), joined)| self.rule(domain, rule, joined)).collect();
        // Sorting keeps the order by name among equals.
        rules.sort_by_key(|rule| std::cmp::Reverse((self.by.weight(&rule.total), rule.total.requests)));
        let rules_left_out = rules.len().saturating_sub(TOP_RULES_MAX);
        rules.truncate(TOP_RULES_MAX);
        TopAnswer { rules, rules_left_out, nodes, is_partial }
    }

    fn rule(&self, domain: Box<str>, rule: Box<str>, mut joined: Joined) -> TopRule {
        let heavy = std::mem::take(&mut joined.keys).into_iter().filter(|(_, counts)| self.by.weight(counts) > 0);
        let mut keys: Vec<TopKey> = heavy.map(|(key, counts)| TopKey { key, counts }).collect();
        keys.sort_by(|one, other| {
            let weight = |key: &TopKey| (self.by.weight(&key.counts), key.counts.requests);
            weight(other).cmp(&weight(one)).then_with(|| one.key.cmp(&other.key))
        });
        keys.truncate(self.keys_max.min(TOP_KEYS_MAX));
        let Joined { total, is_refused, missed, .. } = joined;
        TopRule { domain, rule, total, keys, is_refused, missed }
    }
}

impl Joined {
    fn add_own(&mut self, rule: &Rule, top: &Top, window: TopWindow, now: Time) {
        let seen = top.seen(window, now);
        self.total += seen.total;
        for (key, counts) in seen.keys {
            *self.keys.entry(rule.shown_key(&key)).or_default() += counts;
        }
    }

    fn add_notice(&mut self, notice: RuleNotice, window: TopWindow) {
        let of_window = |minute, hour| KeyCounts::from(if window == TopWindow::Minute { minute } else { hour });
        let [minute, hour] = notice.totals;
        self.total += of_window(minute, hour);
        for KeyNotice(parts, minute, hour) in notice.keys {
            let key = parts.into_iter().map(ShownPart::from).collect();
            *self.keys.entry(key).or_default() += of_window(minute, hour);
        }
    }
}

/// Returns what this node publishes of a rule, the heaviest keys by each measure and span first; `None` if it counted nothing
/// in the last hour.
pub(super) fn rule_notice(rule: &Rule, top: &Top, now: Time) -> Option<RuleNotice> {
    let [minute, hour] = TopWindow::ALL.map(|window| top.seen(window, now));
    if hour.total == KeyCounts::default() {
        return None;
    }
    let mut rankings = Vec::with_capacity(4);
    for seen in [&minute, &hour] {
        for by in [HeavyBy::Requests, HeavyBy::Denials] {
            let heavy = seen.keys.iter().filter(|(_, counts)| by.weight(counts) > 0);
            let mut keys: Vec<(&[u8], u64)> = heavy.map(|(key, counts)| (&**key, by.weight(counts))).collect();
            keys.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
            keys.truncate(TOP_KEYS_PUBLISHED);
            rankings.push(keys);
        }
    }
    let (mut chosen, mut keys) = (HashSet::new(), Vec::new());
    for rank in 0..TOP_KEYS_PUBLISHED {
        for (key, _) in rankings.iter().filter_map(|ranking| ranking.get(rank)) {
            if chosen.len() < TOP_KEYS_PUBLISHED && chosen.insert(*key) {
                let counts = |keys: &HashMap<Box<[u8]>, KeyCounts>| keys.get(*key).copied().unwrap_or_default().into();
                let parts = rule.shown_key(key).into_iter().map(Into::into).collect();
                keys.push(KeyNotice(parts, counts(&minute.keys), counts(&hour.keys)));
            }
        }
    }
    let totals = [minute.total.into(), hour.total.into()];
    Some(RuleNotice { domain: rule.domain.clone(), rule: rule.name.clone(), totals, keys })
}
