//! Decisions by one limit, in memory and without awaiting.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tidegate_core::{CapacityError, Decision, DirectLimiter, Key, Limit, Limiter, Namespace, Op, Receipt, Retry, Time};
use tidegate_engine::http_headers::{self, LimitNumbers, LimitTexts};
use tidegate_engine::{Binding, Denial};
use tidegate_policy::{Headers, Shown};

use super::{Later, Ticket, Told, Verdict};
use crate::answer::{Denied, RATELIMIT, RATELIMIT_POLICY, Why};
use crate::key::{Extractor, KeyRoom};
use crate::missing_key::{Named, named_by};
use crate::{Head, MissingKey, Refusal, ResponseHead};

/// How a response changes what its request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// Changes nothing.
    Keep,
    /// Takes this many units more, even beyond the limit, since they were used. Units beyond the limit delay the next
    /// requests.
    Charge(u64),
    /// Gives this many units back, at most those that the request took: `Refund(u64::MAX)` returns all of them.
    Refund(u64),
}

pub(super) type CostOf = Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>;
pub(super) type SettleBy = Arc<dyn Fn(ResponseHead<'_>) -> Settle + Send + Sync>;

pub(super) struct LimitJudge {
    limiter: Limiter,
    /// For all requests without a key, apart from every key that a client could send.
    nameless: DirectLimiter,
    key: Extractor,
    missing: MissingKey,
    cost: Option<CostOf>,
    settle: Option<SettleBy>,
    tells_passed: bool,
    name: Box<str>,
    shown: Shown,
    texts: LimitTexts,
    policy_value: Option<HeaderValue>,
}

/// The units that a request took, and their key.
#[derive(Debug)]
pub(super) struct Taken {
    /// `None` if the request had no key.
    key: Option<Box<[u8]>>,
    units: u64,
    receipt: Option<Receipt>,
}

/// The parts that a judge is built from.
pub(super) struct Made {
    pub(super) limiter: Limiter,
    pub(super) key: Extractor,
    pub(super) missing: MissingKey,
    pub(super) cost: Option<CostOf>,
    pub(super) settle: Option<SettleBy>,
    pub(super) tells_passed: bool,
    pub(super) name: Box<str>,
}

impl LimitJudge {
    pub(super) fn new(made: Made) -> Result<LimitJudge, CapacityError> {
        let Made { limiter, key, missing, cost, settle, tells_passed, name } = made;
        let shown = shown(limiter.limit());
        let texts = LimitTexts::new(&name, shown);
        // It is made of printable ASCII.
        let policy_value = HeaderValue::from_str(texts.policy()).ok();
        let nameless = DirectLimiter::with_clock(*limiter.limit(), limiter.store().clock().clone())?;
        Ok(LimitJudge { limiter, nameless, key, missing, cost, settle, tells_passed, name, shown, texts, policy_value })
    }

    pub(super) fn limit(&self) -> &Limit {
        self.limiter.limit()
    }

    pub(super) fn judge(&self, head: &Head<'_>) -> Verdict {
        let mut room = KeyRoom::default();
        let key = match named_by(self.key.key(head, &mut room), self.missing) {
            Named::Key(key) => Some(key),
            Named::Nobody => None,
            Named::Skipped => return Verdict::Pass(None),
            Named::Denied(reason) => return Verdict::Deny(Box::new(Denied::refused(Refusal::without_key(reason)))),
        };
        let units = self.cost.as_ref().map_or(1, |cost| cost(head));
        let decision = self.decide(key, Op::Take(units));
        if !decision.is_allowed() {
            return Verdict::Deny(Box::new(self.denied(key, &decision)));
        }
        let later = match self.settle {
            Some(_) => {
                let key = key.map(|key| key.as_bytes().into());
                Later::Settle(Box::new(Taken { key, units, receipt: decision.receipt() }))
            }
            None => Later::Nothing,
        };
        let told = match self.tells_passed {
            true => Told::One { remaining: decision.remaining(), wait: self.wait(key, &decision, false) },
            false => Told::Nothing,
        };
        Verdict::Pass(Ticket::new(told, later))
    }

    fn decide(&self, key: Option<Key<'_>>, op: Op) -> Decision {
        match key {
            Some(key) => self.limiter.store().decide(key, self.limit(), op),
            None => self.nameless.decide(op),
        }
    }

    fn denied(&self, key: Option<Key<'_>>, decision: &Decision) -> Denied {
        let wait = decision.retry_after();
        let numbers = LimitNumbers {
            name: &self.name,
            shown: self.shown,
            texts: Some(&self.texts),
            remaining: decision.remaining(),
            wait: self.wait(key, decision, true),
            denies: true,
            never: decision.retry() == Some(Retry::Never),
            binding: Binding::new(true, decision.strictness()),
            family: Headers::Standard,
        };
        // The standard headers tell spans of time: the instant plays no part.
        let headers =
            http_headers::serialize(&[numbers], wait.map(http_headers::retry_seconds), true, Time::from_nanos(0));
        let (status, body) = http_headers::problem_of(Denial::OverLimit, decision.retry(), &[&self.name], false);
        Denied { why: Why::Denial(Denial::OverLimit), is_hidden: false, status, headers, body: Some(body), wait }
    }

    fn wait(&self, key: Option<Key<'_>>, decision: &Decision, denies: bool) -> Duration {
        let now = || self.limiter.store().clock().now();
        let phase = key.map(|key| self.limit().phase(Namespace::root(), key)).unwrap_or_default();
        http_headers::wait(self.limit(), phase, decision, denies, now)
    }

    /// Counts what a response changes.
    pub(super) fn settle(&self, taken: &Taken, head: ResponseHead<'_>) {
        let Some(settle) = &self.settle else { return };
        let key = taken.key.as_deref().and_then(|key| Key::new(key).ok());
        let op = match settle(head) {
            Settle::Keep => return,
            Settle::Charge(units) => Op::Debit(units),
            Settle::Refund(units) => Op::Refund(units.min(taken.units), taken.receipt),
        };
        self.decide(key, op);
    }

    /// Writes the state of the limit into headers.
    pub(super) fn tell(&self, remaining: u64, wait: Duration, headers: &mut HeaderMap) {
        if let Some(policy) = &self.policy_value {
            headers.append(&RATELIMIT_POLICY, policy.clone());
        }
        // It is made of printable ASCII; one that is not would be left out.
        if let Ok(value) = self.texts.with_limit(remaining, wait, HeaderValue::from_str) {
            headers.append(&RATELIMIT, value);
        }
    }
}

/// A limit as headers show it: its units, and the time in which all of them come back.
fn shown(limit: &Limit) -> Shown {
    const NANOS_PER_SECOND: u64 = 1_000_000_000;
    let (units, period_ns) = (limit.units(), u64::try_from(limit.period().as_nanos()).unwrap_or(u64::MAX));
    let beyond = period_ns % NANOS_PER_SECOND;
    // A unit of a bucket takes a time rounded up to whole nanoseconds, which makes less than one more for each unit.
    let is_rounded = limit.interval().is_some() && beyond < units && period_ns >= NANOS_PER_SECOND;
    Shown { units, period_ns: if is_rounded { period_ns - beyond } else { period_ns } }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Rate;

    use super::*;

    #[test]
    fn limits_as_they_are_told() {
        let minute = Duration::from_secs(60);
        let check = |limit: Limit, expected: &str| assert_eq!(LimitTexts::new("x", shown(&limit)).policy(), expected);
        check("100/minute".parse().unwrap(), "\"x\";q=100;w=60");
        check("7/second".parse().unwrap(), "\"x\";q=7;w=1");
        check("1/day".parse().unwrap(), "\"x\";q=1;w=86400");
        check(Limit::token_bucket(Rate::per_second(7).unwrap(), 14).unwrap(), "\"x\";q=14;w=2");
        check(Limit::gcra(Rate::per_second(10).unwrap(), 5).unwrap(), "\"x\";q=5");
        check(Limit::fixed_window(5, minute).unwrap(), "\"x\";q=5;w=60");
        check(Limit::sliding_log(5, minute).unwrap(), "\"x\";q=5;w=60");
        check(Limit::sliding_counter(5, minute).unwrap(), "\"x\";q=5;w=60");
        check(Limit::sliced_window(5, minute).unwrap(), "\"x\";q=5;w=60");
    }
}
