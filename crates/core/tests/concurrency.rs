//! Many threads at once, on real threads. `shuttle.rs` tries the interleavings; this tries the machine.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::{Charge, DirectLimiter, FakeClock, Key, Limit, MemoryStore, Op, Rate, Semaphore};

const THREADS: u64 = 64;
const TRIES: u64 = 15_625;
const UNITS: u64 = 5_000;

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

fn every_algorithm(units: u64) -> [Limit; 7] {
    let hour = Duration::from_secs(3600);
    let slow = Rate::per_hour(1).unwrap();
    [
        Limit::fixed_window(units, hour).unwrap(),
        Limit::sliding_log(units, hour).unwrap(),
        Limit::sliding_counter(units, hour).unwrap(),
        Limit::sliced_window(units, hour).unwrap(),
        Limit::token_bucket(slow, units).unwrap(),
        Limit::leaky_bucket(slow, units).unwrap(),
        Limit::gcra(slow, units).unwrap(),
    ]
}

/// Runs `task` in every thread and sums the answers.
fn sum_over_threads(task: impl Fn(u64) -> u64 + Sync) -> u64 {
    std::thread::scope(|scope| {
        let task = &task;
        let running: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || task(number))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn sixty_four_threads_on_one_key_admit_exactly_the_limit() {
    for limit in every_algorithm(UNITS) {
        let store = MemoryStore::builder().keys(10).log_entries(20_000).clock(FakeClock::new()).build().unwrap();
        let admitted = sum_over_threads(|_| {
            (0..TRIES).filter(|_| store.decide(key("one"), &limit, Op::Take(1)).is_allowed()).count() as u64
        });
        assert_eq!(admitted, UNITS, "{}", limit.algorithm());
        let direct = DirectLimiter::with_clock(limit, FakeClock::new()).unwrap();
        let admitted = sum_over_threads(|_| (0..TRIES).filter(|_| direct.check().is_allowed()).count() as u64);
        assert_eq!(admitted, UNITS, "direct {}", limit.algorithm());
    }
}

#[test]
fn on_the_real_clock_no_more_than_burst_and_rate_pass() {
    let limit = Limit::gcra(Rate::per_second(1_000).unwrap(), 50).unwrap();
    let store = MemoryStore::builder().keys(10).build().unwrap();
    let start = store.clock().now();
    let admitted = sum_over_threads(|_| {
        (0..TRIES).filter(|_| store.decide(key("one"), &limit, Op::Take(1)).is_allowed()).count() as u64
    });
    let elapsed = store.clock().now().as_nanos() - start.as_nanos();
    assert!(admitted >= 50 && admitted <= 50 + elapsed / 1_000_000, "{admitted} in {elapsed} ns");
}

#[test]
fn transactions_and_single_charges_over_few_keys_stay_exact() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let limits = every_algorithm(2_000);
    for limit in &limits {
        let store = MemoryStore::builder().keys(10).log_entries(20_000).clock(FakeClock::new()).build().unwrap();
        let taken: [AtomicU64; 4] = std::array::from_fn(|_| AtomicU64::new(0));
        sum_over_threads(|thread| {
            for round in 0..200 {
                let first = ((thread + round) % 4) as usize;
                let second = ((thread * 7 + round / 3) % 4) as usize;
                let charges = [Charge::take(key(NAMES[first]), limit, 1), Charge::take(key(NAMES[second]), limit, 2)];
                if store.charge(&charges).unwrap().is_allowed() {
                    taken[first].fetch_add(1, Ordering::Relaxed);
                    taken[second].fetch_add(2, Ordering::Relaxed);
                }
                if store.decide(key(NAMES[second]), limit, Op::Take(1)).is_allowed() {
                    taken[second].fetch_add(1, Ordering::Relaxed);
                }
            }
            0
        });
        for (name, taken) in NAMES.iter().zip(taken) {
            let left = store.decide(key(name), limit, Op::Peek).remaining();
            assert_eq!(left, 2_000 - taken.into_inner(), "{name} under {}", limit.algorithm());
        }
    }
}

/// Threads fight for the slots of a table that is far too small, while keys expire and return.
#[test]
fn a_small_table_under_churn_never_lets_a_key_exceed_its_limit() {
    let clock = FakeClock::new();
    let store = MemoryStore::builder().keys(50).clock(clock.clone()).build().unwrap();
    let limit = Limit::gcra(Rate::from_nanos(1, 1_000).unwrap(), 3).unwrap();
    let admitted: Vec<AtomicU64> = (0..500).map(|_| AtomicU64::new(0)).collect();
    let start = clock.now().as_nanos();
    sum_over_threads(|thread| {
        for round in 0..2_000_u64 {
            let number = (thread * 31 + round * 17) % 500;
            if thread == 0 {
                clock.advance(Duration::from_nanos(50));
            }
            let name = number.to_string();
            if store.decide(key(&name), &limit, Op::Take(1)).is_allowed() {
                admitted[number as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
        0
    });
    let most = 3 + (clock.now().as_nanos() - start) / 1_000;
    for (number, admitted) in admitted.into_iter().enumerate() {
        let admitted = admitted.into_inner();
        assert!(admitted <= most, "key {number}: {admitted} of at most {most}");
    }
}

#[test]
fn permits_hold_under_many_threads() {
    let semaphore = Semaphore::new(5).unwrap();
    let inside = Arc::new(AtomicU64::new(0));
    sum_over_threads(|_| {
        for _ in 0..2_000 {
            if let Ok(_permit) = semaphore.try_acquire(key("pool")) {
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 5);
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        }
        0
    });
    assert_eq!(semaphore.in_use(key("pool")), 0);
}
