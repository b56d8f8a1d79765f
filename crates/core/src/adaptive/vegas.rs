//! Vegas: estimates the queue from the fastest response time seen, and moves the limit until the queue is short.

use std::time::Duration;

use super::error::{check_limits, check_range};
use super::{AdaptiveError, Sample, nanos, whole};
use crate::Dice;

/// The configuration of a [`Vegas`]. Fields in units of L are multiplied by L, which is 1 for a limit below 100, 2
/// below 1,000 and so on: the whole part of the decimal logarithm, at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VegasConfig {
    /// The initial limit.
    pub initial: u64,
    /// The smallest limit.
    pub min: u64,
    /// The largest limit.
    pub max: u64,
    /// The share of a step that is taken, from 0.001 to 1.
    pub smoothing: f64,
    /// Up to this queue, in L, the limit rises fast.
    pub threshold: f64,
    /// Below this queue, in L, the limit rises.
    pub alpha: f64,
    /// Above this queue, in L, the limit falls.
    pub beta: f64,
    /// The amount of a fast rise, in L.
    pub fast_increase: f64,
    /// The amount of a rise, in L.
    pub increase: f64,
    /// The amount of a fall, for a queue or a drop, in L.
    pub decrease: f64,
    /// The number of samples, for each unit of the limit, after which the time without load is measured anew: 1 to
    /// 1,000,000.
    pub probe: f64,
    /// A lower bound on the time without load: faster responses, as from a cache, would make all others look queued.
    pub rtt_floor: Duration,
    /// The seed of the probes' jitter. Processes with different seeds do not probe at the same moment.
    pub seed: u64,
}

impl Default for VegasConfig {
    fn default() -> VegasConfig {
        VegasConfig {
            initial: 20,
            min: 1,
            max: 1000,
            smoothing: 1.0,
            threshold: 1.0,
            alpha: 3.0,
            beta: 6.0,
            fast_increase: 6.0,
            increase: 1.0,
            decrease: 1.0,
            probe: 30.0,
            rtt_floor: Duration::ZERO,
            seed: 0,
        }
    }
}

/// Takes the fastest response time seen as the time without load, and the time beyond it as waiting in a queue. It aims
/// at a queue of a few requests: if the queue is shorter, the limit rises; if it is longer, the limit falls.
///
/// When the work itself becomes slower it mistakes that for a queue, and the limit falls until the next probe corrects
/// it.
#[derive(Clone, Debug)]
pub struct Vegas {
    config: VegasConfig,
    /// Between `min` and `max`; its whole part is the limit.
    estimate: f64,
    /// The time without load in nanoseconds; `None` before the first sample.
    noload: Option<f64>,
    since_probe: u64,
    jitter: f64,
    dice: Dice,
}

impl Vegas {
    /// Creates a limit with this configuration.
    ///
    /// # Errors
    /// Fails if a number is zero or out of range, `min` is above `max`, `initial` is not between them, or `threshold`,
    /// `alpha` and `beta` are not in this order.
    pub fn new(config: VegasConfig) -> Result<Vegas, AdaptiveError> {
        check_limits(config.initial, config.min, config.max)?;
        check_range("smoothing", config.smoothing, 0.001, 1.0)?;
        for (field, value) in [
            ("threshold", config.threshold),
            ("alpha", config.alpha),
            ("beta", config.beta),
            ("fast_increase", config.fast_increase),
            ("increase", config.increase),
            ("decrease", config.decrease),
        ] {
            check_range(field, value, 0.0, 1000.0)?;
        }
        check_order("threshold", config.threshold, "alpha", config.alpha)?;
        check_order("alpha", config.alpha, "beta", config.beta)?;
        check_range("probe", config.probe, 1.0, 1_000_000.0)?;
        let mut dice = Dice::new(config.seed);
        let jitter = jitter(&mut dice);
        Ok(Vegas { config, estimate: config.initial as f64, noload: None, since_probe: 0, jitter, dice })
    }

    /// Learns from a sample and returns the new limit.
    pub fn update(&mut self, sample: Sample) -> u64 {
        let rtt = nanos(sample.rtt);
        if rtt > 0.0 && self.measures(rtt) {
            return self.limit();
        }
        // To smooth a limit that stays would round it down.
        let Some(step) = self.step(sample, rtt) else { return self.limit() };
        let config = &self.config;
        let (min, max) = (config.min as f64, config.max as f64);
        let aim = (self.estimate + step).clamp(min, max);
        let smoothed = (1.0 - config.smoothing) * self.estimate + config.smoothing * aim;
        // The sum of two parts of min can be a little less than min.
        self.estimate = smoothed.clamp(min, max);
        self.limit()
    }

    /// Returns the limit on requests in flight.
    #[must_use]
    pub fn limit(&self) -> u64 {
        whole(self.estimate)
    }

    /// Returns the time without load, if it is known.
    #[must_use]
    pub fn rtt_noload(&self) -> Option<Duration> {
        self.noload.map(|noload| Duration::from_nanos(whole(noload)))
    }

    /// Takes the sample as the time without load if a probe is due or it is the fastest: then the limit stays.
    fn measures(&mut self, rtt: f64) -> bool {
        let floored = rtt.max(nanos(self.config.rtt_floor));
        self.since_probe = self.since_probe.saturating_add(1);
        let probes = self.jitter * self.config.probe * self.estimate <= self.since_probe as f64;
        if probes {
            self.jitter = jitter(&mut self.dice);
            self.since_probe = 0;
        }
        let measures = probes || self.noload.is_none_or(|noload| floored < noload);
        if measures {
            self.noload = Some(floored);
        }
        measures
    }

    /// How far the limit should move, if at all.
    fn step(&self, sample: Sample, rtt: f64) -> Option<f64> {
        let config = &self.config;
        let unit = magnitude(self.limit());
        if sample.dropped {
            return Some(-config.decrease * unit);
        }
        let noload = self.noload.filter(|_| rtt > 0.0)?;
        if (sample.in_flight as f64 * 2.0) < self.estimate {
            return None;
        }
        let queue = (self.estimate * (1.0 - noload / rtt)).ceil();
        if queue <= config.threshold * unit {
            Some(config.fast_increase * unit)
        } else if queue < config.alpha * unit {
            Some(config.increase * unit)
        } else if queue > config.beta * unit {
            Some(-config.decrease * unit)
        } else {
            None
        }
    }
}

/// L: the whole part of the decimal logarithm, at least 1.
fn magnitude(limit: u64) -> f64 {
    f64::from(limit.checked_ilog10().unwrap_or(1).max(1))
}

/// How much earlier than it could a probe comes: a factor of 0.5 to 1.
fn jitter(dice: &mut Dice) -> f64 {
    0.5 + dice.fraction() / 2.0
}

fn check_order(field: &'static str, value: f64, other: &'static str, bound: f64) -> Result<(), AdaptiveError> {
    if value > bound { Err(AdaptiveError::OutOfOrder { field, value, other, bound }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: the time in milliseconds, how many were in flight, whether it was dropped, the limit afterwards.
    fn check(config: VegasConfig, steps: &[(u64, u64, bool, u64)]) {
        let mut vegas = Vegas::new(config).unwrap();
        for (step, &(rtt, in_flight, dropped, expected)) in steps.iter().enumerate() {
            let limit = vegas.update(Sample { rtt: Duration::from_millis(rtt), in_flight, dropped });
            assert_eq!(limit, expected, "step {step}");
            assert_eq!(vegas.limit(), expected);
        }
    }

    #[test]
    fn moves_by_the_queue() {
        check(
            VegasConfig::default(),
            &[
                (100, 20, false, 20), // the first is the time without load
                (100, 20, false, 26), // queue 0 ≤ 1: + 6
                (103, 26, false, 32), // ⌈26 · 3/103⌉ = ⌈0.76⌉ = 1 ≤ 1: + 6
                (106, 32, false, 33), // ⌈32 · 6/106⌉ = ⌈1.81⌉ = 2 < 3: + 1
                (110, 33, false, 33), // ⌈33 · 10/110⌉ = 3: hold
                (122, 33, false, 33), // ⌈33 · 22/122⌉ = ⌈5.95⌉ = 6: hold
                (125, 33, false, 32), // ⌈33 · 25/125⌉ = ⌈6.6⌉ = 7 > 6: - 1
                (100, 15, false, 32), // 2 · 15 < 32: nobody tried the limit
                (100, 16, false, 38), // 2 · 16 ≥ 32
                (100, 38, true, 37),  // a drop: - 1
                (90, 37, true, 37),   // the fastest yet is only measured
                (99, 37, false, 37),  // ⌈37 · 9/99⌉ = ⌈3.36⌉ = 4: hold
            ],
        );
    }

    #[test]
    fn steps_grow_with_the_magnitude() {
        let config = VegasConfig { initial: 99, ..VegasConfig::default() };
        check(config, &[(100, 99, false, 99), (100, 99, false, 105), (100, 105, false, 117), (100, 1, true, 115)]);
        // ⌈1000 · 10/1010⌉ = 10 > 3 · 3, at most 6 · 3: hold. ⌈1000 · 20/1020⌉ = 20 > 18: - 3.
        let large = VegasConfig { initial: 1000, ..VegasConfig::default() };
        check(large, &[(1000, 1000, false, 1000), (1010, 1000, false, 1000), (1020, 1000, false, 997)]);
    }

    #[test]
    fn stays_between_min_and_max() {
        let low = VegasConfig { initial: 2, ..VegasConfig::default() };
        check(low, &[(100, 2, false, 2), (100, 2, true, 1), (100, 1, true, 1)]);
        let high = VegasConfig { initial: 998, ..VegasConfig::default() };
        check(high, &[(100, 998, false, 998), (100, 998, false, 1000), (100, u64::MAX, false, 1000)]);
    }

    #[test]
    fn a_fraction_of_a_step_is_kept_until_it_is_whole() {
        let config = VegasConfig { smoothing: 0.25, ..VegasConfig::default() };
        // + 6 · 0.25: 20, 21.5, 23, 24.5; then - 0.25: 24.25, 24, 23.75
        let drops = [24, 24, 23].map(|limit| (100, 20, true, limit));
        let rises = [(100, 20, false, 20), (100, 20, false, 21), (100, 20, false, 23), (100, 20, false, 24)];
        check(config, &[&rises[..], &drops[..]].concat());
    }

    #[test]
    fn a_limit_that_stays_is_not_smoothed() {
        // 0.7 · 24 + 0.3 · 24 is a little less than 24.
        let config = VegasConfig { initial: 24, smoothing: 0.3, ..VegasConfig::default() };
        let holds = [(100, 24, false, 24), (120, 24, false, 24), (100, 1, false, 24), (0, 24, false, 24)];
        check(config, &holds);
    }

    #[test]
    fn a_probe_measures_anew_after_its_samples() {
        // The jitter is in [0.5, 1), so with 2 samples a unit and a limit of 10 a probe comes at the 10th to 20th.
        for seed in 0..50 {
            let config = VegasConfig { initial: 10, max: 10, min: 10, probe: 2.0, seed, ..VegasConfig::default() };
            let mut vegas = Vegas::new(config).unwrap();
            let slow = Sample { rtt: Duration::from_millis(800), in_flight: 10, dropped: false };
            vegas.update(Sample { rtt: Duration::from_millis(80), ..slow });
            let mut samples = 1;
            while vegas.rtt_noload() == Some(Duration::from_millis(80)) {
                vegas.update(slow);
                samples += 1;
            }
            assert!((10..=20).contains(&samples), "{samples}");
            assert_eq!(vegas.rtt_noload(), Some(Duration::from_millis(800)));
        }
    }

    #[test]
    fn the_time_without_load_has_a_floor() {
        let config = VegasConfig { rtt_floor: Duration::from_millis(50), ..VegasConfig::default() };
        // Without the floor the last would be a queue of ⌈26 · 49/50⌉ = 26.
        check(config, &[(1, 20, false, 20), (2, 20, false, 26), (50, 26, false, 32)]);
        let bare = VegasConfig::default();
        check(bare, &[(1, 20, false, 20), (2, 20, false, 19), (50, 19, false, 18)]);
    }

    #[test]
    fn a_time_that_is_not_known_only_tells_of_drops() {
        check(
            VegasConfig::default(),
            &[(0, 20, false, 20), (0, 20, true, 19), (80, 20, false, 19), (0, 20, false, 19)],
        );
    }
}
