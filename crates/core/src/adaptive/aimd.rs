//! Additive increase, multiplicative decrease: the limit rises by one until a request is dropped.

use std::time::Duration;

use super::error::{check_count, check_limits, check_range, check_time};
use super::{AdaptiveError, Sample, whole};
use crate::bounds::ADAPTIVE_LIMIT_MAX;

/// The configuration of an [`Aimd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AimdConfig {
    /// The initial limit.
    pub initial: u64,
    /// The smallest limit.
    pub min: u64,
    /// The largest limit.
    pub max: u64,
    /// The factor that a drop multiplies the limit by, 0.1 to 0.99. With 0.5 the limit adapts to a large loss of
    /// capacity in few steps; with 0.9 it gives up less for a single drop.
    pub backoff: f64,
    /// The amount that a sample without a drop adds to the limit.
    pub increase: u64,
    /// A longer response time counts as a drop.
    pub timeout: Duration,
    /// The number of samples after a drop that cannot lower the limit again. A deadline passes long after the limit was
    /// too high, and for all requests let in meanwhile: with 0, as in the published formula, each window of them lowers
    /// the limit again. Set it to the number of windows in a deadline, so that they lower it once.
    pub hold: u64,
}

impl Default for AimdConfig {
    fn default() -> AimdConfig {
        AimdConfig {
            initial: 20,
            min: 20,
            max: 200,
            backoff: 0.9,
            increase: 1,
            timeout: Duration::from_secs(5),
            hold: 0,
        }
    }
}

/// Rises by one for each sample while at least half of the limit is in use, and falls by a factor for each drop.
///
/// It detects overload only by drops: if no request is dropped or takes longer than the timeout, the limit rises to
/// twice the number in flight, or to `max`.
#[derive(Clone, Debug)]
pub struct Aimd {
    config: AimdConfig,
    limit: u64,
    /// Samples that still belong to the last drop.
    held: u64,
}

impl Aimd {
    /// Creates a limit with this configuration.
    ///
    /// # Errors
    /// Fails if a number is zero or out of range, `min` is above `max`, or `initial` is not between them.
    pub fn new(config: AimdConfig) -> Result<Aimd, AdaptiveError> {
        check_limits(config.initial, config.min, config.max)?;
        check_range("backoff", config.backoff, 0.1, 0.99)?;
        check_count("increase", config.increase, ADAPTIVE_LIMIT_MAX)?;
        check_time("timeout", config.timeout, AimdConfig::default().timeout)?;
        Ok(Aimd { config, limit: config.initial, held: 0 })
    }

    /// Learns from a sample and returns the new limit.
    pub fn update(&mut self, sample: Sample) -> u64 {
        let config = &self.config;
        let held = self.held > 0;
        self.held = self.held.saturating_sub(1);
        let limit = if sample.dropped || sample.rtt > config.timeout {
            if held {
                return self.limit;
            }
            self.held = config.hold;
            whole(self.limit as f64 * config.backoff)
        } else if sample.rtt.is_zero() || sample.in_flight.saturating_mul(2) < self.limit {
            // Nobody has tried the limit, so there is no telling whether more would do.
            self.limit
        } else {
            self.limit.saturating_add(config.increase)
        };
        self.limit = limit.clamp(config.min, config.max);
        self.limit
    }

    /// Returns the limit on requests in flight.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: the time in milliseconds, how many were in flight, whether it was dropped, the limit afterwards.
    fn check(config: AimdConfig, steps: &[(u64, u64, bool, u64)]) {
        let mut aimd = Aimd::new(config).unwrap();
        for (step, &(rtt, in_flight, dropped, expected)) in steps.iter().enumerate() {
            let limit = aimd.update(Sample { rtt: Duration::from_millis(rtt), in_flight, dropped });
            assert_eq!(limit, expected, "step {step}");
            assert_eq!(aimd.limit(), expected);
        }
    }

    #[test]
    fn rises_by_one_while_half_is_in_use() {
        // 2 · 10 = 20 is enough; 2 · 10 < 21 is not; 2 · 11 ≥ 21 is.
        check(AimdConfig::default(), &[(80, 10, false, 21), (80, 10, false, 21), (80, 11, false, 22)]);
    }

    #[test]
    fn falls_by_the_factor_rounded_down_and_not_below_min() {
        let config = AimdConfig { initial: 99, ..AimdConfig::default() };
        // 89.1, 80.1, 72, 64.8, 57.6, 51.3, 45.9
        let falls = [89, 80, 72, 64, 57, 51, 45].map(|limit| (80, 1, true, limit));
        check(config, &falls);
        check(AimdConfig { initial: 22, ..config }, &[(80, 1, true, 20), (80, 1, true, 20)]);
        let halves = AimdConfig { backoff: 0.5, min: 1, ..config };
        check(halves, &[49, 24, 12, 6, 3, 1, 1].map(|limit| (80, 1, true, limit)));
    }

    #[test]
    fn a_time_beyond_the_timeout_is_a_drop() {
        let config = AimdConfig { initial: 100, timeout: Duration::from_millis(500), ..AimdConfig::default() };
        check(config, &[(500, 100, false, 101), (501, 101, false, 90)]);
    }

    #[test]
    fn drops_that_are_held_make_one_fall() {
        let config = AimdConfig { initial: 100, hold: 2, ..AimdConfig::default() };
        let drop = |limit| (80, 100, true, limit);
        check(config, &[drop(90), drop(90), (80, 90, false, 91), drop(81), drop(81), drop(81), drop(72)]);
    }

    #[test]
    fn stays_below_max() {
        let config = AimdConfig { initial: 200, increase: 7, ..AimdConfig::default() };
        check(
            config,
            &[(80, 200, false, 200), (80, u64::MAX, false, 200), (80, 200, true, 180), (80, 200, false, 187)],
        );
    }

    #[test]
    fn a_time_that_is_not_known_raises_nothing() {
        check(AimdConfig::default(), &[(0, 20, false, 20), (0, 20, true, 20)]);
        check(AimdConfig { initial: 100, ..AimdConfig::default() }, &[(0, 100, false, 100), (0, 100, true, 90)]);
    }
}
