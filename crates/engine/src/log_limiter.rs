//! Bounds on log lines that requests, connections or failures cause: each kind has a limit, since a caller could cause
//! any number of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_core::{Clock, DirectLimiter, Limit, Rate};

/// The most lines of one kind in a period, all at once if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRate {
    /// Lines, at least one.
    pub lines: u64,
    /// The period, longer than zero.
    pub period: Duration,
}

/// Limits the lines of one kind to a [`LogRate`], and counts those that it leaves out.
#[derive(Debug)]
pub struct LogLimiter {
    /// `None` for a rate that no limit can have, which lets no line pass.
    limiter: Option<DirectLimiter>,
    left_out: AtomicU64,
}

impl LogLimiter {
    /// Creates a limiter that has let no line pass yet.
    #[must_use]
    pub fn new(rate: LogRate, clock: Clock) -> LogLimiter {
        let limit = Rate::new(rate.lines, rate.period).and_then(|paced| Limit::gcra(paced, rate.lines)).ok();
        let limiter = limit.and_then(|limit| DirectLimiter::with_clock(limit, clock).ok());
        LogLimiter { limiter, left_out: AtomicU64::new(0) }
    }

    /// Returns the number of lines left out since the last one if another may be written now; otherwise counts this one
    /// as left out and returns `None`.
    pub fn turn(&self) -> Option<u64> {
        if self.limiter.as_ref().is_some_and(|limiter| limiter.check().is_allowed()) {
            return Some(self.left_out.swap(0, Relaxed));
        }
        self.left_out.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::STORE_FAILURE_LINES;
    use tidegate_core::FakeClock;

    fn turns(limiter: &LogLimiter, count: usize) -> Vec<u64> {
        (0..count).filter_map(|_| limiter.turn()).collect()
    }

    #[test]
    fn lines_beyond_the_rate_are_left_out_and_counted() {
        let clock = FakeClock::new();
        let limiter = LogLimiter::new(LogRate { lines: 3, period: Duration::from_secs(1) }, clock.clone().into());
        assert_eq!(turns(&limiter, 100), [0, 0, 0]);
        clock.advance(Duration::from_millis(1_001));
        assert_eq!(turns(&limiter, 100), [97, 0, 0]);
        clock.advance(Duration::from_millis(334));
        assert_eq!(turns(&limiter, 100), [97]);
    }

    #[test]
    fn a_store_that_fails_is_logged_from_time_to_time() {
        let clock = FakeClock::new();
        let limiter = LogLimiter::new(STORE_FAILURE_LINES, clock.clone().into());
        assert_eq!(turns(&limiter, 4), [0]);
        clock.advance(STORE_FAILURE_LINES.period - Duration::from_nanos(1));
        assert_eq!(limiter.turn(), None);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(turns(&limiter, 1), [4]);
    }

    #[test]
    fn a_rate_that_no_limit_can_have_lets_nothing_pass() {
        let never = LogLimiter::new(LogRate { lines: 0, period: Duration::from_secs(1) }, Clock::system());
        assert_eq!(never.turn(), None);
    }
}
