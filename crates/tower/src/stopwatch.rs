//! Time for what is measured and never waited for: how long a response took, how old a count is.

use std::sync::LazyLock;
use std::time::Duration;

use tidegate_core::{Clock, Time};
use tokio::time::Instant;

/// Reads the processor's counter, which takes a third of the time of reading the system clock; a request may need two
/// readings. Where tokio's clock can be paused, as in tests, it reads that clock instead, so that both stand still
/// together.
///
/// All stopwatches share one start. So a stopwatch takes no room, and a permit can have one without knowing its layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(());

struct Start {
    machine: Clock,
    runtime: Instant,
}

static START: LazyLock<Start> = LazyLock::new(|| Start { machine: Clock::system(), runtime: Instant::now() });

/// Nanoseconds of tokio's clock at the start. Each runtime may pause its own clock, so an instant may lie before the
/// start: there is as much room below as above.
const MIDDLE: u64 = 1 << 62;

impl Stopwatch {
    /// Makes sure that there is a start. The first call takes a while, since it measures the frequency of the counter.
    pub(crate) fn shared() -> Stopwatch {
        LazyLock::force(&START);
        Stopwatch(())
    }

    #[inline]
    pub(crate) fn now(self) -> Time {
        if CAN_BE_PAUSED { runtime_time(Instant::now(), START.runtime) } else { START.machine.now() }
    }
}

fn runtime_time(now: Instant, start: Instant) -> Time {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(MIDDLE).min(MIDDLE);
    let (after, before) = (now.saturating_duration_since(start), start.saturating_duration_since(now));
    Time::from_nanos(MIDDLE + nanos(after) - nanos(before))
}

/// Whether tokio was built with its feature `test-util`, which a library cannot ask: if so, `tokio::time::pause`
/// exists, and its name hides the stand-in below.
const CAN_BE_PAUSED: bool = {
    #[allow(unused_imports, reason = "there may be no such name")]
    use tokio::time::*;
    returns_nothing(pause)
};

/// Stands in for tokio's function, and unlike it returns a value.
#[allow(dead_code, reason = "it may be hidden")]
fn pause() -> bool {
    false
}

const fn returns_nothing<T>(_: fn() -> T) -> bool {
    size_of::<T>() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_clock::between;

    #[tokio::test(start_paused = true)]
    async fn a_pause_stops_it_and_sleeping_moves_it_on() {
        let watch = Stopwatch::shared();
        let start = watch.now();
        assert_eq!(watch.now(), start);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(between(start, watch.now()), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_may_be_behind_the_start() {
        let before = Instant::now();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (then, now) = (runtime_time(before, Instant::now()), runtime_time(Instant::now(), Instant::now()));
        assert_eq!(between(then, now), Duration::from_secs(3));
    }
}
