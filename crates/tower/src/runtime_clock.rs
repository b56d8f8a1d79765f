//! Time as the runtime's timers have it, for whatever waits: an instant of this clock is one for a timer. What is only
//! measured goes by `stopwatch.rs`.

use std::time::Duration;

use tidegate_core::Time;
use tokio::time::Instant;

/// Nanoseconds since it was made, from a second on: an instant of zero is for what was never seen.
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

/// How much later the second is; nothing if it is earlier.
pub(crate) fn between(earlier: Time, later: Time) -> Duration {
    Duration::from_nanos(later.as_nanos().saturating_sub(earlier.as_nanos()))
}
