//! How much comes in, and how long answers take, for metrics. Threads do not wait for each other to count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;

use crate::bounds::TRAFFIC_SHARDS;
use crate::listener::{Counts, Listener};
use crate::protocol::{PerProtocol, Protocol};
use crate::tls::Tls;

/// The statuses that are counted apart; all others are counted together.
const STATUSES: [u16; 13] = [200, 201, 204, 400, 401, 403, 404, 405, 408, 413, 429, 500, 503];

/// The bounds of times that are counted apart, in nanoseconds: finer than those of the reference server below 5 ms, where
/// nearly all answers are, and the same from there on, so that what is asked of those can be asked here.
pub(crate) const TIME_BOUNDS: [u64; 19] = {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000_000;
    [
        5 * MICRO,
        10 * MICRO,
        25 * MICRO,
        50 * MICRO,
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
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

/// How much comes in.
#[derive(Debug, Default)]
pub struct Traffic {
    shards: [Shard; TRAFFIC_SHARDS],
    unknown_domains: AtomicU64,
    listeners: Mutex<Vec<Counts>>,
}

/// Counters on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(PerProtocol<FrontEnd>);

/// What is counted of each front end.
#[derive(Debug, Default)]
struct FrontEnd {
    requests: AtomicU64,
    times: Times,
    /// Answers by their HTTP status, where they have one.
    statuses: [AtomicU64; STATUSES.len() + 1],
    /// Messages that were at fault, where an answer has no status that says so.
    errors: AtomicU64,
}

/// How long answers took.
#[derive(Debug, Default)]
struct Times {
    /// Answers within each bound and above the one before; the last are above all of them.
    within: [AtomicU64; TIME_BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// How long the answers of a protocol took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimesTold {
    /// Answers that took no longer than each of [`TIME_BOUNDS`], and all of them.
    pub(crate) within: [u64; TIME_BOUNDS.len() + 1],
    /// What all of them took together.
    pub(crate) nanos: u64,
}

/// The connections of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pub(crate) listener: &'static str,
    pub(crate) open: usize,
    pub(crate) refused: usize,
    pub(crate) evicted: usize,
    /// What encrypts them, if anything does.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) tls_failures: u64,
}

impl Traffic {
    /// Counts a request that came in this way.
    pub(crate) fn count(&self, protocol: Protocol) {
        self.count_many(protocol, 1);
    }

    /// Counts several requests that came in this way.
    pub(crate) fn count_many(&self, protocol: Protocol, requests: u64) {
        self.front_end(protocol).requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// Counts so many answers that were made together in this time.
    pub(crate) fn count_time(&self, protocol: Protocol, answers: u64, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let number = TIME_BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(TIME_BOUNDS.len());
        let times = &self.front_end(protocol).times;
        if let Some(counter) = times.within.get(number) {
            counter.fetch_add(answers, Ordering::Relaxed);
            times.nanos.fetch_add(nanos.wrapping_mul(answers), Ordering::Relaxed);
        }
    }

    /// Counts an answer with an HTTP status.
    pub(crate) fn count_status(&self, protocol: Protocol, status: StatusCode) {
        let number = STATUSES.iter().position(|one| *one == status.as_u16()).unwrap_or(STATUSES.len());
        if let Some(counter) = self.front_end(protocol).statuses.get(number) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a message that was at fault.
    pub(crate) fn count_error(&self, protocol: Protocol) {
        self.front_end(protocol).errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that no rules stand under the domain of.
    pub(crate) fn count_unknown_domain(&self) {
        self.unknown_domains.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells of the connections of this listener from now on.
    pub fn watch(&self, listener: &Listener) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener.counts());
    }

    pub(crate) fn requests(&self, protocol: Protocol) -> u64 {
        self.sum(protocol, |counted| Some(&counted.requests))
    }

    pub(crate) fn times(&self, protocol: Protocol) -> TimesTold {
        let mut so_far = 0_u64;
        let within = std::array::from_fn(|number| {
            so_far = so_far.wrapping_add(self.sum(protocol, |counted| counted.times.within.get(number)));
            so_far
        });
        TimesTold { within, nanos: self.sum(protocol, |counted| Some(&counted.times.nanos)) }
    }

    /// Answers by HTTP status; those of status 0 are all others.
    pub(crate) fn statuses(&self, protocol: Protocol) -> impl Iterator<Item = (u16, u64)> {
        let all = STATUSES.iter().copied().chain([0]).enumerate();
        all.map(move |(number, status)| (status, self.sum(protocol, |counted| counted.statuses.get(number))))
    }

    pub(crate) fn errors(&self, protocol: Protocol) -> u64 {
        self.sum(protocol, |counted| Some(&counted.errors))
    }

    pub(crate) fn unknown_domains(&self) -> u64 {
        self.unknown_domains.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> Vec<Connections> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |counts: &Counts| Connections {
            listener: counts.listener,
            open: counts.seats.open.load(Ordering::Relaxed),
            refused: counts.seats.refused.load(Ordering::Relaxed),
            evicted: counts.seats.evicted.load(Ordering::Relaxed),
            tls: counts.tls.clone(),
            tls_failures: counts.tls_failures.total(),
        };
        listeners.iter().map(told).collect()
    }

    fn sum<'a>(&'a self, protocol: Protocol, counter: impl Fn(&'a FrontEnd) -> Option<&'a AtomicU64>) -> u64 {
        let counters = self.shards.iter().filter_map(|shard| counter(&shard.0[protocol]));
        let counts = counters.map(|counter| counter.load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// The counters of a front end that this thread adds to.
    fn front_end(&self, protocol: Protocol) -> &FrontEnd {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed) % TRAFFIC_SHARDS;
        }
        // The remainder keeps it in bounds.
        &self.shards[NUMBER.with(|number| *number) % TRAFFIC_SHARDS].0[protocol]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_their_bounds() {
        let traffic = Traffic::default();
        let time = |nanos, answers| traffic.count_time(Protocol::Grpc, answers, Duration::from_nanos(nanos));
        time(0, 1);
        time(5_000, 2);
        time(5_001, 3);
        time(10_000_000_000, 4);
        time(10_000_000_001, 5);
        let TimesTold { within, nanos } = traffic.times(Protocol::Grpc);
        assert_eq!((within[0], within[1], within[17], within[18], within[19]), (3, 6, 6, 10, 15));
        assert_eq!(nanos, 2 * 5_000 + 3 * 5_001 + 40_000_000_000 + 50_000_000_005);
        assert_eq!(traffic.times(Protocol::Http).within, [0; 20]);
        assert!(TIME_BOUNDS.is_sorted());
    }
}
