//! The conformance suite finds stores that decide wrongly.
#![cfg(feature = "conformance")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use tidegate_core::{Charge, Decisions, FakeClock, Key, LeasedSemaphore, MemoryStore, Op, PermitOp, Permits, Time};
use tidegate_testkit::conformance::permits::{self, PermitSubject};
use tidegate_testkit::conformance::{Subject, histories, traces, transactions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// Units never come back.
    KeepsRefunds,
    /// A clock that jumps back is taken for one that stands still.
    ClockNeverGoesBack,
    /// The charges before one that is denied are taken.
    TakesInPart,
}

struct Broken {
    clock: FakeClock,
    store: MemoryStore,
    latest: Time,
    defect: Defect,
}

impl Broken {
    fn new(defect: Defect) -> Broken {
        let clock = FakeClock::new();
        let store = MemoryStore::builder().keys(64).log_entries(100_000).clock(clock.clone()).build().unwrap();
        Broken { clock, store, latest: Time::from_nanos(0), defect }
    }
}

impl Subject for Broken {
    fn restart(&mut self) {
        *self = Broken::new(self.defect);
    }

    fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions {
        self.latest = self.latest.max(now);
        self.clock.set(if self.defect == Defect::ClockNeverGoesBack { self.latest } else { now });
        match self.defect {
            Defect::TakesInPart => {
                let decide = |charge: &Charge<'_>| self.store.decide(charge.key, charge.limit, charge.op);
                charges.iter().map(|charge| (decide(charge), charge.veto)).collect()
            }
            Defect::KeepsRefunds => {
                let op = |op: Op| if matches!(op, Op::Refund(..)) { Op::Peek } else { op };
                let charges: Vec<Charge<'_>> =
                    charges.iter().map(|charge| Charge { op: op(charge.op), ..*charge }).collect();
                self.store.charge(&charges).unwrap()
            }
            Defect::ClockNeverGoesBack => self.store.charge(charges).unwrap(),
        }
    }
}

#[test]
#[should_panic(expected = ".jsonl:")]
fn traces_find_refunds_that_are_kept() {
    traces::check(&mut Broken::new(Defect::KeepsRefunds));
}

#[test]
#[should_panic(expected = "minimal failing input")]
fn histories_find_refunds_that_are_kept() {
    histories::check(&mut Broken::new(Defect::KeepsRefunds), 500);
}

#[test]
#[should_panic(expected = "minimal failing input")]
fn histories_find_a_clock_that_never_goes_back() {
    histories::check(&mut Broken::new(Defect::ClockNeverGoesBack), 500);
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn jumps_find_a_clock_that_never_goes_back() {
    transactions::check_jumps(&mut Broken::new(Defect::ClockNeverGoesBack));
}

#[test]
#[should_panic(expected = "minimal failing input")]
fn transactions_find_charges_that_are_taken_in_part() {
    transactions::check(&mut Broken::new(Defect::TakesInPart), 500);
}

/// Permits whose renewals take a permit again that has ended.
struct Reviving {
    clock: FakeClock,
    semaphore: LeasedSemaphore,
}

impl Reviving {
    fn new() -> Reviving {
        let clock = FakeClock::new();
        Reviving { semaphore: LeasedSemaphore::new(clock.clone().into()), clock }
    }
}

impl PermitSubject for Reviving {
    fn restart(&mut self) {
        *self = Reviving::new();
    }

    fn decide(&mut self, now: Time, holder: &str, op: PermitOp) -> Permits {
        self.clock.set(now);
        let (key, holder) = (Key::new("pool").unwrap(), Key::new(holder).unwrap());
        match op {
            PermitOp::Acquire { limit, lease } => self.semaphore.acquire(key, holder, limit, lease).unwrap(),
            PermitOp::Renew { lease } => self.semaphore.acquire(key, holder, u64::MAX, lease).unwrap(),
            _ => self.semaphore.release(key, holder),
        }
    }
}

#[test]
#[should_panic(expected = "a comes too late")]
fn leases_find_a_renewal_that_comes_too_late() {
    permits::check_leases(&mut Reviving::new());
}

#[test]
#[should_panic(expected = "minimal failing input")]
fn histories_find_a_renewal_that_comes_too_late() {
    permits::check_histories(&mut Reviving::new(), 500);
}
