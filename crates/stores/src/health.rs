//! The health of a store: its states and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Breaker {
    /// Calls are sent.
    Closed,
    /// Calls are not sent, and a probe is in progress.
    Probing,
    /// Calls are not sent, or there is no connection.
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
    /// The name of the store, without its password.
    pub store: Arc<str>,
    /// The worst state of its nodes.
    pub breaker: Breaker,
    /// The nodes that are known.
    pub nodes: Vec<NodeHealth>,
    /// Counts since the store was opened.
    pub totals: Totals,
    /// The durations of calls that were sent.
    pub times: CallTimes,
    /// How long calls waited in this node for their turn, including calls that were given up before it.
    pub waits: CallTimes,
}

impl Health {
    /// Returns the health of a store without connections, which has only a name.
    #[must_use]
    pub fn of(store: &str) -> Health {
        let (nodes, totals, times) = (Vec::new(), Totals::default(), CallTimes::default());
        Health { store: store.into(), breaker: Breaker::Closed, nodes, totals, times, waits: times }
    }
}

/// A histogram of durations, from the caller's call to the answer, or to the end of the time budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTimes {
    /// Calls that took no longer than each of [`CALL_TIME_BOUNDS`], and last the number of all calls.
    pub within: [u64; CALL_TIME_BOUNDS.len() + 1],
    /// The sum of all durations, in nanoseconds.
    pub nanos: u64,
}

/// The bounds of the histogram in nanoseconds: from the time of a Redis nearby up to the longest time budget.
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

/// Counts the durations of calls.
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

/// The health of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Its address, or its name in the Sentinels.
    pub name: String,
    /// The state of its circuit breaker.
    pub breaker: Breaker,
    /// The number of open connections.
    pub connections: usize,
}

impl NodeHealth {
    /// Creates the health of a node.
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
    /// Calls that were answered by the command of an equal call before them.
    joined,
    /// Calls that were not applied.
    not_sent,
    /// Calls that did not get their turn in this node in time, and were not applied.
    overloaded,
    /// Calls that may have been applied.
    unknown,
    /// Calls that the server answered with an error.
    refused,
    /// Scripts that were loaded again because a server had forgotten them.
    reloaded,
    /// Redirections to another node.
    redirected,
    /// Calls that were retried because the server was not ready for them.
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
