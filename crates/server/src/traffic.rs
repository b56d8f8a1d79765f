//! How much comes in, for metrics. Threads do not wait for each other to count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;

use crate::listener::Listener;
use crate::service::Protocol;

/// The statuses that are counted apart; all others are counted together.
const STATUSES: [u16; 11] = [200, 400, 401, 403, 404, 405, 408, 413, 429, 500, 503];

/// Places that threads count in, each its own.
const SHARDS: usize = 16;

/// How much comes in.
#[derive(Debug, Default)]
pub struct Traffic {
    shards: [Shard; SHARDS],
    grpc_errors: AtomicU64,
    unknown_domains: AtomicU64,
    listeners: Mutex<Vec<Watched>>,
}

/// Counters on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    requests: [AtomicU64; 3],
    statuses: [AtomicU64; STATUSES.len() + 1],
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    connections: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

/// The connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    pub(crate) listener: &'static str,
    pub(crate) open: usize,
    pub(crate) refused: usize,
}

impl Traffic {
    /// Counts a request that came in this way.
    pub(crate) fn count(&self, protocol: Protocol) {
        self.count_many(protocol, 1);
    }

    /// Counts several requests that came in this way.
    pub(crate) fn count_many(&self, protocol: Protocol, requests: u64) {
        if let Some(counter) = self.shard().requests.get(protocol as usize) {
            counter.fetch_add(requests, Ordering::Relaxed);
        }
    }

    /// Counts an answer over HTTP.
    pub(crate) fn count_status(&self, status: StatusCode) {
        let number = STATUSES.iter().position(|one| *one == status.as_u16()).unwrap_or(STATUSES.len());
        if let Some(counter) = self.shard().statuses.get(number) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a message of Envoy that was at fault.
    pub(crate) fn count_grpc_error(&self) {
        self.grpc_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that no rules stand under the domain of.
    pub(crate) fn count_unknown_domain(&self) {
        self.unknown_domains.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells of the connections of this listener from now on.
    pub fn watch(&self, listener: &Listener) {
        let (name, connections, refused) = listener.counts();
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Watched { name, connections, refused });
    }

    pub(crate) fn requests(&self, protocol: Protocol) -> u64 {
        self.sum(|shard| shard.requests.get(protocol as usize))
    }

    /// Answers over HTTP by status; those of status 0 are all others.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        let all = STATUSES.iter().copied().chain([0]).enumerate();
        all.map(|(number, status)| (status, self.sum(|shard| shard.statuses.get(number))))
    }

    pub(crate) fn grpc_errors(&self) -> u64 {
        self.grpc_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn unknown_domains(&self) -> u64 {
        self.unknown_domains.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> Vec<Connections> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |watched: &Watched| Connections {
            listener: watched.name,
            open: watched.connections.load(Ordering::Relaxed),
            refused: watched.refused.load(Ordering::Relaxed),
        };
        listeners.iter().map(told).collect()
    }

    fn sum<'a>(&'a self, counter: impl Fn(&'a Shard) -> Option<&'a AtomicU64>) -> u64 {
        let counts = self.shards.iter().filter_map(counter).map(|counter| counter.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    fn shard(&self) -> &Shard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        // The remainder keeps it in bounds.
        &self.shards[NUMBER.with(|number| *number) % SHARDS]
    }
}
