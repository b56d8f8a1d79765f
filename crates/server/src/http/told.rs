//! From decisions and outcomes to answers: the status, the headers and a body with the same numbers in both.

use std::cell::RefCell;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tidegate_core::{Decision, Decisions, Retry, Time};
use tidegate_engine::{Answer, Binding, Denial, Judgement, Outcome, Shaped, Sourced, caller_phase};
use tidegate_policy::{Headers, Mode, Shown};

use super::answer::{JSON, RATELIMIT, RATELIMIT_POLICY, Reply, add_headers, empty, forbid_caching, reply};
use super::asked::Inline;
use super::check::once;
use crate::headers::{self, LimitNumbers, LimitTexts, LimitsTold, PROBLEM_TYPE};

/// Bytes that the answer to a check takes, and some more.
const BODY_BYTES: usize = 192;

/// The numbers of a limit, named as `tidegate decide` names them.
#[derive(Clone, Copy, Default)]
struct Numbers {
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_ns: Option<u64>,
    reset_after_ns: Option<u64>,
    never: bool,
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
        Numbers { retry_after_ns, never: retry == Some(Retry::Never), ..self }
    }
}

/// An object of JSON that is being written. Its members are few and their names need no care, so each is written with a
/// fraction of what a serializer would take.
struct Object(Vec<u8>);

impl Object {
    /// The answer to a check, with its numbers.
    fn answer(allowed: bool, numbers: &Numbers) -> Object {
        let mut object = Object(Vec::with_capacity(BODY_BYTES));
        object.one(allowed, numbers);
        object
    }

    /// Begins an object, or one more in a list, with a verdict and its numbers.
    fn one(&mut self, allowed: bool, numbers: &Numbers) {
        self.text(if allowed { r#"{"allowed":true"# } else { r#"{"allowed":false"# });
        self.numbers(numbers);
    }

    fn numbers(&mut self, numbers: &Numbers) {
        let Numbers { limit, remaining, retry_after_ns, reset_after_ns, never } = *numbers;
        self.some(r#","limit":"#, limit);
        self.some(r#","remaining":"#, remaining);
        self.number(r#","retry_after_ns":"#, retry_after_ns);
        self.some(r#","reset_after_ns":"#, reset_after_ns);
        // Present only if no wait would help.
        if never {
            self.text(r#","never":true"#);
        }
    }

    /// A list of objects, each written by `write`.
    fn results<T>(&mut self, all: impl Iterator<Item = T>, write: impl Fn(&mut Object, T)) {
        self.text(r#","results":["#);
        for (number, one) in all.enumerate() {
            if number > 0 {
                self.text(",");
            }
            write(self, one);
            self.text("}");
        }
        self.text("]");
    }

    fn some(&mut self, name: &'static str, value: Option<u64>) {
        if value.is_some() {
            self.number(name, value);
        }
    }

    fn number(&mut self, name: &'static str, value: Option<u64>) {
        self.text(name);
        match value {
            Some(value) => self.text(itoa::Buffer::new().format(value)),
            None => self.text("null"),
        }
    }

    fn flag(&mut self, name: &'static str, value: bool) {
        self.text(name);
        self.text(if value { "true" } else { "false" });
    }

    /// Whether this node decided by itself: present only if the store did not answer.
    fn local(&mut self, local: bool) {
        if local {
            self.flag(r#","local":"#, true);
        }
    }

    /// Text from outside, with the escapes that it needs.
    fn quoted(&mut self, name: &'static str, value: &str) {
        self.text(name);
        // Text always is JSON.
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    /// One of our own words, which needs no escapes.
    fn word(&mut self, name: &'static str, value: &'static str) {
        self.text(name);
        self.text("\"");
        self.text(value);
        self.text("\"");
    }

    /// What needs no escapes.
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn end(mut self) -> Vec<u8> {
        self.text("}");
        self.0
    }
}

/// The answer to one key under its own limit.
pub(super) fn decision(
    inline: &Inline<'_>,
    Sourced { answer: decision, local }: &Sourced<Decision>,
    now: Time,
) -> Reply {
    let mut body = Object::answer(decision.is_allowed(), &Numbers::of(decision));
    body.local(*local);
    own_limits(std::iter::once((inline, decision, decision.retry())), decision.retry(), body, now)
}

/// The answer to one key whose caller would wait for its turn.
pub(super) fn shaped(inline: &Inline<'_>, Shaped { decision, turn, local }: &Shaped, now: Time) -> Reply {
    let retry = turn.err();
    let mut body = Object::answer(turn.is_ok(), &Numbers::of(decision).with_retry(retry));
    // How long to wait before going on; nothing if it may not.
    body.number(r#","wait_ns":"#, turn.ok().map(nanos));
    body.local(*local);
    own_limits(std::iter::once((inline, decision, retry)), retry, body, now)
}

/// The answer to several keys under their own limits.
pub(super) fn decisions(
    all: &[Inline<'_>],
    Sourced { answer: decisions, local }: &Sourced<Decisions>,
    now: Time,
) -> Reply {
    let numbers = decisions.strictest().map(Numbers::of).unwrap_or_default();
    let mut body = Object::answer(decisions.is_allowed(), &numbers.with_retry(decisions.retry()));
    body.local(*local);
    body.results(decisions.iter(), |body, one| body.one(one.is_allowed(), &Numbers::of(one)));
    let decided = all.iter().zip(decisions.iter()).map(|(inline, decision)| (inline, decision, decision.retry()));
    own_limits(decided, decisions.retry(), body, now)
}

/// What is told of limits that callers brought: each with its decision, and when to retry if it denies.
fn own_limits<'a>(
    decided: impl Iterator<Item = (&'a Inline<'a>, &'a Decision, Option<Retry>)>,
    retry: Option<Retry>,
    body: Object,
    now: Time,
) -> Reply {
    let mut told = LimitsTold::new();
    let mut violated: Vec<&str> = Vec::new();
    for (inline, decision, retry) in decided {
        let denies = retry.is_some();
        let wait = match retry {
            Some(Retry::After(wait)) => wait,
            _ => {
                let phase = caller_phase(inline.key.as_bytes(), &inline.limit);
                headers::wait(&inline.limit, phase, decision, denies, || now)
            }
        };
        let (name, shown, remaining) = (&*inline.name, inline.shown, decision.remaining());
        if denies && !violated.contains(&name) {
            violated.push(name);
        }
        let binding = Binding::new(true, decision.strictness());
        let (never, family) = (retry == Some(Retry::Never), Headers::Standard);
        headers::push(
            &mut told,
            LimitNumbers { name, shown, texts: None, remaining, wait, denies, never, binding, family },
        );
    }
    if violated.is_empty() {
        let mut reply = reply(StatusCode::OK, JSON, body.end());
        match &told[..] {
            [one] => add_limit(&mut reply, one),
            _ => add_headers(&mut reply, headers::serialize(&told, None, false, now)),
        }
        forbid_caching(&mut reply);
        return reply;
    }
    let seconds = match retry {
        Some(Retry::After(wait) | Retry::Unknown(wait)) => Some(headers::retry_seconds(wait)),
        Some(Retry::Never) | None => None,
    };
    let (status, problem) = headers::problem_of(Denial::OverLimit, retry, &violated, false);
    let mut reply = denied(status, Some(problem), body.end());
    add_headers(&mut reply, headers::serialize(&told, seconds, true, now));
    reply
}

/// A limit that a caller brought, and what is told of it.
struct LastTold {
    name: String,
    shown: Shown,
    texts: LimitTexts,
    policy: HeaderValue,
}

thread_local! {
    /// The limit that was told of last on this thread: most callers write the same limit in every check.
    static LAST_TOLD: RefCell<Option<LastTold>> = const { RefCell::new(None) };
}

/// Adds what [`headers::serialize`] makes of one limit that passes.
fn add_limit(reply: &mut Reply, one: &LimitNumbers<'_>) {
    let told = LAST_TOLD.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|last| last.name != one.name || last.shown != one.shown) {
            let texts = LimitTexts::new(one.name, one.shown);
            // They are made of printable ASCII.
            let policy = HeaderValue::from_str(texts.policy()).ok()?;
            *last = Some(LastTold { name: one.name.to_owned(), shown: one.shown, texts, policy });
        }
        let last = last.as_ref()?;
        let limit = last.texts.with_limit(one.remaining, one.wait, |value| HeaderValue::from_str(value).ok());
        Some((last.policy.clone(), limit?))
    });
    if let Some((policy, limit)) = told {
        reply.headers_mut().insert(RATELIMIT_POLICY, policy);
        reply.headers_mut().insert(RATELIMIT, limit);
    }
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

/// A denial of which nothing else may be told.
const HIDDEN: &[u8] = br#"{"allowed":false}"#;

/// The answer to a request that rules decided.
pub(super) fn outcome(outcome: &Outcome, now: Time) -> Reply {
    let headers = headers::headers(outcome, Some(Headers::Standard), now);
    // The numbers of a rule that lets the request pass say nothing of why another denied it.
    let strictest = outcome.strictest_among(|one| {
        let is_told = !is_hidden(one) && !is_shadow(one) && one.answer.decision().is_some();
        is_told && (outcome.is_allowed() || one.denies())
    });
    let numbers = strictest.and_then(|one| one.answer.decision().map(Numbers::of)).unwrap_or_default();
    let numbers = numbers.with_retry(outcome.retry_among(|one| !is_hidden(one)));
    let body = || {
        let mut body = Object::answer(outcome.is_allowed(), &numbers);
        body.results(outcome.judgements().filter(|one| !is_hidden(one)), write_result);
        body.end()
    };
    let mut reply = match headers::problem(outcome) {
        None => once(reply(StatusCode::OK, JSON, body())),
        Some((status, problem)) if headers::is_hidden_denial(outcome) => denied(status, problem, HIDDEN.into()),
        Some((status, problem)) => denied(status, problem, body()),
    };
    add_headers(&mut reply, headers);
    reply
}

/// A denial: its problem with the numbers as further members, or the numbers alone if the rules want no problem.
pub(super) fn denied(status: u16, problem: Option<String>, members: Vec<u8>) -> Reply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut answer = match problem {
        None => reply(status, JSON, members),
        Some(problem) => {
            let mut problem = problem.into_bytes();
            // Both are objects: the second goes on where the first ends.
            problem.pop();
            problem.push(b',');
            problem.extend_from_slice(members.get(1..).unwrap_or(b"}"));
            reply(status, PROBLEM_TYPE, problem)
        }
    };
    forbid_caching(&mut answer);
    answer
}

/// What one limit of one rule said.
fn write_result(body: &mut Object, judgement: Judgement<'_>) {
    let allowed = judgement.answer.is_allowed();
    body.number(r#"{"descriptor":"#, u64::try_from(judgement.descriptor).ok());
    if let Some(rule) = judgement.rule {
        body.quoted(r#","rule":"#, &rule.name);
    }
    if let Some(limit) = judgement.limit {
        body.quoted(r#","policy":"#, &limit.name);
    }
    body.word(r#","mode":"#, if is_shadow(&judgement) { "shadow" } else { "enforce" });
    body.word(r#","verdict":"#, judgement.answer.verdict());
    body.flag(r#","allowed":"#, is_shadow(&judgement) || !judgement.denies());
    // Whether it would deny, were it not in shadow or another quota left.
    body.flag(r#","would_deny":"#, !allowed);
    body.local(judgement.local);
    body.numbers(&Numbers::of_answer(&judgement.answer));
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tidegate_core::Strictness;

    use super::*;

    #[test]
    fn a_limit_is_told_by_its_own_name_and_numbers_whatever_was_told_before() {
        let wait = Duration::from_secs(5);
        let binding = Binding::new(true, Strictness::new(true, 1, wait));
        let (minute, hour) = (60_000_000_000, 3_600_000_000_000);
        let mut reply = empty(StatusCode::OK);
        for (name, units, period_ns) in
            [("a", 9, minute), ("a", 9, minute), ("a", 8, minute), ("a", 8, hour), ("b", 8, hour), ("a", 8, hour)]
        {
            let (shown, denies, never, family) = (Shown { units, period_ns }, false, false, Headers::Standard);
            let one = LimitNumbers { name, shown, texts: None, remaining: 1, wait, denies, never, binding, family };
            add_limit(&mut reply, &one);
            for (name, value) in headers::serialize(&[one], None, false, Time::from_nanos(0)) {
                assert_eq!(reply.headers()[name], value);
            }
        }
    }
}
