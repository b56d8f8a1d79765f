//! The keys of each rule with the most requests, or the most denials.

use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use tidegate_engine::bounds::TOP_KEYS_MAX;
use tidegate_engine::{HeavyBy, KeyCounts, NodeView, TopAnswer, TopKey, TopQuery, TopRule, TopWindow};
use tidegate_policy::ShownPart;
use tidegate_policy::json::escape_unseen;

use super::answer::{Answered, Failure, JSON, Reply, forbid_caching, quote, reply};
use super::check::unknown_domain;
use super::pages::aside;
use super::query::Query;
use super::told::nanos;
use crate::service::Service;

/// Keys of each rule if the query does not say.
const KEYS_DEFAULT: u64 = 20;

const BY: [(&str, HeavyBy); 2] = [("requests", HeavyBy::Requests), ("denials", HeavyBy::Denials)];
const WINDOWS: [(&str, TopWindow); 2] = [("minute", TopWindow::Minute), ("hour", TopWindow::Hour)];

/// Numbers are of requests. Times are in milliseconds.
#[derive(Serialize)]
struct TopBody<'a> {
    by: &'a str,
    window: &'a str,
    /// How old the oldest numbers are.
    as_of_ms: u64,
    /// Whether a store did not answer, so that numbers of other nodes may be missing.
    partial: bool,
    nodes: Vec<NodeBody>,
    rules: Vec<RuleBody>,
    rules_left_out: usize,
}

#[derive(Serialize)]
pub(super) struct NodeBody {
    id: Box<str>,
    age_ms: u64,
    this: bool,
}

#[derive(Serialize)]
struct RuleBody {
    domain: Box<str>,
    rule: Box<str>,
    requests: u64,
    denials: u64,
    shadow_denials: u64,
    /// Whether this node has memory for the keys of the rule.
    tracked: bool,
    /// Requests since its start that this node did not count for want of a free table.
    missed: u64,
    keys: Vec<KeyBody>,
}

#[derive(Serialize)]
struct KeyBody {
    key: Vec<ShownPart>,
    requests: u64,
    denials: u64,
    shadow_denials: u64,
    /// The share of the requests or denials of the rule, from 0 to 1.
    share: f64,
}

impl From<NodeView> for NodeBody {
    fn from(node: NodeView) -> NodeBody {
        NodeBody { id: node.id, age_ms: nanos(node.age) / 1_000_000, this: node.is_this }
    }
}

/// Answers with the heaviest keys.
pub(super) async fn get(service: &Arc<Service>, query: Option<&str>) -> Answered {
    let (query, by, window) = read(service, query)?;
    let others = service.engine.others().await;
    let written = aside(service, move |service| {
        let answer = service.engine.top(&query, &others);
        // Numbers and text always are JSON.
        escape_unseen(serde_json::to_string(&body_of(answer, by, window, query.by)).unwrap_or_default())
    });
    shown(written.await)
}

/// Reads what a query asks for, with its words for the measure and the window.
fn read(service: &Service, query: Option<&str>) -> Result<(TopQuery, &'static str, &'static str), Failure> {
    let mut query = Query::parse(query)?;
    let RulesAsked { domain, rule } = rules_asked(service, &mut query)?;
    let (by_name, by) = one_of("by", &mut query, &BY)?;
    let (window_name, window) = one_of("window", &mut query, &WINDOWS)?;
    let remedy = format_args!("use 1 to {TOP_KEYS_MAX}");
    let keys_max = match query.whole("limit", remedy)?.unwrap_or(KEYS_DEFAULT) {
        limit if (1..=TOP_KEYS_MAX as u64).contains(&limit) => usize::try_from(limit).unwrap_or(TOP_KEYS_MAX),
        limit => return Err(Failure::bad("limit", format_args!("{limit} is out of bounds"), remedy)),
    };
    query.finish()?;
    Ok((TopQuery { domain, rule, by, window, keys_max }, by_name, window_name))
}

/// The domain and the rule that a query names; all of them if it names none.
pub(super) struct RulesAsked {
    pub(super) domain: Option<Box<str>>,
    pub(super) rule: Option<Box<str>>,
}

/// Takes the domain and the rule that a query names; an error if they do not exist.
pub(super) fn rules_asked(service: &Service, query: &mut Query<'_>) -> Result<RulesAsked, Failure> {
    let owned = |text: std::borrow::Cow<'_, str>| Box::<str>::from(text);
    let (domain, rule) = (query.take("domain").map(owned), query.take("rule").map(owned));
    let policy = service.engine.policy();
    if let Some(domain) = domain.as_deref().filter(|domain| policy.domain(domain).is_none()) {
        return Err(unknown_domain(domain));
    }
    let is_it = |wanted: &str| {
        let mut rules = policy.rules().iter();
        rules.any(|rule| *rule.name == *wanted && domain.as_deref().is_none_or(|domain| *domain == *rule.domain))
    };
    if let Some(rule) = rule.as_deref().filter(|rule| !is_it(rule)) {
        let detail = format!("rule: there is no rule {}; GET /v1/rules lists them", quote(rule));
        return Err(Failure::new(StatusCode::NOT_FOUND, detail));
    }
    Ok(RulesAsked { domain, rule })
}

/// Takes a parameter that is one of two words; the first of them if it is missing.
fn one_of<T: Copy>(
    name: &'static str,
    query: &mut Query<'_>,
    words: &'static [(&'static str, T); 2],
) -> Result<(&'static str, T), Failure> {
    let Some(given) = query.take(name) else { return Ok(words[0]) };
    let found = words.iter().find(|(word, _)| *word == given);
    let remedy = format_args!("use {} or {}", words[0].0, words[1].0);
    found.copied().ok_or_else(|| Failure::bad(name, format_args!("{} is unknown", quote(&given)), remedy))
}

/// Answers with JSON that [`aside`] wrote.
pub(super) fn shown(written: Option<String>) -> Answered {
    let failed = || Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "page: it could not be written; see the log");
    let mut reply: Reply = reply(StatusCode::OK, JSON, written.ok_or_else(failed)?);
    forbid_caching(&mut reply);
    Ok(reply)
}

fn body_of<'a>(answer: TopAnswer, by_name: &'a str, window: &'a str, by: HeavyBy) -> TopBody<'a> {
    let as_of = answer.nodes.iter().map(|node| node.age).max().unwrap_or_default();
    TopBody {
        by: by_name,
        window,
        as_of_ms: nanos(as_of) / 1_000_000,
        partial: answer.is_partial,
        nodes: answer.nodes.into_iter().map(NodeBody::from).collect(),
        rules: answer.rules.into_iter().map(|rule| rule_body(rule, by)).collect(),
        rules_left_out: answer.rules_left_out,
    }
}

fn rule_body(rule: TopRule, by: HeavyBy) -> RuleBody {
    let all = by.weight(&rule.total);
    let key_body = |TopKey { key, counts, .. }: TopKey| {
        let KeyCounts { requests, denials, shadow_denials } = counts;
        KeyBody { key, requests, denials, shadow_denials, share: share(by.weight(&counts), all) }
    };
    let KeyCounts { requests, denials, shadow_denials } = rule.total;
    RuleBody {
        domain: rule.domain,
        rule: rule.rule,
        requests,
        denials,
        shadow_denials,
        tracked: !rule.is_refused,
        missed: rule.missed,
        keys: rule.keys.into_iter().map(key_body).collect(),
    }
}

/// Returns a part of a whole with four digits.
fn share(part: u64, whole: u64) -> f64 {
    // Each span is rounded down on its own, so the sum of one key may exceed the total.
    let parts = u128::from(part.min(whole)) * 10_000 / u128::from(whole.max(1));
    u32::try_from(parts).map_or(1.0, |parts| f64::from(parts) / 10_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        for (part, whole, expected) in
            [(0, 0, 0.0), (1, 3, 0.3333), (3, 3, 1.0), (4, 3, 1.0), (u64::MAX, u64::MAX, 1.0), (1, 100_000, 0.0)]
        {
            assert_eq!(share(part, whole), expected, "{part} of {whole}");
        }
    }
}
