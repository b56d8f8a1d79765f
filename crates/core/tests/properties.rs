//! The code against the literal models, and the invariants of the specification, on random histories.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::bounds::YEAR_NANOS;
use tidegate_core::{Algorithm, Charge, FakeClock, Key, KeyBuf, Limit, MemoryStore, Op, Receipt, Time};
use tidegate_testkit::conformance::history::{Call, Choices, Code, History, Steps, changed, numbers};
use tidegate_testkit::conformance::model::{self, Answer, Numbers, Verdict};

const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingCounter,
    Algorithm::SlicedWindow,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::Gcra,
];

/// A store of one key, on a clock of its own.
fn small_store() -> (FakeClock, MemoryStore) {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(64).log_entries(10_000).clock(clock.clone()).build().unwrap();
    (clock, store)
}

/// Runs a history through the pure function, a store and the model, with changes of the limit on the way.
fn check_agreement(algorithm: Algorithm, steps: Steps, seed: (u64, u64), words: &[u64]) {
    let mut now_numbers = numbers(algorithm, seed.0);
    let mut history = History::new(now_numbers, steps, seed.1);
    let (mut code, mut model) = (Code::new(now_numbers), now_numbers.model());
    let (clock, store) = small_store();
    let key = Key::new("k").unwrap();
    for (step, word) in words.iter().enumerate() {
        if word % 23 == 0 {
            now_numbers = changed(now_numbers, &mut Choices(*word));
            history.numbers = now_numbers;
            code.limit = now_numbers.limit();
            model.change(now_numbers);
        }
        let Call { now, op } = history.call(*word);
        clock.set(Time::from_nanos(now));
        let expected = model.apply(now, op);
        assert_eq!(code.apply(now, op), expected, "decide, step {step}: {op:?} at {now} under {now_numbers:?}");
        let stored = Answer::of(op, &store.decide(key, &code.limit, op));
        assert_eq!(stored, expected, "memory store, step {step}: {op:?} at {now} under {now_numbers:?}");
        history.note(expected);
    }
}

fn history() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..24)
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

macro_rules! agreement {
    ($($name:ident: $algorithm:ident, $steps:ident;)*) => {
        proptest! {
            #![proptest_config(cases(10_000))]
            $(
                #[test]
                fn $name(seed in any::<(u64, u64)>(), words in history()) {
                    check_agreement(Algorithm::$algorithm, Steps::$steps, seed, &words);
                }
            )*
        }
    };
}

agreement! {
    fixed_window_agrees_with_its_model: FixedWindow, Forward;
    sliding_log_agrees_with_its_model: SlidingLog, Forward;
    sliding_counter_agrees_with_its_model: SlidingCounter, Forward;
    sliced_window_agrees_with_its_model: SlicedWindow, Forward;
    token_bucket_agrees_with_its_model: TokenBucket, Forward;
    leaky_bucket_agrees_with_its_model: LeakyBucket, Forward;
    gcra_agrees_with_its_model: Gcra, Forward;
    fixed_window_agrees_with_its_model_when_the_clock_goes_back: FixedWindow, AlsoBack;
    sliding_log_agrees_with_its_model_when_the_clock_goes_back: SlidingLog, AlsoBack;
    sliding_counter_agrees_with_its_model_when_the_clock_goes_back: SlidingCounter, AlsoBack;
    sliced_window_agrees_with_its_model_when_the_clock_goes_back: SlicedWindow, AlsoBack;
    token_bucket_agrees_with_its_model_when_the_clock_goes_back: TokenBucket, AlsoBack;
    leaky_bucket_agrees_with_its_model_when_the_clock_goes_back: LeakyBucket, AlsoBack;
    gcra_agrees_with_its_model_when_the_clock_goes_back: Gcra, AlsoBack;
}

/// Many keys of many limits, interleaved in one store: each answers like a model of its own.
fn check_interleaved(seed: u64, words: &[u64]) {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(256).log_entries(10_000).clock(clock.clone()).build().unwrap();
    // Keys "a", "b", "c" under two window lengths of each window, and once under each bucket.
    let mut places: Vec<(History, &str, Box<dyn model::Model>)> = Vec::new();
    for algorithm in ALGORITHMS {
        for key in ["a", "b", "c"] {
            for window in [700, 1300] {
                let mut numbers = numbers(algorithm, seed % 1000 * 8 + 3);
                if !numbers.is_bucket() {
                    numbers.window = window + numbers.slices;
                    numbers.units = numbers.units.min(7);
                } else if window == 1300 {
                    continue;
                }
                places.push((History::new(numbers, Steps::Forward, 3), key, numbers.model()));
            }
        }
    }
    let mut now = places[0].0.now;
    for (step, word) in words.iter().enumerate() {
        let count = places.len() as u64;
        let (history, key, model) = &mut places[(word % count) as usize];
        history.now = now;
        let Call { now: then, op } = history.call(word / count);
        now = then;
        let numbers = history.numbers;
        clock.set(Time::from_nanos(now));
        let expected = model.apply(now, op);
        let answer = Answer::of(op, &store.decide(Key::new(*key).unwrap(), &numbers.limit(), op));
        assert_eq!(answer, expected, "step {step}: {op:?} at {now} on {key} under {numbers:?}");
        history.note(expected);
    }
}

proptest! {
    #![proptest_config(cases(1_000))]
    #[test]
    fn keys_windows_and_algorithms_never_share_state(seed in any::<u64>(), words in prop::collection::vec(any::<u64>(), 1..200)) {
        check_interleaved(seed, &words);
    }
}

/// Units that were admitted, each with the instant it was admitted at.
type Admitted = Vec<(u64, u64)>;

/// No interval holds more than the worst case: none of this length, and for a bucket none of any length.
fn check_admitted(numbers: &Numbers, admitted: &Admitted, length: u64) {
    let mut lengths = vec![length];
    if numbers.is_bucket() {
        let instants: HashSet<u64> = admitted.iter().map(|(at, _)| *at).collect();
        lengths = instants.iter().flat_map(|one| instants.iter().map(move |other| one.abs_diff(*other) + 1)).collect();
    }
    for length in lengths {
        let most = model::most_in_trailing(admitted, length);
        assert!(most <= numbers.worst_case(length), "{most} units in {length} ns under {numbers:?}: {admitted:?}");
    }
}

fn check_never_over_admits(algorithm: Algorithm, seed: (u64, u64), words: &[u64]) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, Steps::Forward, seed.1);
    let mut code = Code::new(numbers);
    let mut admitted = Admitted::new();
    for word in words {
        let Call { now, op } = history.call(*word);
        // What is debited or given back is not admitted; both only ever make later answers stricter or equal.
        let op = if matches!(op, Op::Refund(..) | Op::Reset) { Op::Take(1) } else { op };
        let answer = code.apply(now, op);
        if let (Op::Take(units), Verdict::Allow) = (op, answer.verdict) {
            admitted.push((now, units));
        }
        history.note(answer);
    }
    check_admitted(&numbers, &admitted, numbers.window);
}

/// Two runs of the code, one of them without the calls that were denied: every later answer is the same.
fn check_denials_cost_nothing(algorithm: Algorithm, seed: (u64, u64), words: &[u64]) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, Steps::Forward, seed.1);
    let (mut code, mut without) = (Code::new(numbers), Code::new(numbers));
    for word in words {
        let Call { now, op } = history.call(*word);
        let answer = code.ask(now, op);
        if answer.is_allowed() {
            assert_eq!(code.apply(now, op), without.apply(now, op), "{op:?} at {now} under {numbers:?}");
        } else {
            let before = code.ask(now, Op::Peek);
            code.apply(now, op);
            assert_eq!(code.ask(now, Op::Peek), before, "a denied {op:?} at {now} under {numbers:?}");
            assert_eq!((answer.remaining, answer.reset_after), (before.remaining, before.reset_after));
        }
        assert_eq!(code.ask(now, Op::Peek), without.ask(now, Op::Peek), "after {op:?} at {now} under {numbers:?}");
        history.note(answer);
    }
}

/// Asking answers as taking would, with the numbers of a look, and changes nothing, in the pure function and in a store.
fn check_asking(algorithm: Algorithm, seed: (u64, u64), words: &[u64]) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, Steps::Forward, seed.1);
    let mut code = Code::new(numbers);
    let (clock, store) = small_store();
    let key = Key::new("k").unwrap();
    for word in words {
        let Call { now, op } = history.call(*word);
        clock.set(Time::from_nanos(now));
        let answer = code.apply(now, op);
        store.decide(key, &code.limit, op);
        for units in [1, 1 + word % numbers.units, numbers.units, numbers.units + 1, u64::MAX] {
            let look = code.ask(now, Op::Peek);
            let expected = Answer { verdict: code.ask(now, Op::Take(units)).verdict, ..look };
            assert_eq!(code.apply(now, Op::Ask(units)), expected, "{units} units at {now} under {numbers:?}");
            assert_eq!(Answer::of(Op::Peek, &store.decide(key, &code.limit, Op::Ask(units))), expected);
            assert_eq!(code.ask(now, Op::Peek), look);
        }
        history.note(answer);
    }
}

/// Whoever waits as long as told is admitted, a nanosecond earlier not.
fn check_retry_is_exact(algorithm: Algorithm, steps: Steps, seed: (u64, u64), words: &[u64]) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, steps, seed.1);
    let mut code = Code::new(numbers);
    for word in words {
        let Call { now, op } = history.call(*word);
        let answer = code.apply(now, op);
        if let (Op::Take(_), Verdict::After(wait)) = (op, answer.verdict) {
            assert!(wait > 0, "a wait of nothing for {op:?} at {now} under {numbers:?}");
            if now + wait <= Time::MAX.as_nanos() {
                assert!(code.ask(now + wait, op).is_allowed(), "{op:?} at {now} + {wait} under {numbers:?}");
                assert!(!code.ask(now + wait - 1, op).is_allowed(), "{op:?} at {now} + {wait} - 1 under {numbers:?}");
            }
        }
        history.note(answer);
    }
}

/// From the instant that `reset_after` tells on, a key answers like one that was never seen; a nanosecond earlier not.
fn check_reset_is_exact(algorithm: Algorithm, steps: Steps, seed: (u64, u64), words: &[u64]) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, steps, seed.1);
    let mut code = Code::new(numbers);
    for word in words {
        let Call { now, op } = history.call(*word);
        // A look repairs no clock, so it may tell of an instant that only the next charge makes true.
        let op = if matches!(op, Op::Peek | Op::Take(0)) { Op::Debit(0) } else { op };
        let answer = code.apply(now, op);
        let fresh_at = now + answer.reset_after;
        if fresh_at < Time::MAX.as_nanos() {
            let fresh = Code::new(numbers);
            for later in [fresh_at, fresh_at + 1, fresh_at + numbers.window] {
                for op in [Op::Peek, Op::Take(1), Op::Take(numbers.units), Op::Debit(u64::MAX), Op::Take(u64::MAX)] {
                    assert_eq!(code.ask(later, op), fresh.ask(later, op), "{op:?} at {later} under {numbers:?}");
                }
            }
            if answer.reset_after > 0 {
                let (one, other) = (code.ask(fresh_at - 1, Op::Peek), fresh.ask(fresh_at - 1, Op::Peek));
                assert_ne!(one, other, "a nanosecond before {fresh_at} under {numbers:?}");
            }
        }
        history.note(answer);
    }
}

/// A clock that jumps back by any amount shuts nobody out for longer than the specification says.
fn check_jumps_back(algorithm: Algorithm, seed: (u64, u64), words: &[u64], jump: u64) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, Steps::Forward, seed.1);
    let mut code = Code::new(numbers);
    for word in words {
        let Call { now, op } = history.call(*word);
        let answer = code.apply(now, op);
        history.note(answer);
    }
    let jump = [jump % (history.now + 1), jump % (4 * numbers.span()).min(history.now + 1)][(jump % 2) as usize];
    let now = history.now - jump;
    if now + numbers.lockout(jump) > Time::MAX.as_nanos() {
        return;
    }
    let mut waited = 0;
    for _ in 0..2 {
        match code.apply(now + waited, Op::Take(1)).verdict {
            Verdict::After(wait) => waited += wait,
            Verdict::Allow => {
                let most = numbers.lockout(jump);
                assert!(waited <= most, "shut for {waited} ns, at most {most}: back by {jump} ns under {numbers:?}");
                return;
            }
            verdict => panic!("{verdict:?} to one unit under {numbers:?}"),
        }
    }
    panic!("shut after the wait that was told: back by {jump} ns under {numbers:?}");
}

/// The same through transactions: their denials must repair the clock too.
fn check_jumps_back_in_transactions(algorithm: Algorithm, jump_windows: u64) {
    let mut numbers = numbers(algorithm, 3);
    numbers.window = if numbers.is_bucket() { 100 * numbers.rate } else { 1_200 };
    numbers.units = 3;
    let limit = numbers.limit();
    let free = Limit::fixed_window(1_000, Duration::from_secs(1)).unwrap();
    let (clock, store) = small_store();
    let (key, other) = (Key::new("k").unwrap(), Key::new("other").unwrap());
    let charge = |at: u64, units: u64| {
        clock.set(Time::from_nanos(at));
        store.charge(&[Charge::take(key, &limit, units), Charge::take(other, &free, 1)]).unwrap()
    };
    let start = 1_000 * numbers.span();
    assert!(charge(start, 3).is_allowed());
    let jump = jump_windows * numbers.span();
    let (now, most) = (start - jump, numbers.lockout(jump));
    for step in 0..=20 {
        if charge(now + most * step / 20, 1).is_allowed() {
            return;
        }
    }
    panic!("shut for more than {most} ns: back by {jump} ns under {numbers:?}");
}

/// A refund by receipt leaves at least the debt there would be if the take had never been.
fn check_refunds(algorithm: Algorithm, seed: (u64, u64), words: &[u64]) {
    let mut numbers = numbers(algorithm, seed.0);
    numbers.units = numbers.units.max(2);
    numbers.window = if numbers.is_bucket() { numbers.window.min(YEAR_NANOS) } else { numbers.window.max(200) };
    let mut history = History::new(numbers, Steps::Forward, seed.1);
    let (mut code, mut without) = (Code::new(numbers), Code::new(numbers));
    let cost = 1 + seed.0 % (numbers.units - 1);
    let receipt = code.apply(history.now, Op::Take(cost)).receipt.map(Receipt::from_bits);
    for word in words {
        let Call { now, op } = history.call(*word);
        // Only takes: a debit that meets its cap forgets how much was there before.
        let Op::Take(_) = op else { continue };
        let answer = code.apply(now, op);
        if answer.is_allowed() {
            assert!(without.apply(now, op).is_allowed(), "{op:?} at {now} under {numbers:?}");
        }
        history.note(answer);
    }
    let now = history.now;
    let before = code.ask(now, Op::Peek);
    let refunded = code.apply(now, Op::Refund(cost, receipt));
    assert!(refunded.remaining >= before.remaining && refunded.reset_after <= before.reset_after);
    for later in [now, now + numbers.span() / 3, now + numbers.span()] {
        let (with, never) = (code.ask(later, Op::Peek), without.ask(later, Op::Peek));
        assert!(with.remaining <= never.remaining, "{with:?}, never taken {never:?}, at {later} under {numbers:?}");
        assert!(with.reset_after >= never.reset_after, "{with:?}, never taken {never:?}, at {later} under {numbers:?}");
    }
}

/// What was used stays used under other numbers, for as long as it would have.
fn check_changed_limits(algorithm: Algorithm, seed: (u64, u64), words: &[u64]) {
    let before = numbers(algorithm, seed.0);
    let mut history = History::new(before, Steps::Forward, seed.1);
    let mut code = Code::new(before);
    for word in words {
        let Call { now, op } = history.call(*word);
        let answer = code.apply(now, op);
        history.note(answer);
    }
    let now = history.now;
    let after = changed(before, &mut Choices(seed.1));
    let old = code.ask(now, Op::Peek);
    code.limit = after.limit();
    let new = code.ask(now, Op::Peek);
    if after.is_bucket() {
        assert_eq!(new.reset_after, old.reset_after.min(2 * after.span() - after.interval()), "{before:?}, {after:?}");
    } else {
        assert_eq!(new.reset_after, old.reset_after, "{before:?}, {after:?}");
        if old.remaining > 0 {
            let used = old.limit - old.remaining;
            assert_eq!(new.remaining, new.limit.saturating_sub(used), "{before:?}, {after:?}");
        }
    }
}

/// Callers whose instants are somewhat stale when they get their turn, as threads are that were descheduled between
/// reading the clock and taking the lock. The store's own time is what it writes into receipts.
fn check_stale_instants(algorithm: Algorithm, seed: (u64, u64), words: &[u64]) {
    let numbers = numbers(algorithm, seed.0);
    let mut history = History::new(numbers, Steps::Forward, 3);
    let mut code = Code::new(numbers);
    let mut admitted = Admitted::new();
    for word in words {
        let Call { now, op } = history.call(*word);
        let op = if matches!(op, Op::Take(_)) { op } else { Op::Take(1) };
        let mut choices = Choices(word.rotate_left(17));
        // A bucket takes what is staler than all but one unit of its burst for a jump; stores look at the clock again.
        let stalest = if numbers.is_bucket() { numbers.span() - numbers.interval() } else { numbers.span() / 2 };
        let stale = if choices.below(2) == 0 { 0 } else { choices.any_below(stalest + 1) };
        let now = now.saturating_sub(stale);
        let answer = code.apply(now, op);
        if let (Op::Take(units @ 1..), Some(receipt)) = (op, answer.receipt) {
            admitted.push((if numbers.is_bucket() { now } else { receipt }, units));
        }
        history.note(answer);
    }
    let length = match algorithm {
        Algorithm::SlicedWindow => numbers.slice() * (numbers.slices + 1),
        _ => numbers.window,
    };
    check_admitted(&numbers, &admitted, length);
}

macro_rules! stale_instants {
    ($($name:ident: $algorithm:ident;)*) => {
        proptest! {
            #![proptest_config(cases(3_000))]
            $(
                #[test]
                fn $name(seed in any::<(u64, u64)>(), words in history()) {
                    check_stale_instants(Algorithm::$algorithm, seed, &words);
                }
            )*
        }
    };
}

stale_instants! {
    stale_instants_never_over_admit_in_a_fixed_window: FixedWindow;
    stale_instants_never_over_admit_in_a_sliding_log: SlidingLog;
    stale_instants_never_over_admit_in_a_sliding_counter: SlidingCounter;
    stale_instants_never_over_admit_in_a_sliced_window: SlicedWindow;
    stale_instants_never_over_admit_in_a_bucket: Gcra;
}

macro_rules! for_each_algorithm {
    ($cases:expr; $($name:ident: $check:expr;)*) => {
        proptest! {
            #![proptest_config(cases($cases))]
            $(
                #[test]
                fn $name(seed in any::<(u64, u64)>(), words in history(), extra in any::<u64>()) {
                    for algorithm in ALGORITHMS {
                        #[allow(clippy::redundant_closure_call)]
                        ($check)(algorithm, seed, &words, extra);
                    }
                }
            )*
        }
    };
}

for_each_algorithm! {
    2_000;
    no_trailing_interval_admits_more_than_the_worst_case: |algorithm, seed, words: &[u64], _| {
        check_never_over_admits(algorithm, seed, words)
    };
    asking_answers_as_taking_would: |algorithm, seed, words: &[u64], _| check_asking(algorithm, seed, words);
    a_denial_costs_nothing: |algorithm, seed, words: &[u64], _| check_denials_cost_nothing(algorithm, seed, words);
    retry_after_is_exact: |algorithm, seed, words: &[u64], _| {
        check_retry_is_exact(algorithm, Steps::Forward, seed, words)
    };
    retry_after_is_exact_when_the_clock_goes_back: |algorithm, seed, words: &[u64], _| {
        check_retry_is_exact(algorithm, Steps::AlsoBack, seed, words)
    };
    from_reset_after_on_a_key_is_never_seen: |algorithm, seed, words: &[u64], _| {
        check_reset_is_exact(algorithm, Steps::Forward, seed, words)
    };
    from_reset_after_on_a_key_is_never_seen_when_the_clock_goes_back: |algorithm, seed, words: &[u64], _| {
        check_reset_is_exact(algorithm, Steps::AlsoBack, seed, words)
    };
    a_clock_that_jumps_back_shuts_nobody_out_for_long: |algorithm, seed, words: &[u64], jump| {
        check_jumps_back(algorithm, seed, words, jump)
    };
    a_refund_is_never_better_than_no_take: |algorithm, seed, words: &[u64], _| check_refunds(algorithm, seed, words);
    a_changed_limit_keeps_the_debt: |algorithm, seed, words: &[u64], _| check_changed_limits(algorithm, seed, words);
}

#[test]
fn a_clock_that_jumps_back_shuts_no_transaction_out_for_long() {
    for algorithm in ALGORITHMS {
        for jump_windows in [1, 2, 3, 10, 100] {
            check_jumps_back_in_transactions(algorithm, jump_windows);
        }
    }
}

proptest! {
    #![proptest_config(cases(10_000))]
    #[test]
    fn distinct_parts_make_distinct_keys(
        one in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 1..4),
        other in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 1..4),
    ) {
        let (one_key, other_key) = (KeyBuf::from_parts(&one).unwrap(), KeyBuf::from_parts(&other).unwrap());
        prop_assert_eq!(one == other, one_key == other_key);
    }
}

#[test]
fn lists_of_parts_up_to_three_bytes_make_as_many_keys() {
    let parts: Vec<Vec<u8>> = vec![vec![], vec![0], vec![1], vec![0, 0], vec![0, 1], vec![1, 0], vec![0, 0, 0]];
    let mut keys = HashSet::new();
    let mut lists = 0;
    for a in &parts {
        for b in &parts {
            for list in [vec![a], vec![a, b], vec![a, b, a], vec![b, b, a, a]] {
                // A list can be made in several ways here only if it is the same list.
                lists += usize::from(keys.insert((KeyBuf::from_parts(&list).unwrap(), list)));
            }
        }
    }
    let distinct: HashSet<_> = keys.iter().map(|(key, _)| key).collect();
    assert_eq!(distinct.len(), lists);
}

/// Runs calls in order and compares whether each was allowed.
fn check_calls(numbers: Numbers, calls: &[(u64, Op, bool)]) {
    let mut code = Code::new(numbers);
    for (step, (now, op, allowed)) in calls.iter().enumerate() {
        let answer = code.apply(*now, *op);
        assert_eq!(answer.is_allowed(), *allowed, "step {step}: {op:?} at {now}: {answer:?}");
    }
}

/// One unit in 1,000 ns.
fn one_in_1000(algorithm: Algorithm) -> Numbers {
    Numbers { slices: 10, ..Numbers::window(algorithm, 1, 1_000) }
}

/// At 1,900 the trailing window still holds the units of 1,000 and 1,500, whatever was asked at 2,200.
#[test]
fn a_denial_forgets_nothing_of_a_log() {
    for numbers in [Numbers::window(Algorithm::SlidingLog, 2, 1_000), Numbers::sliced(2, 1_000, 10)] {
        let (one, two) = (Op::Take(1), Op::Take(2));
        check_calls(numbers, &[(1_000, one, true), (1_500, one, true), (2_200, two, false), (1_900, one, false)]);
    }
}

/// A cost above the whole limit is denied for ever and must not even forget what has just come back: a caller whose
/// instant is a little older would see less than was there at its instant.
#[test]
fn a_cost_that_never_fits_forgets_nothing() {
    let (one, never) = (Op::Take(1), Op::Take(2));
    for algorithm in ALGORITHMS {
        // 500 ns into a window, then far enough for all algorithms to be fresh, then back into the same window.
        check_calls(one_in_1000(algorithm), &[(5_500, one, true), (7_500, never, false), (5_600, one, false)]);
    }
}

/// The same for a refund that comes too late to give anything back.
#[test]
fn a_void_refund_forgets_nothing() {
    let one = Op::Take(1);
    for algorithm in ALGORITHMS {
        let late = Op::Refund(1, Some(Receipt::from_bits(1)));
        check_calls(one_in_1000(algorithm), &[(5_500, one, true), (7_500, late, true), (5_600, one, false)]);
    }
}

/// Nine units at 58 µs count until 118 µs at least, however the slices change meanwhile.
#[test]
fn changed_slices_forget_nothing() {
    let (fine, coarse) = (Numbers::sliced(10, 60_000, 60), Numbers::sliced(10, 60_000, 1));
    let mut code = Code::new(fine);
    assert!(code.apply(58_000, Op::Take(9)).is_allowed());
    code.limit = coarse.limit();
    assert!(code.apply(61_500, Op::Take(1)).is_allowed());
    code.limit = fine.limit();
    let answer = code.apply(61_500, Op::Take(1));
    assert!(!answer.is_allowed(), "eleven units in 3.5 µs: {answer:?}");
}

/// The unit of window 9 is the previous one's when the clock jumps back: it must not come off the current count.
#[test]
fn a_refund_after_a_jump_back_is_never_better_than_no_take() {
    let numbers = Numbers::window(Algorithm::SlidingCounter, 4, 1_000);
    let (mut code, mut without) = (Code::new(numbers), Code::new(numbers));
    let receipt = code.apply(9_000, Op::Take(2)).receipt.map(Receipt::from_bits);
    for one in [&mut code, &mut without] {
        assert!(one.apply(10_900, Op::Take(2)).is_allowed());
        one.apply(2_900, Op::Debit(0));
    }
    let refunded = code.apply(2_900, Op::Refund(2, receipt));
    let never = without.ask(2_900, Op::Peek);
    assert!(refunded.remaining <= never.remaining, "{refunded:?}, never taken {never:?}");
}
