//! How many newcomers are denied after floods of several sizes beyond a full store: the table of
//! `docs/decisions/0015-an-annex-for-floods.md`.
#![allow(clippy::unwrap_used, reason = "it should stop at the first surprise")]

use std::time::Duration;

use tidegate_core::{FakeClock, Key, Limit, MemoryStore, Op};

/// Keys that the store has room for, and those that come new after the flood.
const KEYS: usize = 100_000;
const FRESH: usize = 500;

fn take(store: &MemoryStore, name: &str, limit: &Limit) -> bool {
    store.decide(Key::new(name).unwrap(), limit, Op::Take(1)).is_allowed()
}

/// How many fresh keys are denied after a flood of `overflow` tenths of the store beyond it, each of its keys `units` times.
fn denied(limit: &Limit, overflow: usize, units: usize) -> usize {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(KEYS).clock(clock.clone()).build().unwrap();
    let all = KEYS + KEYS * overflow / 10;
    let step = Duration::from_secs(1) / u32::try_from(all).unwrap();
    for number in (0..units).flat_map(|_| 0..all) {
        take(&store, &format!("flood:{number}"), limit);
        clock.advance(step);
    }
    let refused = |number: &usize| {
        clock.advance(Duration::from_micros(10));
        !take(&store, &format!("fresh:{number}"), limit)
    };
    (0..FRESH).filter(refused).count()
}

fn main() {
    let limits = ["1/minute", "3/minute", "100/minute"].map(|text| text.parse::<Limit>().unwrap());
    let [once, thrice, often] = &limits;
    for overflow in [5, 10, 20, 40] {
        let told = [(once, 1), (thrice, 1), (thrice, 3), (often, 1), (often, 3)]
            .map(|(limit, units)| format!("{units} of {}: {}", limit.units(), denied(limit, overflow, units)));
        println!("overflow {overflow}/10, of {FRESH} fresh keys denied: {}", told.join(", "));
    }
}
