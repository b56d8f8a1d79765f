//! Time for what is measured and never waited for: how long a response took, how old a count is.

use tidegate_core::{Clock, Time};

use crate::runtime_clock::RuntimeClock;

/// Reads the processor's counter: that takes a third of the time of reading the system's clock, and a request may need two
/// readings. Where tokio's clock can be paused, as in tests, it goes by that one, so that both stand still together.
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
    returns_nothing(pause)
};

/// Stands in for tokio's, and unlike that returns something.
#[allow(dead_code, reason = "it may be hidden")]
fn pause() -> bool {
    false
}

const fn returns_nothing<T>(_: fn() -> T) -> bool {
    size_of::<T>() == 0
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
