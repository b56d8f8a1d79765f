//! Counts of requests for the rules that decided about them.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use tidegate_core::{Decision, KeyCounts};
use tidegate_policy::{Action, Ask, Descriptor, MISSING_KEY, Request};

use crate::bounds::{SERIES_MAX, SERIES_VALUE_BYTES_MAX};
use crate::engine::Engine;
use crate::outcome::{Answer, Judged, Outcome};
use crate::plan::{Plan, Step};
use crate::stats::Counter;

impl Engine {
    /// Adds a request to the counts of the rules that judged it.
    pub(crate) fn count(&self, request: &Request<'_>, plan: &Plan, outcome: &Outcome) {
        let mut number = 0;
        let all = outcome.judged.as_slice();
        while let Some(first) = all.get(number) {
            let same = |judged: &&Judged| (judged.descriptor, judged.rule) == (first.descriptor, first.rule);
            let group = number..number + all[number..].iter().take_while(same).count();
            self.count_rule(request, plan, outcome, group.clone());
            number = group.end;
        }
    }

    /// Adds the judgements of one rule, one for each of its limits, to its counts.
    fn count_rule(&self, request: &Request<'_>, plan: &Plan, outcome: &Outcome, group: std::ops::Range<usize>) {
        let (Some(judged), Some(planned)) = (outcome.judged.as_slice().get(group.clone()), plan.planned.get(group))
        else {
            return;
        };
        let (Some(first), Some(asked)) = (judged.first(), planned.first()) else { return };
        let Some((id, record)) = first.rule.and_then(|id| Some((id, outcome.active.record(id)?))) else { return };
        // Units that come back were not asked for.
        let is_refund = matches!(
            request.descriptors.get(first.descriptor as usize),
            Some(Descriptor { ask: Some(Ask::Refund(_)), .. })
        );
        let units = if is_refund { 0 } else { asked.cost };
        let amounts = amounts(units, judged, outcome.denial.is_some(), outcome.shadow);
        record.all.add_all(&amounts);
        let Some(rule) = outcome.active.rule(id) else { return };
        // Of what was to be taken nobody knows where the cost failed.
        if units > 0 || asked.step == Step::CostFailed {
            let lacks_key = asked.step == Step::Blocked && rule.action == Action::Limit;
            let key = if lacks_key { MISSING_KEY } else { plan.key_bytes(asked) };
            outcome.active.note_key(id, key, &key_counts(judged, outcome.shadow));
        }
        if let (false, Some(descriptor)) =
            (rule.metric_entries.is_empty(), request.descriptors.get(first.descriptor as usize))
        {
            let entry = |name: &str| descriptor.entries.iter().find(|entry| entry.key == name);
            let value = |name: &str| match entry(name).map_or("", |entry| entry.value) {
                value if value.len() <= SERIES_VALUE_BYTES_MAX => Some(value.into()),
                _ => None,
            };
            let values = rule.metric_entries.iter().map(|name| value(name)).collect();
            record.add_to_series(values, || self.room_for_series(), &amounts);
        }
    }

    fn room_for_series(&self) -> bool {
        let one_more = |count: usize| (count < SERIES_MAX).then_some(count + 1);
        self.series.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

/// What a request adds to the counts of its key, given what the limits of a rule said, and whether nothing at all is denied.
pub(crate) fn key_counts(judged: &[Judged], shadow: bool) -> KeyCounts {
    let over = judged.iter().any(|judged| !judged.answer.is_allowed());
    let denies = over && !shadow && judged.iter().any(|judged| judged.veto);
    KeyCounts { requests: 1, denials: denies.into(), shadow_denials: (over && !denies).into() }
}

/// What is added to the counts of a rule.
pub(crate) type Amounts = ArrayVec<(Counter, u64), 4>;

/// What is counted for a rule of a request of so many units, given what its limits said, whether the request as a whole is
/// denied, and whether nothing at all is.
pub(crate) fn amounts(units: u64, judged: &[Judged], denied: bool, shadow: bool) -> Amounts {
    let over = judged.iter().any(|judged| !judged.answer.is_allowed());
    let denies = over && !shadow && judged.iter().any(|judged| judged.veto);
    let is_silent = judged.iter().all(|judged| matches!(judged.answer, Answer::NotAsked));
    if !over && !is_silent && !denied {
        return passed(units, judged.iter().filter_map(|judged| judged.answer.decision()));
    }
    let mut amounts = Amounts::from_iter([(Counter::Hits, units)]);
    match (over, denies) {
        // It said nothing.
        _ if is_silent => {}
        (true, true) => amounts.extend([(Counter::Denied, 1), (Counter::OverLimit, units)]),
        (true, false) => {
            amounts.extend([(Counter::ShadowDenied, 1), (Counter::OverLimit, units), (Counter::Shadow, units)]);
        }
        (false, _) => amounts.push((Counter::Allowed, 1)),
    }
    amounts
}

/// What is counted of a request whose units were taken of all limits of a rule.
fn passed<'d>(units: u64, decisions: impl IntoIterator<Item = &'d Decision>) -> Amounts {
    let near_limit = decisions.into_iter().map(|decision| near(decision, units)).max().unwrap_or(0);
    match (units, near_limit) {
        (1, 0) => Amounts::from_iter([(Counter::PassedOne, 1)]),
        _ => Amounts::from([
            (Counter::Hits, units),
            (Counter::Allowed, 1),
            (Counter::WithinLimit, units),
            (Counter::NearLimit, near_limit),
        ]),
    }
}

/// Rounded down. A fifth, rounded up, is taken away, since four times the number could overflow.
fn four_fifths(number: u64) -> u64 {
    number - number.div_ceil(5)
}

/// How many of the units just taken lie above four fifths of the limit.
fn near(decision: &Decision, units: u64) -> u64 {
    let used = decision.limit().saturating_sub(decision.remaining());
    used.saturating_sub(four_fifths(decision.limit())).min(units)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{FakeClock, Key, Limit, Limiter, Op};

    use super::*;

    #[test]
    fn what_passes_is_counted_in_units_and_once() {
        let limit = Limit::fixed_window(10, Duration::from_secs(60)).unwrap();
        let limiter = Limiter::builder(limit).clock(FakeClock::new()).build().unwrap();
        let key = Key::new("k").unwrap();
        let take = |units| passed(units, [&limiter.store().decide(key, &limit, Op::Take(units))]).to_vec();
        let counted = |units, near_limit| {
            let within = (Counter::WithinLimit, units);
            vec![(Counter::Hits, units), (Counter::Allowed, 1), within, (Counter::NearLimit, near_limit)]
        };
        assert_eq!(take(1), [(Counter::PassedOne, 1)]);
        assert_eq!(take(6), counted(6, 0));
        assert_eq!(take(2), counted(2, 1), "the ninth is above four fifths");
        assert_eq!(take(1), counted(1, 1));
    }

    #[test]
    fn four_fifths_are_rounded_down() {
        for number in (0..100).chain(u64::MAX - 10..=u64::MAX) {
            assert_eq!(u128::from(four_fifths(number)), u128::from(number) * 4 / 5, "{number}");
        }
    }
}
