//! Permits on a clock that is set: leases end, and a clock that is set back keeps nobody out for longer than one lease.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Holders, PermitOp, Permits, Time};

use super::model::PermitModel;
use super::run_cases;

/// Decides operations on the permits of one key, at instants that the suite chooses: whole microseconds. The clock may go
/// back.
pub trait PermitSubject {
    /// Forgets every permit.
    fn restart(&mut self);

    /// Decides an operation of a holder at an instant.
    fn decide(&mut self, now: Time, holder: &str, op: PermitOp) -> Permits;
}

/// Checks leases of one length and of several, and `cases` random histories.
///
/// # Panics
/// If any answer differs from the expected one.
pub fn check(subject: &mut impl PermitSubject, cases: u32) {
    check_leases(subject);
    check_lengths(subject);
    check_histories(subject, cases);
}

const START: u64 = 1_700_000_000_000_000;
const LEASE: u64 = 10_000_000;

/// Decides an operation at an instant in microseconds. Returns whether it was done, the permits in use, and the time until
/// the next lease ends in microseconds.
fn decide(subject: &mut impl PermitSubject, now: u64, holder: &str, op: PermitOp) -> (bool, u64, u64) {
    let permits = subject.decide(Time::from_nanos(now * 1_000), holder, op);
    (permits.done, permits.in_use, u64::try_from(permits.next_end.as_micros()).unwrap())
}

fn acquire(limit: u64, lease: u64) -> PermitOp {
    PermitOp::Acquire { limit, lease: Duration::from_micros(lease) }
}

/// Checks what happens to two permits under leases of one length, when holders die and when the clock is set back.
///
/// # Panics
/// If an answer differs from the expected one.
pub fn check_leases(subject: &mut impl PermitSubject) {
    const JUMP: u64 = 3_600_000_000;
    let (take, renew) = (acquire(2, LEASE), PermitOp::Renew { lease: Duration::from_micros(LEASE) });
    subject.restart();
    let mut at = |now: u64, holder: &str, op: PermitOp| decide(subject, now, holder, op);
    assert_eq!(at(START, "a", take), (true, 1, LEASE));
    assert_eq!(at(START + 1, "b", take), (true, 2, LEASE - 1));
    assert_eq!(at(START + LEASE - 1, "c", take), (false, 2, 1));
    assert_eq!(at(START + LEASE, "c", take), (true, 2, 1), "the lease of a is over");
    assert_eq!(at(START + LEASE, "a", renew), (false, 2, 1), "a comes too late");
    assert_eq!(at(START + LEASE, "b", renew), (true, 2, LEASE));
    // An hour back. A holder that renews keeps its permit; a holder that died keeps others out for one lease from the first
    // acquire on.
    let back = START - JUMP;
    assert_eq!(at(back, "c", renew), (true, 2, JUMP + 2 * LEASE));
    assert_eq!(at(back, "d", take), (false, 2, LEASE));
    assert_eq!(at(back + 5, "c", renew), (true, 2, LEASE - 5));
    assert_eq!(at(back + LEASE - 1, "d", take), (false, 2, 1));
    assert_eq!(at(back + LEASE, "d", take), (true, 2, 5), "b died");
    // A holder that acquires again has one permit, for no more than a lease.
    assert_eq!(at(back + 7, "c", take), (true, 2, LEASE));
    assert_eq!(at(back + 8, "c", PermitOp::Release), (true, 1, LEASE - 1));
    assert_eq!(at(back + 8, "c", PermitOp::Release), (false, 1, LEASE - 1));
}

/// Checks that a short lease beside a long one does not end it.
///
/// # Panics
/// If an answer differs from the expected one.
pub fn check_lengths(subject: &mut impl PermitSubject) {
    subject.restart();
    let mut at = |now: u64, holder: &str, op: PermitOp| decide(subject, now, holder, op);
    assert_eq!(at(START, "long", acquire(2, 60_000_000)), (true, 1, 60_000_000));
    assert_eq!(at(START, "short", acquire(2, 5)), (true, 2, 5));
    assert_eq!(at(START + 5, "third", acquire(2, 5)), (true, 2, 5));
    assert_eq!(at(START + 10, "fourth", acquire(1, 59_999_990)), (false, 1, 59_999_990));
    assert_eq!(at(START + 60_000_000, "fourth", acquire(1, 5)), (true, 1, 5));
    assert_eq!(at(START + 60_000_001, "fourth", PermitOp::Release), (true, 0, 0));
}

/// Runs random histories of six holders, beside the arithmetic of the core and the literal model.
///
/// # Panics
/// If an answer differs.
pub fn check_histories(subject: &mut impl PermitSubject, cases: u32) {
    run_cases(subject, cases, calls(), |subject, calls| check_history(subject, &calls));
}

/// Calls in whole microseconds: the time since the call before, the holder, and the operation.
fn calls() -> impl Strategy<Value = Vec<(i64, u8, PermitOp)>> {
    let lease = (1_u64..3_000_000).prop_map(Duration::from_micros);
    let op = prop_oneof![
        3 => (0_u64..5, lease.clone()).prop_map(|(limit, lease)| PermitOp::Acquire { limit, lease }),
        1 => lease.prop_map(|lease| PermitOp::Renew { lease }),
        1 => Just(PermitOp::Release),
    ];
    prop::collection::vec((-500_000_i64..1_000_000, 0_u8..6, op), 1..40)
}

fn check_history(subject: &mut impl PermitSubject, calls: &[(i64, u8, PermitOp)]) {
    subject.restart();
    let (mut holders, mut model, mut now) = (Holders::default(), PermitModel::default(), START);
    for (step, holder, op) in calls {
        now = now.saturating_add_signed(*step);
        let at = Time::from_nanos(now * 1_000);
        let expected = holders.decide(at, u128::from(*holder), *op);
        assert_eq!(expected, model.decide(at.as_nanos(), u128::from(*holder), *op), "{op:?} of {holder} at {now}");
        assert_eq!(subject.decide(at, &holder.to_string(), *op), expected, "{op:?} of {holder} at {now}");
    }
}
