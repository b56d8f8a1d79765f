//! Gradient2: a recent response time above the long-term one shows that a queue builds up.

use std::time::Duration;

use super::error::{check_count, check_limits, check_range};
use super::{AdaptiveError, Sample, nanos, whole};
use crate::bounds::{ADAPTIVE_LIMIT_MAX, LONG_WINDOW_MAX};

/// The configuration of a [`Gradient2`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gradient2Config {
    /// The initial limit.
    pub initial: u64,
    /// The smallest limit.
    pub min: u64,
    /// The largest limit.
    pub max: u64,
    /// The share of a step that is taken, from 0.001 to 1.
    pub smoothing: f64,
    /// The queue that is allowed, in requests: the amount that the limit rises by while response times are good.
    pub queue: u64,
    /// How many times the long-term time a recent one may be without counting as slow, 1 to 10.
    pub tolerance: f64,
    /// The number of samples over which the long-term time is averaged. With fewer, the limit adapts sooner when the
    /// work itself becomes slower, and sooner mistakes a persistent queue for the work.
    pub long_window: u64,
    /// The factor that a drop multiplies the limit by, 0.1 to 1. With 1 drops are ignored, as in the published formula.
    pub drop_backoff: f64,
    /// The number of samples after a drop that cannot lower the limit for a drop again: see
    /// [`AimdConfig::hold`](super::AimdConfig::hold).
    pub drop_hold: u64,
    /// A lower bound on the long-term time: all response times below it are good.
    pub rtt_floor: Duration,
}

impl Default for Gradient2Config {
    fn default() -> Gradient2Config {
        Gradient2Config {
            initial: 20,
            min: 20,
            max: 200,
            smoothing: 0.2,
            queue: 4,
            tolerance: 1.5,
            long_window: 600,
            drop_backoff: 0.9,
            drop_hold: 0,
            rtt_floor: Duration::ZERO,
        }
    }
}

/// Compares each response time with the average of many: up to `tolerance` times that, the limit rises; above, it falls
/// in proportion, at most to half.
///
/// Unlike the published formula it honours drops: a dropped sample multiplies the limit by `drop_backoff`, and its
/// time, which is that of a deadline and not of the work, does not enter the average.
#[derive(Clone, Debug)]
pub struct Gradient2 {
    config: Gradient2Config,
    /// Between `min` and `max`; its whole part is the limit.
    estimate: f64,
    long: LongTerm,
    /// Samples that still belong to the last drop.
    held: u64,
}

impl Gradient2 {
    /// Creates a limit with this configuration.
    ///
    /// # Errors
    /// Fails if a number is zero or out of range, `min` is above `max`, or `initial` is not between them.
    pub fn new(config: Gradient2Config) -> Result<Gradient2, AdaptiveError> {
        check_limits(config.initial, config.min, config.max)?;
        check_range("smoothing", config.smoothing, 0.001, 1.0)?;
        check_count("queue", config.queue, ADAPTIVE_LIMIT_MAX)?;
        check_range("tolerance", config.tolerance, 1.0, 10.0)?;
        check_count("long_window", config.long_window, LONG_WINDOW_MAX)?;
        check_range("drop_backoff", config.drop_backoff, 0.1, 1.0)?;
        Ok(Gradient2 { config, estimate: config.initial as f64, long: LongTerm::new(config.long_window), held: 0 })
    }

    /// Learns from a sample and returns the new limit.
    pub fn update(&mut self, sample: Sample) -> u64 {
        let config = &self.config;
        let (min, max) = (config.min as f64, config.max as f64);
        let held = self.held > 0;
        self.held = self.held.saturating_sub(1);
        if sample.dropped && config.drop_backoff < 1.0 {
            if held {
                return self.limit();
            }
            self.held = config.drop_hold;
            self.estimate = (self.estimate * config.drop_backoff).clamp(min, max);
            return self.limit();
        }
        let short = nanos(sample.rtt);
        if short <= 0.0 {
            return self.limit();
        }
        let long = self.long.add(short).max(nanos(config.rtt_floor));
        if sample.in_flight as f64 * 2.0 >= self.estimate {
            let gradient = (config.tolerance * long / short).clamp(0.5, 1.0);
            let aim = self.estimate * gradient + config.queue as f64;
            let smoothed = (1.0 - config.smoothing) * self.estimate + config.smoothing * aim;
            self.estimate = smoothed.clamp(min, max);
        }
        self.limit()
    }

    /// Returns the limit on requests in flight.
    #[must_use]
    pub fn limit(&self) -> u64 {
        whole(self.estimate)
    }

    /// Returns the long-term time, or `None` before the first sample.
    #[must_use]
    pub fn rtt_long(&self) -> Option<Duration> {
        (self.long.samples > 0).then(|| Duration::from_nanos(whole(self.long.value)))
    }
}

/// The mean of the first samples, then an average in which old ones fade.
#[derive(Clone, Debug)]
struct LongTerm {
    factor: f64,
    value: f64,
    /// Of the first samples. What fades `value` leaves it alone, so that the mean of all of them is the mean.
    sum: f64,
    samples: u32,
}

/// Samples that count alike at first: a single slow one at the start would take a whole window to fade.
const WARM_UP: u32 = 10;

impl LongTerm {
    fn new(window: u64) -> LongTerm {
        LongTerm { factor: 2.0 / (window as f64 + 1.0), value: 0.0, sum: 0.0, samples: 0 }
    }

    /// Adds a sample and returns the average that it is compared with. An average beyond twice the sample is from
    /// slower times: it fades faster, for the next samples.
    fn add(&mut self, sample: f64) -> f64 {
        if self.samples < WARM_UP {
            self.samples += 1;
            self.sum += sample;
            self.value = self.sum / f64::from(self.samples);
        } else {
            self.value = self.value * (1.0 - self.factor) + sample * self.factor;
        }
        let value = self.value;
        if value / sample > 2.0 {
            self.value *= 0.95;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: the time in milliseconds, how many were in flight, whether it was dropped, the limit afterwards.
    fn check(config: Gradient2Config, steps: &[(u64, u64, bool, f64)]) -> Gradient2 {
        let mut gradient = Gradient2::new(config).unwrap();
        for (step, &(rtt, in_flight, dropped, expected)) in steps.iter().enumerate() {
            let limit = gradient.update(Sample { rtt: Duration::from_millis(rtt), in_flight, dropped });
            assert!(
                (gradient.estimate - expected).abs() < 1e-9,
                "step {step}: {} is not {expected}",
                gradient.estimate
            );
            assert_eq!(limit, whole(gradient.estimate));
            assert_eq!(gradient.limit(), limit);
        }
        gradient
    }

    fn after_warm_up(limit: u64, config: Gradient2Config) -> Gradient2 {
        let mut gradient = Gradient2::new(Gradient2Config { initial: limit, ..config }).unwrap();
        for _ in 0..10 {
            gradient.update(Sample { rtt: Duration::from_millis(100), in_flight: 0, dropped: false });
        }
        assert_eq!(gradient.limit(), limit, "nobody tried the limit");
        gradient
    }

    #[test]
    fn rises_by_a_fifth_of_the_queue_while_nothing_is_slow() {
        // 0.8 · 20 + 0.2 · (20 + 4) = 20.8, and so on; 10 in flight are less than half of 20.8.
        let steps = [(100, 20, false, 20.8), (100, 20, false, 21.6), (100, 10, false, 21.6), (100, 11, false, 22.4)];
        check(Gradient2Config::default(), &steps);
    }

    #[test]
    fn falls_with_the_gradient_and_at_most_to_half() {
        // The long-term time is the mean of 100 and 300, then of 100, 300 and 2000: 200 and 800.
        // 1.5 · 200 / 300 = 1: 100.8 + 0.8. 1.5 · 800 / 2000 = 0.6: 0.8 · 101.6 + 0.2 · (60.96 + 4).
        let config = Gradient2Config { initial: 100, ..Gradient2Config::default() };
        check(config, &[(100, 100, false, 100.8), (300, 100, false, 101.6), (2000, 100, false, 94.272)]);
        // After ten of 100 ms the eleventh of 1 s: 100 + 900 · 2/601 = 102.995 ms; 0.154 counts as 0.5.
        let mut gradient = after_warm_up(100, Gradient2Config::default());
        gradient.update(Sample { rtt: Duration::from_secs(1), in_flight: 100, dropped: false });
        assert!((gradient.estimate - (0.8 * 100.0 + 0.2 * 54.0)).abs() < 1e-9);
        assert_eq!(gradient.rtt_long(), Some(Duration::from_nanos(102_995_008)));
    }

    #[test]
    fn a_long_term_time_from_slower_times_fades_faster() {
        let mut gradient = after_warm_up(20, Gradient2Config::default());
        gradient.update(Sample { rtt: Duration::from_millis(10), in_flight: 0, dropped: false });
        // (100 - 90 · 2/601) · 0.95
        assert_eq!(gradient.rtt_long(), Some(Duration::from_nanos(94_715_474)));
        gradient.update(Sample { rtt: Duration::from_millis(50), in_flight: 0, dropped: false });
        // 94.715 - 44.715 · 2/601 = 94.567 is not beyond twice 50.
        assert_eq!(gradient.rtt_long().map(|long| long.as_micros()), Some(94_566));
    }

    #[test]
    fn the_first_samples_are_averaged_whatever_fades_meanwhile() {
        // A slow first sample makes the average fade with each of the next nine; their mean is 290 ms all the same.
        let mut gradient = Gradient2::new(Gradient2Config::default()).unwrap();
        let mut feed = |millis, count| {
            for _ in 0..count {
                gradient.update(Sample { rtt: Duration::from_millis(millis), in_flight: 1_000, dropped: false });
            }
            gradient.clone()
        };
        feed(2_000, 1);
        let warm = feed(100, 9).rtt_long().unwrap();
        assert_eq!(warm, Duration::from_millis(290).mul_f64(0.95), "it is beyond twice the last sample");
        // The published library says 108.
        assert_eq!(feed(350, 100).limit(), 108);
    }

    #[test]
    fn honours_drops_unless_told_otherwise() {
        let config = Gradient2Config { initial: 100, ..Gradient2Config::default() };
        let drops = [(2000, 100, true, 90.0), (2000, 1, true, 81.0), (0, 1, true, 72.9)];
        assert_eq!(check(config, &drops).rtt_long(), None, "a deadline is not the time of the work");
        let ignores = Gradient2Config { drop_backoff: 1.0, ..config };
        check(ignores, &[(100, 100, true, 100.8), (100, 100, true, 101.6), (0, 100, true, 101.6)]);
        let holds = Gradient2Config { drop_hold: 1, ..config };
        check(holds, &[(2000, 1, true, 90.0), (2000, 1, true, 90.0), (2000, 1, true, 81.0)]);
        check(Gradient2Config { initial: 21, ..config }, &[(100, 1, true, 20.0), (100, 1, true, 20.0)]);
    }

    #[test]
    fn stays_below_max() {
        let config = Gradient2Config { initial: 200, ..Gradient2Config::default() };
        check(config, &[(100, 200, false, 200.0), (100, u64::MAX, false, 200.0)]);
    }

    #[test]
    fn the_long_term_time_has_a_floor() {
        let config = Gradient2Config { rtt_floor: Duration::from_secs(1), ..Gradient2Config::default() };
        let mut gradient = after_warm_up(100, config);
        gradient.update(Sample { rtt: Duration::from_millis(1500), in_flight: 100, dropped: false });
        assert!((gradient.estimate - 100.8).abs() < 1e-9, "1.5 · 1 s / 1.5 s = 1");
    }
}
