//! The permits of a gate, which each permit points to without keeping the gate alive.

use std::sync::{Arc, Mutex, Weak};

use tidegate_core::adaptive::Sample;
use tidegate_core::{PermitCounter, Released, Time};

use super::{Gate, Learner};
use crate::error::ConfigError;
use crate::lock::lock;
use crate::spare::Spare;

static SPARE: Spare<Counter> = Spare::new();

/// In cache lines of its own.
#[repr(align(128))]
pub(super) struct Counter {
    pub(super) permits: PermitCounter,
    /// It keeps those who wait, and they keep it alive.
    gate: Mutex<Weak<Gate>>,
    /// Nothing for a gate whose limit is given, and once the gate is gone.
    learner: Mutex<Option<Box<Learner>>>,
}

impl Counter {
    /// The counter of a gate that is being made.
    pub(super) fn with_limit(limit: u64) -> Result<&'static Counter, ConfigError> {
        // Checked before one is taken.
        let permits = PermitCounter::new(limit)?;
        let counter = SPARE.take_or(|| Counter { permits, gate: Mutex::default(), learner: Mutex::default() });
        counter.permits.reopen(limit)?;
        Ok(counter)
    }

    /// The gate has been made.
    pub(super) fn belongs_to(&self, gate: &Arc<Gate>) {
        *lock(&self.gate) = Arc::downgrade(gate);
    }

    /// The limit is learnt from now on.
    pub(super) fn set_learner(&self, learner: Learner) {
        *lock(&self.learner) = Some(Box::new(learner));
    }

    /// Gives a place back, which goes to who waits.
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

    /// Learns from one who is in, if this gate does. As long as it is in, the counter goes to no other gate.
    pub(super) fn learn(&self, now: Time, sample: Sample) {
        let mut learner = lock(&self.learner);
        let learnt = learner.as_mut().and_then(|learner| learner.learn(now, sample));
        let Some(limit) = learnt else { return };
        // Under the lock: limits are published in their order, and none to a counter that is closed.
        let somebody_waits = self.permits.set_limit(limit);
        drop(learner);
        if somebody_waits {
            self.serve();
        }
    }

    /// The gate is gone.
    pub(super) fn close(&'static self) {
        // Else what is spare would keep the memory of its last gate.
        *lock(&self.gate) = Weak::new();
        // Before it is closed, which a limit that is learnt would undo.
        drop(lock(&self.learner).take());
        if self.permits.close() {
            SPARE.put(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::adaptive::{Aimd, AimdConfig};

    use super::super::GatePermit;
    use super::*;

    /// What is spare is everybody's: who looks at a counter that has been put back must be alone.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Up by one for each that is done, down by half for each drop.
    fn learning(initial: u64) -> Arc<Gate> {
        let config = AimdConfig { initial, min: 1, max: 100, backoff: 0.5, ..AimdConfig::default() };
        Gate::learning(Learner::new(Aimd::new(config).unwrap().into(), None), None).unwrap()
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
}
