//! The worker shedder: as a worker gets busy, it sheds one class after another, slowly.

use std::time::Duration;

use super::error::{check_below, check_range, check_time};
use super::{Criticality, ShedError, falls};
use crate::Time;

/// The configuration of a [`WorkerShedder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerShedderConfig {
    /// The utilisation above which the level rises, 0.01 to 0.99.
    pub high: f64,
    /// The utilisation below which the level falls, 0.01 to 0.99.
    pub low: f64,
    /// The time to shed one more class at full utilisation, or one less at none.
    pub ramp: Duration,
}

impl Default for WorkerShedderConfig {
    fn default() -> WorkerShedderConfig {
        WorkerShedderConfig { high: 0.8, low: 0.7, ramp: Duration::from_secs(120) }
    }
}

impl WorkerShedderConfig {
    /// Returns whether the level rises at this utilisation. NaN is not busy.
    #[inline]
    #[must_use]
    pub fn is_busy(&self, utilisation: f64) -> bool {
        utilisation > self.high
    }
}

/// Moves a level between 0 and 3 with the worker's utilisation: of its threads, its CPU, or its queue's delay as a
/// share of the longest acceptable one. At level 1 all test requests are shed, at 2 reads too, at 3 writes too;
/// critical requests never are. In between, a share of a class is shed.
///
/// The slow ramp prevents oscillation: shedding lowers the load, which must not bring all requests back at once.
#[derive(Clone, Debug)]
pub struct WorkerShedder {
    config: WorkerShedderConfig,
    level: f64,
    observed: Option<Time>,
}

/// All but critical requests are shed.
const LEVEL_MAX: f64 = 3.0;

impl WorkerShedder {
    /// Creates a shedder with this configuration, at level 0.
    ///
    /// # Errors
    /// Fails if a number is out of range, or `low` is not below `high`.
    pub fn new(config: WorkerShedderConfig) -> Result<WorkerShedder, ShedError> {
        check_range("high", config.high, 0.01, 0.99)?;
        check_range("low", config.low, 0.01, 0.99)?;
        check_below("low", config.low, "high", config.high)?;
        check_time("ramp", config.ramp, WorkerShedderConfig::default().ramp)?;
        Ok(WorkerShedder { config, level: 0.0, observed: None })
    }

    /// Observes the worker's utilisation, 0 to 1, and returns the level. It counts for the time since the last
    /// observation, at most for one ramp: one value after a long pause must not change everything. NaN has no effect.
    pub fn observe(&mut self, now: Time, utilisation: f64) -> f64 {
        let since = self.observed.replace(now).unwrap_or(now);
        let elapsed = Duration::from_nanos(now.as_nanos().saturating_sub(since.as_nanos()));
        let ramps = (elapsed.as_secs_f64() / self.config.ramp.as_secs_f64()).min(1.0);
        self.level = (self.level + ramps * self.slope(utilisation.clamp(0.0, 1.0))).clamp(0.0, LEVEL_MAX);
        self.level
    }

    /// Records that the worker was observed at `looked` and was not [busy](WorkerShedderConfig::is_busy), while nothing
    /// was shed. Such an observation moves no level, but ends the time that the next one counts for. Of several, only
    /// the last need be recorded.
    pub fn was_calm_at(&mut self, looked: Time) {
        self.observed = self.observed.max(Some(looked));
    }

    /// Returns whether nothing is shed.
    #[must_use]
    pub fn sheds_nothing(&self) -> bool {
        self.level == 0.0
    }

    /// How far the level moves in a ramp. NaN moves it nowhere.
    fn slope(&self, utilisation: f64) -> f64 {
        let WorkerShedderConfig { high, low, .. } = self.config;
        if self.config.is_busy(utilisation) {
            (utilisation - high) / (1.0 - high)
        } else if utilisation < low {
            utilisation / low - 1.0
        } else {
            0.0
        }
    }

    /// Returns the level, from 0 (nothing is shed) to 3 (all but critical requests are).
    #[must_use]
    pub fn level(&self) -> f64 {
        self.level
    }

    /// Returns the share of a class that is shed.
    #[must_use]
    pub fn share(&self, class: Criticality) -> f64 {
        class.share(self.level)
    }

    /// Returns whether to shed a request of this class, for a number that the caller rolled.
    #[must_use]
    pub fn sheds(&self, class: Criticality, roll: u64) -> bool {
        falls(roll, self.share(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step: seconds since the one before, the utilisation, the level afterwards.
    fn check(steps: &[(u64, f64, f64)]) {
        let mut shedder = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
        let mut now = Time::from_nanos(5);
        for (step, &(seconds, utilisation, expected)) in steps.iter().enumerate() {
            now = now.plus(Duration::from_secs(seconds));
            let level = shedder.observe(now, utilisation);
            assert!((level - expected).abs() < 1e-9, "step {step}: {level} is not {expected}");
        }
    }

    #[test]
    fn ramps_as_it_is_busy() {
        check(&[
            (0, 1.0, 0.0),   // the first look only starts the clock
            (60, 1.0, 0.5),  // (1 - 0.8) / 0.2 = 1 a ramp
            (60, 0.9, 0.75), // (0.9 - 0.8) / 0.2 = 0.5 a ramp
            (60, 0.8, 0.75), // holds
            (60, 0.7, 0.75), // holds
            (60, 0.35, 0.5), // 0.35 / 0.7 - 1 = - 0.5 a ramp
            (30, 0.0, 0.25), // - 1 a ramp
            (120, 0.0, 0.0), // not below 0
            (120, 1.0, 1.0),
            (9999, 1.0, 2.0), // at most one ramp at once
            (120, 7.0, 3.0),  // more than all is all
            (120, 1.0, 3.0),  // not above 3
            (120, -1.0, 2.0),
            (120, f64::NAN, 2.0),
            (120, f64::INFINITY, 3.0),
        ]);
    }

    #[test]
    fn a_clock_set_back_moves_nothing() {
        let mut shedder = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
        let later = Time::from_nanos(120_000_000_000);
        shedder.observe(later, 1.0);
        assert_eq!(shedder.observe(Time::from_nanos(0), 1.0), 0.0);
        assert_eq!(shedder.observe(later, 1.0), 1.0, "and it goes on from there");
    }

    #[test]
    fn looks_at_a_calm_worker_need_not_all_be_told() {
        let at = |seconds: u64| Time::from_nanos(5 + seconds * 1_000_000_000);
        let shedder = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
        let (mut all, mut last) = (shedder.clone(), shedder);
        for seconds in [0, 7, 60] {
            all.observe(at(seconds), 0.8);
        }
        last.was_calm_at(at(60));
        assert!(last.sheds_nothing());
        assert_eq!((all.observe(at(90), 1.0), last.observe(at(90), 1.0)), (0.25, 0.25));
        assert!(!last.sheds_nothing());
        last.was_calm_at(at(30));
        assert_eq!((all.observe(at(120), 1.0), last.observe(at(120), 1.0)), (0.5, 0.5), "no time counts twice");
    }

    #[test]
    fn sheds_the_share_of_a_class() {
        let mut shedder = WorkerShedder::new(WorkerShedderConfig::default()).unwrap();
        shedder.observe(Time::from_nanos(0), 1.0);
        shedder.observe(Time::from_nanos(120_000_000_000), 1.0);
        shedder.observe(Time::from_nanos(150_000_000_000), 1.0);
        assert_eq!(Criticality::ALL.map(|class| shedder.share(class)), [1.0, 0.25, 0.0, 0.0]);
        let mut dice = crate::Dice::new(7);
        let shed = (0..10_000).filter(|_| shedder.sheds(Criticality::Get, dice.roll())).count();
        assert!((2400..2600).contains(&shed), "{shed}");
    }

    #[test]
    fn bad_numbers_are_refused() {
        let good = WorkerShedderConfig::default();
        let day = Duration::from_secs(86_401);
        for (config, expected) in [
            (WorkerShedderConfig { high: 1.0, ..good }, "high: 1 is out of range; use 0.01 to 0.99"),
            (WorkerShedderConfig { low: f64::NAN, ..good }, "low: NaN is out of range; use 0.01 to 0.99"),
            (
                WorkerShedderConfig { low: 0.8, ..good },
                "low: 0.8 is not below high, 0.8; use a smaller low, or a larger high",
            ),
            (
                WorkerShedderConfig { ramp: Duration::ZERO, ..good },
                "ramp: 0ns is out of range; use more than 0 s and at most 86400s, like 120s",
            ),
            (
                WorkerShedderConfig { ramp: day, ..good },
                "ramp: 86401s is out of range; use more than 0 s and at most 86400s, like 120s",
            ),
        ] {
            assert_eq!(WorkerShedder::new(config).unwrap_err().to_string(), expected);
        }
    }
}
