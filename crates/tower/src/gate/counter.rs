//! The counter of a gate. Permits point to it without keeping the gate alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tidegate_core::adaptive::Sample;
use tidegate_core::{PermitCounter, Released, Time};

use super::{Gate, Learner};
use crate::error::ConfigError;
use crate::lock::lock;
use crate::spare::Spare;

static SPARE: Spare<Counter> = Spare::new();

/// Aligned to cache lines of its own.
#[repr(align(128))]
pub(super) struct Counter {
    pub(super) permits: PermitCounter,
    /// The gate holds the waiting requests, which keep it alive.
    gate: Mutex<Weak<Gate>>,
    /// `None` for a gate with a fixed limit, and once the gate is gone.
    learner: Mutex<Option<Box<Learner>>>,
    /// Samples below this teach nothing, unless they were dropped. Zero until the first sample, which must reach the
    /// learner because it starts the window. Written under the learner's lock.
    ignored_below_ns: AtomicU64,
}

impl Counter {
    /// The counter of a new gate.
    pub(super) fn with_limit(limit: u64) -> Result<&'static Counter, ConfigError> {
        // Checked before one is taken.
        let permits = PermitCounter::new(limit)?;
        let counter = SPARE.take_or(|| Counter {
            permits,
            gate: Mutex::default(),
            learner: Mutex::default(),
            ignored_below_ns: AtomicU64::new(0),
        });
        counter.permits.reopen(limit)?;
        Ok(counter)
    }

    /// Connects the counter to its gate.
    pub(super) fn belongs_to(&self, gate: &Arc<Gate>) {
        *lock(&self.gate) = Arc::downgrade(gate);
    }

    /// Makes the limit adapt from now on.
    pub(super) fn set_learner(&self, learner: Learner) {
        *lock(&self.learner) = Some(Box::new(learner));
    }

    /// Releases a slot, which goes to the next waiting request.
    #[inline]
    pub(super) fn release(&'static self) {
        match self.permits.release() {
            Released::Done => {}
            released => self.go_on(released),
        }
    }

    #[cold]
    fn go_on(&'static self, released: Released) {
        match released {
            Released::Done => {}
            Released::Waited => self.serve(),
            Released::Last => SPARE.put(self),
        }
    }

    #[cold]
    fn serve(&self) {
        let gate = lock(&self.gate).upgrade();
        // If it is gone, so are those who waited. The counter may be another gate's by now: to serve that does no harm.
        if let Some(gate) = gate {
            gate.serve();
        }
    }

    /// Learns from a request in progress, if this gate adapts. While the request holds its slot, no other gate reuses
    /// the counter.
    #[inline]
    pub(super) fn learn(&self, now: Time, sample: Sample) {
        let ignored_below_ns = u128::from(self.ignored_below_ns.load(Ordering::Relaxed));
        // A service that answers at once is where a lock would be felt most, and from such answers nothing is learnt.
        if sample.dropped || sample.rtt.as_nanos() >= ignored_below_ns {
            self.learn_under_lock(now, sample);
        }
    }

    #[inline(never)]
    fn learn_under_lock(&self, now: Time, sample: Sample) {
        let mut guard = lock(&self.learner);
        let Some(learner) = guard.as_mut() else { return };
        self.ignored_below_ns.store(learner.ignored_below_ns(), Ordering::Relaxed);
        let Some(limit) = learner.learn(now, sample) else { return };
        // Under the lock: limits are published in their order, and none to a counter that is closed.
        let somebody_waits = self.permits.set_limit(limit);
        drop(guard);
        if somebody_waits {
            self.serve();
        }
    }

    /// Disconnects the counter from its gate, which is gone.
    pub(super) fn close(&'static self) {
        // Else what is spare would keep the memory of its last gate.
        *lock(&self.gate) = Weak::new();
        // Before it is closed, which a limit that is learnt would undo.
        let mut learner = lock(&self.learner);
        *learner = None;
        self.ignored_below_ns.store(0, Ordering::Relaxed);
        drop(learner);
        if self.permits.close() {
            SPARE.put(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::Dice;
    use tidegate_core::adaptive::{AdaptiveLimit, Aimd, AimdConfig, Sparse, Summary, WindowConfig};

    use super::super::GatePermit;
    use super::*;

    /// Spare counters are shared by all tests: a test that checks reuse must run alone.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Adds one for each success, halves for each drop.
    fn aimd(initial: u64) -> AdaptiveLimit {
        let config = AimdConfig { initial, min: 1, max: 100, backoff: 0.5, ..AimdConfig::default() };
        Aimd::new(config).unwrap().into()
    }

    fn learning(initial: u64) -> Arc<Gate> {
        Gate::learning(Learner::new(aimd(initial), None).unwrap(), None).unwrap()
    }

    fn plain(limit: u64) -> Arc<Gate> {
        Gate::with_queue(limit, None).unwrap()
    }

    fn teach(permit: &GatePermit, dropped: bool) {
        let sample = Sample { rtt: Duration::from_millis(1), in_flight: u64::MAX, dropped };
        permit.learn(Time::from_nanos(1), sample);
    }

    #[test]
    fn a_counter_that_learnt_begins_anew_with_a_gate_of_either_kind() {
        let _alone = lock(&ALONE);
        let gate = learning(4);
        let counter = gate.counter;
        let permit = gate.try_enter().unwrap();
        teach(&permit, false);
        assert_eq!(gate.limit(), 5);
        drop(permit);
        drop(gate);
        let gate = plain(7);
        assert!(std::ptr::eq(counter, gate.counter), "it is used again");
        teach(&gate.try_enter().unwrap(), true);
        assert_eq!((gate.limit(), gate.in_flight()), (7, 0), "a limit that is given stays");
        drop(gate);
        let gate = learning(20);
        assert!(std::ptr::eq(counter, gate.counter), "and again");
        teach(&gate.try_enter().unwrap(), true);
        assert_eq!((gate.limit(), gate.in_flight()), (10, 0));
    }

    #[test]
    fn who_stays_longer_than_the_gate_teaches_nobody() {
        let _alone = lock(&ALONE);
        let gate = learning(4);
        let (counter, first, second) = (gate.counter, gate.try_enter().unwrap(), gate.try_enter().unwrap());
        drop(gate);
        let other = learning(4);
        assert!(!std::ptr::eq(counter, other.counter), "it is still in use");
        for permit in [first, second] {
            teach(&permit, true);
            assert_eq!((counter.permits.limit(), other.limit()), (0, 4));
        }
        let again = learning(3);
        assert!(std::ptr::eq(counter, again.counter), "the last who left has left it");
        assert_eq!((again.limit(), again.in_flight()), (3, 0));
    }

    #[test]
    fn a_gate_that_goes_while_somebody_teaches_leaves_its_counter() {
        let _alone = lock(&ALONE);
        for _ in 0..200 {
            let gate = learning(50);
            let (counter, permit) = (gate.counter, gate.try_enter().unwrap());
            std::thread::scope(|scope| {
                scope.spawn(move || (0..50).for_each(|number| teach(&permit, number % 2 == 0)));
                scope.spawn(move || drop(gate));
            });
            let again = plain(1);
            assert!(std::ptr::eq(counter, again.counter), "a limit that was learnt has opened it again");
            assert_eq!((again.limit(), again.in_flight()), (1, 0));
        }
    }

    /// Windows of 0.2 s, of at least two samples.
    const WINDOW: WindowConfig = WindowConfig {
        length: Duration::from_millis(200),
        samples_min: 2,
        rtt_min: Duration::from_micros(100),
        summary: Summary::Average,
        sparse: Sparse::Extend,
    };

    /// One thread teaches a gate, and a plain learner all the same: after each lesson the limits are equal.
    fn check(seed: u64) {
        let gate = Gate::learning(Learner::new(aimd(20), Some(WINDOW)).unwrap(), None).unwrap();
        let mut model = Learner::new(aimd(20), Some(WINDOW)).unwrap();
        let (mut dice, mut now, permit) = (Dice::new(seed), Time::from_nanos(1), gate.try_enter().unwrap());
        for step in 0..300 {
            now = now.plus(Duration::from_micros(dice.roll() % 50_000));
            let rtt = match dice.roll() % 4 {
                0 => Duration::from_nanos(dice.roll() % 3),
                1 => Duration::from_nanos(99_999 + dice.roll() % 3),
                _ => Duration::from_micros(dice.roll() % 5000),
            };
            let sample = Sample { rtt, in_flight: 1 + dice.roll() % 50, dropped: dice.roll().is_multiple_of(20) };
            permit.learn(now, sample);
            model.learn(now, sample);
            assert_eq!(gate.limit(), model.limit(), "seed {seed}, step {step}");
        }
    }

    #[test]
    fn who_is_answered_at_once_teaches_as_much_as_under_the_lock() {
        let _alone = lock(&ALONE);
        (0..200).for_each(check);
    }

    #[test]
    fn what_one_gate_ignores_is_not_ignored_by_the_next() {
        let _alone = lock(&ALONE);
        let gate = Gate::learning(Learner::new(aimd(4), Some(WINDOW)).unwrap(), None).unwrap();
        let counter = gate.counter;
        let short = Sample { rtt: Duration::from_nanos(1), in_flight: u64::MAX, dropped: false };
        for seconds in 1..5 {
            gate.try_enter().unwrap().learn(Time::from_nanos(seconds * 1_000_000_000), short);
        }
        assert_eq!(gate.limit(), 4);
        drop(gate);
        let gate = learning(4);
        assert!(std::ptr::eq(counter, gate.counter));
        gate.try_enter().unwrap().learn(Time::from_nanos(1), short);
        assert_eq!(gate.limit(), 5);
    }
}
