//! A gate: permits, and the requests that wait for one.
//!
//! | to find | look in |
//! |---|---|
//! | who is let in, who waits, who is woken | `mod.rs` |
//! | the order of one queue | `line.rs` |
//! | a gate and a queue for each key | `keyed.rs` |
//! | a gate with shares, and a queue for each | `divided.rs` |
//! | the counters that permits point to | `counter.rs` |
//! | adaptive limits | `learner.rs` |
//!
//! While nobody waits, entering and leaving is one atomic word ([`PermitCounter`](tidegate_core::PermitCounter)). A
//! request that must wait takes a lock, joins the queue and is woken through a channel of its own. The lock is held for
//! a few instructions, never while tasks are woken.

mod counter;
mod divided;
mod keyed;
mod learner;
mod line;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tidegate_core::adaptive::Sample;
use tidegate_core::fair::{DeficitRoundRobin, Ticket};
use tidegate_core::shed::{Judgement, Mode};
use tidegate_core::{Key, Released, Time};
use tokio::sync::oneshot;
use tokio::time::{Timeout, timeout};

use crate::error::{ConfigError, check_limit};
use crate::refusal::Reason;
use crate::runtime_clock::{RuntimeClock, between};
use crate::switch::Switch;

use counter::Counter;
pub(crate) use divided::{DividedEntry, DividedGate, DividedPermit, DividedWait};
pub(crate) use keyed::{KeyedEntry, KeyedGate, KeyedPermit, KeyedPlace};
pub(crate) use learner::Learner;
pub(crate) use line::Line;
pub use line::Queue;

/// Permits, and the requests that wait for one.
pub(crate) struct Gate {
    counter: &'static Counter,
    room: Mutex<Room>,
    deadline: Duration,
    clock: RuntimeClock,
}

/// The waiting requests of a gate.
pub(crate) enum Room {
    None,
    Line(Line<Granted>),
    Fair(DeficitRoundRobin<Waiter<Granted>>),
}

/// A waiting request.
pub(crate) struct Waiter<P> {
    since: Time,
    tell: oneshot::Sender<Told<P>>,
}

/// The result of a wait.
pub(crate) type Told<P> = Result<P, Reason>;

/// Where a waiting request is found again in its room.
enum Spot {
    Line(u64),
    Fair(Ticket),
}

/// The result of asking for a permit.
pub(crate) enum Entry {
    In(Granted),
    Wait(GateWait),
    Refused(Reason),
}

impl Gate {
    pub(crate) fn new(limit: u64, room: Room, deadline: Duration) -> Result<Arc<Gate>, ConfigError> {
        check_limit(limit)?;
        let counter = Counter::with_limit(limit)?;
        let gate = Arc::new(Gate { counter, room: Mutex::new(room), deadline, clock: RuntimeClock::start() });
        counter.belongs_to(&gate);
        Ok(gate)
    }

    /// A gate with one queue, or none.
    pub(crate) fn with_queue(limit: u64, queue: Option<Queue>) -> Result<Arc<Gate>, ConfigError> {
        match queue {
            Some(queue) => Gate::new(limit, Room::Line(Line::new(queue)?), queue.deadline()),
            None => Gate::new(limit, Room::None, Duration::ZERO),
        }
    }

    /// A gate with an adaptive limit and one queue, or none.
    pub(crate) fn learning(learner: Learner, queue: Option<Queue>) -> Result<Arc<Gate>, ConfigError> {
        let gate = Gate::with_queue(learner.limit(), queue)?;
        gate.counter.set_learner(learner);
        Ok(gate)
    }

    /// Lets in, queues or refuses a request. The tenant and its weight matter where queues are fair.
    ///
    /// In [`Mode::Shadow`] nothing waits; requests that would have had to are counted.
    pub(crate) fn enter(self: &Arc<Gate>, switch: &Switch, tenant: Option<(Key<'_>, u64)>) -> Entry {
        if switch.mode() == Mode::Shadow {
            let in_flight = self.counter.permits.acquire_anyway();
            let had_room = in_flight <= self.counter.permits.limit();
            switch.count(if had_room { Judgement::Pass } else { Judgement::WouldShed });
            return Entry::In(Granted::new(self, in_flight));
        }
        self.enter_or_wait(tenant)
    }

    /// Lets in, queues or refuses a request, whatever the mode.
    fn enter_or_wait(self: &Arc<Gate>, tenant: Option<(Key<'_>, u64)>) -> Entry {
        match self.counter.permits.try_acquire() {
            Some(in_flight) => Entry::In(Granted::new(self, in_flight)),
            None => self.join(tenant),
        }
    }

    /// Takes a permit for work that is not a request, whatever the mode, waiting if there is a queue.
    pub(crate) async fn acquire(self: &Arc<Gate>) -> Result<Granted, Reason> {
        match self.enter_or_wait(None) {
            Entry::In(granted) => Ok(granted),
            Entry::Wait(wait) => wait.await,
            Entry::Refused(reason) => Err(reason),
        }
    }

    /// Takes a permit if one is free and nobody waits.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<GatePermit> {
        self.try_enter_counted().map(|(permit, _)| permit)
    }

    /// Takes a permit if one is free and nobody waits, and returns the number in progress then.
    #[inline]
    pub(crate) fn try_enter_counted(&self) -> Option<(GatePermit, u64)> {
        self.counter.permits.try_acquire().map(|in_flight| (GatePermit(self.counter), in_flight))
    }

    #[cold]
    fn join(self: &Arc<Gate>, tenant: Option<(Key<'_>, u64)>) -> Entry {
        let mut room = self.lock();
        if matches!(*room, Room::None) {
            return Entry::Refused(Reason::Busy);
        }
        // Before anything is changed: outside of a runtime there are no timers, and this panics.
        let (tell, told) = oneshot::channel();
        let told = timeout(self.deadline, told);
        if let Some(in_flight) = self.counter.permits.acquire_or_wait() {
            return Entry::In(Granted::new(self, in_flight));
        }
        let spot = room.push(tenant, Waiter { since: self.clock.now(), tell });
        self.settle(&room);
        match spot {
            Some(spot) => Entry::Wait(Wait::new(told, PlaceInLine { gate: Arc::clone(self), spot: Some(spot) })),
            None => Entry::Refused(Reason::QueueFull),
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.counter.permits.limit()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.counter.permits.in_use()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// How long the first request in the queue has been waiting.
    pub(crate) fn queue_delay(&self) -> Duration {
        let oldest = match &*self.lock() {
            Room::Line(line) => line.oldest(),
            Room::None | Room::Fair(_) => None,
        };
        oldest.map_or(Duration::ZERO, |since| between(since, self.clock.now()))
    }

    /// Lets waiting requests in while there is room.
    #[cold]
    pub(crate) fn serve(self: &Arc<Gate>) {
        loop {
            let mut shed = Vec::new();
            let next = self.next(&mut shed);
            for waiter in shed {
                // If nobody listens any more, nobody is to be told.
                let _ = waiter.tell.send(Err(Reason::QueueStands));
            }
            let Some((waiter, in_flight)) = next else { return };
            if let Err(Ok(place)) = waiter.tell.send(Ok(Granted::new(self, in_flight))) {
                // Its caller has left. The place goes back without serving anybody, since this loop does.
                place.give_back();
            }
        }
    }

    /// Takes the next waiting request, with a permit for it.
    fn next(&self, shed: &mut Vec<Waiter<Granted>>) -> Option<(Waiter<Granted>, u64)> {
        let mut room = self.lock();
        if room.len() == 0 {
            self.counter.permits.nobody_waits();
            return None;
        }
        let in_flight = self.counter.permits.try_acquire_for_waiting()?;
        let next = room.pop(self.clock.now(), shed);
        self.settle(&room);
        if next.is_none() {
            // All who waited were shed, and whoever comes now finds nobody waiting.
            let _: Released = self.counter.permits.release();
        }
        next.map(|waiter| (waiter, in_flight))
    }

    fn leave(&self, spot: &Spot) {
        let mut room = self.lock();
        let left = room.remove(spot, self.clock.now());
        self.settle(&room);
        drop(room);
        drop(left);
    }

    /// Clears the mark that requests wait, if none does.
    fn settle(&self, room: &Room) {
        if room.len() == 0 {
            self.counter.permits.nobody_waits();
        }
    }

    /// Locks the room, also after a panic: what may panic comes before what changes anything.
    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.counter.close();
    }
}

impl Room {
    fn len(&self) -> usize {
        match self {
            Room::None => 0,
            Room::Line(line) => line.len(),
            Room::Fair(queue) => queue.len(),
        }
    }

    fn push(&mut self, tenant: Option<(Key<'_>, u64)>, waiter: Waiter<Granted>) -> Option<Spot> {
        match (self, tenant) {
            (Room::Line(line), _) => line.push(waiter).map(Spot::Line),
            (Room::Fair(queue), Some((key, weight))) => queue.push(key, weight, 1, waiter).ok().map(Spot::Fair),
            (Room::Fair(_) | Room::None, _) => None,
        }
    }

    fn pop(&mut self, now: Time, shed: &mut Vec<Waiter<Granted>>) -> Option<Waiter<Granted>> {
        match self {
            Room::None => None,
            Room::Line(line) => line.pop(now, shed),
            Room::Fair(queue) => queue.pop(),
        }
    }

    fn remove(&mut self, spot: &Spot, now: Time) -> Option<Waiter<Granted>> {
        match (self, spot) {
            (Room::Line(line), Spot::Line(place)) => line.remove(*place, now),
            (Room::Fair(queue), Spot::Fair(ticket)) => queue.remove(*ticket),
            _ => None,
        }
    }
}

/// A permit of a gate. Dropping it frees the slot, which goes to the next waiting request.
///
/// One word, since it moves with each request and each response.
pub(crate) struct GatePermit(&'static Counter);

impl fmt::Debug for GatePermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GatePermit").finish_non_exhaustive()
    }
}

impl GatePermit {
    /// Teaches the gate with the request that holds this permit. A gate with a fixed limit ignores it.
    #[inline]
    pub(crate) fn learn(&self, now: Time, sample: Sample) {
        self.0.learn(now, sample);
    }
}

impl Drop for GatePermit {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A slot on its way to a waiting request, with the number in progress when it was taken. Dropped on the way, it goes
/// to the next waiting request.
pub struct Granted {
    gate: Arc<Gate>,
    in_flight: u64,
    /// Whether the request has received it and releases it itself.
    has_arrived: bool,
}

impl Granted {
    fn new(gate: &Arc<Gate>, in_flight: u64) -> Granted {
        Granted { gate: Arc::clone(gate), in_flight, has_arrived: false }
    }

    /// The permit of the slot.
    pub(crate) fn into_permit(mut self) -> GatePermit {
        self.has_arrived = true;
        GatePermit(self.gate.counter)
    }

    /// The permit of the slot, and the number in progress when it was taken.
    pub(crate) fn into_permit_counted(self) -> (GatePermit, u64) {
        let in_flight = self.in_flight;
        (self.into_permit(), in_flight)
    }

    /// Releases the slot without serving waiting requests.
    fn give_back(mut self) {
        self.has_arrived = true;
        let _: Released = self.gate.counter.permits.release();
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if !self.has_arrived {
            self.gate.counter.release();
        }
    }
}

/// A place in a queue. Dropping it leaves the queue, unless the request has its result.
pub trait Leaves {
    /// Called when the request has its result and is no longer in the queue.
    fn told(&mut self);
}

/// A place in the queue of a gate.
pub struct PlaceInLine {
    gate: Arc<Gate>,
    /// `None` once the request has its result.
    spot: Option<Spot>,
}

impl Leaves for PlaceInLine {
    fn told(&mut self) {
        self.spot = None;
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        if let Some(spot) = &self.spot {
            self.gate.leave(spot);
        }
    }
}

pin_project! {
    /// Waits for a permit until the deadline. Dropped before, it leaves the queue; a permit granted meanwhile goes to
    /// the next waiting request.
    pub struct Wait<P, L> {
        // Dropped before the place, so that a permit in it goes on.
        #[pin]
        told: Timeout<oneshot::Receiver<Told<P>>>,
        place: L,
    }
}

impl<P, L: Leaves> Wait<P, L> {
    fn new(told: Timeout<oneshot::Receiver<Told<P>>>, place: L) -> Wait<P, L> {
        Wait { told, place }
    }
}

/// Waits for a permit of a gate.
pub(crate) type GateWait = Wait<Granted, PlaceInLine>;

impl<P, L: Leaves> Future for Wait<P, L> {
    type Output = Result<P, Reason>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<P, Reason>> {
        let wait = self.project();
        let Poll::Ready(told) = wait.told.poll(context) else { return Poll::Pending };
        Poll::Ready(match told {
            Ok(Ok(told)) => {
                wait.place.told();
                told
            }
            // A gate drops nobody without a word, and lives for as long as somebody waits.
            Ok(Err(_)) => Err(Reason::Busy),
            Err(_) => Err(Reason::WaitedTooLong),
        })
    }
}
