//! The clock of the runtime's timers, for everything that waits. Durations that are only measured use `stopwatch.rs`.

use std::time::Duration;

use tidegate_core::Time;
use tokio::time::Instant;

/// Nanoseconds since this clock was made, plus a second: zero means never seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeClock {
    start: Instant,
}

const FIRST: Time = Time::from_nanos(1_000_000_000);

impl RuntimeClock {
    pub(crate) fn start() -> RuntimeClock {
        RuntimeClock { start: Instant::now() }
    }

    #[inline]
    pub(crate) fn now(self) -> Time {
        FIRST.plus(self.start.elapsed())
    }

    /// The instant as a timer takes it.
    pub(crate) fn instant(self, time: Time) -> Instant {
        self.start + between(FIRST, time)
    }
}

/// The time from the first instant to the second; zero if the second is earlier.
pub(crate) fn between(earlier: Time, later: Time) -> Duration {
    Duration::from_nanos(later.as_nanos().saturating_sub(earlier.as_nanos()))
}
