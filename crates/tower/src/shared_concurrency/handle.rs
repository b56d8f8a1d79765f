//! The handle of a shared concurrency layer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Key;
use tidegate_engine::exposition;

use super::{Shared, SharedPermit, Whose, holder, keyed, metrics};
use crate::refusal::Refusal;
use crate::switch::Switch;

/// Metrics, switch and permits of a [`SharedConcurrencyLayer`](crate::SharedConcurrencyLayer). Clones belong to the
/// same layer.
#[derive(Clone)]
pub struct SharedConcurrencyHandle(Arc<Shared>);

/// The counts of a layer in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedConcurrencyCounts {
    /// Requests in progress now, with or without a permit in the store.
    pub in_flight: u64,
    /// Requests, and other attempts to acquire a permit, that were refused: no permit was free, or they had no key.
    pub refused: u64,
    /// Requests that passed in [`Mode::Shadow`](crate::Mode::Shadow) and would have been refused.
    pub would_refuse: u64,
    /// Permits that the store granted.
    pub acquired: u64,
    /// Leases that were renewed.
    pub renewed: u64,
    /// Permits whose lease had ended in the store while the request was in progress: the store may have granted them
    /// again.
    pub lost: u64,
    /// Requests that were decided by [`OnStoreFailure`](crate::OnStoreFailure): the store did not answer, or this
    /// process was too busy to ask it in time.
    pub store_failures: u64,
    /// Renewals that the store did not answer. The request went on.
    pub renew_failures: u64,
    /// Releases that the store did not answer: these permits come back when their leases end.
    pub release_failures: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Counter {
    Acquired,
    Renewed,
    Lost,
    StoreFailures,
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
    /// The content type of [`SharedConcurrencyHandle::render`].
    pub const CONTENT_TYPE: &'static str = exposition::CONTENT_TYPE;

    pub(super) fn new(shared: Arc<Shared>) -> SharedConcurrencyHandle {
        SharedConcurrencyHandle(shared)
    }

    /// Returns the layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the limit over all processes, in requests, of each key if there are keys.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns the switch, which sets the mode and counts refusals.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// Returns the counts of this layer in this process.
    #[must_use]
    pub fn counts(&self) -> SharedConcurrencyCounts {
        let counters = &self.0.counters;
        SharedConcurrencyCounts {
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            refused: self.0.refuser.switch.refused(),
            would_refuse: self.0.refuser.switch.would_refuse(),
            acquired: counters.of(Counter::Acquired),
            renewed: counters.of(Counter::Renewed),
            lost: counters.of(Counter::Lost),
            store_failures: counters.of(Counter::StoreFailures),
            renew_failures: counters.of(Counter::RenewFailures),
            release_failures: counters.of(Counter::ReleaseFailures),
        }
    }

    /// Renders [`SharedConcurrencyHandle::counts`] for Prometheus (text format 0.0.4), in 13 series, however many keys
    /// there are. The text can be joined with that of [`StackHandle::render`](crate::StackHandle::render): they share
    /// no names.
    #[must_use]
    pub fn render(&self) -> String {
        SharedConcurrencyHandle::render_all(std::slice::from_ref(self))
    }

    /// Renders the counts of several layers, which need different names, for Prometheus.
    #[must_use]
    pub fn render_all(layers: &[SharedConcurrencyHandle]) -> String {
        metrics::page(layers)
    }

    /// Acquires a permit for work that is not a request. Dropping the future leaves nothing behind. The mode does not
    /// matter: the permit is counted in every mode. If the limit is for each key, the permit is one of those without a
    /// key.
    ///
    /// # Errors
    /// Returns a refusal if no permit is free.
    pub async fn acquire(&self) -> Result<SharedPermit, Refusal> {
        holder::ask(&self.0, self.0.whose.of_nobody().clone()).await.map_err(|reason| self.0.refusal(reason))
    }

    /// Acquires a permit of a key. If the limit has no keys, it is one of all permits.
    ///
    /// # Errors
    /// Returns a refusal if no permit is free, or the key is too long.
    pub async fn acquire_of(&self, key: Key<'_>) -> Result<SharedPermit, Refusal> {
        let key = match &self.0.whose {
            Whose::All { key } => key.clone(),
            Whose::Each { .. } => keyed(&self.0.name, key).map_err(|reason| self.0.refusal(reason))?,
        };
        holder::ask(&self.0, key).await.map_err(|reason| self.0.refusal(reason))
    }
}

impl fmt::Debug for SharedConcurrencyHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedConcurrencyHandle").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
