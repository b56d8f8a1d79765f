//! Permits on a clock that is told the time: leases end, and a clock that is set back keeps nobody out for longer than one.

use tidegate_core::Time;

use super::in_process::InProcess;
use super::{End, Runs, bytes};
use crate::redis::decode;
use crate::redis::link::Arg;

const KEY: &[u8] = b"pool";
const LEASE: u64 = 10_000_000;
const LIMIT: u64 = 2;

/// Does an op at an instant in microseconds. Tells whether it was done, the permits in use, and when the next one ends.
fn put(subject: &mut impl Runs, op: &str, permit: &str, now: u64) -> (bool, u64, u64) {
    let args = [Arg::from(op), Arg::from(permit), Arg::from(LEASE), Arg::from(LIMIT)];
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

#[test]
fn permits_in_process() {
    check(&mut InProcess::new());
}
