//! Permits by their script, on a clock that it is told.

use std::time::Duration;

use tidegate_core::{PermitOp, Permits, Time};
use tidegate_testkit::conformance::permits::{self, PermitSubject};

use super::{End, Runs, Scripted, bytes, in_process};
use crate::redis::decode;
use crate::redis::link::Arg;

const KEY: &[u8] = b"pool";

impl<R: Runs> PermitSubject for Scripted<R> {
    fn restart(&mut self) {
        self.0.restart();
    }

    fn decide(&mut self, now: Time, holder: &str, op: PermitOp) -> Permits {
        let lease = u64::try_from(op.lease().unwrap_or_default().as_micros()).unwrap();
        let limit = op.limit().unwrap_or(0);
        let args = [Arg::from(op.name()), Arg::from(holder), Arg::from(lease), Arg::from(limit)];
        let reply = self.0.run(&self.0.scripts().permits, &[KEY], &bytes(&args, now));
        let (done, in_use, micros) = decode::permits(&reply).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
        let next_end = Duration::from_micros(micros);
        if let (Some(End::At { nanos, .. }), true) = (self.0.end_of(KEY), in_use > 0) {
            assert!(nanos >= now.plus(next_end).as_nanos(), "the set expires before its permits");
        }
        Permits::new(done, in_use, next_end)
    }
}

/// Checks all of the suite, and that no key is left when the last permit was released.
pub(super) fn check<R: Runs>(subject: &mut Scripted<R>, cases: u32) {
    permits::check_leases(subject);
    permits::check_lengths(subject);
    assert!(subject.0.end_of(KEY).is_none_or(|end| end == End::Gone), "an empty set is removed");
    permits::check_histories(subject, cases);
}

#[test]
fn permits_in_process() {
    check(&mut in_process(), 1_000);
}
