//! How far the clock of the server is from that of this machine.

use std::time::Duration;

use tidegate_core::bounds::NANOS_PER_SECOND;
use tidegate_core::{Clock, Time};

use super::super::link::{DirectConnection, Reply, Why};
use super::finding::{Notes, Topic};

/// How often the time is asked for. The quickest answer counts: it leaves the least room for error.
const ASKED: u32 = 16;

/// The largest offset that is as it should be. Machines that synchronise their clocks differ by a few milliseconds, over bad
/// networks by some tens, so beyond this one of the two does not. Limits of nodes hold with any offset, since they are
/// decided on the clock of the server; but reset times that clients see, and calendar windows, are off by as much, and at a
/// failover between two servers windows shift by their difference.
const OFFSET_MAX: Duration = Duration::from_millis(100);

/// One answer: the time of the server, and when it was asked for and came.
struct Sample {
    server: Time,
    before: Time,
    after: Time,
}

/// Measures the offset, and returns the time of the server; nothing if it refuses.
pub(super) async fn measure(connection: &mut DirectConnection, notes: &mut Notes) -> Result<Option<Time>, Why> {
    let (clock, mut best) = (Clock::system(), None::<Sample>);
    for _ in 0..ASKED {
        let before = clock.now();
        let reply = connection.ask(&[b"TIME"]).await?;
        let after = clock.now();
        // Whoever may not ask lacks a permission, which is noted with the others.
        let Some(server) = time(&reply) else { return Ok(None) };
        let sample = Sample { server, before, after };
        if best.as_ref().is_none_or(|best| sample.round_trip() < best.round_trip()) {
            best = Some(sample);
        }
    }
    if let Some(sample) = &best {
        judge(sample, notes);
    }
    Ok(best.map(|sample| sample.server))
}

impl Sample {
    fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.after.as_nanos().saturating_sub(self.before.as_nanos()))
    }

    /// How far the server's clock is from ours, and whether it is ahead.
    fn offset(&self) -> (Duration, bool) {
        let middle = self.before.as_nanos().midpoint(self.after.as_nanos());
        let server = self.server.as_nanos();
        (Duration::from_nanos(server.abs_diff(middle)), server >= middle)
    }
}

fn judge(sample: &Sample, notes: &mut Notes) {
    let ((offset, is_ahead), error) = (sample.offset(), sample.round_trip() / 2);
    let direction = if is_ahead { "ahead of" } else { "behind" };
    let millis = |time: Duration| time.as_micros().div_ceil(1_000);
    let message = format!("the server is {} ms {direction} this machine (±{} ms)", offset.as_millis(), millis(error));
    // What the round trip could explain says nothing about the clocks.
    if offset.saturating_sub(error) > OFFSET_MAX {
        let fix = "synchronise both clocks (NTP): reset times and calendar windows use the clock of the server";
        notes.warning(Topic::Clock, message, fix);
    } else {
        notes.ok(Topic::Clock, message);
    }
}

/// Reads the reply to TIME: seconds and microseconds.
fn time(reply: &Reply) -> Option<Time> {
    let Reply::Array(parts) = reply else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let number = |part: &Reply| part.text()?.parse::<u64>().ok();
    let nanos = number(seconds)?.checked_mul(NANOS_PER_SECOND)?.checked_add(number(micros)?.checked_mul(1_000)?)?;
    Some(Time::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn judged(server: u64, before: u64, after: u64) -> (Severity, String) {
        let at = |millis: u64| Time::from_nanos(1_000_000 * (1_000_000 + millis));
        let mut notes = Notes::new(None);
        judge(&Sample { server: at(server), before: at(before), after: at(after) }, &mut notes);
        let finding = notes.findings.remove(0);
        (finding.severity, finding.message)
    }

    #[test]
    fn an_offset_is_a_warning_if_the_round_trip_does_not_explain_it() {
        let of = |severity, message: &str| (severity, format!("the server is {message}"));
        assert_eq!(judged(1_001, 1_000, 1_002), of(Severity::Ok, "0 ms ahead of this machine (±1 ms)"));
        assert_eq!(judged(1_101, 1_000, 1_002), of(Severity::Ok, "100 ms ahead of this machine (±1 ms)"));
        assert_eq!(judged(1_103, 1_000, 1_002), of(Severity::Warning, "102 ms ahead of this machine (±1 ms)"));
        assert_eq!(judged(800, 1_000, 1_000), of(Severity::Warning, "200 ms behind this machine (±0 ms)"));
        assert_eq!(judged(1_400, 1_000, 1_600), of(Severity::Ok, "100 ms ahead of this machine (±300 ms)"));
        assert_eq!(judged(1_390, 1_000, 1_600), of(Severity::Ok, "90 ms ahead of this machine (±300 ms)"));
    }

    #[test]
    fn the_reply_to_time_is_seconds_and_microseconds() {
        let text = |text: &str| Reply::Bulk(text.as_bytes().into());
        let reply = Reply::Array(vec![text("1700000000"), text("250000")]);
        assert_eq!(time(&reply), Some(Time::from_nanos(1_700_000_000_250_000_000)));
        for other in [Reply::Nil, Reply::Array(vec![text("1")]), Reply::Array(vec![text("1"), text("x")])] {
            assert_eq!(time(&other), None, "{other:?}");
        }
    }
}
