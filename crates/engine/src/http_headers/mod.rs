//! Limits in responses: the header families and the problem body, for all front ends alike.
//!
//! | to find | look in |
//! |---|---|
//! | all headers of an outcome: [`tell`], [`headers()`] | `mod.rs` |
//! | the wait of a denied client: [`retry_wait`], [`retry_seconds`] | `mod.rs` |
//! | the headers about limits, of rules or not: [`LimitNumbers`], [`serialize`] | `families.rs` |
//! | the status and the body of a denial: [`problem()`], [`problem_of`], [`Problem`] | `problem.rs` |
//!
//! On a denial `RateLimit` lists the limits that deny and no others: `Retry-After` is the longest of their waits, so it
//! never points earlier than the end of any `t` beside it. `RateLimit-Policy` lists all. If the cost is above a whole
//! limit, no wait helps: there is no `Retry-After`, and no `t` of that limit.

mod families;
mod problem;

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::{Decision, Limit, Phase, Retry, Time};
use tidegate_policy::{Headers, Mode, ResponseOptions, Shown};

use crate::bounds::POLICIES_TOLD_MAX;
use crate::outcome::{Answer, Binding, Judgement, Outcome};

use families::tell_limits;
pub use families::{LimitTexts, serialize};
pub use problem::{COST_FAILED, NEVER_FITS, PROBLEM_TYPE, Problem, problem, problem_of};

/// A name in lower case, and its value.
pub type Header = (&'static str, String);

/// The header with the id of a denial.
pub const DECISION: &str = "tidegate-decision";

/// The name in headers of limits that a request brought.
pub const OWN_LIMIT_NAME: &str = "request";

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The numbers of one limit in headers.
#[derive(Clone, Copy, Debug)]
pub struct LimitNumbers<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its units and period.
    pub shown: Shown,
    /// The texts about it, if they are kept; else they are made anew.
    pub texts: Option<&'a LimitTexts>,
    /// Units that remain.
    pub remaining: u64,
    /// How long `remaining` is all there is: see [`wait`].
    pub wait: Duration,
    /// Whether it denies the request.
    pub denies: bool,
    /// Whether it always denies the request, however long the client waits: `RateLimit` then has no time. Older
    /// families cannot leave it out.
    pub never: bool,
    /// How much it binds, compared with others.
    pub binding: Binding,
    /// The family of headers that shows it.
    pub family: Headers,
}

/// The limits in the headers of one response.
pub type LimitsTold<'a> = ArrayVec<LimitNumbers<'a>, POLICIES_TOLD_MAX>;

/// Passes each header of an outcome to `each`, with its name in lower case. `unsaid` is the family for rules that set
/// none; with `None` they get no headers. The instant is read only for the few headers that need it.
pub fn tell(
    outcome: &Outcome,
    unsaid: Option<Headers>,
    now: impl Fn() -> Time,
    mut each: impl FnMut(&'static str, &str),
) {
    if let Some((texts, remaining, wait)) = standard_alone(outcome, unsaid, &now) {
        each("ratelimit-policy", texts.policy());
        return texts.with_limit(remaining, wait, |value| each("ratelimit", value));
    }
    if is_hidden_denial(outcome) {
        return;
    }
    let mut told = LimitsTold::new();
    for judgement in outcome.judgements().filter(is_visible) {
        if let Some(one) = LimitNumbers::of(&judgement, unsaid, &now) {
            push(&mut told, one);
        }
    }
    let retry_after = lazy_retry_wait(outcome, unsaid, &now).map(retry_seconds);
    tell_limits(&told, retry_after, !outcome.is_allowed(), &now, &mut each);
    if let Some(id) = outcome.decision_id() {
        each(DECISION, &id.to_string());
    }
}

/// What is told where one limit judged a request and let it pass, in the standard headers. Most answers tell no more, and
/// need no list.
fn standard_alone(
    outcome: &Outcome,
    unsaid: Option<Headers>,
    now: impl FnOnce() -> Time,
) -> Option<(&LimitTexts, u64, Duration)> {
    let mut judgements = outcome.judgements();
    let (Some(alone), None) = (judgements.next(), judgements.next()) else { return None };
    if options(&alone).headers.or(unsaid)? != Headers::Standard || alone.denies() || !is_visible(&alone) {
        return None;
    }
    let decision = alone.answer.decision()?;
    let wait = wait(&limit(&alone)?, alone.phase, decision, false, now);
    Some((alone.texts?, decision.remaining(), wait))
}

/// Returns all headers of an outcome, as [`tell`] passes them.
pub fn headers(outcome: &Outcome, unsaid: Option<Headers>, now: Time) -> Vec<Header> {
    let mut headers = Vec::new();
    tell(outcome, unsaid, || now, |name, value| headers.push((name, value.to_owned())));
    headers
}

impl<'a> LimitNumbers<'a> {
    /// What is told of a judgement; nothing if it has no numbers.
    fn of(judgement: &Judgement<'a>, unsaid: Option<Headers>, now: impl Fn() -> Time) -> Option<LimitNumbers<'a>> {
        // First of all, since over Envoy's protocol most rules say none.
        let family = options(judgement).headers.or(unsaid)?;
        let shown = judgement.shown?;
        let (remaining, wait) = match &judgement.answer {
            Answer::Decided(decision) => {
                (decision.remaining(), wait(&limit(judgement)?, judgement.phase, decision, judgement.denies(), now))
            }
            Answer::Penalised(left) => (0, *left),
            Answer::Blocked | Answer::Unlimited | Answer::NotAsked => return None,
            Answer::Failed { .. } | Answer::CostFailed | Answer::Overloaded => return None,
        };
        let (name, denies, binding) = (name_of(judgement), judgement.denies(), judgement.binding());
        let never = denies && judgement.answer.retry() == Some(Retry::Never);
        let texts = judgement.texts;
        Some(LimitNumbers { name, shown, texts, remaining, wait, denies, never, binding, family })
    }
}

/// Returns how long a client has to make do with the remaining units. After a denial: until the same request would
/// pass. Otherwise until the limit is as if never used; for a fixed window that is its end, even if it is unused so
/// far. Only this case reads the instant, so that callers need not read a clock in vain.
pub fn wait(limit: &Limit, phase: Phase, decision: &Decision, denies: bool, now: impl FnOnce() -> Time) -> Duration {
    if let (true, Some(wait)) = (denies, decision.retry_after()) {
        return wait;
    }
    let reset = decision.reset_after();
    if !limit.resets_at_once() || !reset.is_zero() {
        return reset;
    }
    let now = now();
    let end = limit.resets_at(phase, now).unwrap_or(now);
    Duration::from_nanos(end.as_nanos().saturating_sub(now.as_nanos()))
}

/// Returns whole seconds, rounded up.
#[inline]
pub fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Returns the limit of a judgement.
pub fn limit(judgement: &Judgement<'_>) -> Option<Limit> {
    judgement.own.or(judgement.limit.map(|limit| limit.limit))
}

/// Returns the response options of a judgement's rule.
pub fn options(judgement: &Judgement<'_>) -> ResponseOptions {
    judgement.rule.map(|rule| rule.response).unwrap_or_default()
}

fn name_of<'a>(judgement: &Judgement<'a>) -> &'a str {
    let of_rule = judgement.rule.map_or(OWN_LIMIT_NAME, |rule| &rule.name);
    judgement.limit.map_or(of_rule, |limit| &limit.name)
}

/// Whether clients may hear of a judgement. A rule in shadow must not be felt, so it is not told of either.
fn is_visible(judgement: &Judgement<'_>) -> bool {
    !options(judgement).hidden && judgement.mode != Mode::Shadow
}

/// Returns whether a request is denied by hidden rules alone: then no other rules are shown either, or clients would
/// learn that it was not those.
pub fn is_hidden_denial(outcome: &Outcome) -> bool {
    outcome.denial().is_some() && outcome.judgements().filter(Judgement::denies).all(|one| options(&one).hidden)
}

/// Adds a limit. Limits of the same name, as of one rule for several descriptors, are shown once, the strictest.
pub fn push<'a>(told: &mut LimitsTold<'a>, one: LimitNumbers<'a>) {
    let same = |other: &&mut LimitNumbers<'_>| other.name == one.name && other.family == one.family;
    if let Some(same) = told.iter_mut().find(same) {
        // Whoever waits for one of them waits in vain if the other never lets pass.
        let never = same.never || one.never;
        if one.binding < same.binding {
            *same = one;
        }
        same.never = never;
    } else if !told.is_full() {
        told.push(one);
    } else if let Some(mildest) = told.iter_mut().max_by_key(|other| other.binding)
        && one.binding < mildest.binding
    {
        *mildest = one;
    }
}

/// Returns how long to wait after the denials that may be shown, or `None` if nothing was denied or waiting does not
/// help.
pub fn retry_wait(outcome: &Outcome, unsaid: Option<Headers>, now: Time) -> Option<Duration> {
    lazy_retry_wait(outcome, unsaid, || now)
}

fn lazy_retry_wait(outcome: &Outcome, unsaid: Option<Headers>, now: impl FnOnce() -> Time) -> Option<Duration> {
    let is_told = |options: &ResponseOptions| !options.hidden && options.headers.or(unsaid).is_some();
    let retry = outcome.retry_among(|judgement| is_told(&options(judgement)))?;
    let told = outcome.judgements().filter(Judgement::denies).map(|judgement| options(&judgement)).filter(is_told);
    let jitter = told.map(|options| options.retry_jitter).max().unwrap_or_default();
    match retry {
        Retry::After(wait) | Retry::Unknown(wait) => {
            Some(if jitter.is_zero() { wait } else { jittered(wait, jitter, now()) })
        }
        Retry::Never => None,
    }
}

/// Returns the `Retry-After` of a wait: whole seconds, at least 1.
#[must_use]
pub fn retry_seconds(wait: Duration) -> u64 {
    seconds(wait).max(1)
}

/// A wait with up to `jitter` added, so that not all come back at once.
fn jittered(wait: Duration, jitter: Duration, now: Time) -> Duration {
    // Any source will do that differs between requests: the clock, well mixed (SplitMix64).
    let mixed = now.as_nanos().wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let scaled = jitter.as_nanos().saturating_mul(u128::from((mixed ^ (mixed >> 31)) >> 32)) >> 32;
    let added = Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX));
    wait.saturating_add(added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{FakeClock, Key, Limit, Limiter, Op};

    const NOW: Time = Time::from_nanos(1_700_000_000_500_000_000);

    #[test]
    fn waits_round_up_and_jitter_only_adds() {
        for (wait, expected) in [(0, 1), (1, 1), (NANOS_PER_SECOND, 1), (NANOS_PER_SECOND + 1, 2)] {
            assert_eq!(retry_seconds(jittered(Duration::from_nanos(wait), Duration::ZERO, NOW)), expected, "{wait} ns");
        }
        let all: Vec<u64> = (0..100)
            .map(|n| jittered(Duration::from_secs(10), Duration::from_secs(5), Time::from_nanos(NOW.as_nanos() + n)))
            .map(retry_seconds)
            .collect();
        assert!(all.iter().all(|seconds| (10..=15).contains(seconds)), "{all:?}");
        assert!(all.contains(&11) && all.contains(&15), "{all:?}");
    }

    #[test]
    fn a_fixed_window_resets_at_its_end_though_nobody_used_it() {
        let period = 60 * NANOS_PER_SECOND;
        let limit = Limit::fixed_window(2, Duration::from_secs(60)).unwrap();
        let clock = FakeClock::at(NOW);
        let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
        let key = Key::new("k").unwrap();
        let left = Duration::from_nanos(period - NOW.as_nanos() % period);
        for (op, denies) in [(Op::Peek, false), (Op::Take(2), false), (Op::Take(1), true), (Op::Take(3), true)] {
            let decision = limiter.store().decide(key, &limit, op);
            assert_eq!(wait(&limit, Phase::default(), &decision, denies, || NOW), left, "{op:?}");
        }
    }

    #[test]
    fn an_unused_staggered_window_resets_at_its_own_end() {
        let limit = Limit::fixed_window(2, Duration::from_secs(60)).unwrap().staggered();
        let limiter = Limiter::builder(limit).clock(FakeClock::at(NOW)).build().unwrap();
        let mut ends = Vec::new();
        for name in ["ann", "bob", "eve"] {
            let key = Key::new(name).unwrap();
            let phase = limit.phase(tidegate_core::Namespace::root(), key);
            let told = |op| wait(&limit, phase, &limiter.store().decide(key, &limit, op), false, || NOW);
            let unused = told(Op::Peek);
            assert_eq!(unused, told(Op::Take(1)), "{name}: as when it is used");
            ends.push(unused);
        }
        ends.dedup();
        assert_eq!(ends.len(), 3, "each at its own time: {ends:?}");
    }
}
