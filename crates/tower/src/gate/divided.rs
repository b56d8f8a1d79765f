//! A gate with partitions: guaranteed shares, and a queue for each.
//!
//! A free slot is handed over under the same lock, first to partitions below their guarantee. So whenever the lock is
//! free, requests wait only if all slots are taken, and no slot has to be kept for anyone.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::adaptive::Partitions;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Leaves, Line, Queue, Wait, Waiter};
use crate::error::ConfigError;
use crate::refusal::Reason;
use crate::runtime_clock::{RuntimeClock, between};

/// Permits of partitions, and the requests that wait for one.
pub(crate) struct DividedGate {
    hall: Mutex<Hall>,
    deadline: Duration,
    clock: RuntimeClock,
}

struct Hall {
    partitions: Partitions,
    /// The number of partitions with a guarantee.
    parts: usize,
    /// One queue for each partition, and the last for all other requests. Empty if there is no queue.
    lines: Vec<Line<DividedPermit>>,
}

/// The result of asking for a permit of a partition.
pub(crate) enum DividedEntry {
    In(DividedPermit),
    Wait(DividedWait),
    Refused(Reason),
}

/// Waits for a permit of a partition.
pub(crate) type DividedWait = Wait<DividedPermit, DividedPlace>;

/// A request that is let in, its partition, and the number in progress then.
type Served = (Waiter<DividedPermit>, Option<usize>, u64);

impl DividedGate {
    /// Creates a gate. Each partition has a queue of the given depth, and all other requests have one together.
    pub(crate) fn new(total: u64, shares: &[f64], queue: Option<Queue>) -> Result<Arc<DividedGate>, ConfigError> {
        let (partitions, parts) = (Partitions::new(total, shares)?, shares.len());
        let lines = match queue {
            Some(queue) => (0..=parts).map(|_| Line::new(queue)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let deadline = queue.map_or(Duration::ZERO, |queue| queue.deadline());
        let hall = Mutex::new(Hall { partitions, parts, lines });
        Ok(Arc::new(DividedGate { hall, deadline, clock: RuntimeClock::start() }))
    }

    /// Lets in, queues or refuses a request of a partition.
    pub(crate) fn enter(self: &Arc<DividedGate>, part: Option<usize>) -> DividedEntry {
        let now = self.clock.now();
        let mut hall = self.lock();
        if let Some(in_flight) = hall.take(part, now) {
            return DividedEntry::In(DividedPermit::new(self, part, in_flight));
        }
        let Some((number, line)) = hall.line(part) else { return DividedEntry::Refused(Reason::Busy) };
        // Before anything is changed: outside of a runtime there are no timers, and this panics.
        let (tell, told) = oneshot::channel();
        let told = timeout(self.deadline, told);
        match line.push(Waiter { since: now, tell }) {
            Some(place) => {
                let place = DividedPlace { gate: Arc::clone(self), line: number, place: Some(place) };
                DividedEntry::Wait(Wait::new(told, place))
            }
            None => DividedEntry::Refused(Reason::QueueFull),
        }
    }

    /// Takes a permit of a partition if one is free, else returns the number in progress.
    pub(crate) fn try_enter(self: &Arc<DividedGate>, part: Option<usize>) -> Result<DividedPermit, u64> {
        let mut hall = self.lock();
        match hall.take(part, self.clock.now()) {
            Some(in_flight) => Ok(DividedPermit::new(self, part, in_flight)),
            None => Err(hall.partitions.in_use()),
        }
    }

    /// Sets the limit. `published` is called once it holds, before waiting requests are woken, so that a lock that
    /// orders limits is held no longer.
    pub(crate) fn set_limit(self: &Arc<DividedGate>, limit: u64, published: impl FnOnce()) {
        self.serve(|partitions| {
            partitions.set_total(limit);
            published();
        });
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.lock().partitions.in_use()
    }

    /// Releases a slot of a partition, which goes to the next waiting request.
    pub(crate) fn release(self: &Arc<DividedGate>, part: Option<usize>) {
        self.serve(|partitions| partitions.release(part));
    }

    /// The number of waiting requests, in all queues.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().lines.iter().map(Line::len).sum()
    }

    /// How long the request has been waiting that has waited longest.
    pub(crate) fn queue_delay(&self) -> Duration {
        let oldest = self.lock().lines.iter().filter_map(Line::oldest).min();
        oldest.map_or(Duration::ZERO, |since| between(since, self.clock.now()))
    }

    /// Applies a change, and lets in the requests that then fit, under one lock: newcomers do not overtake them.
    fn serve(self: &Arc<DividedGate>, change: impl FnOnce(&mut Partitions)) {
        let (mut shed, mut served, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut hall = self.lock();
        change(&mut hall.partitions);
        loop {
            let now = self.clock.now();
            while let Some(next) = hall.next(now, &mut shed) {
                served.push(next);
            }
            drop(hall);
            for waiter in shed.drain(..) {
                // If nobody listens any more, nobody is to be told.
                let _ = waiter.tell.send(Err(Reason::QueueStands));
            }
            for (waiter, part, in_flight) in served.drain(..) {
                if let Err(Ok(permit)) = waiter.tell.send(Ok(DividedPermit::new(self, part, in_flight))) {
                    // Its caller has left: the place is still to be given, which this loop does.
                    permit.forget();
                    left.push(part);
                }
            }
            if left.is_empty() {
                return;
            }
            hall = self.lock();
            left.drain(..).for_each(|part| hall.partitions.release(part));
        }
    }

    /// Locks the state, also after a panic: what may panic comes before what changes anything.
    fn lock(&self) -> MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hall {
    /// Takes a slot for a partition if one is free for it, and returns the number in progress then.
    fn take(&mut self, part: Option<usize>, now: Time) -> Option<u64> {
        let admitted = self.partitions.try_acquire(part, now);
        if !admitted && !self.lines.is_empty() {
            // Who waits needs no claim: it is served when something becomes free, before any other can come.
            self.partitions.withdraw(part);
        }
        admitted.then(|| self.partitions.in_use())
    }

    fn line(&mut self, part: Option<usize>) -> Option<(usize, &mut Line<DividedPermit>)> {
        let number = part.filter(|part| *part < self.parts).unwrap_or(self.parts);
        self.lines.get_mut(number).map(|line| (number, line))
    }

    /// Takes the next waiting request, with a slot for it, and adds those that have waited too long to `shed`.
    fn next(&mut self, now: Time, shed: &mut Vec<Waiter<DividedPermit>>) -> Option<Served> {
        loop {
            let part = self.first()?;
            let in_flight = self.take(part, now)?;
            if let Some(waiter) = self.line(part).and_then(|(_, line)| line.pop(now, shed)) {
                return Some((waiter, part, in_flight));
            }
            // All of its line were shed.
            self.partitions.release(part);
        }
    }

    /// Whose turn it is: partitions below their guarantee first, then the request that has waited longest.
    fn first(&self) -> Option<Option<usize>> {
        let turn = |(number, line): (usize, &Line<DividedPermit>)| {
            let part = Some(number).filter(|number| *number < self.parts);
            let is_above = self.partitions.in_use_by(part) >= self.partitions.guarantee(part);
            Some((is_above, line.oldest()?, part))
        };
        self.lines.iter().enumerate().filter_map(turn).min().map(|(.., part)| part)
    }
}

/// A permit of a partition. Dropping it frees the slot, which goes to the next waiting request.
pub struct DividedPermit {
    /// `None` once the slot has been passed on.
    gate: Option<Arc<DividedGate>>,
    part: Option<usize>,
    in_flight: u64,
}

impl DividedPermit {
    fn new(gate: &Arc<DividedGate>, part: Option<usize>, in_flight: u64) -> DividedPermit {
        DividedPermit { gate: Some(Arc::clone(gate)), part, in_flight }
    }

    /// Removes the guard: returns the partition, and the number in progress when the slot was taken.
    /// [`DividedGate::release`] frees the slot.
    pub(crate) fn into_place(mut self) -> (Option<usize>, u64) {
        self.gate = None;
        (self.part, self.in_flight)
    }

    /// Drops the permit without freeing the slot.
    fn forget(mut self) {
        self.gate = None;
    }
}

impl Drop for DividedPermit {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.release(self.part);
        }
    }
}

impl fmt::Debug for DividedPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DividedPermit").field("part", &self.part).finish_non_exhaustive()
    }
}

/// A place in the queue of a partition. Dropping it leaves the queue.
pub struct DividedPlace {
    gate: Arc<DividedGate>,
    line: usize,
    /// `None` once the request has its result.
    place: Option<u64>,
}

impl Leaves for DividedPlace {
    fn told(&mut self) {
        self.place = None;
    }
}

impl Drop for DividedPlace {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let now = self.gate.clock.now();
        let mut hall = self.gate.lock();
        let left = hall.lines.get_mut(self.line).and_then(|line| line.remove(place, now));
        drop(hall);
        drop(left);
    }
}
