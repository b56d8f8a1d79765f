//! Permits on a clock that is told the time: leases end, and a clock that is set back keeps nobody out for longer than one.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Holders, PermitOp, Permits, Time};

use super::in_process::InProcess;
use super::{End, Runs, bytes};
use crate::redis::decode;
use crate::redis::link::Arg;

const KEY: &[u8] = b"pool";
const LEASE: u64 = 10_000_000;
const LIMIT: u64 = 2;

/// Does an op at an instant in microseconds. Tells whether it was done, the permits in use, and when the next one ends.
fn put(subject: &mut impl Runs, op: &str, permit: &str, now: u64) -> (bool, u64, u64) {
    put_for(subject, op, permit, now, LEASE, LIMIT)
}

/// The same with a lease and a limit of its own.
fn put_for(subject: &mut impl Runs, op: &str, permit: &str, now: u64, lease: u64, limit: u64) -> (bool, u64, u64) {
    let args = [Arg::from(op), Arg::from(permit), Arg::from(lease), Arg::from(limit)];
    let args = bytes(&args, Time::from_nanos(now * 1_000));
    let reply = subject.run(&subject.scripts().permits, &[KEY], &args);
    let told = decode::permits(&reply).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    if let (Some(End::At { nanos, .. }), true) = (subject.end_of(KEY), told.1 > 0) {
        assert!(nanos >= (now + told.2) * 1_000, "the set expires before its permits");
    }
    told
}

pub(super) fn check(subject: &mut impl Runs) {
    const START: u64 = 1_700_000_000_000_000;
    const JUMP: u64 = 3_600_000_000;
    subject.restart();
    assert_eq!(put(subject, "acquire", "a", START), (true, 1, LEASE));
    assert_eq!(put(subject, "acquire", "b", START + 1), (true, 2, LEASE - 1));
    assert_eq!(put(subject, "acquire", "c", START + LEASE - 1), (false, 2, 1));
    assert_eq!(put(subject, "acquire", "c", START + LEASE), (true, 2, 1), "the lease of a is over");
    assert_eq!(put(subject, "renew", "a", START + LEASE), (false, 2, 1), "a comes too late");
    assert_eq!(put(subject, "renew", "b", START + LEASE), (true, 2, LEASE));
    // An hour back. Who renews goes on, and who died keeps others out for one lease from the first who asks.
    let back = START - JUMP;
    assert_eq!(put(subject, "renew", "c", back), (true, 2, JUMP + 2 * LEASE));
    assert_eq!(put(subject, "acquire", "d", back), (false, 2, LEASE));
    assert_eq!(put(subject, "renew", "c", back + 5), (true, 2, LEASE - 5));
    assert_eq!(put(subject, "acquire", "d", back + LEASE - 1), (false, 2, 1));
    assert_eq!(put(subject, "acquire", "d", back + LEASE), (true, 2, 5), "b died");
    // Who asks again has what it has, and no more than a lease of it.
    assert_eq!(put(subject, "acquire", "c", back + 7), (true, 2, LEASE));
    assert_eq!(put(subject, "release", "c", back + 8), (true, 1, LEASE - 1));
    assert_eq!(put(subject, "release", "c", back + 8), (false, 1, LEASE - 1));
}

/// A short lease beside a long one must not end it: its holder was promised more.
pub(super) fn check_lengths(subject: &mut impl Runs) {
    const START: u64 = 1_700_000_000_000_000;
    subject.restart();
    assert_eq!(put_for(subject, "acquire", "long", START, 60_000_000, 2), (true, 1, 60_000_000));
    assert_eq!(put_for(subject, "acquire", "short", START, 5, 2), (true, 2, 5));
    assert_eq!(put_for(subject, "acquire", "third", START + 5, 5, 2), (true, 2, 5));
    assert_eq!(put_for(subject, "acquire", "fourth", START + 10, 59_999_990, 1), (false, 1, 59_999_990));
    assert_eq!(put_for(subject, "acquire", "fourth", START + 60_000_000, 5, 1), (true, 1, 5));
    assert_eq!(put_for(subject, "release", "fourth", START + 60_000_001, 0, 0), (true, 0, 0));
    assert!(subject.end_of(KEY).is_none_or(|end| end == End::Gone), "what is empty is gone");
}

/// Calls in whole microseconds: how much later than the one before, by whom, and what.
pub(super) fn calls() -> impl Strategy<Value = Vec<(i64, u8, PermitOp)>> {
    let lease = (1_u64..3_000_000).prop_map(Duration::from_micros);
    let op = prop_oneof![
        3 => (0_u64..5, lease.clone()).prop_map(|(limit, lease)| PermitOp::Acquire { limit, lease }),
        1 => lease.prop_map(|lease| PermitOp::Renew { lease }),
        1 => Just(PermitOp::Release),
    ];
    prop::collection::vec((-500_000_i64..1_000_000, 0_u8..6, op), 1..40)
}

/// Runs a history beside the arithmetic in Rust.
pub(super) fn check_history(subject: &mut impl Runs, calls: &[(i64, u8, PermitOp)]) {
    subject.restart();
    let (mut holders, mut now) = (Holders::default(), 1_700_000_000_000_000_u64);
    for (step, holder, op) in calls {
        now = now.saturating_add_signed(*step);
        let (name, lease, limit) = match op {
            PermitOp::Acquire { limit, lease } => ("acquire", *lease, *limit),
            PermitOp::Renew { lease } => ("renew", *lease, 0),
            PermitOp::Release => ("release", Duration::ZERO, 0),
        };
        let lease = u64::try_from(lease.as_micros()).unwrap();
        let (done, in_use, micros) = put_for(subject, name, &holder.to_string(), now, lease, limit);
        let told = Permits { done, in_use, next_end: Duration::from_micros(micros) };
        let expected = holders.decide(Time::from_nanos(now * 1_000), u128::from(*holder), *op);
        assert_eq!(told, expected, "{op:?} of {holder} at {now}");
    }
}

#[test]
fn permits_in_process() {
    check(&mut InProcess::new());
    check_lengths(&mut InProcess::new());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn random_permits_in_process(calls in calls()) {
        check_history(&mut InProcess::new(), &calls);
    }
}
