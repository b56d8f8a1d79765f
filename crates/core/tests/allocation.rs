//! A decision allocates nothing.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod shapes;

use std::time::Duration;

use tidegate_core::adaptive::{
    AdaptiveLimit, Aimd, AimdConfig, Gradient2, Gradient2Config, Partitions, Sample, Vegas, VegasConfig, Window,
    WindowConfig,
};
use tidegate_core::fair::{DeficitRoundRobin, FairConfig};
use tidegate_core::shed::{
    ClientThrottle, ClientThrottleConfig, CoDel, CoDelConfig, Criticality, WorkerShedder, WorkerShedderConfig,
};
use tidegate_core::{Charge, DirectLimiter, Key, MemoryStore, Op, Semaphore, Time};
use tidegate_testkit::counting::{Counting, allocations};

use shapes::every_shape;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn decisions_allocate_nothing() {
    assert_eq!(allocations(|| drop(Box::new(1))), 1, "the counter counts");
    let store = MemoryStore::builder().keys(100).build().unwrap();
    let semaphore = Semaphore::new(2).unwrap();
    let names: Vec<String> = (0..500).map(|number| format!("user:{number}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name).unwrap()).collect();
    let limits = every_shape(5, Duration::from_millis(1));
    let direct = limits.map(|limit| DirectLimiter::new(limit).unwrap());
    let mut decisions = Vec::with_capacity(keys.len());
    let made = allocations(|| {
        for key in &keys {
            for (limit, direct) in limits.iter().zip(&direct) {
                let taken = store.decide(*key, limit, Op::Take(1));
                store.decide(*key, limit, Op::Debit(9));
                store.decide(*key, limit, Op::Refund(1, taken.receipt()));
                store.decide(*key, limit, Op::Peek);
                store.decide(*key, limit, Op::Reset);
                direct.check();
            }
            let charges = limits.each_ref().map(|limit| Charge::take(*key, limit, 1));
            assert_eq!(store.charge(&charges).unwrap().iter().len(), 5);
            drop(semaphore.try_acquire(*key));
        }
        for limit in &limits {
            decisions.clear();
            store.decide_batch(&keys, limit, Op::Take(1), &mut decisions);
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn limits_that_learn_and_shedders_allocate_nothing() {
    let mut limits: [AdaptiveLimit; 3] = [
        Aimd::new(AimdConfig::default()).unwrap().into(),
        Vegas::new(VegasConfig::default()).unwrap().into(),
        Gradient2::new(Gradient2Config::default()).unwrap().into(),
    ];
    let mut window = Window::new(WindowConfig::default()).unwrap();
    let mut partitions = Partitions::new(3, &[0.5, 0.5]).unwrap();
    let mut worker = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
    let mut codel = CoDel::new(CoDelConfig::default()).unwrap();
    let mut throttle = ClientThrottle::new(ClientThrottleConfig::default()).unwrap();
    let made = allocations(|| {
        for step in 0..1000 {
            let now = Time::from_nanos(step * 10_000_000);
            let sample = Sample { rtt: Duration::from_millis(80), in_flight: 50, dropped: step % 7 == 0 };
            if let Some(whole) = window.add(now, sample) {
                for limit in &mut limits {
                    limit.update(whole);
                }
            }
            if partitions.try_acquire(Some(0), now) && step % 3 == 0 {
                partitions.release(Some(0));
            }
            worker.observe(now, 0.9);
            let shed = [worker.sheds(Criticality::Get, step), codel.sheds(now, sample.rtt), throttle.sheds(now, step)];
            if shed == [false; 3] {
                throttle.accepted(now);
            }
        }
    });
    assert_eq!(made, 0);
}

#[test]
fn a_fair_queue_makes_room_when_items_come_and_not_when_they_go() {
    let mut queue = DeficitRoundRobin::new(FairConfig::default()).unwrap();
    let names: Vec<String> = (0..50).map(|number| format!("tenant:{number}")).collect();
    let mut tickets = Vec::new();
    for item in 0..500usize {
        tickets.push(queue.push(Key::new(&names[item % 50]).unwrap(), 1, 1, item).unwrap());
    }
    let goes = allocations(|| {
        for ticket in tickets.iter().step_by(2) {
            assert!(queue.remove(*ticket).is_some());
        }
        while queue.pop().is_some() {}
    });
    assert_eq!(goes, 0);
    queue.push(Key::new("one").unwrap(), 1, 1, 0).unwrap();
    let known = allocations(|| {
        for item in 1..50 {
            queue.push(Key::new("one").unwrap(), 1, 1, item).unwrap();
        }
    });
    assert_eq!(known, 0, "places of those that went are used again");
}
