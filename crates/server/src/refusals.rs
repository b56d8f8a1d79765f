//! Clients that were turned away before they could ask: all are counted, and some are logged. Anybody who reaches a port
//! can be turned away as often as they like, and must not fill a disk with that.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Clock;
use tidegate_engine::LogLimiter;

use crate::bounds::REFUSAL_LINES;

/// Those of one kind.
#[derive(Debug)]
pub(crate) struct Refusals {
    count: AtomicU64,
    lines: LogLimiter,
}

impl Refusals {
    pub(crate) fn new(clock: &Clock) -> Refusals {
        Refusals { count: AtomicU64::new(0), lines: LogLimiter::new(REFUSAL_LINES, clock.clone()) }
    }

    /// Counts one. Returns how many had no line since the last one if a line may be written of it.
    pub(crate) fn count(&self) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.lines.turn()
    }

    /// Returns how many there were.
    pub(crate) fn total(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_core::FakeClock;

    #[test]
    fn few_lines_a_second_and_none_is_forgotten() {
        let clock = FakeClock::new();
        let refusals = Refusals::new(&clock.clone().into());
        let lines = || (0..100).filter_map(|_| refusals.count()).collect::<Vec<_>>();
        assert_eq!(lines(), [0, 0, 0]);
        clock.advance(Duration::from_millis(1_001));
        assert_eq!(lines(), [97, 0, 0]);
        clock.advance(Duration::from_millis(1_001));
        assert_eq!(refusals.count(), Some(97));
        assert_eq!(refusals.total(), 201);
    }
}
