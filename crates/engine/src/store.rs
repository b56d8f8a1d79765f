//! Where counts live: one memory store for each store of the configuration.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::{CapacityError, Charge, ChargeError, Clock, Decisions, MemoryStore};
use tidegate_policy::StoreSpec;

use crate::failure::guarded;

/// A store that charges are put to.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Memory(Arc<MemoryStore>),
    /// Stands for a store that does not answer.
    #[cfg(test)]
    Unreachable,
}

/// A store did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store does not answer")]
pub struct StoreError;

/// Why charges were not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeFailure {
    /// They cannot be, whatever the store.
    Refused(ChargeError),
    /// The store did not answer.
    Store(StoreError),
}

impl Backend {
    pub(crate) fn charge(&self, charges: &[Charge<'_>]) -> Result<Decisions, ChargeFailure> {
        match self {
            Backend::Memory(store) => {
                guarded(|| store.charge(charges)).map_err(ChargeFailure::Store)?.map_err(ChargeFailure::Refused)
            }
            #[cfg(test)]
            Backend::Unreachable => Err(ChargeFailure::Store(StoreError)),
        }
    }
}

/// A store, and what it was made by.
type Made = (StoreSpec, Arc<MemoryStore>);

/// All stores by name. They outlive the configuration that named them: what was counted stays counted.
#[derive(Debug)]
pub(crate) struct Stores {
    clock: Clock,
    by_name: Mutex<HashMap<Box<str>, Made>>,
}

impl Stores {
    pub(crate) fn new(clock: Clock) -> Stores {
        Stores { clock, by_name: Mutex::default() }
    }

    /// The store of a configuration, made if there is none of that name yet; and whether it would have to be made anew
    /// to be as the configuration says.
    pub(crate) fn get(&self, spec: &StoreSpec) -> Result<(Arc<MemoryStore>, bool), CapacityError> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_as, store)) = by_name.get(&spec.name) {
            return Ok((Arc::clone(store), made_as != spec));
        }
        let store = Arc::new(build(spec, &self.clock)?);
        by_name.insert(spec.name.clone(), (spec.clone(), Arc::clone(&store)));
        Ok((store, false))
    }
}

fn build(spec: &StoreSpec, clock: &Clock) -> Result<MemoryStore, CapacityError> {
    let mut builder = MemoryStore::builder().clock(clock.clone());
    if let Some(keys) = spec.keys {
        builder = builder.keys(keys);
    }
    if let Some(entries) = spec.log_entries {
        builder = builder.log_entries(entries);
    }
    builder.build()
}
