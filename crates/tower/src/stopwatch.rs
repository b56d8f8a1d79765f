//! Time for what is measured and never waited for: how long a response took, how old a count is.

use tidegate_core::{Clock, Time};

use crate::runtime_clock::RuntimeClock;

/// Reads the processor's counter, which takes a third of the time of a reading of the system's clock, and of which a
/// request may need two. Only where the runtime's clock can be paused, as in tests, it goes by that one.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch {
    machine: Clock,
    runtime: RuntimeClock,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { machine: Clock::system(), runtime: RuntimeClock::start() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        if CAN_BE_PAUSED { self.runtime.now() } else { self.machine.now() }
    }
}

/// Whether tokio was built with its feature `test-util`, which a library that uses it is not told: there is
/// `tokio::time::pause` then, and its name hides that of the stand-in below.
const CAN_BE_PAUSED: bool = {
    #[allow(unused_imports, reason = "there may be no such name")]
    use tokio::time::*;
    gives(pause)
};

#[allow(dead_code, reason = "it may be hidden")]
struct Absent;

#[allow(dead_code, reason = "it may be hidden")]
fn pause() -> Absent {
    Absent
}

trait Paused {
    const IS_REAL: bool;
}

impl Paused for () {
    const IS_REAL: bool = true;
}

impl Paused for Absent {
    const IS_REAL: bool = false;
}

const fn gives<P: Paused>(_: fn() -> P) -> bool {
    P::IS_REAL
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime_clock::between;

    #[tokio::test(start_paused = true)]
    async fn a_pause_stops_it_and_sleeping_moves_it_on() {
        let watch = Stopwatch::start();
        let start = watch.now();
        assert_eq!(watch.now(), start);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(between(start, watch.now()), Duration::from_secs(3));
    }
}
