//! One suite for everything that decides charges: the pure functions, the memory store, the scripts for Redis in process
//! and on live servers.
//!
//! | to find | look in |
//! |---|---|
//! | the traces of `spec/` | [`traces`] |
//! | random histories of one key, with changes of the limit and a clock that jumps back | [`history`], [`histories`] |
//! | random transactions over several keys, and jumps of the clock among them | [`transactions`] |
//! | permits with leases | [`permits`] |
//! | any store, with the feature `stores` | `store` |
//! | literal models, written from the pages of `spec/` | [`model`] |
//!
//! A test implements [`Subject`] for what it tests, on a clock that it can set, and calls [`check`]. An asynchronous store
//! blocks in it:
//!
//! ```
//! use tidegate_core::{Charge, Decisions, FakeClock, MemoryStore, Time};
//! use tidegate_testkit::conformance::{self, Subject};
//!
//! struct InMemory {
//!     clock: FakeClock,
//!     store: MemoryStore,
//! }
//!
//! impl InMemory {
//!     fn new() -> InMemory {
//!         let clock = FakeClock::new();
//!         InMemory { store: MemoryStore::builder().log_entries(100_000).clock(clock.clone()).build().unwrap(), clock }
//!     }
//! }
//!
//! impl Subject for InMemory {
//!     fn restart(&mut self) {
//!         *self = InMemory::new();
//!     }
//!
//!     fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions {
//!         self.clock.set(now);
//!         self.store.charge(charges).unwrap()
//!     }
//! }
//!
//! conformance::check(&mut InMemory::new(), 10);
//! ```

#![allow(clippy::cast_possible_truncation, reason = "choices and indexes are small")]

pub mod histories;
pub mod history;
pub mod model;
pub mod permits;
#[cfg(feature = "stores")]
pub mod store;
pub mod traces;
pub mod transactions;

use std::cell::RefCell;
use std::fmt::Debug;

use proptest::prelude::{ProptestConfig, Strategy};
use proptest::test_runner::TestRunner;
use tidegate_core::{Charge, Decision, Decisions, Key, Limit, Op, Time};

/// Decides charges, at instants that the suite chooses. The clock may go back.
pub trait Subject {
    /// Forgets every key.
    fn restart(&mut self);

    /// Decides all charges at an instant.
    fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions;
}

/// Checks the traces of `spec/`, `cases` random histories and as many random transactions.
///
/// # Panics
/// If any decision differs from the expected one.
pub fn check(subject: &mut impl Subject, cases: u32) {
    traces::check(subject);
    transactions::check_jumps(subject);
    histories::check(subject, cases);
    transactions::check(subject, cases);
}

/// Decides one charge.
fn decide(subject: &mut impl Subject, key: &str, limit: &Limit, now: Time, op: Op) -> Decision {
    let decisions = subject.charge(now, &[charge(key, limit, op, true)]);
    assert_eq!(decisions.iter().len(), 1, "one charge has one decision");
    *decisions.iter().next().unwrap()
}

/// All charges of the suite are made here.
fn charge<'a>(key: &'a str, limit: &'a Limit, op: Op, veto: bool) -> Charge<'a> {
    Charge { veto, ..Charge::new(Key::new(key).unwrap(), limit, op) }
}

/// Runs a check with random cases.
///
/// # Panics
/// Panics if a case fails, with the smallest case that does.
pub fn run_cases<S, T: Strategy>(subject: &mut S, cases: u32, strategy: T, check: impl Fn(&mut S, T::Value))
where
    T::Value: Debug,
{
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let subject = RefCell::new(subject);
    let check = |case: T::Value| {
        check(&mut subject.borrow_mut(), case);
        Ok(())
    };
    if let Err(failure) = TestRunner::new(config).run(&strategy, check) {
        panic!("{failure}");
    }
}
