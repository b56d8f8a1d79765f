//! What answers tell of limits: the header families and the problem body, for all front ends alike.
//!
//! | to find | look in |
//! |---|---|
//! | all headers of an outcome | [`tell`], [`headers()`] |
//! | the headers of limits that did not come from rules | [`LimitNumbers`], [`serialize`] |
//! | the status and the body of a denial | [`problem()`], [`problem_of`], [`Problem`] |
//! | how long a denied client is told to wait | [`retry_wait`], [`retry_seconds`] |
//!
//! On a denial `RateLimit` tells of the limits that deny and no others: `Retry-After` is the longest of their waits, so
//! it never points earlier than the end of any `t` beside it. `RateLimit-Policy` tells of all. Where the cost is above a
//! whole limit no wait helps: there is no `Retry-After`, and no `t` of that limit.

use std::fmt::Write;
use std::time::Duration;

use arrayvec::ArrayVec;
use serde::Serialize;
use tidegate_core::{Algorithm, Decision, Retry, Time};
use tidegate_policy::{Headers, Mode, ResponseOptions, Shown};

use crate::bounds::POLICIES_TOLD_MAX;
use crate::outcome::{Answer, Binding, Denial, Judgement, Outcome};

/// A name in lower case, and its value.
pub type Header = (&'static str, String);

/// The media type of a problem body.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// What is told to those whose cost is above a whole limit.
pub const NEVER_FITS: &str = "the request costs more than the limit allows at once; waiting does not help";

/// What limits are called that a request brought with it.
pub const OWN_LIMIT_NAME: &str = "request";

/// The largest integer of RFC 9651.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// What one limit takes in a header, mostly.
const VALUE_BYTES: usize = 48;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The parameters of `RateLimit-Policy` and `RateLimit`. Drafts differ in little else, so another draft
/// is another table.
struct Draft {
    quota: &'static str,
    window: &'static str,
    remaining: &'static str,
    wait: &'static str,
}

const DRAFT_11: Draft = Draft { quota: ";q=", window: ";w=", remaining: ";r=", wait: ";t=" };

/// What is told of one limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitNumbers<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its units and period.
    pub shown: Shown,
    /// Units that are left.
    pub remaining: u64,
    /// How long `remaining` is all there is: see [`wait`].
    pub wait: Duration,
    /// Whether it denies the request.
    pub denies: bool,
    /// Whether it always will, however long one waits: `RateLimit` then has no time. Older families cannot leave it out.
    pub never: bool,
    /// How much it binds, beside others.
    pub binding: Binding,
    /// The headers that tell of it.
    pub family: Headers,
}

/// The limits that one answer tells of.
pub type LimitsTold<'a> = ArrayVec<LimitNumbers<'a>, POLICIES_TOLD_MAX>;

/// Tells all headers of an outcome, each by its name in lower case and its value. `unsaid` is the family of rules that do
/// not say one; if that is none, nothing at all is told of them. The instant plays a part in few of them, and is asked for
/// there.
pub fn tell(
    outcome: &Outcome,
    unsaid: Option<Headers>,
    now: impl Fn() -> Time,
    mut each: impl FnMut(&'static str, &str),
) {
    if is_hidden_denial(outcome) {
        return;
    }
    let mut told = LimitsTold::new();
    for judgement in outcome.judgements().filter(is_visible) {
        if let Some(one) = LimitNumbers::of(&judgement, unsaid, &now) {
            push(&mut told, one);
        }
    }
    let retry_after = retry_wait(outcome, unsaid, &now).map(retry_seconds);
    tell_limits(&told, retry_after, !outcome.is_allowed(), &now, &mut each);
}

/// All headers of an outcome, as [`tell`] tells them.
pub fn headers(outcome: &Outcome, unsaid: Option<Headers>, now: Time) -> Vec<Header> {
    let mut headers = Vec::new();
    tell(outcome, unsaid, || now, |name, value| headers.push((name, value.to_owned())));
    headers
}

/// The headers of limits. On a denial `RateLimit` names those that deny; `retry_after` is in seconds.
pub fn serialize(told: &[LimitNumbers<'_>], retry_after: Option<u64>, denied: bool, now: Time) -> Vec<Header> {
    let mut headers = Vec::new();
    tell_limits(told, retry_after, denied, &|| now, &mut |name, value| headers.push((name, value.to_owned())));
    headers
}

fn tell_limits(
    told: &[LimitNumbers<'_>],
    retry_after: Option<u64>,
    denied: bool,
    now: &impl Fn() -> Time,
    each: &mut impl FnMut(&'static str, &str),
) {
    for family in [Headers::Standard, Headers::Draft03, Headers::Legacy, Headers::LegacyEpoch] {
        // Of families that tell of one limit, a denial is told by one that denies, or not at all.
        let is_wanted =
            |one: &&LimitNumbers<'_>| one.family == family && (family == Headers::Standard || one.denies || !denied);
        let of_family = told.iter().filter(is_wanted);
        match (family, of_family.clone().min_by_key(|one| one.binding)) {
            (_, None) | (Headers::None, _) => {}
            (Headers::Standard, Some(_)) => standard(&DRAFT_11, of_family, denied, each),
            (Headers::Draft03, Some(strictest)) => draft_03(strictest, each),
            (Headers::Legacy, Some(strictest)) => legacy(strictest, seconds(strictest.wait), each),
            (Headers::LegacyEpoch, Some(strictest)) => {
                let epoch = now().plus(strictest.wait).as_nanos().div_ceil(NANOS_PER_SECOND);
                legacy(strictest, epoch, each);
            }
        }
    }
    if let Some(seconds) = retry_after {
        number("retry-after", seconds, each);
    }
}

impl<'a> LimitNumbers<'a> {
    /// What is told of a judgement; nothing if it has no numbers.
    fn of(judgement: &Judgement<'a>, unsaid: Option<Headers>, now: impl Fn() -> Time) -> Option<LimitNumbers<'a>> {
        // First of all, since over Envoy's protocol most rules say none.
        let family = options(judgement).headers.or(unsaid)?;
        let shown = judgement.shown?;
        let (remaining, wait) = match &judgement.answer {
            Answer::Decided(decision) => {
                (decision.remaining(), wait(algorithm(judgement)?, shown, decision, judgement.denies(), now))
            }
            Answer::Penalised(left) => (0, *left),
            Answer::Blocked | Answer::Unlimited | Answer::Failed { .. } | Answer::NotAsked => return None,
        };
        let (name, denies, binding) = (name_of(judgement), judgement.denies(), judgement.binding());
        let never = denies && judgement.answer.retry() == Some(Retry::Never);
        Some(LimitNumbers { name, shown, remaining, wait, denies, never, binding, family })
    }
}

/// How long a client has to make do with what is left. If it was denied: until the same request would pass. Else until
/// the limit is as if never used; a fixed window is so at its end, though nobody used it yet, which alone takes to know
/// what time it is.
pub fn wait(
    algorithm: Algorithm,
    shown: Shown,
    decision: &Decision,
    denies: bool,
    now: impl FnOnce() -> Time,
) -> Duration {
    if let (true, Some(wait)) = (denies, decision.retry_after()) {
        return wait;
    }
    let reset = decision.reset_after();
    if algorithm == Algorithm::FixedWindow && reset.is_zero() {
        let window = shown.period_ns.max(1);
        return Duration::from_nanos(window - now().as_nanos() % window);
    }
    reset
}

/// Whole seconds, rounded up.
#[inline]
pub fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// How the limit of a judgement counts.
pub fn algorithm(judgement: &Judgement<'_>) -> Option<Algorithm> {
    judgement.own.or(judgement.limit.map(|limit| limit.limit)).map(|limit| limit.algorithm())
}

/// What the answers of a judgement's rule say.
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

/// Whether a request is denied by nothing but hidden rules: then nothing is told of other rules either, or clients would
/// learn that it was not those.
pub fn is_hidden_denial(outcome: &Outcome) -> bool {
    outcome.denial().is_some() && outcome.judgements().filter(Judgement::denies).all(|one| options(&one).hidden)
}

/// Adds a limit. Limits of the same name, as of one rule for several descriptors, are told of once, the strictest.
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

/// How long to wait after the denials that may be told. None if nothing was denied, or waiting is of no use.
pub fn retry_wait(outcome: &Outcome, unsaid: Option<Headers>, now: impl FnOnce() -> Time) -> Option<Duration> {
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

/// `Retry-After` of a wait: whole seconds, at least 1.
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

fn standard<'t>(
    draft: &Draft,
    told: impl Iterator<Item = &'t LimitNumbers<'t>> + Clone,
    denied: bool,
    each: &mut impl FnMut(&'static str, &str),
) {
    let mut value = String::with_capacity(VALUE_BYTES);
    told.clone().for_each(|one| policy(draft, &mut value, one.name, one.shown));
    each("ratelimit-policy", &value);
    value.clear();
    for one in told.filter(|one| one.denies || !denied) {
        left(draft, &mut value, one.name, one.remaining, (!one.never).then_some(one.wait));
    }
    if !value.is_empty() {
        each("ratelimit", &value);
    }
}

fn policy(draft: &Draft, policies: &mut String, name: &str, shown: Shown) {
    item(policies, name);
    parameter(policies, draft.quota, shown.units);
    // A window that is no whole number of seconds cannot be told, and a wrong one helps nobody.
    if shown.period_ns > 0 && shown.period_ns.is_multiple_of(NANOS_PER_SECOND) {
        parameter(policies, draft.window, shown.period_ns / NANOS_PER_SECOND);
    }
}

fn left(draft: &Draft, limits: &mut String, name: &str, remaining: u64, wait: Option<Duration>) {
    item(limits, name);
    parameter(limits, draft.remaining, remaining);
    if let Some(wait) = wait {
        parameter(limits, draft.wait, seconds(wait));
    }
}

/// The value of `RateLimit-Policy` for one limit: it stays as it is, so it can be made once.
#[must_use]
pub fn policy_value(name: &str, shown: Shown) -> String {
    let mut value = String::new();
    policy(&DRAFT_11, &mut value, name, shown);
    value
}

/// The value of `RateLimit` for one limit that lets pass; for `wait`, see [`wait()`].
#[must_use]
pub fn limit_value(name: &str, remaining: u64, wait: Duration) -> String {
    let mut value = String::with_capacity(VALUE_BYTES);
    left(&DRAFT_11, &mut value, name, remaining, Some(wait));
    value
}

fn draft_03(one: &LimitNumbers<'_>, each: &mut impl FnMut(&'static str, &str)) {
    let window = one.shown.period_ns.div_ceil(NANOS_PER_SECOND);
    each("ratelimit-limit", &format!("{units}, {units};w={window}", units = one.shown.units));
    number("ratelimit-remaining", one.remaining, each);
    number("ratelimit-reset", seconds(one.wait), each);
}

fn legacy(one: &LimitNumbers<'_>, reset: u64, each: &mut impl FnMut(&'static str, &str)) {
    number("x-ratelimit-limit", one.shown.units, each);
    number("x-ratelimit-remaining", one.remaining, each);
    number("x-ratelimit-reset", reset, each);
}

fn number(name: &'static str, value: u64, each: &mut impl FnMut(&'static str, &str)) {
    each(name, itoa::Buffer::new().format(value));
}

/// Appends a String of RFC 9651 as a member of a List. Such a String is printable ASCII: other bytes are
/// percent-encoded.
fn item(list: &mut String, name: &str) {
    list.push_str(if list.is_empty() { "\"" } else { ", \"" });
    // Most names need no care.
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        list.push_str(name);
        return list.push('"');
    }
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => list.extend(['\\', char::from(byte)]),
            b' '..=b'~' => list.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(list, "%{byte:02X}");
            }
        }
    }
    list.push('"');
}

fn parameter(list: &mut String, name: &'static str, value: u64) {
    list.push_str(name);
    list.push_str(itoa::Buffer::new().format(value.min(INTEGER_MAX)));
}

/// The HTTP status of a denial, and its body unless a rule that denies wants none.
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
    let (status, body) = problem_of(denial, retry, &violated, is_hidden);
    Some((status, has_body.then_some(body)))
}

/// The HTTP status of a denial and its body, RFC 9457, given when to ask again. Of a hidden one it tells no more than the
/// status does.
pub fn problem_of(denial: Denial, retry: Option<Retry>, violated: &[&str], is_hidden: bool) -> (u16, String) {
    let problem = match (denial, retry, is_hidden) {
        (Denial::OverLimit, Some(Retry::Never), false) => Problem::never_fits(),
        _ => Problem::of(denial, is_hidden),
    };
    let problem = Problem { violated, ..problem };
    (problem.status, problem.to_json())
}

/// A problem as RFC 9457 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Problem<'a> {
    /// What kind of problem it is: a URI.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The same in a few words.
    pub title: &'a str,
    /// The status it is answered with.
    pub status: u16,
    /// What it was this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
    /// The limits that deny.
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    pub violated: &'a [&'a str],
}

impl<'a> Problem<'a> {
    /// That of a denial. Of a hidden one it tells no more than the status does.
    #[must_use]
    pub fn of(denial: Denial, is_hidden: bool) -> Problem<'a> {
        const REGISTERED: [&str; 3] = [
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        ];
        let (status, blank_title, kind, title) = match denial {
            Denial::OverLimit => (429, "Too Many Requests", REGISTERED[0], "The quota is used up"),
            Denial::StoreFailure => (503, "Service Unavailable", REGISTERED[1], "Capacity is reduced for a time"),
            Denial::Penalty => (429, "Too Many Requests", REGISTERED[2], "Too much was asked before"),
            Denial::Blocked => return Problem::of_status(403, "Forbidden"),
        };
        match is_hidden {
            true => Problem::of_status(status, blank_title),
            false => Problem { kind, title, ..Problem::of_status(status, blank_title) },
        }
    }

    /// That of a request whose cost is above a whole limit. No kind that is registered says so: a quota that is used up
    /// comes back.
    #[must_use]
    pub fn never_fits() -> Problem<'a> {
        Problem { detail: Some(NEVER_FITS), ..Problem::of_status(429, "Too Many Requests") }
    }

    /// One of which its status tells all, with the words that HTTP has for it.
    #[must_use]
    pub fn of_status(status: u16, title: &'a str) -> Problem<'a> {
        Problem { kind: "about:blank", title, status, detail: None, violated: &[] }
    }

    /// The body, of the type [`PROBLEM_TYPE`].
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
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
        let shown = Shown { units: 2, period_ns: 60 * NANOS_PER_SECOND };
        let limit = Limit::fixed_window(2, Duration::from_secs(60)).unwrap();
        let clock = FakeClock::at(NOW);
        let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
        let key = Key::new("k").unwrap();
        let left = Duration::from_nanos(shown.period_ns - NOW.as_nanos() % shown.period_ns);
        for (op, denies) in [(Op::Peek, false), (Op::Take(2), false), (Op::Take(1), true), (Op::Take(3), true)] {
            let decision = limiter.store().decide(key, &limit, op);
            assert_eq!(wait(limit.algorithm(), shown, &decision, denies, || NOW), left, "{op:?}");
        }
    }

    #[test]
    fn one_limit_is_told_as_among_others() {
        let shown = Shown { units: 100, period_ns: 60 * NANOS_PER_SECOND };
        let wait = Duration::from_millis(29_001);
        let binding = Binding::new(true, tidegate_core::Strictness::new(true, 50, wait));
        let family = Headers::Standard;
        let (denies, never) = (false, false);
        let one = LimitNumbers { name: "a \"b\"", shown, remaining: 50, wait, denies, never, binding, family };
        let expected =
            [("ratelimit-policy", policy_value(one.name, shown)), ("ratelimit", limit_value(one.name, 50, wait))];
        assert_eq!(serialize(&[one], None, false, NOW), expected);
    }
}
