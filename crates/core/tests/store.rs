//! The memory store from outside: its bound, its overflow, its batches and its transactions.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod shapes;

use std::time::Duration;

use tidegate_core::{
    Busy, CapacityError, Charge, ChargeError, Decision, FakeClock, Key, Limit, Limiter, MemoryStore, Op, Rate, Retry,
    Semaphore, Spent, Time,
};

use shapes::every_shape;

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

fn store(keys: usize) -> (MemoryStore, FakeClock) {
    let clock = FakeClock::new();
    (MemoryStore::builder().keys(keys).clock(clock.clone()).build().unwrap(), clock)
}

fn take(store: &MemoryStore, name: &str, limit: &Limit) -> Decision {
    store.decide(key(name), limit, Op::Take(1))
}

#[test]
fn a_flood_of_new_keys_does_not_reset_a_limited_one() {
    for limit in every_shape(5, Duration::from_secs(60)) {
        let (store, _clock) = store(1_000);
        for _ in 0..5 {
            assert!(take(&store, "victim", &limit).is_allowed());
        }
        for number in 0..100_000 {
            take(&store, &format!("flood:{number}"), &limit);
        }
        let denied = take(&store, "victim", &limit);
        assert!(!denied.is_allowed(), "{}", limit.algorithm());
        assert!(matches!(denied.retry(), Some(Retry::After(_))), "the victim's own state is exact");
    }
}

#[test]
fn a_full_table_shuts_out_neither_newcomers_nor_limits() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let (store, clock) = store(1_000);
        for number in 0..1_500 {
            take(&store, &format!("live:{number}"), &limit);
        }
        let mut admitted_first = 0;
        for number in 0..100 {
            let name = format!("new:{number}");
            let admitted = (0..30).filter(|_| take(&store, &name, &limit).is_allowed()).count();
            assert!(admitted <= 10, "{}: {admitted} of a newcomer's units passed", limit.algorithm());
            admitted_first += usize::from(admitted > 0);
        }
        assert!(admitted_first >= 90, "{}: only {admitted_first} newcomers passed", limit.algorithm());
        // What the sketch denied keeps its hint, and what it counted is still known when the table has room again.
        let denied = take(&store, "new:7", &limit);
        assert!(matches!(denied.retry(), Some(Retry::Unknown(_))), "{}: {denied:?}", limit.algorithm());
        for number in 0..1_500 {
            store.decide(key(&format!("live:{number}")), &limit, Op::Reset);
        }
        let moved = (0..10).filter(|_| take(&store, "new:7", &limit).is_allowed()).count();
        assert!(moved <= 5, "{}: {moved} more passed after moving into the table", limit.algorithm());
        // From idle it is as new.
        clock.advance(Duration::from_secs(180));
        assert_eq!(take(&store, "new:7", &limit).remaining(), 9, "{}", limit.algorithm());
    }
}

#[test]
fn expired_keys_make_room() {
    for limit in every_shape(5, Duration::from_millis(1)) {
        let (store, clock) = store(100);
        for round in 0..200 {
            for number in 0..80 {
                let decision = take(&store, &format!("{round}:{number}"), &limit);
                assert_eq!(decision.remaining(), 4, "{}: round {round}, key {number}", limit.algorithm());
            }
            clock.advance(Duration::from_millis(3));
        }
    }
}

#[test]
fn a_table_holds_the_keys_it_was_sized_for_exactly() {
    let limit = Limit::gcra(Rate::per_second(1).unwrap(), 100_000).unwrap();
    let (store, _clock) = store(200_000);
    for number in 0..200_000 {
        take(&store, &format!("user:{number}"), &limit);
    }
    let exact = |number: &u32| {
        let decision = store.decide(key(&format!("user:{number}")), &limit, Op::Take(100_000));
        matches!(decision.retry(), Some(Retry::After(wait)) if wait == Duration::from_secs(1))
    };
    assert_eq!((0..200_000).filter(exact).count(), 200_000);
}

#[test]
fn the_memory_bound_is_known_before_and_small() {
    let (store, _clock) = store(1_000_000);
    // 31 + 39 + 48 + 48 bytes a key in the four tables, 128 a block of log entries, and the sketch.
    assert!(store.bytes_max() < 300_000_000, "{}", store.bytes_max());
}

#[test]
fn a_pool_that_is_empty_merges_entries_and_never_lets_more_pass() {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(100).log_entries(14).clock(clock.clone()).build().unwrap();
    let limit = Limit::sliding_log(30, Duration::from_secs(1)).unwrap();
    let mut admitted = 0;
    for _ in 0..60 {
        clock.advance(Duration::from_millis(1));
        admitted += u64::from(take(&store, "a", &limit).is_allowed());
    }
    assert_eq!(admitted, 30);
    assert_eq!(store.log_entries_without_room(), 16, "the first 14 have room");
    // Another key finds no block: it is counted approximately, at most to its limit.
    let other = (0..60).filter(|_| take(&store, "b", &limit).is_allowed()).count();
    assert!((1..=30).contains(&other), "{other}");
    assert_eq!(store.log_entries_without_room(), 17, "once: from then on the sketch counts for it");
    clock.advance(Duration::from_secs(2));
    assert_eq!(take(&store, "b", &limit).remaining(), 29);
}

#[test]
fn a_batch_answers_as_one_by_one() {
    for limit in every_shape(3, Duration::from_secs(1)) {
        let (batched, _clock) = store(1_000);
        let (single, _clock) = store(1_000);
        let names: Vec<String> = (0..500).map(|number| format!("user:{}", number % 90)).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| key(name)).collect();
        let mut decisions = Vec::new();
        batched.decide_batch(&keys, &limit, Op::Take(1), &mut decisions);
        let expected: Vec<Decision> = names.iter().map(|name| take(&single, name, &limit)).collect();
        assert_eq!(decisions, expected, "{}", limit.algorithm());
    }
}

#[test]
fn a_denied_transaction_costs_nothing_and_says_what_is_left() {
    let limits = every_shape(10, Duration::from_secs(60));
    let (store, _clock) = store(100);
    let strict = Limit::gcra(Rate::per_minute(1).unwrap(), 1).unwrap();
    assert!(take(&store, "strict", &strict).is_allowed());
    let mut charges: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::take(key("ann"), limit, 3)).collect();
    charges.push(Charge::take(key("strict"), &strict, 1));
    let decisions = store.charge(&charges).unwrap();
    assert!(!decisions.is_allowed());
    assert_eq!(decisions.strictest().unwrap().limit(), 1);
    assert_eq!(decisions.retry(), Some(Retry::After(Duration::from_secs(60))));
    assert!(decisions.iter().take(5).all(|decision| decision.is_allowed() && decision.remaining() == 10));
    assert!(decisions.iter().all(|decision| decision.receipt().is_none()), "what was not taken cannot be refunded");
    for limit in &limits {
        assert_eq!(store.decide(key("ann"), limit, Op::Peek).remaining(), 10, "{}", limit.algorithm());
    }
    // As a shadow it no longer stops the others, and is not taken itself.
    charges[5] = charges[5].shadow();
    let decisions = store.charge(&charges).unwrap();
    assert!(decisions.is_allowed());
    assert!(decisions.iter().take(5).all(|decision| decision.remaining() == 7));
    assert!(!decisions.iter().last().unwrap().is_allowed());
    assert_eq!(decisions.retry(), None);
}

#[test]
fn the_strictest_answer_is_a_denial_then_the_least_left_then_the_latest_reset() {
    let (store, _clock) = store(100);
    let roomy = Limit::gcra(Rate::per_second(10).unwrap(), 10).unwrap();
    let tight = Limit::gcra(Rate::per_second(10).unwrap(), 5).unwrap();
    let slow = Limit::fixed_window(5, Duration::from_secs(3600)).unwrap();
    let charges =
        [Charge::take(key("a"), &roomy, 1), Charge::take(key("b"), &tight, 1), Charge::take(key("c"), &slow, 1)];
    let decisions = store.charge(&charges).unwrap();
    assert_eq!(decisions.strictest().unwrap(), decisions.iter().last().unwrap(), "same remaining, later reset");
    let never = [Charge::take(key("a"), &roomy, 11), Charge::take(key("b"), &tight, 5)];
    let decisions = store.charge(&never).unwrap();
    assert_eq!(decisions.retry(), Some(Retry::Never), "the longest retry is never");
}

#[test]
fn the_same_key_twice_is_composed_in_order() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let (store, _clock) = store(100);
        let twice = |first, second| {
            store.charge(&[Charge::take(key("a"), &limit, first), Charge::take(key("a"), &limit, second)]).unwrap()
        };
        assert!(!twice(6, 5).is_allowed(), "{}", limit.algorithm());
        assert_eq!(store.decide(key("a"), &limit, Op::Peek).remaining(), 10);
        let decisions = twice(6, 4);
        assert!(decisions.is_allowed());
        assert_eq!(decisions.iter().map(Decision::remaining).collect::<Vec<_>>(), [4, 0]);
    }
}

#[test]
fn the_same_key_twice_is_told_when_both_fit() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let (store, clock) = store(100);
        let twice = |first, second| {
            store.charge(&[Charge::take(key("a"), &limit, first), Charge::take(key("a"), &limit, second)]).unwrap()
        };
        assert_eq!(twice(6, 5).retry(), Some(Retry::Never), "{}: eleven never fit", limit.algorithm());
        clock.advance(Duration::from_millis(1_234));
        assert!(store.decide(key("a"), &limit, Op::Take(7)).is_allowed());
        clock.advance(Duration::from_millis(567));
        let Some(Retry::After(wait)) = twice(4, 5).retry() else { panic!("{}: both fit in time", limit.algorithm()) };
        clock.advance(wait - Duration::from_nanos(1));
        assert!(!twice(4, 5).is_allowed(), "{}", limit.algorithm());
        clock.advance(Duration::from_nanos(1));
        assert!(twice(4, 5).is_allowed(), "{}", limit.algorithm());
    }
}

#[test]
fn what_a_transaction_denied_on_a_copy_is_not_taken() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let name = limit.algorithm();
        let (store, _clock) = store(100);
        let on = |op| Charge::new(key("a"), &limit, op);
        let never = store.charge(&[on(Op::Debit(5)), on(Op::Take(6))]).unwrap();
        assert_eq!(never.retry(), Some(Retry::Never), "{name}: eleven never fit");
        assert_eq!(store.decide(key("a"), &limit, Op::Peek).remaining(), 10, "{name}: the debit was not taken either");
        assert!(store.charge(&[on(Op::Debit(5)), on(Op::Take(5))]).unwrap().is_allowed(), "{name}");
        assert_eq!(store.decide(key("a"), &limit, Op::Peek).remaining(), 0, "{name}");
        let denied = store.charge(&[on(Op::Take(1)), on(Op::Take(0))]).unwrap();
        assert_eq!(denied.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true], "{name}: cost 0 passes");
    }
    // Two limits of one identity would undo each other's debts in one state.
    let (store, _clock) = store(100);
    let slow = Limit::gcra(Rate::per_second(1).unwrap(), 10).unwrap();
    let fast = Limit::gcra(Rate::per_second(10).unwrap(), 20).unwrap();
    let charges = [Charge::take(key("a"), &slow, 8), Charge::take(key("a"), &fast, 1)];
    assert_eq!(
        store.charge(&charges).unwrap_err().to_string(),
        "charges[1]: another gcra limit counts on the same key; give each limit its own key prefix"
    );
    assert_eq!(store.decide(key("a"), &slow, Op::Peek).remaining(), 10);
}

/// A flood under a limit that takes a day to come back fills its table; other limits, and newcomers of theirs, go on.
#[test]
fn a_flood_under_one_limit_does_not_shut_out_the_keys_of_another() {
    let (store, clock) = store(1_000);
    let flooded = Limit::gcra(Rate::new(100, Duration::from_secs(86_400)).unwrap(), 100).unwrap();
    let others = every_shape(10, Duration::from_secs(60));
    for number in 0..20_000 {
        take(&store, &format!("flood:{number}"), &flooded);
    }
    for round in 0..3 {
        for limit in &others[1..] {
            let passed = (0..200).filter(|n| take(&store, &format!("{round}:{n}"), limit).remaining() == 9).count();
            assert_eq!(passed, 200, "{} has room in its own table", limit.algorithm());
        }
        // The flooded table has no room for new buckets either, but a day's debt is not theirs.
        let passed = (0..200).filter(|n| take(&store, &format!("{round}:{n}"), &others[0]).is_allowed()).count();
        assert!(passed >= 190, "{passed} buckets passed");
        clock.advance(Duration::from_secs(600));
    }
}

/// What passed in the sketch and what passes in the table afterwards stay together within the worst case.
#[test]
fn moving_from_the_sketch_to_the_table_admits_no_more() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let (store, clock) = store(1);
        let fillers: Vec<String> = (0..5).map(|number| format!("filler:{number}")).collect();
        for name in &fillers {
            store.decide(key(name), &limit, Op::Debit(10));
        }
        let mut admitted = Vec::new();
        for step in 0..1_200_u64 {
            clock.advance(Duration::from_millis(100));
            if step == 500 {
                for name in &fillers {
                    store.decide(key(name), &limit, Op::Reset);
                }
            }
            admitted.extend(take(&store, "v", &limit).is_allowed().then_some(step));
        }
        let worst = match limit.algorithm() {
            tidegate_core::Algorithm::SlidingLog | tidegate_core::Algorithm::SlicedWindow => 10,
            tidegate_core::Algorithm::SlidingCounter => 19,
            _ => 20,
        };
        for end in &admitted {
            let within = admitted.iter().filter(|at| *at <= end && end - *at < 600).count();
            assert!(within <= worst, "{}: {within} in a minute", limit.algorithm());
        }
        assert!(admitted.len() >= 10, "{}: {} passed in all", limit.algorithm(), admitted.len());
    }
}

#[test]
fn looks_and_charges_agree_when_the_pool_is_dry() {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(100).log_entries(7).clock(clock).build().unwrap();
    let limit = Limit::sliding_log(5, Duration::from_secs(60)).unwrap();
    take(&store, "has the only block", &limit);
    while take(&store, "v", &limit).is_allowed() {}
    assert_eq!(store.decide(key("v"), &limit, Op::Peek).remaining(), 0);
    let look = |name| Charge::new(key(name), &limit, Op::Peek);
    let looks = store.charge(&[look("v"), look("w")]).unwrap();
    assert_eq!(looks.iter().map(Decision::remaining).collect::<Vec<_>>(), [0, 3], "about half is left in the sketch");
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_new_keys() {
    for limit in every_shape(10, Duration::from_secs(10)) {
        let clock = FakeClock::at(Time::from_nanos(2_000_000_000_000_000));
        let store = MemoryStore::builder().keys(10).clock(clock.clone()).build().unwrap();
        for number in 0..500 {
            take(&store, &number.to_string(), &limit);
            clock.advance(Duration::from_secs(30));
        }
        clock.set(Time::from_nanos(1_000_000_000_000_000));
        let both = || store.charge(&[Charge::take(key("u"), &limit, 1), Charge::take(key("v"), &limit, 1)]).unwrap();
        let passed = (0..100).filter(|_| {
            clock.advance(Duration::from_secs(100));
            both().is_allowed()
        });
        assert_eq!(passed.count(), 100, "{}", limit.algorithm());
    }
}

#[test]
fn a_look_before_a_charge_does_not_hide_that_the_pool_is_dry() {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(100).log_entries(7).clock(clock).build().unwrap();
    let limit = Limit::sliding_log(10, Duration::from_secs(60)).unwrap();
    take(&store, "has the only block", &limit);
    let on = |op| Charge::new(key("a"), &limit, op);
    let admitted = (0..30).filter(|_| store.charge(&[on(Op::Peek), on(Op::Take(1))]).unwrap().is_allowed()).count();
    assert!(admitted <= 10, "{admitted}");
    let admitted = (0..30).filter(|_| store.charge(&[on(Op::Reset), on(Op::Take(1))]).unwrap().is_allowed()).count();
    assert_eq!(admitted, 0, "the sketch takes nothing back");
}

#[test]
fn takes_that_are_refunded_leave_no_entries_behind() {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(100).log_entries(35).clock(clock.clone()).build().unwrap();
    let limit = Limit::sliding_log(3, Duration::from_secs(60)).unwrap();
    let mut earlier = take(&store, "a", &limit);
    for _ in 0..10_000 {
        clock.advance(Duration::from_nanos(1));
        let taken = take(&store, "a", &limit);
        assert!(taken.is_allowed());
        let receipt = earlier.receipt();
        assert_eq!(store.decide(key("a"), &limit, Op::Refund(1, receipt)).remaining(), 2);
        earlier = taken;
    }
    for name in ["b", "c", "d", "e"] {
        assert_eq!(take(&store, name, &limit).remaining(), 2, "{name} has a place of its own");
    }
}

#[test]
fn sixteen_charges_pass_and_seventeen_are_refused() {
    let (store, _clock) = store(100);
    let limit = Limit::fixed_window(1, Duration::from_secs(1)).unwrap();
    let names: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    let charges: Vec<Charge<'_>> = names.iter().map(|name| Charge::take(key(name), &limit, 1)).collect();
    let refused = store.charge(&charges).unwrap_err();
    assert_eq!(refused, ChargeError::TooMany { count: 17 });
    assert_eq!(refused.to_string(), "charges: 17 are too many for one request; use at most 16");
    assert!(store.charge(&charges[..16]).unwrap().is_allowed());
    assert!(!store.charge(&charges[..16]).unwrap().is_allowed());
    assert!(store.charge(&[]).unwrap().is_allowed());
}

#[test]
fn a_transaction_finds_no_slot_and_still_takes_all_or_none() {
    let (store, _clock) = store(10);
    let limit = Limit::gcra(Rate::per_hour(1).unwrap(), 4).unwrap();
    for number in 0..100 {
        take(&store, &format!("live:{number}"), &limit);
    }
    // One that the sketch does not take for another: it may count too strictly.
    let is_exact = |name: &String| store.decide(key(name), &limit, Op::Peek).remaining() == 4;
    let x = (0..).map(|number| format!("x:{number}")).find(is_exact).unwrap();
    let both = || store.charge(&[Charge::take(key(&x), &limit, 1), Charge::take(key("live:3"), &limit, 1)]).unwrap();
    let admitted = (0..10).filter(|_| both().is_allowed()).count();
    assert_eq!(admitted, 3, "live:3 had used one of its four");
    assert_eq!(store.decide(key(&x), &limit, Op::Peek).remaining(), 1, "denied pairs took nothing of x");
}

#[test]
fn a_changed_limit_keeps_its_debt() {
    let clock = FakeClock::new();
    let limiter = Limiter::builder("10/minute".parse().unwrap()).clock(clock.clone()).build().unwrap();
    assert_eq!(limiter.check_n(key("a"), 8).remaining(), 2);
    // Eight units at six seconds each are 48 s of debt: at two seconds a unit they are 24 of 30.
    let wider = limiter.with_limit("30/minute".parse().unwrap());
    assert_eq!(wider.peek(key("a")).remaining(), 6);
    // A smaller burst keeps at most almost twice itself.
    let tighter = limiter.with_limit(Limit::gcra(Rate::per_minute(10).unwrap(), 2).unwrap());
    assert_eq!(tighter.check(key("a")).retry_after(), Some(Duration::from_secs(12)));
    let window = Duration::from_secs(60);
    let five = Limiter::on(limiter.store().clone(), Limit::sliding_log(5, window).unwrap());
    assert_eq!(five.check_n(key("a"), 4).remaining(), 1);
    assert_eq!(five.with_limit(Limit::sliding_log(9, window).unwrap()).peek(key("a")).remaining(), 5);
    assert_eq!(five.with_limit(Limit::sliding_log(2, window).unwrap()).peek(key("a")).remaining(), 0);
    // Another window length is another state.
    let other = five.with_limit(Limit::sliding_log(5, 2 * window).unwrap());
    assert_eq!(other.peek(key("a")).remaining(), 5);
}

#[test]
fn stagger_spreads_the_seams_and_keeps_each_key_to_its_own() {
    let clock = FakeClock::at(Time::from_nanos(1_000_000_000_000));
    let store = MemoryStore::builder().keys(1_000).clock(clock.clone()).build().unwrap();
    let limit = Limit::fixed_window(1, Duration::from_secs(60)).unwrap().staggered();
    let resets: std::collections::BTreeSet<u128> =
        (0..100).map(|n| take(&store, &n.to_string(), &limit).reset_after().as_nanos()).collect();
    assert!(resets.len() >= 99, "{} instants", resets.len());
    let spread = resets.last().unwrap() - resets.first().unwrap();
    assert!(spread > 50_000_000_000, "{spread} ns");
    for number in 0..100 {
        let name = number.to_string();
        let wait = take(&store, &name, &limit).retry_after().unwrap();
        let alone = MemoryStore::builder().keys(1).clock(FakeClock::at(clock.now().plus(wait))).build().unwrap();
        assert_eq!(take(&alone, &name, &limit).reset_after(), Duration::from_secs(60), "a window starts there");
    }
}

#[test]
fn sizes_out_of_bounds_are_refused_by_name() {
    let refused = |keys, entries| {
        let builder = MemoryStore::builder().keys(keys).log_entries(entries);
        builder.build().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(0, 1), "keys: 0 is too small; use at least 1");
    assert_eq!(refused(1, 0), "log_entries: 0 is too small; use at least 1");
    assert_eq!(refused(usize::MAX, 1), format!("keys: {} is too large; use at most 4294967296", usize::MAX));
    assert!(refused(1, usize::MAX).starts_with("log_entries: "));
    let huge = MemoryStore::builder().keys(1 << 32).build();
    assert!(huge.is_ok() || matches!(huge, Err(CapacityError::NoMemory(_))), "never a crash");
}

#[test]
fn a_semaphore_counts_by_key_and_refuses_by_name() {
    let semaphore = Semaphore::with_capacity(3, 10).unwrap();
    let two = semaphore.try_acquire_n(key("a"), 2).unwrap();
    assert_eq!(semaphore.in_use(key("a")), 2);
    assert_eq!(semaphore.try_acquire_n(key("a"), 2).unwrap_err(), Busy::InUse { asked: 2, permits: 3, in_use: 2 });
    let other = semaphore.try_acquire_n(key("b"), 3).unwrap();
    drop((two, other));
    assert_eq!((semaphore.in_use(key("a")), semaphore.in_use(key("b"))), (0, 0));
    assert!(semaphore.try_acquire_n(key("a"), 4).is_err());
    assert!(semaphore.try_acquire_n(key("a"), u64::MAX).is_err());
    // Keys in use are bounded; keys that were let go are not counted.
    let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    for name in &names {
        drop(semaphore.try_acquire(key(name)).unwrap());
    }
    let held: Vec<_> = names.iter().map(|name| semaphore.try_acquire(key(name))).collect();
    let full = held.iter().filter(|permit| matches!(permit, Err(Busy::NoRoom { keys: 10 }))).count();
    assert!((900..=990).contains(&full), "{full}");
    assert_eq!(Semaphore::new(0).err().unwrap().to_string(), "permits: 0 is too small; use at least 1");
    assert!(Semaphore::new(1 << 40).is_err());
    assert!(Semaphore::with_capacity(1, 0).is_err());
}

#[test]
fn asking_for_nothing_tells_whether_more_than_the_limit_was_used() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let name = limit.algorithm();
        let (store, clock) = store(8);
        let ask = || store.decide(key("ann"), &limit, Op::Ask(0));
        assert!(ask().is_allowed(), "{name}: fresh");
        store.decide(key("ann"), &limit, Op::Take(10));
        assert!(ask().is_allowed(), "{name}: all is used, and no more");
        store.decide(key("ann"), &limit, Op::Debit(5));
        let wait = ask().retry_after().expect("more than all is used");
        assert!(store.decide(key("ann"), &limit, Op::Take(0)).is_allowed(), "{name}: to take nothing always passes");
        clock.advance(wait - Duration::from_nanos(1));
        assert!(!ask().is_allowed(), "{name}: a nanosecond early");
        clock.advance(Duration::from_nanos(1));
        assert!(ask().is_allowed(), "{name}: in time");
    }
}

#[test]
fn a_log_shows_what_was_taken_and_when() {
    let (store, clock) = store(8);
    let limit = Limit::sliding_log(10, Duration::from_secs(60)).unwrap();
    let start = clock.now();
    assert!(store.inspect(key("ann"), &limit).entries.is_empty());
    store.decide(key("ann"), &limit, Op::Take(2));
    clock.advance(Duration::from_secs(30));
    store.decide(key("ann"), &limit, Op::Take(3));
    let snapshot = store.inspect(key("ann"), &limit);
    assert_eq!(snapshot.decision.remaining(), 5);
    let later = start.plus(Duration::from_secs(30));
    assert_eq!(snapshot.entries, [Spent { at: start, units: 2 }, Spent { at: later, units: 3 }]);
    clock.advance(Duration::from_secs(30));
    assert_eq!(store.inspect(key("ann"), &limit).entries, [Spent { at: later, units: 3 }]);
    assert_eq!(store.decide(key("ann"), &limit, Op::Peek).remaining(), 7, "looking let go of the key");
}

#[test]
fn what_a_reset_frees_within_a_transaction_goes_to_nobody_who_did_not_fit() {
    let (store, _clock) = store(64);
    let limit = Limit::sliding_log(2, Duration::from_secs(60)).unwrap();
    let reset = Charge::new(key("ann"), &limit, Op::Reset).shadow();
    let take = |units| Charge::take(key("ann"), &limit, units);
    let decisions = store.charge(&[take(1), reset, take(2).shadow(), take(1)]).unwrap();
    let allowed: Vec<bool> = decisions.iter().map(Decision::is_allowed).collect();
    assert_eq!(allowed, [true, true, false, true], "the last was promised its unit before the shadow could take it");
    assert!(decisions.is_allowed());
}
