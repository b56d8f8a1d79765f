//! For each algorithm the caller that reaches its worst case in a trailing interval, and a search that never passes it.
//! The formulas are proved in `spec/`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use tidegate_core::{Algorithm, Decision, Limit, Op, State, Time, decide};
use tidegate_testkit::conformance::model::{self, Numbers};

/// A key under attack, and what was admitted to it.
#[derive(Clone)]
struct Attack {
    limit: Limit,
    state: State,
    /// Instants and units, in order.
    admitted: Vec<(u64, u64)>,
}

impl Attack {
    fn on(numbers: Numbers) -> Attack {
        let limit = numbers.limit();
        Attack { state: State::fresh(&limit), limit, admitted: Vec::new() }
    }

    fn take(&mut self, at: u64, units: u64) -> Decision {
        let decision = decide(&self.limit, &mut self.state, Time::from_nanos(at), Op::Take(units));
        if decision.is_allowed() && units > 0 {
            self.admitted.push((at, units));
        }
        decision
    }

    fn remaining(&self, at: u64) -> u64 {
        decide(&self.limit, &mut self.state.clone(), Time::from_nanos(at), Op::Peek).remaining()
    }

    /// Takes all there is.
    fn drain(&mut self, at: u64) {
        let units = self.remaining(at);
        self.take(at, units);
    }

    /// The most units that passed within `length` nanoseconds, of which the first instant is excluded.
    fn most_within(&self, length: u64) -> u64 {
        model::most_in_trailing(&self.admitted, length)
    }
}

fn check_never_worse(numbers: &Numbers, attack: &Attack, lengths: &[u64]) {
    for length in lengths {
        let (most, worst) = (attack.most_within(*length), numbers.worst_case(*length));
        assert!(most <= worst, "{most} > {worst} in {length} ns under {numbers:?}: {:?}", attack.admitted);
    }
}

/// Tries every way to take nothing up to the whole limit at each of these instants, and answers the most that passed
/// within each of the lengths.
fn search(numbers: &Numbers, attack: &Attack, instants: &[u64], lengths: &[u64], most: &mut [u64]) {
    let Some((at, later)) = instants.split_first() else {
        check_never_worse(numbers, attack, lengths);
        for (length, most) in lengths.iter().zip(most) {
            *most = attack.most_within(*length).max(*most);
        }
        return;
    };
    for units in 0..=numbers.units {
        let mut next = attack.clone();
        if next.take(*at, units).is_allowed() {
            search(numbers, &next, later, lengths, most);
        }
    }
}

/// Searches all attacks on these instants; the worst case must be reached and never passed.
fn check_search(numbers: Numbers, instants: &[u64], lengths: &[u64]) {
    let mut most = vec![0; lengths.len()];
    search(&numbers, &Attack::on(numbers), instants, lengths, &mut most);
    let worst: Vec<u64> = lengths.iter().map(|length| numbers.worst_case(*length)).collect();
    assert_eq!(most, worst, "in {lengths:?} ns under {numbers:?}");
}

#[test]
fn fixed_window_lets_twice_the_limit_pass_across_a_seam() {
    let numbers = Numbers::window(Algorithm::FixedWindow, 100, 60_000_000_000);
    let mut attack = Attack::on(numbers);
    attack.drain(119_999_999_999);
    attack.drain(120_000_000_000);
    assert_eq!(attack.most_within(2), 200);
    for limit in 1..=3 {
        let numbers = Numbers::window(Algorithm::FixedWindow, limit, 300);
        check_search(numbers, &[600, 750, 898, 899, 900, 1_000, 1_199, 1_200], &[300]);
    }
}

#[test]
fn sliding_counter_lets_one_less_than_twice_the_limit_pass() {
    let (limit, window) = (100, 60_000_000_000);
    let numbers = Numbers::window(Algorithm::SlidingCounter, limit, window);
    let mut attack = Attack::on(numbers);
    attack.drain(2 * window - 1);
    // One unit more each hundredth of a window, as the previous one fades.
    for part in 1..limit {
        attack.drain(2 * window + part * window / limit);
    }
    assert_eq!(attack.most_within(window), 2 * limit - 1);
    for limit in 1..=3 {
        let numbers = Numbers::window(Algorithm::SlidingCounter, limit, 300);
        check_search(numbers, &[600, 750, 899, 900, 1_000, 1_100, 1_198, 1_200], &[300]);
    }
}

#[test]
fn sliding_log_and_sliced_window_let_exactly_the_limit_pass() {
    for limit in 1..=3 {
        let instants = [600, 750, 899, 900, 1_049, 1_050, 1_199, 1_200, 1_350];
        check_search(Numbers::window(Algorithm::SlidingLog, limit, 300), &instants, &[300]);
        for slices in [1, 2, 3, 7] {
            check_search(Numbers::sliced(limit, 300, slices), &instants, &[300]);
        }
    }
}

#[test]
fn buckets_let_the_burst_and_the_rate_pass() {
    for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let numbers = Numbers::bucket(algorithm, 7, 1_000_000_000, 20);
        let mut attack = Attack::on(numbers);
        attack.drain(0);
        for unit in 1..=700 {
            attack.drain(unit * numbers.interval());
        }
        // 99.99 s at 7 a second, in intervals of 142,857,143 ns.
        assert_eq!(attack.most_within(99_990_000_000), 20 + 99_989_999_999 / 142_857_143);
        for burst in 1..=3 {
            let numbers = Numbers::bucket(algorithm, 1, 100, burst);
            let instants = [1_000, 1_050, 1_099, 1_100, 1_150, 1_200, 1_299, 1_300];
            check_search(numbers, &instants, &[1, 100, 101, 200, 201, 301]);
        }
    }
}

/// The whole budget of a fixed window comes back in one nanosecond, that of a sliding counter never does: from one
/// nanosecond to the next at most one unit, and at the seam none but what fades anyway.
#[test]
fn sliding_counter_does_not_jump_at_the_seam() {
    let (limit, window) = (100, 1_000_000);
    let fixed = Numbers::window(Algorithm::FixedWindow, limit, window);
    let sliding = Numbers::window(Algorithm::SlidingCounter, limit, window);
    let back_at_the_seam = |numbers: Numbers| {
        let mut attack = Attack::on(numbers);
        attack.drain(3 * window - 1);
        attack.remaining(3 * window) - attack.remaining(3 * window - 1)
    };
    assert_eq!((back_at_the_seam(fixed), back_at_the_seam(sliding)), (limit, 0));
    let mut attack = Attack::on(sliding);
    attack.drain(3 * window - 1);
    for elapsed in 0..window {
        // Floor of the exact line limit · elapsed / window: no step is taller than one unit.
        assert_eq!(attack.remaining(3 * window + elapsed), limit * elapsed / window, "{elapsed} ns after the seam");
    }
}

/// A caller who takes all there is, at random instants, with limits of a realistic size.
fn check_greedy(numbers: Numbers, steps: &[u64]) {
    let mut attack = Attack::on(numbers);
    let mut now = 1_700_000_000_000_000_000;
    for step in steps {
        attack.drain(now);
        now += (step % (numbers.window + 1)) >> (step % 5);
    }
    let lengths = if numbers.is_bucket() {
        vec![1, numbers.window, numbers.span(), 7 * numbers.span()]
    } else {
        vec![numbers.window]
    };
    check_never_worse(&numbers, &attack, &lengths);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_greedy_caller_passes_the_worst_case(
        units in 1u64..1_000,
        window in 100_000u64..100_000_000_000,
        slices in 1u64..100,
        steps in prop::collection::vec(any::<u64>(), 1..60),
    ) {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::SlidingCounter] {
            check_greedy(Numbers::window(algorithm, units, window), &steps);
        }
        check_greedy(Numbers::sliced(units, window, slices), &steps);
        check_greedy(Numbers::bucket(Algorithm::Gcra, units, window, units), &steps);
        check_greedy(Numbers::bucket(Algorithm::Gcra, units, window, 1 + units / 7), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_history_makes_a_sliding_counter_jump(
        units in 1u64..1_000,
        window in 100_000u64..100_000_000_000,
        charges in prop::collection::vec((any::<u64>(), 1u64..1_000), 1..10),
    ) {
        let mut attack = Attack::on(Numbers::window(Algorithm::SlidingCounter, units, window));
        let mut now = 10 * window;
        for (step, cost) in &charges {
            attack.take(now, *cost);
            now += step % (window + window / 2);
        }
        let seam = now - now % window + window;
        for instant in [seam - 1, seam, now] {
            let (before, after) = (attack.remaining(instant), attack.remaining(instant + 1));
            prop_assert!(after >= before && after - before <= 1, "{before} at {instant}, then {after}");
        }
    }
}
