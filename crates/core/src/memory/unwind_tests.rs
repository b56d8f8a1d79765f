//! What a panic leaves behind that the store cannot be brought to from outside.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;
use crate::FakeClock;

/// Decides as another algorithm does, and panics after it.
struct Panics<A>(A);

impl<const WORDS: usize, A: Words<WORDS>> Words<WORDS> for Panics<A> {
    fn decide(&self, state: &mut [u64; WORDS], now: Time, op: Op) -> Decision {
        self.0.decide(state, now, op);
        panic!("as it was told");
    }

    fn is_ahead(&self, state: &[u64; WORDS], now: Time) -> bool {
        self.0.is_ahead(state, now)
    }

    fn is_ready(&self, state: &[u64; WORDS]) -> bool {
        self.0.is_ready(state)
    }

    fn prepare(&self, state: &mut [u64; WORDS]) -> bool {
        self.0.prepare(state)
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Takes one unit of a key, and panics.
fn take_and_panic(store: &MemoryStore, name: &str, limit: &Limit) {
    let (print, now) = (store.seeds.fingerprint(Namespace::root(), limit, key(name)), store.clock.now());
    let ask = Ask { namespace: Namespace::root(), limit, print, now, op: Op::Take(1) };
    let panicked = panics(|| {
        match limit.shape() {
            Shape::Bucket(bucket) => store.run(&store.buckets, &Panics(*bucket), ask),
            Shape::Window(window) => store.run(&store.windows, &Panics(*window), ask),
            Shape::Calendar(window) => store.run(&store.windows, &Panics(*window), ask),
            Shape::Counter(counter) => store.run(&store.counters, &Panics(*counter), ask),
            Shape::Log(log) => store.run(&store.logs, &Panics(store.pooled(log, now)), ask),
        };
    });
    assert!(panicked);
}

/// Of a new key its gate is held too; of a known one its slot. Whether the unit counts is open, more never pass.
#[test]
fn a_key_that_panicked_goes_on_and_so_does_its_bucket() {
    let window = Duration::from_secs(60);
    for limit in [
        "10/minute".parse().unwrap(),
        Limit::fixed_window(10, window).unwrap(),
        Limit::sliding_counter(10, window).unwrap(),
        Limit::sliding_log(10, window).unwrap(),
    ] {
        // One bucket, so that all keys are neighbours.
        let store = MemoryStore::builder().keys(1).log_entries(70).clock(FakeClock::new()).build().unwrap();
        for taken in 1..=2 {
            take_and_panic(&store, "ann", &limit);
            let left = store.decide(key("ann"), &limit, Op::Take(1)).remaining();
            assert!((10 - 2 * taken..=10 - taken).contains(&left), "{}: {left} left", limit.algorithm());
        }
        assert_eq!(store.decide(key("bob"), &limit, Op::Take(1)).remaining(), 9, "{}", limit.algorithm());
    }
}

#[test]
fn what_was_given_back_in_vain_is_not_given_back_twice() {
    let table: Table<3> = Table::with_room_for(1).unwrap();
    let print = |low| Fingerprint { high: 0, low };
    for low in 1..=5 {
        let now = Time::from_nanos(0);
        table.insert(print(low), now, |_| ()).unwrap().release([5, low, 0]);
    }
    let later = Time::from_nanos(10);
    let mut given = Vec::new();
    assert!(panics(|| {
        table.insert(print(6), later, |old| {
            given.push(old);
            panic!("as it was told");
        });
    }));
    for low in 6..=10 {
        table.insert(print(low), later, |old| given.push(old)).unwrap().release([u64::MAX - 1, 0, 0]);
    }
    given.retain(|old| *old != [0; 3]);
    given.sort_unstable();
    assert_eq!(given, [[5, 1, 0], [5, 2, 0], [5, 3, 0], [5, 4, 0], [5, 5, 0]], "each state once");
}
