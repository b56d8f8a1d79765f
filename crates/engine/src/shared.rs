//! A store that several processes share.

use tidegate_core::{Charge, Decisions, Key, Limit, Snapshot};
use tidegate_policy::Consistency;
use tidegate_stores::redis::{RedisStore, StoreError, Tagged};

/// A shared store.
#[derive(Debug)]
pub(crate) struct Shared {
    store: RedisStore,
}

/// A charge to a shared store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedCharge<'a> {
    pub(crate) charge: Charge<'a>,
    /// The hash tag that chooses its slot on a Cluster; none if empty.
    pub(crate) tag: &'a [u8],
    pub(crate) consistency: Consistency,
}

impl Shared {
    pub(crate) fn new(store: RedisStore) -> Shared {
        Shared { store }
    }

    pub(crate) async fn charge(&self, charges: &[SharedCharge<'_>]) -> Result<Decisions, StoreError> {
        let tagged: Vec<Tagged<'_>> = charges.iter().map(|one| Tagged { charge: one.charge, tag: one.tag }).collect();
        self.store.charge(&tagged).await
    }

    pub(crate) async fn inspect(&self, key: Key<'_>, tag: &[u8], limit: &Limit) -> Result<Snapshot, StoreError> {
        self.store.inspect(key, tag, limit).await
    }
}
