//! One limit, many keys.

use std::sync::Arc;

use crate::bounds::{BLOCK_ENTRIES, KEYS_DEFAULT, LOG_ENTRIES_MAX, WHOLE_LOGS_ENTRIES_MAX};
use crate::memory::{CapacityError, MemoryStoreBuilder};
use crate::{Clock, Decision, Key, Limit, MemoryStore, Op, Receipt};

/// One limit for many keys. Clones share their state.
///
/// ```
/// use tidegate::{Key, Limit, Limiter};
///
/// let limiter = Limiter::new("100/minute".parse::<Limit>()?)?;
/// let decision = limiter.check(Key::new("user:42")?);
/// assert!(decision.is_allowed());
/// assert_eq!(decision.remaining(), 99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    store: Arc<MemoryStore>,
    limit: Limit,
}

impl Limiter {
    /// A limiter with room for 100,000 keys; see [`Limiter::builder`] for more.
    ///
    /// # Errors
    /// If the system has no memory for it.
    pub fn new(limit: Limit) -> Result<Limiter, CapacityError> {
        Limiter::builder(limit).build()
    }

    /// A limiter to be sized, or with a clock of its own.
    pub fn builder(limit: Limit) -> LimiterBuilder {
        LimiterBuilder { limit, keys: KEYS_DEFAULT, log_entries: None, store: MemoryStore::builder() }
    }

    /// One of several limiters over one store. Limiters with the same algorithm and window length there count the same
    /// keys together: give the keys of different purposes different prefixes.
    #[must_use]
    pub fn on(store: Arc<MemoryStore>, limit: Limit) -> Limiter {
        Limiter { store, limit }
    }

    /// Takes one unit if it fits.
    #[inline]
    pub fn check(&self, key: Key<'_>) -> Decision {
        self.store.decide(key, &self.limit, Op::Take(1))
    }

    /// Takes `units` if they all fit; 0 looks only.
    #[inline]
    pub fn check_n(&self, key: Key<'_>, units: u64) -> Decision {
        self.store.decide(key, &self.limit, Op::Take(units))
    }

    /// Takes one unit for each key, at one instant, and appends the answers to `decisions` in order.
    pub fn check_batch(&self, keys: &[Key<'_>], decisions: &mut Vec<Decision>) {
        self.store.decide_batch(keys, &self.limit, Op::Take(1), decisions);
    }

    /// Counts units that were used already, whether they fit or not.
    pub fn debit(&self, key: Key<'_>, units: u64) -> Decision {
        self.store.decide(key, &self.limit, Op::Debit(units))
    }

    /// Looks at a key and changes nothing.
    pub fn peek(&self, key: Key<'_>) -> Decision {
        self.store.decide(key, &self.limit, Op::Peek)
    }

    /// Gives back units that were taken and not used. It has no effect once they would have come back by themselves.
    /// Without a receipt it takes the oldest units of a log, or those of the current window.
    pub fn refund(&self, key: Key<'_>, units: u64, receipt: Option<Receipt>) -> Decision {
        self.store.decide(key, &self.limit, Op::Refund(units, receipt))
    }

    /// Forgets a key.
    pub fn reset(&self, key: Key<'_>) -> Decision {
        self.store.decide(key, &self.limit, Op::Reset)
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The same keys under another limit from now on. With the same algorithm and window length, what they used
    /// already still counts.
    #[must_use]
    pub fn with_limit(&self, limit: Limit) -> Limiter {
        Limiter { store: Arc::clone(&self.store), limit }
    }

    /// The store behind the limiter, for limits that differ from call to call and for charging several at once.
    #[must_use]
    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }
}

/// Sizes a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimiterBuilder {
    limit: Limit,
    keys: usize,
    log_entries: Option<usize>,
    store: MemoryStoreBuilder,
}

impl LimiterBuilder {
    /// How many keys find an exact place.
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// How many entries all logs together can keep. If not said: enough for every key's whole log up to a million
    /// entries, and seven a key beyond.
    pub fn log_entries(mut self, entries: usize) -> Self {
        self.log_entries = Some(entries);
        self
    }

    /// Where time comes from.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.store = self.store.clock(clock);
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    /// If the capacity is zero or too large, or the system has no memory for it.
    pub fn build(self) -> Result<Limiter, CapacityError> {
        let whole_log = usize::try_from(self.limit.log_entries_max()).unwrap_or(usize::MAX);
        let entries = self.log_entries.unwrap_or_else(|| {
            let whole_logs = self.keys.saturating_mul(whole_log).min(WHOLE_LOGS_ENTRIES_MAX);
            // Two blocks more, since the oldest block of a log may be used up but not yet given back.
            whole_logs
                .max(self.keys.saturating_mul(BLOCK_ENTRIES))
                .saturating_add(2 * BLOCK_ENTRIES)
                .min(LOG_ENTRIES_MAX)
        });
        let store = self.store.keys(self.keys).log_entries(entries).build()?;
        Ok(Limiter { store: Arc::new(store), limit: self.limit })
    }
}
