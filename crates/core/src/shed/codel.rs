//! CoDel: a queue that never gets short within an interval is congested.

use std::time::Duration;

use super::ShedError;
use super::error::check_time;
use crate::Time;

/// The configuration of a [`CoDel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// The length of an interval, over which delays are watched.
    pub interval: Duration,
    /// The target delay: the queue is congested if all requests of an interval wait longer.
    pub target: Duration,
}

impl Default for CoDelConfig {
    fn default() -> CoDelConfig {
        CoDelConfig { interval: Duration::from_millis(100), target: Duration::from_millis(5) }
    }
}

/// Distinguishes a burst from congestion: in a burst, some request soon waits for less than the target. If in an
/// interval none did, then in the next one all requests are shed that have waited for more than twice the target. The
/// first of each interval passes, so that there is always something to measure.
#[derive(Clone, Debug)]
pub struct CoDel {
    config: CoDelConfig,
    interval_end: Option<Time>,
    least_delay: Duration,
    overloaded: bool,
}

impl CoDel {
    /// Creates a CoDel for one queue.
    ///
    /// # Errors
    /// Fails if a duration is zero or longer than a day.
    pub fn new(config: CoDelConfig) -> Result<CoDel, ShedError> {
        let good = CoDelConfig::default();
        check_time("codel.interval", config.interval, good.interval)?;
        check_time("codel.target", config.target, good.target)?;
        Ok(CoDel { config, interval_end: None, least_delay: Duration::ZERO, overloaded: false })
    }

    /// Returns whether to shed a request that leaves the queue now, after it has waited for `delay`.
    #[must_use]
    pub fn sheds(&mut self, now: Time, delay: Duration) -> bool {
        let next_end = now.plus(self.config.interval);
        // After a clock was set back the interval would last until it has caught up.
        let goes_on = self.interval_end.is_some_and(|end| now < end && end <= next_end);
        if !goes_on {
            self.interval_end = Some(next_end);
            self.overloaded = self.least_delay > self.config.target;
            self.least_delay = delay;
            return false;
        }
        self.least_delay = self.least_delay.min(delay);
        self.overloaded && delay > self.config.target.saturating_mul(2)
    }

    /// Returns whether all requests of the last interval waited for longer than the target.
    #[must_use]
    pub fn overloaded(&self) -> bool {
        self.overloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: the instant in milliseconds, the delay in milliseconds, whether it is shed.
    fn check(steps: &[(u64, u64, bool)]) {
        let mut codel = CoDel::new(CoDelConfig::default()).unwrap();
        for &(at, delay, expected) in steps {
            let now = Time::from_nanos(1_000_000_000 + at * 1_000_000);
            assert_eq!(codel.sheds(now, Duration::from_millis(delay)), expected, "at {at}");
        }
    }

    #[test]
    fn a_standing_queue_is_shed_in_the_next_interval() {
        check(&[
            (0, 50, false), // the first interval has nothing to go by
            (50, 6, false), // the least delay is 6 ms, above the target
            (99, 50, false),
            (100, 50, false), // the next interval: overloaded, but its first passes
            (101, 11, true),
            (102, 10, false), // not more than twice the target
            (103, 5, false),  // the least delay is the target
            (199, 50, true),
            (200, 50, false), // the next interval is not overloaded
            (201, 50, false),
        ]);
    }

    #[test]
    fn a_burst_is_not() {
        check(&[(0, 90, false), (10, 60, false), (20, 30, false), (30, 4, false), (100, 90, false), (110, 90, false)]);
    }

    #[test]
    fn a_clock_set_back_begins_an_interval() {
        check(&[
            (5000, 50, false),
            (5050, 50, false),
            (0, 50, false),
            (1, 50, true),
            (100, 50, false),
            (101, 50, true),
        ]);
    }

    #[test]
    fn bad_numbers_are_refused() {
        let none = CoDelConfig { target: Duration::ZERO, ..CoDelConfig::default() };
        let expected = "codel.target: 0ns is out of range; use more than 0 s and at most 86400s, like 5ms";
        assert_eq!(CoDel::new(none).unwrap_err().to_string(), expected);
    }
}
