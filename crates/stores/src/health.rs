//! What a store reports about itself: states and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Whether calls are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Breaker {
    /// They are.
    Closed,
    /// They are not, and a probe is under way.
    Probing,
    /// They are not, or there is no connection.
    Open,
}

impl Breaker {
    /// Returns its number in the metrics: the higher, the worse.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Breaker::Closed => 0,
            Breaker::Probing => 1,
            Breaker::Open => 2,
        }
    }
}

/// The state of a store and its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The store, without its password.
    pub store: Arc<str>,
    /// The worst of the nodes.
    pub breaker: Breaker,
    /// Each node that is known.
    pub nodes: Vec<NodeHealth>,
    /// What happened since the store was opened.
    pub totals: Totals,
    /// How long calls took that were sent.
    pub times: CallTimes,
    /// How long calls waited in this node for their turn, also those that were given up before it came.
    pub waits: CallTimes,
}

impl Health {
    /// That of a store without connections: there is nothing to report but its name.
    #[must_use]
    pub fn of(store: &str) -> Health {
        let (nodes, totals, times) = (Vec::new(), Totals::default(), CallTimes::default());
        Health { store: store.into(), breaker: Breaker::Closed, nodes, totals, times, waits: times }
    }
}

/// How long calls took, from the caller's question to the answer, or to the end of the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTimes {
    /// Calls that took no longer than each of [`CALL_TIME_BOUNDS`], and all of them.
    pub within: [u64; CALL_TIME_BOUNDS.len() + 1],
    /// What all of them took together, in nanoseconds.
    pub nanos: u64,
}

/// The bounds of times that are counted apart, in nanoseconds: from what a Redis nearby takes up to the longest budget.
pub const CALL_TIME_BOUNDS: [u64; 17] = {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000_000;
    [
        50 * MICRO,
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        1_000 * MILLI,
        2_500 * MILLI,
        5_000 * MILLI,
        10_000 * MILLI,
    ]
};

/// Counts how long calls take.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    /// Calls within each bound and above the one before; the last are above all of them.
    between: [AtomicU64; CALL_TIME_BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Stopwatch {
    pub(crate) fn count(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let number = CALL_TIME_BOUNDS.partition_point(|bound| *bound < nanos);
        if let Some(counter) = self.between.get(number) {
            counter.fetch_add(1, Relaxed);
            self.nanos.fetch_add(nanos, Relaxed);
        }
    }

    pub(crate) fn times(&self) -> CallTimes {
        let mut so_far = 0_u64;
        let within = self.between.each_ref().map(|counter| {
            so_far = so_far.wrapping_add(counter.load(Relaxed));
            so_far
        });
        CallTimes { within, nanos: self.nanos.load(Relaxed) }
    }
}

/// How a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Its address, or what the Sentinels call it.
    pub name: String,
    /// Whether calls are sent to it.
    pub breaker: Breaker,
    /// Connections that are up.
    pub connections: usize,
}

impl NodeHealth {
    /// Returns the health of a node of this name.
    #[must_use]
    pub fn new(name: String, breaker: Breaker, connections: usize) -> NodeHealth {
        NodeHealth { name, breaker, connections }
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the store was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn totals(&self) -> Totals {
                Totals { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Calls that were answered.
    answered,
    /// Calls that were answered with an equal one before them, without a command of their own.
    joined,
    /// Calls that were not applied.
    not_sent,
    /// Calls that did not get their turn in this node in time, and were not applied.
    overloaded,
    /// Calls that may have been applied.
    unknown,
    /// Calls that the server answered with an error.
    refused,
    /// Scripts that a server had forgotten and was told again.
    reloaded,
    /// Redirections to another node.
    redirected,
    /// Calls that were sent again because the server was not ready for them.
    retried,
    /// Connections made.
    connected,
    /// Connections lost.
    lost,
    /// Times that a breaker opened.
    opened,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_their_bounds() {
        let watch = Stopwatch::default();
        for micros in [0, 50, 51, 10_000_000, 10_000_001] {
            watch.count(Duration::from_micros(micros));
        }
        let CallTimes { within, nanos } = watch.times();
        assert_eq!((within[0], within[1], within[15], within[16], within[17]), (2, 3, 3, 4, 5));
        assert_eq!(nanos, 20_000_102_000);
        assert!(CALL_TIME_BOUNDS.is_sorted());
    }
}
