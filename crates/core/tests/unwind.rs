//! A panic in the middle of a decision: whoever comes after it finds no lock held and nothing given away.
//!
//! The fake clock panics when it is told to. It is read first before anything is held, and again
//! while a state is held that lies far ahead, as after the clock was set back.
#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the answer")]

mod shapes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tidegate_core::{Charge, DirectLimiter, FakeClock, Key, Limit, MemoryStore, Op, Time};

use shapes::every_shape;

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

/// A clock in the year 2001.
fn clock() -> FakeClock {
    let clock = FakeClock::new();
    set_forward(&clock);
    clock
}

fn set_forward(clock: &FakeClock) {
    clock.set(Time::from_nanos(1_000_000_000_000_000_000));
}

/// Back to the year 2000.
fn set_back(clock: &FakeClock) {
    clock.set(Time::from_nanos(960_000_000_000_000_000));
}

fn panics<T>(work: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// What work answers that must not wait for ever.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(30)).expect("somebody still holds a lock")
}

/// How many units of a key and of many others pass at once.
fn passed(store: &Arc<MemoryStore>, limit: Limit) -> (usize, usize) {
    let store = Arc::clone(store);
    in_time(move || {
        let pass = |name: &str| store.decide(key(name), &limit, Op::Take(1)).is_allowed();
        let own = (0..20).filter(|_| pass("ann")).count();
        (own, (0..50).filter(|number| pass(&number.to_string())).count())
    })
}

#[test]
fn a_single_charge_that_panics_holds_nobody_up() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let clock = clock();
        let store = Arc::new(MemoryStore::builder().keys(50).clock(clock.clone()).build().unwrap());
        store.decide(key("ann"), &limit, Op::Take(4));
        set_back(&clock);
        clock.break_after(1);
        assert!(panics(|| store.decide(key("ann"), &limit, Op::Take(1))), "{}", limit.algorithm());
        set_forward(&clock);
        assert_eq!(passed(&store, limit), (6, 50), "{}: 4 of 10 were taken before", limit.algorithm());
    }
}

#[test]
fn a_transaction_that_panics_anywhere_holds_nobody_up() {
    let limits = every_shape(10, Duration::from_secs(60));
    // The clock is read once for all, and once for each of the five states that are ahead.
    for reads in 0..=5 {
        let clock = clock();
        let store = Arc::new(MemoryStore::builder().keys(50).clock(clock.clone()).build().unwrap());
        let charges = limits.each_ref().map(|limit| Charge::take(key("ann"), limit, 4));
        assert!(store.charge(&charges).unwrap().is_allowed());
        set_back(&clock);
        clock.break_after(reads);
        assert!(panics(|| store.charge(&charges)), "the read after {reads}");
        for limit in limits {
            let (own, others) = passed(&store, limit);
            assert!(own <= 6, "{}: {own} passed after 4 of 10", limit.algorithm());
            assert_eq!(others, 50, "{}", limit.algorithm());
        }
    }
}

#[test]
fn a_look_into_a_log_that_panics_holds_nobody_up() {
    let (clock, limit) = (clock(), Limit::sliding_log(10, Duration::from_secs(60)).unwrap());
    let store = Arc::new(MemoryStore::builder().keys(50).clock(clock.clone()).build().unwrap());
    store.decide(key("ann"), &limit, Op::Take(4));
    clock.break_after(0);
    assert!(panics(|| store.inspect(key("ann"), &limit)));
    assert_eq!(passed(&store, limit), (6, 50));
}

#[test]
fn a_direct_limiter_that_panics_holds_nobody_up() {
    for limit in every_shape(10, Duration::from_secs(60)) {
        let clock = clock();
        let limiter = Arc::new(DirectLimiter::with_clock(limit, clock.clone()).unwrap());
        limiter.check_n(4);
        set_back(&clock);
        clock.break_after(1);
        assert!(panics(|| limiter.check()), "{}", limit.algorithm());
        set_forward(&clock);
        let own = in_time(move || (0..20).filter(|_| limiter.check().is_allowed()).count());
        assert_eq!(own, 6, "{}: 4 of 10 were taken before", limit.algorithm());
    }
}
