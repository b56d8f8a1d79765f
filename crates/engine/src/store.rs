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

/// The stores of the policy in force, by name. A store outlives the policies that name it, so that what was counted stays
/// counted; one that the next policy does not name is let go, and its memory with the last request that still asks it.
#[derive(Debug)]
pub(crate) struct Stores {
    clock: Clock,
    by_name: Mutex<HashMap<Box<str>, Made>>,
}

/// What became of the stores of a policy.
pub(crate) struct Found {
    /// In the order of the policy.
    pub(crate) stores: Vec<Arc<MemoryStore>>,
    /// Those that would have to be made anew to be as the policy says.
    pub(crate) unchanged: Vec<Box<str>>,
}

impl Stores {
    /// The first store alone, which every policy names.
    pub(crate) fn new(clock: Clock, first: &StoreSpec) -> Result<(Stores, Arc<MemoryStore>), CapacityError> {
        let store = Arc::new(build(first, &clock)?);
        let made = (first.clone(), Arc::clone(&store));
        Ok((Stores { clock, by_name: Mutex::new(HashMap::from([(first.name.clone(), made)])) }, store))
    }

    /// The stores of a policy, those made that are not there yet; all others are let go. If one cannot be made, all stay
    /// as they were.
    pub(crate) fn install(&self, specs: &[StoreSpec]) -> Result<Found, CapacityError> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Found { stores: Vec::with_capacity(specs.len()), unchanged: Vec::new() };
        let mut named = HashMap::with_capacity(specs.len());
        for spec in specs {
            let (made_as, store) = match by_name.get(&spec.name) {
                Some((made_as, store)) => (made_as.clone(), Arc::clone(store)),
                None => (spec.clone(), Arc::new(build(spec, &self.clock)?)),
            };
            if made_as != *spec {
                found.unchanged.push(spec.name.clone());
            }
            found.stores.push(Arc::clone(&store));
            named.insert(spec.name.clone(), (made_as, store));
        }
        *by_name = named;
        Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;

    fn spec(name: &str, keys: usize) -> StoreSpec {
        StoreSpec { name: name.into(), url: None, keys: Some(keys), log_entries: None }
    }

    #[test]
    fn stores_that_are_no_longer_named_are_freed() {
        let (stores, _) = Stores::new(Clock::system(), &spec("default", 100)).unwrap();
        let install = |names: &[&str]| {
            let specs: Vec<StoreSpec> = names.iter().map(|name| spec(name, 100)).collect();
            stores.install(&specs).unwrap().stores
        };
        let first = install(&["default", "sessions"]);
        let [kept, dropped]: [Weak<MemoryStore>; 2] = [0, 1].map(|number| Arc::downgrade(&first[number]));
        let second = install(&["default", "visits"]);
        assert!(dropped.strong_count() == 1, "a request of the first policy still asks it");
        drop(first);
        assert!(dropped.upgrade().is_none(), "now nobody does");
        assert!(kept.upgrade().is_some_and(|kept| Arc::ptr_eq(&kept, &second[0])), "its name stayed");
        let third = install(&["default", "sessions"]);
        assert!(!Weak::ptr_eq(&dropped, &Arc::downgrade(&third[1])), "the same name again is a new store");
    }

    #[test]
    fn a_store_that_cannot_be_made_changes_nothing() {
        let (stores, default) = Stores::new(Clock::system(), &spec("default", 100)).unwrap();
        let before = stores.install(&[spec("default", 100), spec("sessions", 100)]).unwrap().stores;
        assert!(stores.install(&[spec("default", 100), spec("vast", usize::MAX)]).is_err());
        let after = stores.install(&[spec("default", 200), spec("sessions", 100)]).unwrap();
        assert!(before.iter().zip(&after.stores).all(|(before, after)| Arc::ptr_eq(before, after)));
        assert!(Arc::ptr_eq(&default, &after.stores[0]));
        assert_eq!(after.unchanged, ["default".into()]);
    }
}
