//! Decisions in this process instead of a store that does not answer.

use tidegate_core::{Charge, Decision, Limit, MemoryStore};
use tidegate_policy::{Local, Share};

use crate::failure::guarded;
use crate::store::{Applied, Backend, StoreError};

/// The source of decisions instead of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
    /// This share of the limit, continued from the last state that the store reported.
    LastState(Share),
    /// The memory of this process, under this limit.
    Memory(Limit),
}

impl Instead {
    /// What a rule chose for a charge to this store. The memory of this process reports no states, and goes on by itself.
    pub(crate) fn of(backend: &Backend, choice: Local, limit: &Limit) -> Instead {
        match (choice, backend.asked()) {
            (Local::Limit(own), _) => Instead::Memory(own),
            (Local::Share(share), Some(_)) => Instead::LastState(share),
            _ => Instead::Memory(*limit),
        }
    }

    /// Decides a charge. What is known of the charge in the store says whether what is admitted is owed to it.
    pub(crate) fn decide(
        self,
        backend: &Backend,
        local: &MemoryStore,
        charge: &Charge<'_>,
        applied: Applied,
    ) -> Result<Decision, StoreError> {
        match (self, backend.asked()) {
            (Instead::LastState(share), Some(asked)) => guarded(|| asked.go_on(charge, share, applied)),
            (Instead::LastState(_), None) => decide_in(local, charge, charge.limit),
            (Instead::Memory(limit), _) => decide_in(local, charge, &limit),
        }
    }
}

fn decide_in(local: &MemoryStore, charge: &Charge<'_>, limit: &Limit) -> Result<Decision, StoreError> {
    guarded(|| local.decide_in(charge.namespace, charge.key, limit, charge.op))
}
