//! The memory of this process as a store, which never awaits.

use std::sync::Arc;

use tidegate_core::{Charge, Clock, Decisions, LeasedSemaphore, MemoryStore, Permits, Snapshot};

use crate::{Call, Health, Nature, PermitCharge, PermitStore, Store, StoreError};

/// The memory of this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    states: Arc<MemoryStore>,
    permits: LeasedSemaphore,
}

impl Memory {
    /// Creates a store from a memory store of states, with permits beside them.
    #[must_use]
    pub fn new(states: MemoryStore) -> Memory {
        let clock: Clock = states.clock().clone();
        Memory { states: Arc::new(states), permits: LeasedSemaphore::new(clock) }
    }

    /// Returns the states, to decide without a future.
    #[inline]
    #[must_use]
    pub fn states(&self) -> &Arc<MemoryStore> {
        &self.states
    }

    /// Returns the permits.
    #[must_use]
    pub fn permits(&self) -> &LeasedSemaphore {
        &self.permits
    }
}

impl Store for Memory {
    async fn charge(&self, _call: &Call, charges: &[Charge<'_>]) -> Result<Decisions, StoreError> {
        Ok(self.states.charge(charges)?)
    }

    async fn inspect(&self, _call: &Call, charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        Ok(self.states.inspect_in(charge.namespace, charge.key, charge.limit))
    }

    fn nature(&self) -> Nature {
        Nature::MEMORY
    }

    fn health(&self) -> Health {
        Health::of("memory")
    }

    async fn close(&self) {}
}

impl PermitStore for Memory {
    async fn permit(&self, _call: &Call, charge: &PermitCharge<'_>) -> Result<Permits, StoreError> {
        Ok(self.permits.decide(charge.namespace, charge.key, charge.permit, charge.op)?)
    }
}
