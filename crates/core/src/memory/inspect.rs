//! The details of a key, for operators.

use std::ops::ControlFlow;

use super::MemoryStore;
use super::pool::PooledLog;
use crate::algorithm::log::Entries;
use crate::limit::Shape;
use crate::{Decision, Key, Limit, Namespace, Op, Time};

/// The details of a key under a limit.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The decision of a peek.
    pub decision: Decision,
    /// The charges in a log, oldest first; empty under other algorithms.
    pub entries: Vec<Spent>,
}

/// Units that were taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The instant; under a sliced window the start of that slice.
    pub at: Time,
    /// The number of units.
    pub units: u64,
}

impl MemoryStore {
    /// Returns the details of a key of [`Namespace::root`], with the entries of its log if the limit keeps one.
    #[must_use]
    pub fn inspect(&self, key: Key<'_>, limit: &Limit) -> Snapshot {
        self.inspect_in(Namespace::root(), key, limit)
    }

    /// Returns the details of a key of a namespace, with the entries of its log if the limit keeps one.
    #[must_use]
    pub fn inspect_in(&self, namespace: &Namespace, key: Key<'_>, limit: &Limit) -> Snapshot {
        let plain = || Snapshot { decision: self.decide_in(namespace, key, limit, Op::Peek), entries: Vec::new() };
        let Shape::Log(log) = limit.shape() else { return plain() };
        // Made before the key is held: those who charge it wait meanwhile.
        let mut entries = Vec::with_capacity(usize::try_from(limit.log_entries_max()).unwrap_or(0));
        let Some(held) = self.logs.lock(self.seeds.fingerprint(namespace, limit, key)) else { return plain() };
        let now = self.clock.now();
        let chain = PooledLog { log, pool: &self.pool }.chain(held.state());
        let decision = log.foresee(&chain, now, Op::Peek, 0);
        chain.visit(|entry| {
            if entry.units > 0 && entry.out_at > now.as_nanos() {
                let at = Time::from_nanos(entry.out_at.saturating_sub(log.lifetime()));
                entries.push(Spent { at, units: entry.units });
            }
            ControlFlow::Continue(())
        });
        drop(held);
        Snapshot { decision, entries }
    }
}
