//! Any store, dispatched statically.

use futures_util::future::Either;
use tidegate_core::{Charge, Decisions, Permits, Snapshot};

use crate::redis::RedisStore;
use crate::{
    Bulletin, Call, Health, Lease, Leased, Leasing, Memory, Nature, Notice, Other, PermitCharge, PermitStore, Posted,
    Posting, Store, StoreError,
};

/// Any store. New kinds are added here and nowhere else: callers ask for its [`Nature`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// The memory of this process.
    Memory(Memory),
    /// Redis or Valkey.
    Redis(RedisStore),
    /// A store of a user or a test.
    Other(Other),
}

impl AnyStore {
    /// Returns the memory of this process, which decides without a future, or `None` for another store.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> Option<&Memory> {
        match self {
            AnyStore::Memory(store) => Some(store),
            AnyStore::Redis(_) | AnyStore::Other(_) => None,
        }
    }

    /// Returns whether units can be leased from it.
    #[must_use]
    pub fn can_lease(&self) -> bool {
        match self {
            AnyStore::Memory(_) => false,
            AnyStore::Redis(_) => true,
            AnyStore::Other(store) => store.can_lease(),
        }
    }

    /// Returns whether it keeps permits.
    #[must_use]
    pub fn keeps_permits(&self) -> bool {
        match self {
            AnyStore::Memory(_) | AnyStore::Redis(_) => true,
            AnyStore::Other(store) => store.keeps_permits(),
        }
    }

    /// Takes units in advance.
    ///
    /// # Errors
    /// Fails if the store does not answer, or does not support leases.
    pub async fn lease(&self, call: &Call, lease: &Lease<'_>) -> Result<Leased, StoreError> {
        match self {
            AnyStore::Memory(_) => {
                Err(StoreError::Unsupported { store: self.health().store, what: "it does not support leases" })
            }
            AnyStore::Redis(store) => store.lease(call, lease).await,
            AnyStore::Other(store) => store.lease(call, lease).await,
        }
    }

    /// Acquires, renews or releases a permit.
    ///
    /// # Errors
    /// Fails if the store does not answer, or does not support permits.
    pub async fn permit(&self, call: &Call, charge: &PermitCharge<'_>) -> Result<Permits, StoreError> {
        match self {
            AnyStore::Memory(store) => store.permit(call, charge).await,
            AnyStore::Redis(store) => store.permit(call, charge).await,
            AnyStore::Other(store) => store.permit(call, charge).await,
        }
    }

    /// Whether nodes can publish notices in it.
    #[must_use]
    pub fn has_bulletin(&self) -> bool {
        match self {
            AnyStore::Memory(_) => false,
            AnyStore::Redis(_) => true,
            AnyStore::Other(store) => store.has_bulletin(),
        }
    }

    /// Publishes a notice in place of the one that the node had under its topic.
    ///
    /// # Errors
    /// If the store does not answer, keeps no notices, or the notice is too long.
    pub async fn publish(&self, call: &Call, notice: &Notice<'_>) -> Result<(), StoreError> {
        match self {
            AnyStore::Memory(_) => Err(self.without_bulletin()),
            AnyStore::Redis(store) => store.publish(call, notice).await,
            AnyStore::Other(store) => store.publish(call, notice).await,
        }
    }

    /// Returns which nodes have a notice under a topic.
    ///
    /// # Errors
    /// If the store does not answer, or keeps no notices.
    pub async fn posted(&self, call: &Call, topic: &str) -> Result<Vec<Posted>, StoreError> {
        match self {
            AnyStore::Memory(_) => Err(self.without_bulletin()),
            AnyStore::Redis(store) => store.posted(call, topic).await,
            AnyStore::Other(store) => store.posted(call, topic).await,
        }
    }

    /// Reads the notice of a node under a topic; `None` if it has none.
    ///
    /// # Errors
    /// If the store does not answer, or keeps no notices.
    pub async fn read(&self, call: &Call, topic: &str, node: &str) -> Result<Option<Posting>, StoreError> {
        match self {
            AnyStore::Memory(_) => Err(self.without_bulletin()),
            AnyStore::Redis(store) => store.read(call, topic, node).await,
            AnyStore::Other(store) => store.read(call, topic, node).await,
        }
    }

    fn without_bulletin(&self) -> StoreError {
        StoreError::Unsupported { store: self.health().store, what: crate::other::NO_BULLETIN }
    }
}

impl Store for AnyStore {
    fn charge(
        &self,
        call: &Call,
        charges: &[Charge<'_>],
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send {
        match self {
            AnyStore::Memory(store) => Either::Left(Either::Left(store.charge(call, charges))),
            AnyStore::Redis(store) => Either::Right(store.charge(call, charges)),
            AnyStore::Other(store) => {
                Either::Left(Either::Right(async move { store.store.charge(call, charges).await }))
            }
        }
    }

    async fn inspect(&self, call: &Call, charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        match self {
            AnyStore::Memory(store) => store.inspect(call, charge).await,
            AnyStore::Redis(store) => store.inspect(call, charge).await,
            AnyStore::Other(store) => store.store.inspect(call, charge).await,
        }
    }

    fn nature(&self) -> Nature {
        match self {
            AnyStore::Memory(store) => store.nature(),
            AnyStore::Redis(store) => store.nature(),
            AnyStore::Other(store) => store.store.nature(),
        }
    }

    fn health(&self) -> Health {
        match self {
            AnyStore::Memory(store) => store.health(),
            AnyStore::Redis(store) => store.health(),
            AnyStore::Other(store) => store.store.health(),
        }
    }

    async fn close(&self) {
        match self {
            AnyStore::Memory(store) => store.close().await,
            AnyStore::Redis(store) => store.close().await,
            AnyStore::Other(store) => store.store.close().await,
        }
    }
}

impl From<Memory> for AnyStore {
    fn from(store: Memory) -> AnyStore {
        AnyStore::Memory(store)
    }
}

impl From<RedisStore> for AnyStore {
    fn from(store: RedisStore) -> AnyStore {
        AnyStore::Redis(store)
    }
}

impl From<Other> for AnyStore {
    fn from(store: Other) -> AnyStore {
        AnyStore::Other(store)
    }
}
