//! What a shared concurrency layer is asked and told from outside.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Key;

use super::{Shared, SharedPermit, Whose, holder, keyed};
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

/// What a [`SharedConcurrencyLayer`](crate::SharedConcurrencyLayer) is asked and told from outside. Clones are of the same
/// layer.
#[derive(Clone)]
pub struct SharedConcurrencyHandle(Arc<Shared>);

/// What became of the places of a layer, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedConcurrencyCounts {
    /// Requests that are in progress now, with or without a place in the store.
    pub in_flight: u64,
    /// Places that the store gave.
    pub acquired: u64,
    /// Leases that were renewed.
    pub renewed: u64,
    /// Places whose lease had ended in the store while the request was in progress: somebody else may have had them.
    pub lost: u64,
    /// Requests about which the store did not answer: what was chosen for that was done.
    pub without_store: u64,
    /// Renewals that the store did not answer. The request went on.
    pub renew_failures: u64,
    /// Releases that the store did not answer: these places come back when their leases end.
    pub release_failures: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Counter {
    Acquired,
    Renewed,
    Lost,
    WithoutStore,
    RenewFailures,
    ReleaseFailures,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) in_flight: AtomicU64,
    counts: [AtomicU64; 6],
}

impl Counters {
    pub(super) fn add(&self, counter: Counter) {
        self.counts[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].load(Ordering::Relaxed)
    }
}

impl SharedConcurrencyHandle {
    pub(super) fn new(shared: Arc<Shared>) -> SharedConcurrencyHandle {
        SharedConcurrencyHandle(shared)
    }

    /// Whether it acts, and what it has refused.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.switch
    }

    /// What became of the places of this layer, in this process.
    #[must_use]
    pub fn counts(&self) -> SharedConcurrencyCounts {
        let counters = &self.0.counters;
        SharedConcurrencyCounts {
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            acquired: counters.of(Counter::Acquired),
            renewed: counters.of(Counter::Renewed),
            lost: counters.of(Counter::Lost),
            without_store: counters.of(Counter::WithoutStore),
            renew_failures: counters.of(Counter::RenewFailures),
            release_failures: counters.of(Counter::ReleaseFailures),
        }
    }

    /// Takes a place as a request would, for work that is no request. Whoever drops the future holds nothing. The switch has
    /// no say: the place is counted in every mode.
    ///
    /// # Errors
    /// If there is no place. For a limit for each key the place is one of those without.
    pub async fn acquire(&self) -> Result<SharedPermit, Refusal> {
        holder::ask(&self.0, self.0.whose.of_nobody().clone()).await.map_err(|reason| self.0.refusal(reason))
    }

    /// Takes a place of a key. For a limit for all it is one of all.
    ///
    /// # Errors
    /// If there is no place, or the key is too long.
    pub async fn acquire_of(&self, key: Key<'_>) -> Result<SharedPermit, Refusal> {
        let key = match &self.0.whose {
            Whose::All { key } => key.clone(),
            Whose::Each { name, .. } => keyed(name, key).ok_or_else(|| self.0.refusal(Reason::NoKey))?,
        };
        holder::ask(&self.0, key).await.map_err(|reason| self.0.refusal(reason))
    }
}

impl fmt::Debug for SharedConcurrencyHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedConcurrencyHandle").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
