//! What a concurrency layer is asked and told from outside.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Key;

use super::{ConcurrencyPermit, Places, Pool, Shared};
use crate::gate::Entry;
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
        &self.0.switch
    }

    /// How many may be in progress. For a limit for each key: of each.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match &self.0.places {
            Places::One(gate) => gate.limit(),
            // Those without a key are as one.
            Places::Keyed(keyed) => keyed.nameless.limit(),
        }
    }

    /// Whether the limit is for each key.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.0.places, Places::Keyed(_))
    }

    /// How many are in progress. For a limit for each key: of those without one.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        match &self.0.places {
            Places::One(gate) => gate.in_flight(),
            Places::Keyed(keyed) => keyed.nameless.in_flight(),
        }
    }

    /// How many of a key are in progress; 0 for a limit for all.
    #[must_use]
    pub fn in_flight_of(&self, key: Key<'_>) -> u64 {
        match &self.0.places {
            Places::One(_) => 0,
            Places::Keyed(keyed) => match &keyed.pool {
                Pool::Semaphore(semaphore) => semaphore.in_use(key),
                Pool::Queued(gate) => gate.in_flight(key),
            },
        }
    }

    /// How many wait. With a line for each key all of them are asked: a question for metrics, not for each request.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.0.places {
            Places::One(gate) => gate.waiting(),
            Places::Keyed(keyed) => {
                let named = match &keyed.pool {
                    Pool::Semaphore(_) => 0,
                    Pool::Queued(gate) => gate.waiting(),
                };
                named + keyed.nameless.waiting()
            }
        }
    }

    /// For how long the first in line has been waiting; nothing for a limit for each key. A measure for a shedder
    /// before this layer.
    #[must_use]
    pub fn queue_delay(&self) -> Duration {
        match &self.0.places {
            Places::One(gate) => gate.queue_delay(),
            Places::Keyed(_) => Duration::ZERO,
        }
    }

    /// Takes a place as a request would, waiting if there is a queue, for work that is no request. Whoever drops the
    /// future leaves the queue. The switch has no say: the place is counted in every mode.
    ///
    /// # Errors
    /// If there is no place, in time. For a limit for each key the place is one of those without.
    pub async fn acquire(&self) -> Result<ConcurrencyPermit, Refusal> {
        let gate = match &self.0.places {
            Places::One(gate) => gate,
            Places::Keyed(keyed) => &keyed.nameless,
        };
        let told = match gate.enter(None) {
            Entry::In(permit) => Ok(permit),
            Entry::Wait(wait) => wait.await,
            Entry::Refused(reason) => Err(reason),
        };
        told.map(ConcurrencyPermit::from).map_err(|reason| self.0.refusal(self.0.at_gate(reason)))
    }

    /// Takes a place of a key, if one is free.
    ///
    /// # Errors
    /// If none is. For a limit for all, if none of all is, or somebody waits.
    pub fn try_acquire(&self, key: Key<'_>) -> Result<ConcurrencyPermit, Refusal> {
        match &self.0.places {
            Places::One(gate) => match gate.try_enter() {
                Some(permit) => Ok(permit.into()),
                None => Err(self.0.refusal(Reason::Busy)),
            },
            Places::Keyed(keyed) => keyed.pool.try_enter(key).map_err(|reason| self.0.refusal(reason)),
        }
    }
}

impl std::fmt::Debug for ConcurrencyHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("ConcurrencyHandle");
        shown.field("in_flight", &self.in_flight()).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
