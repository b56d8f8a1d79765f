//! From decisions and outcomes to answers: the status, the headers and a body with the same numbers in both.

use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tidegate_core::{Decision, Decisions, Retry, Time};
use tidegate_engine::{Answer, Binding, Denial, Judgement, Outcome, Shaped};
use tidegate_policy::{Headers, Mode};

use super::answer::{JSON, Reply, add_headers, empty, forbid_caching, json, reply};
use super::asked::Inline;
use crate::headers::{self, LimitNumbers, PROBLEM_TYPE};

/// The numbers of a limit, named as `tidegate decide` names them.
#[derive(Clone, Copy, Default, Serialize)]
struct Numbers {
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    retry_after_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ns: Option<u64>,
    /// Present, and true, only if no wait would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    never: Option<bool>,
}

/// The answer to a check of one key.
#[derive(Serialize)]
struct One {
    allowed: bool,
    #[serde(flatten)]
    numbers: Numbers,
}

/// The answer to who would wait for its turn.
#[derive(Serialize)]
struct Turn {
    allowed: bool,
    #[serde(flatten)]
    numbers: Numbers,
    /// How long to wait before going on; nothing if it may not.
    wait_ns: Option<u64>,
}

/// The answer to a check of several limits.
#[derive(Serialize)]
struct Several<R> {
    allowed: bool,
    #[serde(flatten)]
    numbers: Numbers,
    results: Vec<R>,
}

/// A denial of which nothing else may be told.
#[derive(Serialize)]
struct Untold {
    allowed: bool,
}

/// What one limit of one rule said.
#[derive(Serialize)]
struct RuleResult<'a> {
    descriptor: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    mode: &'static str,
    verdict: &'static str,
    allowed: bool,
    /// Whether it would deny, were it not in shadow or another quota left.
    would_deny: bool,
    #[serde(flatten)]
    numbers: Numbers,
}

impl Numbers {
    fn of(decision: &Decision) -> Numbers {
        Numbers {
            limit: Some(decision.limit()),
            remaining: Some(decision.remaining()),
            reset_after_ns: Some(nanos(decision.reset_after())),
            ..Numbers::waiting(decision.retry())
        }
    }

    fn of_answer(answer: &Answer) -> Numbers {
        answer.decision().map_or_else(|| Numbers::waiting(answer.retry()), Numbers::of)
    }

    fn waiting(retry: Option<Retry>) -> Numbers {
        Numbers::default().with_retry(retry)
    }

    fn with_retry(self, retry: Option<Retry>) -> Numbers {
        let retry_after_ns = match retry {
            Some(Retry::After(wait) | Retry::Unknown(wait)) => Some(nanos(wait)),
            Some(Retry::Never) | None => None,
        };
        Numbers { retry_after_ns, never: (retry == Some(Retry::Never)).then_some(true), ..self }
    }
}

/// The answer to one key under its own limit.
pub(super) fn decision(inline: &Inline<'_>, decision: &Decision, now: Time) -> Reply {
    let body = One { allowed: decision.is_allowed(), numbers: Numbers::of(decision) };
    own_limits(std::iter::once((inline, decision, decision.retry())), decision.retry(), &body, now)
}

/// The answer to one key whose caller would wait for its turn.
pub(super) fn shaped(inline: &Inline<'_>, Shaped { decision, turn }: &Shaped, now: Time) -> Reply {
    let (wait_ns, retry) = (turn.ok().map(nanos), turn.err());
    let body = Turn { allowed: turn.is_ok(), numbers: Numbers::of(decision).with_retry(retry), wait_ns };
    own_limits(std::iter::once((inline, decision, retry)), retry, &body, now)
}

/// The answer to several keys under their own limits.
pub(super) fn decisions(all: &[Inline<'_>], decisions: &Decisions, now: Time) -> Reply {
    let numbers = decisions.strictest().map(Numbers::of).unwrap_or_default();
    let body = Several {
        allowed: decisions.is_allowed(),
        numbers: numbers.with_retry(decisions.retry()),
        results: decisions.iter().map(|one| One { allowed: one.is_allowed(), numbers: Numbers::of(one) }).collect(),
    };
    let decided = all.iter().zip(decisions.iter()).map(|(inline, decision)| (inline, decision, decision.retry()));
    own_limits(decided, decisions.retry(), &body, now)
}

/// What is told of limits that callers brought: each with its decision, and when to retry if it denies.
fn own_limits<'a>(
    decided: impl Iterator<Item = (&'a Inline<'a>, &'a Decision, Option<Retry>)>,
    retry: Option<Retry>,
    body: &impl Serialize,
    now: Time,
) -> Reply {
    let mut told = Vec::with_capacity(1);
    let mut violated: Vec<&str> = Vec::new();
    for (inline, decision, retry) in decided {
        let denies = retry.is_some();
        let wait = match retry {
            Some(Retry::After(wait)) => wait,
            _ => headers::wait(inline.limit.algorithm(), inline.shown, decision, denies, now),
        };
        let (name, shown, remaining) = (&*inline.name, inline.shown, decision.remaining());
        if denies && !violated.contains(&name) {
            violated.push(name);
        }
        let binding = Binding::new(true, decision.strictness());
        let family = Headers::Standard;
        headers::push(&mut told, LimitNumbers { name, shown, remaining, wait, denies, binding, family });
    }
    if violated.is_empty() {
        let mut reply = json(StatusCode::OK, body);
        add_headers(&mut reply, headers::serialize(&told, None, false, now));
        return reply;
    }
    let retry = match retry {
        Some(Retry::After(wait) | Retry::Unknown(wait)) => Some(headers::retry_seconds(wait)),
        Some(Retry::Never) | None => None,
    };
    let (status, problem) = headers::problem_of(Denial::OverLimit, &violated, false);
    let mut reply = denied(status, Some(problem), body);
    add_headers(&mut reply, headers::serialize(&told, retry, true, now));
    reply
}

/// A denial as clients may see it: without the numbers of rules that deny nothing, and without those in shadow. Nothing
/// if the request may pass.
pub(super) fn denial(outcome: &Outcome, now: Time) -> Option<Reply> {
    let (status, problem) = headers::problem(outcome)?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut answer = problem.map_or_else(|| empty(status), |problem| reply(status, PROBLEM_TYPE, problem));
    forbid_caching(&mut answer);
    add_headers(&mut answer, headers::headers(outcome, Some(Headers::Standard), now));
    Some(answer)
}

/// The answer to a request that rules decided.
pub(super) fn outcome(outcome: &Outcome, now: Time) -> Reply {
    let headers = headers::headers(outcome, Some(Headers::Standard), now);
    let results: Vec<RuleResult<'_>> = outcome.judgements().filter(|one| !is_hidden(one)).map(result).collect();
    // The numbers of a rule that lets the request pass say nothing of why another denied it.
    let strictest = outcome.strictest_among(|one| {
        let is_told = !is_hidden(one) && !is_shadow(one) && one.answer.decision().is_some();
        is_told && (outcome.is_allowed() || one.denies())
    });
    let numbers = strictest.and_then(|one| one.answer.decision().map(Numbers::of)).unwrap_or_default();
    let numbers = numbers.with_retry(outcome.retry_among(|one| !is_hidden(one)));
    let Some((status, problem)) = headers::problem(outcome) else {
        let mut reply = json(StatusCode::OK, &Several { allowed: true, numbers, results });
        forbid_caching(&mut reply);
        add_headers(&mut reply, headers);
        return reply;
    };
    let mut reply = match headers::is_hidden_denial(outcome) {
        true => denied(status, problem, &Untold { allowed: false }),
        false => denied(status, problem, &Several { allowed: false, numbers, results }),
    };
    add_headers(&mut reply, headers);
    reply
}

/// A denial: its problem with the numbers as further members, or the numbers alone if the rules want no problem.
pub(super) fn denied(status: u16, problem: Option<String>, members: &impl Serialize) -> Reply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let members = serde_json::to_string(members).unwrap_or_default();
    let mut answer = match problem {
        None => reply(status, JSON, members),
        Some(mut problem) => {
            // Both are objects: the second goes on where the first ends.
            problem.pop();
            problem.push(',');
            problem.push_str(members.get(1..).unwrap_or("}"));
            reply(status, PROBLEM_TYPE, problem)
        }
    };
    forbid_caching(&mut answer);
    answer
}

fn result<'a>(judgement: Judgement<'a>) -> RuleResult<'a> {
    let allowed = judgement.answer.is_allowed();
    RuleResult {
        descriptor: judgement.descriptor,
        rule: judgement.rule.map(|rule| &*rule.name),
        policy: judgement.limit.map(|limit| &*limit.name),
        mode: if is_shadow(&judgement) { "shadow" } else { "enforce" },
        verdict: match judgement.answer {
            Answer::Decided(_) if allowed => "allowed",
            Answer::Decided(_) => "over_limit",
            Answer::Penalised(_) => "penalised",
            Answer::Blocked => "blocked",
            Answer::Unlimited => "unlimited",
            Answer::Failed { .. } => "store_failed",
            Answer::NotAsked => "not_asked",
        },
        allowed: is_shadow(&judgement) || !judgement.denies(),
        would_deny: !allowed,
        numbers: Numbers::of_answer(&judgement.answer),
    }
}

/// Whether a rule only watches.
fn is_shadow(judgement: &Judgement<'_>) -> bool {
    judgement.mode == Mode::Shadow
}

fn is_hidden(judgement: &Judgement<'_>) -> bool {
    headers::options(judgement).hidden
}

/// Every duration that a decision holds is of 64 bits of nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
