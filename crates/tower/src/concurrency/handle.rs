//! What concurrency layers are asked and told from outside.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Key;

use super::keyed::{KeyedConcurrencyPermit, Pool, Shared as KeyedShared};
use super::{ConcurrencyPermit, Shared};
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

/// What a [`ConcurrencyLayer`](crate::ConcurrencyLayer) is asked and told from outside. Clones are of the same layer.
#[derive(Clone)]
pub struct ConcurrencyHandle(Arc<Shared>);

impl ConcurrencyHandle {
    pub(super) fn new(shared: Arc<Shared>) -> ConcurrencyHandle {
        ConcurrencyHandle(shared)
    }

    /// Whether it acts, and what it has refused.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// How many may be in progress.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.gate.limit()
    }

    /// How many are in progress.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.gate.in_flight()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.gate.waiting()
    }

    /// For how long the first in line has been waiting: a measure for a shedder before this layer.
    #[must_use]
    pub fn queue_delay(&self) -> Duration {
        self.0.gate.queue_delay()
    }

    /// Takes a place as a request would, waiting if there is a queue, for work that is no request. Whoever drops the
    /// future leaves the queue. The switch has no say: the place is counted in every mode.
    ///
    /// # Errors
    /// If there is no place, in time.
    pub async fn acquire(&self) -> Result<ConcurrencyPermit, Refusal> {
        self.0.gate.acquire().await.map(ConcurrencyPermit::of).map_err(|reason| self.0.refusal(reason))
    }

    /// Takes a place if one is free and nobody waits.
    ///
    /// # Errors
    /// If none is, or somebody does.
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

/// What a [`KeyedConcurrencyLayer`](crate::KeyedConcurrencyLayer) is asked and told from outside. Clones are of the same
/// layer.
#[derive(Clone)]
pub struct KeyedConcurrencyHandle(Arc<KeyedShared>);

impl KeyedConcurrencyHandle {
    pub(super) fn new(shared: Arc<KeyedShared>) -> KeyedConcurrencyHandle {
        KeyedConcurrencyHandle(shared)
    }

    /// Whether it acts, and what it has refused.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// How many of each key may be in progress.
    #[must_use]
    pub fn limit(&self) -> u64 {
        // Those without a key are as one.
        self.0.nameless.limit()
    }

    /// How many of a key are in progress.
    #[must_use]
    pub fn in_flight(&self, key: Key<'_>) -> u64 {
        match &self.0.pool {
            Pool::Semaphore(semaphore) => semaphore.in_use(key),
            Pool::Queued(gate) => gate.in_flight(key),
        }
    }

    /// How many without a key are in progress.
    #[must_use]
    pub fn nameless_in_flight(&self) -> u64 {
        self.0.nameless.in_flight()
    }

    /// How many wait. All lines are asked: a question for metrics, not for each request.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let named = match &self.0.pool {
            Pool::Semaphore(_) => 0,
            Pool::Queued(gate) => gate.waiting(),
        };
        named + self.0.nameless.waiting()
    }

    /// Takes a place of a key if one is free and nobody waits for one.
    ///
    /// # Errors
    /// If none is, or somebody does.
    pub fn try_acquire(&self, key: Key<'_>) -> Result<KeyedConcurrencyPermit, Refusal> {
        self.0.pool.try_enter(key).map_err(|reason| self.0.refusal(reason))
    }
}

impl fmt::Debug for KeyedConcurrencyHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedConcurrencyHandle").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
