//! What a concurrency layer is asked and told from outside.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Busy, Key};

use super::{ConcurrencyPermit, Held, Places, Shared};
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
            Places::Keyed(keyed) => keyed.semaphore.in_use(key),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.0.places {
            Places::One(gate) => gate.waiting(),
            Places::Keyed(_) => 0,
        }
    }

    /// For how long the first in line has been waiting: a measure for a shedder before this layer.
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
            Entry::Refused(_) if matches!(self.0.places, Places::Keyed(_)) => Err(Reason::ClientBusy),
            Entry::Refused(reason) => Err(reason),
        };
        told.map(ConcurrencyPermit::from).map_err(|reason| self.0.refusal(reason))
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
            Places::Keyed(keyed) => match keyed.semaphore.try_acquire(key) {
                Ok(permit) => Ok(ConcurrencyPermit(Held::Key { _permit: permit })),
                Err(Busy::InUse { .. }) => Err(self.0.refusal(Reason::ClientBusy)),
                Err(Busy::NoRoom { .. }) => Err(self.0.refusal(Reason::Busy)),
            },
        }
    }
}

impl std::fmt::Debug for ConcurrencyHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("ConcurrencyHandle");
        shown.field("in_flight", &self.in_flight()).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
