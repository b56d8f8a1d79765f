//! The counts of each rule. Counts outlive the configuration, and threads do not wait for each other to count.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_policy::Mode;

use crate::bounds::COUNTER_SHARDS_MAX;

/// What is counted of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    Allowed,
    Denied,
    ShadowDenied,
    Failed,
    Overloaded,
    Hits,
    OverLimit,
    NearLimit,
    WithinLimit,
    Shadow,
    Reported,
    /// Requests of one unit that passed and came near no limit, as most do. One addition stands for three: to `Allowed`,
    /// `Hits` and `WithinLimit`.
    PassedOne,
    /// Of a domain rather than of a rule: requests that none of its rules met.
    Unmatched,
}

const COUNTERS: usize = 13;

/// The counts of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that it allowed.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Requests that passed although it would deny them: it is in shadow mode, or the engine is, or another quota was
    /// left.
    pub shadow_denied: u64,
    /// Requests that were decided without its store, because that did not answer.
    pub failed: u64,
    /// Requests that it could not decide because this node was overloaded and its store could not be asked in time.
    pub overloaded: u64,
    /// Units that requests asked for.
    pub hits: u64,
    /// Units asked for beyond the limit.
    pub over_limit: u64,
    /// Units taken when more than four fifths of the limit were used.
    pub near_limit: u64,
    /// Units taken.
    pub within_limit: u64,
    /// Units beyond the limit that passed in shadow.
    pub shadow: u64,
    /// Units counted from responses.
    pub reported: u64,
}

/// The counts of one series of a rule, for values of some entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesCounts {
    /// The values, in the order of the rule's `metric_entries`; `None` for the values beyond the bound, which are
    /// counted together.
    pub values: Option<Vec<Box<str>>>,
    /// The counts.
    pub counts: Counts,
}

/// Counters that a few threads share, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTERS]);

/// Counters that no two busy threads share.
#[derive(Debug)]
pub(crate) struct Sharded(Box<[Shard]>);

impl Sharded {
    pub(crate) fn new() -> Sharded {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(COUNTER_SHARDS_MAX);
        Sharded((0..threads).map(|_| Shard::default()).collect())
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.add_all(&[(counter, amount)]);
    }

    #[inline]
    pub(crate) fn add_all(&self, amounts: &[(Counter, u64)]) {
        let Some(shard) = self.0.get(shard_number() % self.0.len()) else { return };
        // Most requests come near no limit, and to add nothing would lock the line all the same.
        for (counter, amount) in amounts.iter().filter(|(_, amount)| *amount > 0) {
            shard.0[*counter as usize].fetch_add(*amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0[counter as usize].load(Ordering::Relaxed)))
    }

    pub(crate) fn counts(&self) -> Counts {
        let passed_one = self.sum(Counter::PassedOne);
        let with_passed = |counter| self.sum(counter).wrapping_add(passed_one);
        Counts {
            allowed: with_passed(Counter::Allowed),
            denied: self.sum(Counter::Denied),
            shadow_denied: self.sum(Counter::ShadowDenied),
            failed: self.sum(Counter::Failed),
            overloaded: self.sum(Counter::Overloaded),
            hits: with_passed(Counter::Hits),
            over_limit: self.sum(Counter::OverLimit),
            near_limit: self.sum(Counter::NearLimit),
            within_limit: with_passed(Counter::WithinLimit),
            shadow: self.sum(Counter::Shadow),
            reported: self.sum(Counter::Reported),
        }
    }
}

/// A number for each thread, in the order in which they first count.
pub(crate) fn shard_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// What is remembered of a rule for as long as the process runs.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) all: Sharded,
    /// A mode that was set while it runs, as a number; 0 for the configuration's own.
    mode: AtomicU8,
    series: Mutex<HashMap<Option<Vec<Box<str>>>, Sharded>>,
}

impl Record {
    pub(crate) fn new() -> Record {
        Record { all: Sharded::new(), mode: AtomicU8::new(0), series: Mutex::default() }
    }

    /// The mode that counts, given that of the configuration.
    pub(crate) fn mode(&self, configured: Mode) -> Mode {
        self.mode_set().unwrap_or(configured)
    }

    /// The mode that was set while it runs.
    pub(crate) fn mode_set(&self) -> Option<Mode> {
        match self.mode.load(Ordering::Relaxed) {
            1 => Some(Mode::Enforce),
            2 => Some(Mode::Shadow),
            3 => Some(Mode::Off),
            _ => None,
        }
    }

    /// Sets the mode; none goes back to that of the configuration.
    pub(crate) fn set_mode(&self, mode: Option<Mode>) {
        let number = match mode {
            None => 0,
            Some(Mode::Enforce) => 1,
            Some(Mode::Shadow) => 2,
            Some(Mode::Off) => 3,
        };
        self.mode.store(number, Ordering::Relaxed);
    }

    /// Adds to the series of these values, or to the one of all others if there are none; `room` says whether one more
    /// series may be kept.
    pub(crate) fn add_to_series(
        &self,
        values: Option<Vec<Box<str>>>,
        room: impl FnOnce() -> bool,
        amounts: &[(Counter, u64)],
    ) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if values.is_none() || series.contains_key(&values) || room() { values } else { None };
        series.entry(key).or_insert_with(Sharded::new).add_all(amounts);
    }

    /// Forgets the series of values. Tells how many there were.
    pub(crate) fn forget_series(&self) -> usize {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.drain().filter(|(values, _)| values.is_some()).count()
    }

    pub(crate) fn series(&self) -> Vec<SeriesCounts> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(values, counters): (&Option<Vec<Box<str>>>, &Sharded)| SeriesCounts {
            values: values.clone(),
            counts: counters.counts(),
        };
        let mut all: Vec<SeriesCounts> = series.iter().map(told).collect();
        all.sort_by(|left, right| left.values.cmp(&right.values));
        all
    }
}
