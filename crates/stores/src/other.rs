//! Stores of users and tests. Their futures are boxed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_core::{Charge, Decisions, Permits, Snapshot};

use crate::{
    Bulletin, Call, Health, Lease, Leased, Leasing, Nature, Notice, PermitCharge, PermitStore, Posted, Posting, Store,
    StoreError,
};

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store of a user or a test, with its optional abilities. Clones share it.
#[derive(Clone)]
pub struct Other {
    pub(crate) store: Arc<dyn DynStore>,
    leasing: Option<Arc<dyn DynLeasing>>,
    permits: Option<Arc<dyn DynPermits>>,
    bulletin: Option<Arc<dyn DynBulletin>>,
}

/// Why a store without [`Bulletin`] fails.
pub(crate) const NO_BULLETIN: &str = "it keeps no notices of nodes";

impl Other {
    /// Wraps a store that decides charges.
    #[must_use]
    pub fn new<S: Store + 'static>(store: Arc<S>) -> Other {
        Other { store, leasing: None, permits: None, bulletin: None }
    }

    /// Adds leases; `store` must be the one that was given to [`Other::new`].
    #[must_use]
    pub fn with_leasing<S: Leasing + 'static>(self, store: Arc<S>) -> Other {
        Other { leasing: Some(store), ..self }
    }

    /// Adds permits; `store` must be the one that was given to [`Other::new`].
    #[must_use]
    pub fn with_permits<S: PermitStore + 'static>(self, store: Arc<S>) -> Other {
        Other { permits: Some(store), ..self }
    }

    /// Adds notices of nodes; `store` must be the one that was given to [`Other::new`].
    #[must_use]
    pub fn with_bulletin<S: Bulletin + 'static>(self, store: Arc<S>) -> Other {
        Other { bulletin: Some(store), ..self }
    }

    pub(crate) fn can_lease(&self) -> bool {
        self.leasing.is_some()
    }

    pub(crate) fn keeps_permits(&self) -> bool {
        self.permits.is_some()
    }

    pub(crate) fn has_bulletin(&self) -> bool {
        self.bulletin.is_some()
    }

    pub(crate) async fn lease(&self, call: &Call, lease: &Lease<'_>) -> Result<Leased, StoreError> {
        match &self.leasing {
            Some(store) => store.lease(call, lease).await,
            None => Err(self.unsupported("it does not support leases")),
        }
    }

    pub(crate) async fn permit(&self, call: &Call, charge: &PermitCharge<'_>) -> Result<Permits, StoreError> {
        match &self.permits {
            Some(store) => store.permit(call, charge).await,
            None => Err(self.unsupported("it does not support permits")),
        }
    }

    pub(crate) async fn publish(&self, call: &Call, notice: &Notice<'_>) -> Result<(), StoreError> {
        match &self.bulletin {
            Some(store) => store.publish(call, notice).await,
            None => Err(self.unsupported(NO_BULLETIN)),
        }
    }

    pub(crate) async fn posted(&self, call: &Call, topic: &str) -> Result<Vec<Posted>, StoreError> {
        match &self.bulletin {
            Some(store) => store.posted(call, topic).await,
            None => Err(self.unsupported(NO_BULLETIN)),
        }
    }

    pub(crate) async fn read(&self, call: &Call, topic: &str, node: &str) -> Result<Option<Posting>, StoreError> {
        match &self.bulletin {
            Some(store) => store.read(call, topic, node).await,
            None => Err(self.unsupported(NO_BULLETIN)),
        }
    }

    fn unsupported(&self, what: &'static str) -> StoreError {
        StoreError::Unsupported { store: self.store.health().store, what }
    }
}

impl fmt::Debug for Other {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Other").field("store", &self.store.health().store).finish_non_exhaustive()
    }
}

/// [`Store`] with boxed futures.
pub(crate) trait DynStore: Send + Sync {
    fn charge<'a>(&'a self, call: &'a Call, charges: &'a [Charge<'a>]) -> Answer<'a, Result<Decisions, StoreError>>;
    fn inspect<'a>(&'a self, call: &'a Call, charge: &'a Charge<'a>) -> Answer<'a, Result<Snapshot, StoreError>>;
    fn nature(&self) -> Nature;
    fn health(&self) -> Health;
    fn close(&self) -> Answer<'_, ()>;
}

/// [`Leasing`] with boxed futures.
trait DynLeasing: Send + Sync {
    fn lease<'a>(&'a self, call: &'a Call, lease: &'a Lease<'a>) -> Answer<'a, Result<Leased, StoreError>>;
}

/// [`PermitStore`] with boxed futures.
trait DynPermits: Send + Sync {
    fn permit<'a>(&'a self, call: &'a Call, charge: &'a PermitCharge<'a>) -> Answer<'a, Result<Permits, StoreError>>;
}

/// [`Bulletin`] with boxed futures.
trait DynBulletin: Send + Sync {
    fn publish<'a>(&'a self, call: &'a Call, notice: &'a Notice<'a>) -> Answer<'a, Result<(), StoreError>>;
    fn posted<'a>(&'a self, call: &'a Call, topic: &'a str) -> Answer<'a, Result<Vec<Posted>, StoreError>>;
    fn read<'a>(
        &'a self,
        call: &'a Call,
        topic: &'a str,
        node: &'a str,
    ) -> Answer<'a, Result<Option<Posting>, StoreError>>;
}

impl<S: Store> DynStore for S {
    fn charge<'a>(&'a self, call: &'a Call, charges: &'a [Charge<'a>]) -> Answer<'a, Result<Decisions, StoreError>> {
        Box::pin(Store::charge(self, call, charges))
    }

    fn inspect<'a>(&'a self, call: &'a Call, charge: &'a Charge<'a>) -> Answer<'a, Result<Snapshot, StoreError>> {
        Box::pin(Store::inspect(self, call, charge))
    }

    fn nature(&self) -> Nature {
        Store::nature(self)
    }

    fn health(&self) -> Health {
        Store::health(self)
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(Store::close(self))
    }
}

impl<S: Leasing> DynLeasing for S {
    fn lease<'a>(&'a self, call: &'a Call, lease: &'a Lease<'a>) -> Answer<'a, Result<Leased, StoreError>> {
        Box::pin(Leasing::lease(self, call, lease))
    }
}

impl<S: PermitStore> DynPermits for S {
    fn permit<'a>(&'a self, call: &'a Call, charge: &'a PermitCharge<'a>) -> Answer<'a, Result<Permits, StoreError>> {
        Box::pin(PermitStore::permit(self, call, charge))
    }
}

impl<S: Bulletin> DynBulletin for S {
    fn publish<'a>(&'a self, call: &'a Call, notice: &'a Notice<'a>) -> Answer<'a, Result<(), StoreError>> {
        Box::pin(Bulletin::publish(self, call, notice))
    }

    fn posted<'a>(&'a self, call: &'a Call, topic: &'a str) -> Answer<'a, Result<Vec<Posted>, StoreError>> {
        Box::pin(Bulletin::posted(self, call, topic))
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        topic: &'a str,
        node: &'a str,
    ) -> Answer<'a, Result<Option<Posting>, StoreError>> {
        Box::pin(Bulletin::read(self, call, topic, node))
    }
}
