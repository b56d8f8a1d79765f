//! What a shared concurrency layer is asked and told from outside.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Key;
use tidegate_engine::exposition;

use super::{Shared, SharedPermit, Whose, holder, keyed, metrics};
use crate::refusal::Refusal;
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
    /// Requests, and others who asked for a place, that were refused: there was none, or they had no key.
    pub refused: u64,
    /// Requests that passed in [`Mode::Shadow`](crate::Mode::Shadow) and would have been refused.
    pub would_refuse: u64,
    /// Places that the store gave.
    pub acquired: u64,
    /// Leases that were renewed.
    pub renewed: u64,
    /// Places whose lease had ended in the store while the request was in progress: somebody else may have had them.
    pub lost: u64,
    /// Requests that were decided by the choice for a failed store: it did not answer, or this process was too busy to ask it in
    /// time.
    pub store_failures: u64,
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
    /// The content type of what [`SharedConcurrencyHandle::render`] makes.
    pub const CONTENT_TYPE: &'static str = exposition::CONTENT_TYPE;

    pub(super) fn new(shared: Arc<Shared>) -> SharedConcurrencyHandle {
        SharedConcurrencyHandle(shared)
    }

    /// The layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many may be in progress at once over all processes, of each key if there are keys.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Whether it acts, and what it has refused.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.0.refuser.switch
    }

    /// What became of the places of this layer, in this process.
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

    /// [`SharedConcurrencyHandle::counts`] as Prometheus reads it (text format 0.0.4), in 13 series, however many keys there
    /// are. It can stand on one page with [`StackHandle::render`](crate::StackHandle::render): no name is in both.
    #[must_use]
    pub fn render(&self) -> String {
        SharedConcurrencyHandle::render_all(std::slice::from_ref(self))
    }

    /// The same for several layers, which need names of their own.
    #[must_use]
    pub fn render_all(layers: &[SharedConcurrencyHandle]) -> String {
        metrics::page(layers)
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
