//! The status and the body of a denial.

use serde::Serialize;
use tidegate_core::Retry;

use super::{name_of, options};
use crate::bounds::POLICIES_TOLD_MAX;
use crate::outcome::{Denial, Judgement, Outcome};

/// The media type of a problem body.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The detail of a denial whose cost is above a whole limit.
pub const NEVER_FITS: &str = "the request costs more than the limit allows at once; waiting does not help";

/// The detail of a denial whose cost could not be computed.
pub const COST_FAILED: &str =
    "the cost of the request could not be computed; correct the values that it is computed from";

/// Returns the HTTP status of a denial, and its body unless a rule that denies wants none.
pub fn problem(outcome: &Outcome) -> Option<(u16, Option<String>)> {
    let denial = outcome.denial()?;
    let mut violated = Vec::new();
    let (mut is_hidden, mut has_body) = (true, true);
    for judgement in outcome.judgements().filter(Judgement::denies) {
        let options = options(&judgement);
        has_body &= options.problem.unwrap_or(true);
        if options.hidden {
            continue;
        }
        is_hidden = false;
        let name = name_of(&judgement);
        if violated.len() < POLICIES_TOLD_MAX && !violated.contains(&name) {
            violated.push(name);
        }
    }
    let retry = outcome.retry_among(|judgement| !options(judgement).hidden);
    let decision = outcome.decision_id().filter(|_| !is_hidden).map(|id| id.to_string());
    let problem = Problem { decision: decision.as_deref(), ..of_denial(denial, retry, &violated, is_hidden) };
    Some((problem.status, has_body.then(|| problem.to_json())))
}

/// Returns the HTTP status of a denial and its body (RFC 9457), given when to retry. The body of a hidden denial shows
/// no more than the status.
pub fn problem_of(denial: Denial, retry: Option<Retry>, violated: &[&str], is_hidden: bool) -> (u16, String) {
    let problem = of_denial(denial, retry, violated, is_hidden);
    (problem.status, problem.to_json())
}

fn of_denial<'a>(denial: Denial, retry: Option<Retry>, violated: &'a [&'a str], is_hidden: bool) -> Problem<'a> {
    let problem = match (denial, retry, is_hidden) {
        (Denial::OverLimit, Some(Retry::Never), false) => Problem::never_fits(),
        _ => Problem::of(denial, is_hidden),
    };
    Problem { violated, ..problem }
}

/// A problem of RFC 9457.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Problem<'a> {
    /// The type of the problem: a URI.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The type of the problem in a few words.
    pub title: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The details of this occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
    /// The id of the denial, by which an administrator can ask why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'a str>,
    /// The limits that deny.
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    pub violated: &'a [&'a str],
}

impl<'a> Problem<'a> {
    /// Returns the problem of a denial. That of a hidden denial shows no more than the status.
    #[must_use]
    pub fn of(denial: Denial, is_hidden: bool) -> Problem<'a> {
        const REGISTERED: [&str; 3] = [
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        ];
        let (status, blank_title, kind, title) = match denial {
            Denial::OverLimit => (429, "Too Many Requests", REGISTERED[0], "The quota is used up"),
            Denial::StoreFailure | Denial::Overloaded => {
                (503, "Service Unavailable", REGISTERED[1], "Capacity is temporarily reduced")
            }
            Denial::Penalty => (429, "Too Many Requests", REGISTERED[2], "Denied for a time after too many requests"),
            Denial::CostFailed => {
                let detail = (!is_hidden).then_some(COST_FAILED);
                return Problem { detail, ..Problem::of_status(503, "Service Unavailable") };
            }
            Denial::Blocked => return Problem::of_status(403, "Forbidden"),
        };
        match is_hidden {
            true => Problem::of_status(status, blank_title),
            false => Problem { kind, title, ..Problem::of_status(status, blank_title) },
        }
    }

    /// Returns the problem of a request whose cost is above a whole limit. No registered type says so: a used-up quota
    /// comes back.
    #[must_use]
    pub fn never_fits() -> Problem<'a> {
        Problem { detail: Some(NEVER_FITS), ..Problem::of_status(429, "Too Many Requests") }
    }

    /// Returns a problem without a type, for a status that says everything, with the title that HTTP has for it.
    #[must_use]
    pub fn of_status(status: u16, title: &'a str) -> Problem<'a> {
        Problem { kind: "about:blank", title, status, detail: None, decision: None, violated: &[] }
    }

    /// Returns the body as JSON, of the media type [`PROBLEM_TYPE`].
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
