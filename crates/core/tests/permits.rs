//! Permits with leases, beside a literal model of them, and never more of them than the limit.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    FakeClock, Holders, Key, LeasedSemaphore, Namespace, NoRoom, PermitOp, PermitOwner, Permits, Time,
};
use tidegate_testkit::conformance::model::PermitModel;
use tidegate_testkit::conformance::permits::{self, PermitSubject};

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

/// An op with small numbers, so that holders meet and leases end.
fn op() -> impl Strategy<Value = PermitOp> {
    let lease = (1_u64..30).prop_map(Duration::from_nanos);
    prop_oneof![
        3 => (0_u64..5, lease.clone()).prop_map(|(limit, lease)| PermitOp::Acquire { limit, lease }),
        1 => lease.prop_map(|lease| PermitOp::Renew { lease }),
        1 => Just(PermitOp::Release),
    ]
}

/// Calls, each so much later than the one before. Some come after the clock was set back.
fn calls(steps: std::ops::Range<i64>) -> impl Strategy<Value = Vec<(i64, u128, PermitOp)>> {
    prop::collection::vec((steps, 0_u128..6, op()), 1..80)
}

proptest! {
    #[test]
    fn they_are_as_the_model_says(calls in calls(-8..12)) {
        let (mut holders, mut model, mut now) = (Holders::default(), PermitModel::default(), 1_000_u64);
        for (step, holder, op) in calls {
            now = now.saturating_add_signed(step);
            let told = holders.decide(Time::from_nanos(now), holder, op);
            prop_assert_eq!(told, model.decide(now, holder, op), "{:?} of {} at {}", op, holder, now);
        }
    }

    /// Counted by what holders were promised, not by what is kept of them.
    #[test]
    fn never_more_are_held_than_the_limit(limit in 1_u64..4, calls in calls(0..12)) {
        let (clock, mut promised, mut now) = (FakeClock::new(), Vec::<(u128, u64)>::new(), 0_u64);
        let semaphore = LeasedSemaphore::new(clock.clone().into());
        for (step, holder, op) in calls {
            let step = step.unsigned_abs();
            now += step;
            clock.advance(Duration::from_nanos(step));
            promised.retain(|(_, end)| *end > now);
            let name = holder.to_string();
            let (done, lease) = match op {
                PermitOp::Acquire { lease, .. } => {
                    (semaphore.acquire(key("pool"), key(&name), limit, lease).unwrap().done, lease)
                }
                PermitOp::Renew { lease } => (semaphore.renew(key("pool"), key(&name), lease).done, lease),
                _ => {
                    let is_held = promised.iter().any(|(other, _)| *other == holder);
                    prop_assert_eq!(semaphore.release(key("pool"), key(&name)).done, is_held);
                    promised.retain(|(other, _)| *other != holder);
                    continue;
                }
            };
            if done {
                let known = promised.iter().position(|(other, _)| *other == holder);
                let end = known.map_or(0, |place| promised.swap_remove(place).1).max(now + nanos(lease));
                promised.push((holder, end));
            } else if matches!(op, PermitOp::Acquire { .. }) {
                prop_assert_eq!(promised.len() as u64, limit, "denied though there was a place");
            }
            prop_assert!(promised.len() as u64 <= limit, "{:?}", promised);
            prop_assert_eq!(semaphore.held(), promised.len());
        }
    }
}

/// A semaphore of one key, on a clock that the suite sets.
struct InMemory {
    clock: FakeClock,
    semaphore: LeasedSemaphore,
}

impl InMemory {
    fn new() -> InMemory {
        let clock = FakeClock::new();
        InMemory { semaphore: LeasedSemaphore::new(clock.clone().into()), clock }
    }
}

impl PermitSubject for InMemory {
    fn restart(&mut self) {
        *self = InMemory::new();
    }

    fn decide(&mut self, now: Time, holder: &str, op: PermitOp) -> Permits {
        self.clock.set(now);
        let (key, holder) = (key("pool"), key(holder));
        match op {
            PermitOp::Acquire { limit, lease } => self.semaphore.acquire(key, holder, limit, lease).unwrap(),
            PermitOp::Renew { lease } => self.semaphore.renew(key, holder, lease),
            _ => self.semaphore.release(key, holder),
        }
    }
}

#[test]
fn the_semaphore_conforms() {
    permits::check(&mut InMemory::new(), 200);
}

#[test]
fn a_short_lease_beside_a_long_one_does_not_end_it() {
    let clock = FakeClock::new();
    let semaphore = LeasedSemaphore::new(clock.clone().into());
    let acquire =
        |permit, millis| semaphore.acquire(key("pool"), key(permit), 2, Duration::from_millis(millis)).unwrap();
    assert!(acquire("long", 60_000).done);
    assert!(acquire("short", 10).done);
    clock.advance(Duration::from_millis(10));
    assert!(acquire("third", 10).done, "the short one has ended");
    clock.advance(Duration::from_millis(59_989));
    assert!(acquire("fourth", 10).done);
    assert!(!acquire("fifth", 10).done, "the long one has not");
    clock.advance(Duration::from_millis(1));
    assert!(acquire("fifth", 10).done);
}

#[test]
fn room_is_bounded_over_all_keys_and_comes_back_by_itself() {
    let clock = FakeClock::new();
    let semaphore = LeasedSemaphore::with_room(clock.clone().into(), 100);
    let lease = Duration::from_secs(10);
    let names: Vec<String> = (0..100).map(|number| format!("key:{number}")).collect();
    for name in &names {
        assert!(semaphore.acquire(key(name), key("holder"), 5, lease).unwrap().done);
    }
    assert_eq!(semaphore.acquire(key("other"), key("holder"), 5, lease), Err(NoRoom::Full { permits: 100 }));
    assert!(semaphore.acquire(key("key:7"), key("holder"), 5, lease).unwrap().done, "who holds one needs no more room");
    assert!(semaphore.release(key("key:7"), key("holder")).done);
    assert!(semaphore.acquire(key("other"), key("holder"), 5, lease).unwrap().done);
    clock.advance(lease);
    for name in &names {
        let other = format!("other:{name}");
        assert!(semaphore.acquire(key(&other), key("holder"), 5, lease).unwrap().done, "what ended made room");
    }
    assert_eq!(semaphore.held(), 100);
    clock.advance(lease);
    assert_eq!(semaphore.held(), 0);
}

#[test]
fn an_owner_holds_its_share_at_most_and_gets_it_back() {
    let clock = FakeClock::new();
    let semaphore = LeasedSemaphore::with_room(clock.clone().into(), 100);
    let lease = Duration::from_secs(10);
    let [greedy, other] = [1, 2].map(|number| PermitOwner { number, permits: 40 });
    let decide = |owner, name: &str, permit: &str, op| {
        semaphore.decide_for(Some(owner), Namespace::root(), key(name), key(permit), op)
    };
    let acquire = PermitOp::Acquire { limit: 1, lease };
    let taken = |owner: PermitOwner, name: &str| {
        let permit = if owner == other { "second" } else { "first" };
        let is_taken = |number: &u64| {
            decide(owner, &format!("{name}:{number}"), permit, acquire).is_ok_and(|permits| permits.done)
        };
        (0..60).filter(is_taken).count()
    };
    let refused = Err(NoRoom::OfOwner { permits: 40 });
    assert_eq!(taken(greedy, "flood"), 40);
    assert_eq!(decide(greedy, "work", "first", acquire), refused);
    assert_eq!(taken(other, "work"), 40, "others have room");
    // Nothing more is taken by who holds a permit already, is denied, or renews.
    assert!(decide(greedy, "flood:0", "first", acquire).unwrap().done);
    assert!(!decide(greedy, "work:0", "first", acquire).unwrap().done);
    assert!(decide(greedy, "flood:0", "first", PermitOp::Renew { lease: 2 * lease }).unwrap().done);
    // A permit is of who acquired it, whoever releases it.
    assert!(decide(other, "flood:1", "first", PermitOp::Release).unwrap().done);
    assert!(decide(greedy, "more", "first", acquire).unwrap().done);
    assert_eq!(decide(greedy, "work", "first", acquire), refused);
    clock.advance(lease);
    assert_eq!(taken(greedy, "later"), 39, "all but the one that was renewed have ended");
    assert_eq!((taken(other, "later"), semaphore.held()), (21, 61), "what others hold is denied");
    clock.advance(2 * lease);
    assert_eq!((taken(greedy, "again"), semaphore.held()), (40, 40));
    // The room of all is a bound as well.
    let most = PermitOwner { number: 3, permits: 200 };
    let all = (0..200).filter(|number| decide(most, &format!("all:{number}"), "first", acquire).is_ok()).count();
    assert_eq!((all, decide(other, "work", "first", acquire)), (60, Err(NoRoom::Full { permits: 100 })));
}

#[test]
fn a_look_changes_nothing() {
    let clock = FakeClock::new();
    let semaphore = LeasedSemaphore::new(clock.clone().into());
    let look = |permit| semaphore.look(Namespace::root(), key("pool"), key(permit));
    let left = |permit| semaphore.lease_left(Namespace::root(), key("pool"), key(permit));
    assert_eq!((look("first"), left("first")), (Permits::default(), None));
    let lease = Duration::from_secs(10);
    assert!(semaphore.acquire(key("pool"), key("first"), 1, lease).unwrap().done);
    clock.advance(lease / 2);
    assert_eq!(look("first"), Permits::new(true, 1, lease / 2));
    assert_eq!(look("second"), Permits::new(false, 1, lease / 2));
    assert_eq!((left("first"), left("second")), (Some(lease / 2), None));
    clock.advance(lease / 2);
    assert_eq!((look("first"), left("first")), (Permits::default(), None));
}

#[test]
fn threads_never_hold_more_than_the_limit() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let semaphore = LeasedSemaphore::new(tidegate_core::Clock::system());
    let (inside, acquired) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (semaphore, inside, acquired) = (&semaphore, &inside, &acquired);
            scope.spawn(move || {
                let name = number.to_string();
                for _ in 0..2_000 {
                    if semaphore.acquire(key("pool"), key(&name), 3, Duration::from_secs(60)).unwrap().done {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3, "too many at once");
                        acquired.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert!(semaphore.release(key("pool"), key(&name)).done);
                    }
                }
            });
        }
    });
    assert!(acquired.load(Ordering::Relaxed) > 0);
    assert_eq!(semaphore.held(), 0);
}
