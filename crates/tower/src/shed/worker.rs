//! A worker's shedder under concurrent requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_core::shed::{Criticality, ShedError, WorkerShedder, WorkerShedderConfig};
use tidegate_core::{Dice, Time};

use crate::lock::lock;

/// While nothing is shed and the worker is not busy, an observation only moves the instant from which the next one
/// counts. So that instant is kept apart, and other cases take the lock.
///
/// Observations of several threads may arrive out of order: no time is counted twice under the lock, and a ramp may
/// start from the calm observation before the last, a moment earlier. A request observed while the ramp starts may
/// still pass, as if it had come a moment before.
pub(super) struct Worker {
    config: WorkerShedderConfig,
    sheds_nothing: AtomicBool,
    /// When the worker was last calm, in nanoseconds; 0 if never.
    calm_at: AtomicU64,
    state: Mutex<State>,
}

struct State {
    shedder: WorkerShedder,
    dice: Dice,
}

impl Worker {
    pub(super) fn new(config: WorkerShedderConfig, dice: Dice) -> Result<Worker, ShedError> {
        let state = Mutex::new(State { shedder: WorkerShedder::new(config)?, dice });
        Ok(Worker { config, sheds_nothing: AtomicBool::new(true), calm_at: AtomicU64::new(0), state })
    }

    /// Observes the worker's utilisation, and returns whether a request of this class is shed.
    #[inline]
    pub(super) fn sheds(&self, class: Criticality, utilisation: f64, now: impl FnOnce() -> Time) -> bool {
        if self.sheds_nothing.load(Ordering::Relaxed) && !self.config.is_busy(utilisation) {
            self.calm_at.store(now().as_nanos(), Ordering::Relaxed);
            return false;
        }
        self.observe(class, utilisation, now)
    }

    #[cold]
    #[inline(never)]
    fn observe(&self, class: Criticality, utilisation: f64, now: impl FnOnce() -> Time) -> bool {
        let mut state = lock(&self.state);
        // It counts once: by a clock that is ahead, as of another runtime that is paused, no time would pass until this one has
        // caught up.
        let calm_at = self.calm_at.swap(0, Ordering::Relaxed);
        if calm_at != 0 {
            state.shedder.was_calm_at(Time::from_nanos(calm_at));
        }
        state.shedder.observe(now(), utilisation);
        self.sheds_nothing.store(state.shedder.sheds_nothing(), Ordering::Relaxed);
        let roll = state.dice.roll();
        state.shedder.sheds(class, roll)
    }

    /// The level, from 0 (nothing is shed) to 3 (all but critical requests are).
    pub(super) fn level(&self) -> f64 {
        lock(&self.state).shedder.level()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Utilisations around the default thresholds, and far out of range.
    const UTILISATIONS: [f64; 12] =
        [0.0, 0.3, 0.7, 0.75, 0.8, 0.800_000_1, 0.9, 1.0, 7.0, -1.0, f64::NAN, f64::INFINITY];

    /// A random index below `count`.
    fn one_of(dice: &mut Dice, count: usize) -> usize {
        usize::try_from(dice.roll() % count as u64).unwrap()
    }

    /// One caller observes again and again: at each step the answer and the level are those of a shedder that takes
    /// each observation. Both roll the same dice.
    fn check(seed: u64) {
        let mut chance = Dice::new(seed);
        let config = WorkerShedderConfig::default();
        let worker = Worker::new(config, Dice::new(seed)).unwrap();
        let mut model = WorkerShedder::new(config).unwrap();
        let mut now = Time::from_nanos(1);
        // What is likely is another for each seed, so that some stay calm for long and some are busy for long.
        let (few, longest) =
            (1 + one_of(&mut chance, UTILISATIONS.len()), [1, 1000, 60_000, 300_000][one_of(&mut chance, 4)]);
        let from = one_of(&mut chance, UTILISATIONS.len());
        for step in 0..300 {
            now = now.plus(Duration::from_millis(one_of(&mut chance, longest) as u64));
            let utilisation = UTILISATIONS[(from + one_of(&mut chance, few)) % UTILISATIONS.len()];
            let class = Criticality::ALL[one_of(&mut chance, Criticality::ALL.len())];
            let roll = lock(&worker.state).dice.clone().roll();
            model.observe(now, utilisation);
            let expected = model.sheds(class, roll);
            assert_eq!(worker.sheds(class, utilisation, || now), expected, "seed {seed}, step {step}");
            assert_eq!(worker.level().to_bits(), model.level().to_bits(), "seed {seed}, step {step}");
        }
    }

    #[test]
    fn one_caller_is_answered_as_if_each_look_were_observed() {
        (0..2000).for_each(check);
    }

    #[test]
    fn a_calm_look_that_comes_late_counts_no_time_twice() {
        let at = |seconds: u64| Time::from_nanos(1 + seconds * 1_000_000_000);
        let worker = Worker::new(WorkerShedderConfig::default(), Dice::new(1)).unwrap();
        for seconds in [0, 30] {
            worker.sheds(Criticality::Get, 1.0, || at(seconds));
        }
        // As by a thread that was held up between its look and this.
        worker.calm_at.store(at(10).as_nanos(), Ordering::Relaxed);
        worker.sheds(Criticality::Get, 1.0, || at(60));
        assert_eq!(worker.level(), 0.5);
    }

    #[test]
    fn a_calm_look_by_a_clock_that_is_ahead_holds_no_ramp_up_for_long() {
        let at = |seconds: u64| Time::from_nanos(1 + seconds * 1_000_000_000);
        let worker = Worker::new(WorkerShedderConfig::default(), Dice::new(1)).unwrap();
        worker.sheds(Criticality::Get, 0.1, || at(86_400));
        for seconds in [0, 60, 120] {
            worker.sheds(Criticality::Get, 1.0, || at(seconds));
        }
        assert_eq!(worker.level(), 1.0, "the first look by this clock only starts it");
    }

    /// However many threads observe at the same time, the level follows the time that has passed.
    #[test]
    fn busy_looks_of_several_threads_count_no_time_twice() {
        let config = WorkerShedderConfig { ramp: Duration::from_secs(1), ..WorkerShedderConfig::default() };
        let worker = Worker::new(config, Dice::new(1)).unwrap();
        let (start, clock) = (1_000_000_000, AtomicU64::new(1_000_000_000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let now = || Time::from_nanos(clock.fetch_add(100_000, Ordering::Relaxed));
                        worker.sheds(Criticality::Get, 0.9, now);
                    }
                });
            }
        });
        // The clock is read under the lock, so that only the last step is not observed.
        let ramps = (clock.load(Ordering::Relaxed) - 100_000 - start) as f64 / 1e9;
        assert!((worker.level() - ramps / 2.0).abs() < 1e-9, "{} after {ramps} ramps", worker.level());
    }
}
