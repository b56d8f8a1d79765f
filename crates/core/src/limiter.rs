//! One limit for many keys.

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
    /// Creates a limiter with room for 100,000 keys; see [`Limiter::builder`] for more.
    ///
    /// # Errors
    /// Fails if there is no memory for it.
    pub fn new(limit: Limit) -> Result<Limiter, CapacityError> {
        Limiter::builder(limit).build()
    }

    /// Returns a builder, to set the size or the clock.
    pub fn builder(limit: Limit) -> LimiterBuilder {
        LimiterBuilder { limit, keys: KEYS_DEFAULT, log_entries: None, store: MemoryStore::builder() }
    }

    /// Creates a limiter on a store that several limiters share. Limiters with the same algorithm and window length
    /// count the same keys together there: prefix the keys to keep different purposes apart.
    #[must_use]
    pub fn on(store: Arc<MemoryStore>, limit: Limit) -> Limiter {
        Limiter { store, limit }
    }

    /// Takes one unit if it fits.
    #[inline]
    pub fn check(&self, key: Key<'_>) -> Decision {
        self.store.decide(key, &self.limit, Op::Take(1))
    }

    /// Takes `units` if they all fit; 0 only looks.
    #[inline]
    pub fn check_n(&self, key: Key<'_>, units: u64) -> Decision {
        self.store.decide(key, &self.limit, Op::Take(units))
    }

    /// Takes one unit for each key, at one instant, and appends the decisions to `decisions` in order.
    pub fn check_batch(&self, keys: &[Key<'_>], decisions: &mut Vec<Decision>) {
        self.store.decide_batch(keys, &self.limit, Op::Take(1), decisions);
    }

    /// Counts units that are already used, whether they fit or not.
    pub fn debit(&self, key: Key<'_>, units: u64) -> Decision {
        self.store.decide(key, &self.limit, Op::Debit(units))
    }

    /// Returns the state of a key and changes nothing.
    pub fn peek(&self, key: Key<'_>) -> Decision {
        self.store.decide(key, &self.limit, Op::Peek)
    }

    /// Gives back units that were taken and not used. It has no effect once they would have come back by themselves.
    /// Without a receipt it gives back the oldest units of a log, or those of the current window.
    pub fn refund(&self, key: Key<'_>, units: u64, receipt: Option<Receipt>) -> Decision {
        self.store.decide(key, &self.limit, Op::Refund(units, receipt))
    }

    /// Forgets a key.
    pub fn reset(&self, key: Key<'_>) -> Decision {
        self.store.decide(key, &self.limit, Op::Reset)
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns a limiter for the same keys under another limit. If it has the same algorithm and window length, units
    /// that are already used still count.
    #[must_use]
    pub fn with_limit(&self, limit: Limit) -> Limiter {
        Limiter { store: Arc::clone(&self.store), limit }
    }

    /// Returns the store of the limiter, for limits that differ from call to call and for charging several at once.
    #[must_use]
    pub fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }
}

/// Builds a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LimiterBuilder {
    limit: Limit,
    keys: usize,
    log_entries: Option<usize>,
    store: MemoryStoreBuilder,
}

impl LimiterBuilder {
    /// Sets the number of keys that are counted exactly. Default: 100,000. Further keys are counted too strictly.
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the number of entries that all logs together can keep. Default: enough for every key's whole log up to a
    /// million entries, and seven per key beyond.
    pub fn log_entries(mut self, entries: usize) -> Self {
        self.log_entries = Some(entries);
        self
    }

    /// Sets the clock. Default: the machine's clock.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.store = self.store.clock(clock);
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    /// Fails if the capacity is zero or too large, or there is no memory for it.
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
