//! What a line of the decision log says.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::{Decision, Limit, Retry, Time};
use tidegate_engine::{Denial, Judgement, Outcome};
use tidegate_policy::{Ask, Descriptor, Mode, Request};

use crate::protocol::Protocol;

/// A decision by the rules of a domain.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    protocol: &'static str,
    domain: &'a str,
    cost: u64,
    /// What each descriptor asks for instead, if any does: units it gives back are below 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    costs: Vec<Option<i64>>,
    /// Not there if the answer was an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<&'static str>,
    /// The id of the denial, by which it can be explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ns: Option<u64>,
    descriptors: Vec<Vec<(&'a str, &'a str)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    rules: Vec<RuleLine<'a>>,
}

/// What one limit of one rule said.
#[derive(Serialize)]
struct RuleLine<'a> {
    descriptor: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a str>,
    allowed: bool,
    enforced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// Whether this process decided because the store did not answer.
    #[serde(skip_serializing_if = "is_false")]
    local: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A decision by limits that the caller brought.
#[derive(Serialize)]
struct InlineLine<'a> {
    at_ns: u64,
    protocol: &'static str,
    /// Not there if the answer was an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ns: Option<u64>,
    /// Whether this process decided because the store did not answer.
    #[serde(skip_serializing_if = "is_false")]
    local: bool,
    limits: Vec<InlineLimitLine<'a>>,
}

/// What one limit of the caller said.
#[derive(Serialize)]
struct InlineLimitLine<'a> {
    key: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a str>,
    algorithm: &'static str,
    units: u64,
    cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

/// A charge under a limit that the caller brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineCharge<'a> {
    pub(crate) key: &'a [u8],
    /// What the caller calls the limit, if it has a name.
    pub(crate) name: Option<&'a str>,
    pub(crate) limit: InlineLimit<'a>,
    pub(crate) cost: u64,
}

/// A limit that the caller brings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InlineLimit<'a> {
    /// Units over time.
    Rate(&'a Limit),
    /// Permits that are held at the same time.
    Permits(u64),
}

/// The answer to charges that were made together.
#[derive(Clone, Debug)]
pub(crate) struct InlineVerdict {
    pub(crate) allowed: bool,
    pub(crate) retry: Option<Retry>,
    /// How long an admitted caller waits for its turn, if it asked for one.
    pub(crate) wait: Option<Duration>,
    /// Whether this process decided because the store did not answer.
    pub(crate) local: bool,
    /// In the order of the charges.
    pub(crate) answers: Vec<InlineAnswer>,
}

/// The answer to one charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineAnswer {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
}

impl InlineVerdict {
    /// The verdict of decisions that the store made together, and when to retry if any of them denies.
    pub(crate) fn of<'d>(decisions: impl IntoIterator<Item = &'d Decision>, retry: Option<Retry>) -> InlineVerdict {
        let answer =
            |decision: &Decision| InlineAnswer { allowed: decision.is_allowed(), remaining: decision.remaining() };
        let answers = decisions.into_iter().map(answer).collect();
        InlineVerdict { allowed: retry.is_none(), retry, wait: None, local: false, answers }
    }
}

/// The line of a decision by the rules of a domain, or of the error that was the answer.
pub(crate) fn by_rules<'a>(
    now: Time,
    protocol: Protocol,
    request: &'a Request<'_>,
    answered: Result<&'a Outcome, &'a str>,
) -> impl Serialize + use<'a> {
    let entries =
        |descriptor: &Descriptor<'a>| descriptor.entries.iter().map(|entry| (entry.key, entry.value)).collect();
    let outcome = answered.ok();
    let asked = |descriptor: &Descriptor<'_>| {
        let units = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
        descriptor.ask.map(|ask| match ask {
            Ask::Take(taken) => units(taken),
            Ask::Refund(given) => -units(given),
        })
    };
    let has_asked = request.descriptors.iter().any(|descriptor| descriptor.ask.is_some());
    Line {
        at_ns: now.as_nanos(),
        protocol: protocol.name(),
        domain: request.domain,
        cost: request.cost,
        costs: request.descriptors.iter().filter(|_| has_asked).map(asked).collect(),
        allowed: outcome.map(Outcome::is_allowed),
        error: answered.err(),
        denial: outcome.and_then(Outcome::denial).map(denial_name),
        decision: outcome.and_then(Outcome::decision_id).map(|id| id.to_string()),
        retry_after_ns: outcome.and_then(Outcome::retry).and_then(retry_nanos),
        descriptors: request.descriptors.iter().map(entries).collect(),
        address: request.http.and_then(|http| http.address).map(|address| address.to_string()),
        method: request.http.map(|http| http.method).filter(|method| !method.is_empty()),
        path: request.http.map(|http| http.path).filter(|path| !path.is_empty()),
        rules: outcome.into_iter().flat_map(|outcome| outcome.judgements()).map(rule_line).collect(),
    }
}

/// The line of a decision by limits that the caller brought, or of the error that was the answer.
pub(crate) fn by_inline_limits<'a>(
    now: Time,
    protocol: Protocol,
    charges: &[InlineCharge<'a>],
    answered: Result<InlineVerdict, String>,
) -> impl Serialize + use<'a> {
    let (verdict, error) = match answered {
        Ok(verdict) => (Some(verdict), None),
        Err(error) => (None, Some(error)),
    };
    let verdict = verdict.as_ref();
    let answer = |number| verdict.and_then(|verdict| verdict.answers.get(number));
    InlineLine {
        at_ns: now.as_nanos(),
        protocol: protocol.name(),
        allowed: verdict.map(|verdict| verdict.allowed),
        error,
        denial: verdict.filter(|verdict| !verdict.allowed).map(|_| denial_name(Denial::OverLimit)),
        retry_after_ns: verdict.and_then(|verdict| verdict.retry).and_then(retry_nanos),
        wait_ns: verdict.and_then(|verdict| verdict.wait).and_then(nanos),
        local: verdict.is_some_and(|verdict| verdict.local),
        limits: charges.iter().enumerate().map(|(number, charge)| inline_line(charge, answer(number))).collect(),
    }
}

fn rule_line(judgement: Judgement<'_>) -> RuleLine<'_> {
    RuleLine {
        descriptor: judgement.descriptor,
        rule: judgement.rule.map(|rule| &*rule.name),
        limit: judgement.limit.map(|limit| &*limit.name),
        allowed: judgement.answer.is_allowed(),
        enforced: judgement.veto && judgement.mode == Mode::Enforce,
        remaining: judgement.answer.decision().map(|decision| decision.remaining()),
        local: judgement.local,
    }
}

fn inline_line<'a>(charge: &InlineCharge<'a>, answer: Option<&InlineAnswer>) -> InlineLimitLine<'a> {
    let (algorithm, units) = match charge.limit {
        InlineLimit::Rate(limit) => (limit.algorithm().name(), limit.units()),
        InlineLimit::Permits(limit) => ("concurrency", limit),
    };
    InlineLimitLine {
        key: String::from_utf8_lossy(charge.key),
        limit: charge.name,
        algorithm,
        units,
        cost: charge.cost,
        allowed: answer.map(|answer| answer.allowed),
        remaining: answer.map(|answer| answer.remaining),
    }
}

fn retry_nanos(retry: Retry) -> Option<u64> {
    match retry {
        Retry::After(wait) | Retry::Unknown(wait) => nanos(wait),
        Retry::Never => None,
    }
}

fn nanos(time: Duration) -> Option<u64> {
    u64::try_from(time.as_nanos()).ok()
}

fn denial_name(denial: Denial) -> &'static str {
    match denial {
        Denial::StoreFailure => "store_failure",
        Denial::CostFailed => "cost_failed",
        Denial::Overloaded => "overloaded",
        Denial::OverLimit => "over_limit",
        Denial::Penalty => "penalty",
        Denial::Blocked => "blocked",
    }
}
