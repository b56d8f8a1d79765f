//! The handles of concurrency layers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Key;

use super::keyed::{KeyedConcurrencyPermit, Pool, Shared as KeyedShared};
use super::{ConcurrencyPermit, Shared};
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

/// Metrics, switch and permits of a [`ConcurrencyLayer`](crate::ConcurrencyLayer). Clones belong to the same layer.
#[derive(Clone)]
pub struct ConcurrencyHandle(Arc<Shared>);

impl ConcurrencyHandle {
    pub(super) fn new(shared: Arc<Shared>) -> ConcurrencyHandle {
        ConcurrencyHandle(shared)
    }

    /// Returns the switch, which sets the mode and counts refusals.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// Returns the limit, in requests.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.gate.limit()
    }

    /// Returns the number of requests in progress.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.gate.in_flight()
    }

    /// Returns the number of requests in the queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.gate.waiting()
    }

    /// Returns how long the first request in the queue has been waiting, as a measure for a shedder in front of this
    /// layer.
    #[must_use]
    pub fn queue_delay(&self) -> Duration {
        self.0.gate.queue_delay()
    }

    /// Acquires a permit for work that is not a request, waiting if there is a queue. Dropping the future leaves the
    /// queue. The mode does not matter: the permit is counted in every mode.
    ///
    /// # Errors
    /// Returns a refusal if no permit becomes free in time.
    pub async fn acquire(&self) -> Result<ConcurrencyPermit, Refusal> {
        self.0.gate.acquire().await.map(ConcurrencyPermit::of).map_err(|reason| self.0.refusal(reason))
    }

    /// Acquires a permit without waiting.
    ///
    /// # Errors
    /// Returns a refusal if no permit is free, or requests are waiting for one.
    pub fn try_acquire(&self) -> Result<ConcurrencyPermit, Refusal> {
        match self.0.gate.try_enter() {
            Some(permit) => Ok(ConcurrencyPermit { _permit: permit }),
            None => Err(self.0.refusal(Reason::Busy)),
        }
    }
}

impl fmt::Debug for ConcurrencyHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ConcurrencyHandle");
        shown.field("in_flight", &self.in_flight()).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// Metrics, switch and permits of a [`KeyedConcurrencyLayer`](crate::KeyedConcurrencyLayer). Clones belong to the same
/// layer.
#[derive(Clone)]
pub struct KeyedConcurrencyHandle(Arc<KeyedShared>);

impl KeyedConcurrencyHandle {
    pub(super) fn new(shared: Arc<KeyedShared>) -> KeyedConcurrencyHandle {
        KeyedConcurrencyHandle(shared)
    }

    /// Returns the switch, which sets the mode and counts refusals.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// Returns the limit of each key, in requests.
    #[must_use]
    pub fn limit(&self) -> u64 {
        // Those without a key are as one.
        self.0.nameless.limit()
    }

    /// Returns the number of a key's requests in progress.
    #[must_use]
    pub fn in_flight(&self, key: Key<'_>) -> u64 {
        match &self.0.pool {
            Pool::Semaphore(semaphore) => semaphore.in_use(key),
            Pool::Queued(gate) => gate.in_flight(key),
        }
    }

    /// Returns the number of requests without a key in progress.
    #[must_use]
    pub fn nameless_in_flight(&self) -> u64 {
        self.0.nameless.in_flight()
    }

    /// Returns the number of requests in the queues of all keys. It visits all queues: call it for metrics, not for
    /// each request.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let named = match &self.0.pool {
            Pool::Semaphore(_) => 0,
            Pool::Queued(gate) => gate.waiting(),
        };
        named + self.0.nameless.waiting()
    }

    /// Acquires a permit of a key without waiting.
    ///
    /// # Errors
    /// Returns a refusal if no permit of the key is free, or requests are waiting for one.
    pub fn try_acquire(&self, key: Key<'_>) -> Result<KeyedConcurrencyPermit, Refusal> {
        self.0.pool.try_enter(key).map_err(|reason| self.0.refusal(reason))
    }
}

impl fmt::Debug for KeyedConcurrencyHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedConcurrencyHandle").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
