//! The memory store: the state of every key in this process, within a bound that is fixed at the start.
//!
//! `fingerprint.rs` turns a key into 128 bits, `table.rs`, `slot.rs` and `cell.rs` keep its state, `pool.rs` the
//! entries of logs, `sketch.rs`, `annex.rs` and `refuges.rs` count for keys that find no slot, `transaction.rs` charges
//! several keys at once, `inspect.rs` shows the details of one.

mod annex;
mod cell;
mod fingerprint;
mod inspect;
mod pages;
mod pool;
mod refuges;
mod sketch;
mod slot;
mod table;
mod transaction;
#[cfg(all(test, not(shuttle)))]
mod unwind_tests;

pub(crate) use cell::Cell;
pub(crate) use fingerprint::{Fingerprint, Seeds};
pub use inspect::{Snapshot, Spent};
pub(crate) use pool::{Pool, PooledLog};
pub(crate) use table::Table;

use std::fmt;

use crate::algorithm::Words;
use crate::algorithm::log::Log;
use crate::bounds::{BATCH_KEYS_MAX, BLOCK_ENTRIES, KEYS_DEFAULT, KEYS_MAX, LOG_ENTRIES_MAX};
use crate::decision::Answer;
use crate::limit::Shape;
use crate::sync::{AtomicU64, Ordering};
use crate::{Clock, Decision, Key, Limit, Namespace, Op, Time};
use cell::Held;
use sketch::{Part, Sketch};
use slot::Slot;

/// Most buckets searched for expired logs by a charge that finds the pool empty: a microsecond or two.
const SWEEP_BUCKETS: u32 = 64;

/// Keeps the state of many keys under any limits.
///
/// It is shared by reference, decides without allocating, and never takes more memory than it was sized for. A key's
/// state is dropped once it equals never seen and its slot is needed. If all slots hold live states, further keys are
/// counted approximately (too strictly, never too laxly), and denied with [`Retry::Unknown`].
///
/// ```
/// use tidegate::{Key, Limit, MemoryStore, Op};
///
/// let store = MemoryStore::builder().keys(1_000_000).build()?;
/// let (free, paid): (Limit, Limit) = ("10/minute".parse()?, "1000/minute".parse()?);
/// assert_eq!(store.decide(Key::new("ann")?, &free, Op::Take(1)).remaining(), 9);
/// assert_eq!(store.decide(Key::new("bob")?, &paid, Op::Take(1)).remaining(), 999);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Retry::Unknown`]: crate::Retry::Unknown
pub struct MemoryStore {
    clock: Clock,
    seeds: Seeds,
    buckets: Table<1>,
    windows: Table<2>,
    counters: Table<3>,
    logs: Table<3>,
    pool: Pool,
    /// Where the next search for expired logs begins.
    sweep: AtomicU64,
    overflow: Sketch,
}

impl MemoryStore {
    /// Returns a builder, to set the size and the clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { keys: KEYS_DEFAULT, log_entries: None, has_refuges: false, clock: None }
    }

    /// Returns the store's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the most memory that the store can take for states, in bytes. Pages that no key has touched take none.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.buckets.bytes()
            + self.windows.bytes()
            + self.counters.bytes()
            + self.logs.bytes()
            + self.pool.bytes()
            + self.overflow.bytes()
    }

    /// Returns how many charges under sliding_log and sliced_window found no room for an entry of their own, because
    /// [`MemoryStoreBuilder::log_entries`] is too small: they were added to the newest entry of their key, or counted
    /// approximately if it had none. Both are too strict.
    #[must_use]
    pub fn log_entries_without_room(&self) -> u64 {
        self.pool.without_room()
    }

    /// Applies one operation to one key of [`Namespace::root`], now.
    #[inline]
    pub fn decide(&self, key: Key<'_>, limit: &Limit, op: Op) -> Decision {
        self.decide_in(Namespace::root(), key, limit, op)
    }

    /// Applies one operation to one key of a namespace, now.
    #[inline]
    pub fn decide_in(&self, namespace: &Namespace, key: Key<'_>, limit: &Limit, op: Op) -> Decision {
        // First the clock: reading it takes as long as all the rest, which can go on meanwhile.
        let now = self.clock.now();
        let ask = Ask { namespace, limit, print: self.seeds.fingerprint(namespace, limit, key), now, op };
        match limit.shape() {
            Shape::Bucket(bucket) => self.run(&self.buckets, bucket, ask),
            _ => self.decide_larger(key, ask),
        }
    }

    /// Apart from the buckets, whose few instructions would otherwise share registers with all of these.
    #[inline(never)]
    fn decide_larger(&self, key: Key<'_>, ask: Ask<'_>) -> Decision {
        match ask.limit.shape() {
            Shape::Bucket(bucket) => self.run(&self.buckets, bucket, ask),
            Shape::Window(window) => self.run(&self.windows, &window.for_key(ask.namespace, key), ask),
            Shape::Calendar(window) => self.run(&self.windows, window, ask),
            Shape::Counter(counter) => self.run(&self.counters, counter, ask),
            Shape::Log(log) => self.run(&self.logs, &self.pooled(log, ask.now), ask),
        }
    }

    /// Applies the same operation to many keys of [`Namespace::root`] in order, at one instant, and appends the
    /// decisions to `decisions`. The memory of several keys is fetched in parallel, which is much faster than one by
    /// one.
    ///
    /// If it panics, the decisions before the last one are complete, and the last one is undefined.
    pub fn decide_batch(&self, keys: &[Key<'_>], limit: &Limit, op: Op, decisions: &mut Vec<Decision>) {
        self.decide_batch_in(Namespace::root(), keys, limit, op, decisions);
    }

    /// Applies the same operation to many keys of a namespace, as [`MemoryStore::decide_batch`] does.
    pub fn decide_batch_in(
        &self,
        namespace: &Namespace,
        keys: &[Key<'_>],
        limit: &Limit,
        op: Op,
        decisions: &mut Vec<Decision>,
    ) {
        let now = self.clock.now();
        decisions.reserve(keys.len());
        let ask = Ask { namespace, limit, print: Fingerprint::NONE, now, op };
        for keys in keys.chunks(BATCH_KEYS_MAX) {
            let batch = Batch { keys, ask };
            match limit.shape() {
                Shape::Bucket(bucket) => self.run_batch(&self.buckets, |_| *bucket, batch, decisions),
                Shape::Window(window) => {
                    self.run_batch(&self.windows, |key| window.for_key(namespace, key), batch, decisions);
                }
                Shape::Calendar(window) => self.run_batch(&self.windows, |_| *window, batch, decisions),
                Shape::Counter(counter) => self.run_batch(&self.counters, |_| *counter, batch, decisions),
                Shape::Log(log) => self.run_batch(&self.logs, |_| self.pooled(log, now), batch, decisions),
            }
        }
    }

    /// Asks the same for each of at most [`BATCH_KEYS_MAX`] keys.
    fn run_batch<'k, const WORDS: usize, A: Words<WORDS>>(
        &self,
        table: &Table<WORDS>,
        algorithm_for: impl Fn(Key<'k>) -> A,
        Batch { keys, ask }: Batch<'_, 'k>,
        decisions: &mut Vec<Decision>,
    ) {
        let mut prints = [Fingerprint::NONE; BATCH_KEYS_MAX];
        for (print, key) in prints.iter_mut().zip(keys) {
            *print = self.seeds.fingerprint(ask.namespace, ask.limit, *key);
            table.prefetch_first(*print);
        }
        // Looking at all keys before the first is decided lets their memory arrive together; so does a second request
        // for those that are not where most are.
        let mut slots = [None; BATCH_KEYS_MAX];
        for (slot, print) in slots.iter_mut().zip(&prints[..keys.len()]) {
            *slot = table.find_first(*print);
            if slot.is_none() {
                table.prefetch_elsewhere(*print);
            }
        }
        for ((print, slot), key) in prints.iter().zip(slots).zip(keys) {
            decisions.push(Decision::BLANK);
            let (algorithm, ask) = (algorithm_for(*key), Ask { print: *print, ..ask });
            if let Some(decision) = decisions.last_mut()
                && !self.run_quickly(table, || slot.or_else(|| table.find_elsewhere(*print)), &algorithm, ask, decision)
            {
                *decision = self.run_slowly(table, &algorithm, ask);
            }
        }
    }

    /// A log with its entries in the pool, from which expired logs were taken if it ran dry: a few at a time.
    fn pooled<'a>(&'a self, log: &'a Log, now: Time) -> PooledLog<'a> {
        let log = PooledLog { log, pool: &self.pool };
        if self.pool.is_dry() {
            let next = |_| self.sweep.fetch_add(1, Ordering::Relaxed);
            let numbers = (0..SWEEP_BUCKETS).map(next).take_while(|_| self.pool.is_dry());
            self.logs.sweep(numbers, now, |old| log.forget(old));
        }
        log
    }

    #[inline]
    fn run<const WORDS: usize>(&self, table: &Table<WORDS>, algorithm: &impl Words<WORDS>, ask: Ask<'_>) -> Decision {
        let mut decision = Decision::BLANK;
        if !self.run_quickly(table, || table.find(ask.print), algorithm, ask, &mut decision) {
            decision = self.run_slowly(table, algorithm, ask);
        }
        decision
    }

    /// Decides for a key that is in the table; false if it is not. The answer goes straight to its place: when it was
    /// returned and copied there, a batch spent a third of its time on the copy, since a wide load of narrow stores has
    /// to wait for them.
    #[inline(always)]
    fn run_quickly<'a, const WORDS: usize>(
        &self,
        table: &Table<WORDS>,
        find: impl FnOnce() -> Option<&'a Slot<WORDS>>,
        algorithm: &impl Words<WORDS>,
        ask: Ask<'_>,
        decision: &mut Decision,
    ) -> bool {
        if WORDS > 1 {
            let held = self.run_held(table, algorithm, ask);
            *decision = held.unwrap_or(Decision::BLANK);
            return held.is_some();
        }
        find().is_some_and(|slot| {
            let only_look = |state: &[u64; WORDS]| algorithm.only_looks(state, ask.now, ask.op);
            slot.change(ask.print, only_look, |state| {
                let now = self.clock.again_if(algorithm.is_ahead(state, ask.now), ask.now);
                *decision = algorithm.decide(state, now, ask.op);
            })
        })
    }

    /// Decides for a key that is in the table, holding its state.
    #[inline]
    fn run_held<const WORDS: usize>(
        &self,
        table: &Table<WORDS>,
        algorithm: &impl Words<WORDS>,
        ask: Ask<'_>,
    ) -> Option<Decision> {
        let mut held = table.lock(ask.print)?;
        let state = held.state_mut();
        if !algorithm.is_ready(state) {
            return None;
        }
        let now = self.clock.again_if(algorithm.is_ahead(state, ask.now), ask.now);
        let decision = algorithm.decide(state, now, ask.op);
        algorithm.settle(state);
        Some(decision)
    }

    /// Decides for a key that is not in the table, or has no entries yet, or changed while it was looked at.
    #[cold]
    #[inline(never)]
    fn run_slowly<const WORDS: usize>(
        &self,
        table: &Table<WORDS>,
        algorithm: &impl Words<WORDS>,
        ask: Ask<'_>,
    ) -> Decision {
        let Ask { limit, print, op, .. } = ask;
        let part = self.overflow.part(ask.namespace, limit);
        if let Some(decision) = self.run_held(table, algorithm, ask) {
            return decision;
        }
        // What cannot add to the state needs no slot, and finds nothing to take from.
        let never_fits = matches!(op, Op::Take(units) if units > limit.units());
        let asks = matches!(op, Op::Ask(_));
        if !op.may_charge() || never_fits {
            return match part.remembers(print, ask.now) {
                true => overflowed(part, Ask { op: if never_fits || asks { op } else { Op::Peek }, ..ask }),
                false => algorithm.decide(&mut [0; WORDS], ask.now, op),
            };
        }
        let _gate = table.gate(table.home(print));
        // Somebody else may have inserted it in the meantime.
        if let Some(decision) = self.run_held(table, algorithm, ask) {
            return decision;
        }
        match self.start(table, algorithm, ask) {
            Ok((mut held, now)) => {
                let decision = algorithm.decide(held.state_mut(), now, op);
                algorithm.settle(held.state_mut());
                decision
            }
            Err(now) => overflowed(part, Ask { now, ..ask }),
        }
    }

    /// Gives a place to a key that has none, with the instant to decide at; or the instant to decide at
    /// in the sketch, if there is no place or the sketch counts for it already. The caller holds the gate of its
    /// home.
    fn start<'a, const WORDS: usize>(
        &'a self,
        table: &'a Table<WORDS>,
        algorithm: &impl Words<WORDS>,
        ask: Ask<'_>,
    ) -> Result<(Held<'a, WORDS>, Time), Time> {
        let now = self.clock.again_if(table.was_forgotten_after(ask.print, ask.now), ask.now);
        let part = self.overflow.part(ask.namespace, ask.limit);
        let remembered = part.remembers(ask.print, now);
        // Only a bucket's instant can be carried over; windows and logs count on in the sketch until all has passed.
        if remembered && !matches!(ask.limit.shape(), Shape::Bucket(_)) {
            return Err(now);
        }
        let mut held = table.insert(ask.print, now, |old| algorithm.forget(old)).ok_or(now)?;
        let state = held.state_mut();
        if !algorithm.prepare(state) {
            return Err(now);
        }
        if remembered {
            let debt = part.arrival(ask.print).saturating_sub(now.as_nanos());
            algorithm.decide(state, now, Op::Debit(debt.div_ceil(ask.limit.as_bucket().interval())));
        }
        Ok((held, now))
    }
}

/// Counts for a key in the sketch. Whoever charges holds the gate of the key's home.
fn overflowed(part: Part<'_>, ask: Ask<'_>) -> Decision {
    if let Op::Take(1..) = ask.op
        && let Some(nanos) = part.crowded_for(ask.print, ask.now)
    {
        return crowded(ask.limit, nanos);
    }
    let arrival = part.arrival(ask.print);
    let mut state = [arrival];
    let decision = ask.limit.as_bucket().decide(&mut state, ask.now, ask.op);
    if state[0] > arrival {
        part.raise(ask.print, state[0], ask.now);
    }
    approximate(ask.limit, ask.op, decision)
}

/// The answer to a newcomer whose source has its share of the room for keys without a slot.
fn crowded(limit: &Limit, nanos: u64) -> Decision {
    Decision { answer: Answer::DenyAbout(nanos.max(1)), limit: limit.units(), ..Decision::BLANK }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemoryStore").field("bytes_max", &self.bytes_max()).finish_non_exhaustive()
    }
}

/// An answer from the sketch: its numbers are hints.
fn approximate(limit: &Limit, op: Op, decision: Decision) -> Decision {
    let answer = match decision.answer {
        Answer::DenyAlways if matches!(op, Op::Take(units) | Op::Ask(units) if units > limit.units()) => {
            Answer::DenyAlways
        }
        Answer::DenyAlways => Answer::DenyAbout(limit.as_bucket().interval().saturating_mul(limit.units())),
        Answer::DenyFor(nanos) => Answer::DenyAbout(nanos),
        other => other,
    };
    Decision { answer, limit: limit.units(), ..decision }
}

/// An operation on a key's state.
#[derive(Clone, Copy)]
struct Ask<'a> {
    namespace: &'a Namespace,
    limit: &'a Limit,
    print: Fingerprint,
    now: Time,
    op: Op,
}

/// An operation on several keys, at most [`BATCH_KEYS_MAX`].
#[derive(Clone, Copy)]
struct Batch<'a, 'k> {
    keys: &'a [Key<'k>],
    ask: Ask<'a>,
}

/// Builds a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct MemoryStoreBuilder {
    keys: usize,
    log_entries: Option<usize>,
    has_refuges: bool,
    clock: Option<Clock>,
}

impl MemoryStoreBuilder {
    /// Sets the number of keys of each kind of state that are counted exactly. Default: 100,000.
    ///
    /// A key takes 31 bytes under gcra, token_bucket and leaky_bucket, 39 under fixed_window, 48 under the others, and
    /// logs also take the entries of [`MemoryStoreBuilder::log_entries`]. Six more bytes per key are for floods of
    /// further keys, and about a third of a megabyte, or 1.25 bytes per key above 262,144 keys.
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the number of entries that all sliding logs and sliced windows together can keep, 18 bytes each in blocks
    /// of seven. Default: seven times the keys.
    pub fn log_entries(mut self, entries: usize) -> Self {
        self.log_entries = Some(entries);
        self
    }

    /// Keeps namespaces apart in a full store: a flood of keys of one namespace leaves room for new keys of each of 31
    /// others, up to about a hundredth of [`MemoryStoreBuilder::keys`] each, and one source of keys (see
    /// [`Namespace::asked_by`]) leaves a third of the room to others. This takes seven more bytes per key.
    pub fn keep_namespaces_apart(mut self) -> Self {
        self.has_refuges = true;
        self
    }

    /// Sets the clock. Default: the machine's clock.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// Builds the store.
    ///
    /// # Errors
    /// Fails if a size is zero or too large, or the system cannot allocate it.
    pub fn build(self) -> Result<MemoryStore, CapacityError> {
        let within = |field, value: usize, max: usize| match value {
            0 => Err(CapacityError::Zero { field }),
            _ if value > max => Err(CapacityError::TooLarge { field, value, max }),
            _ => Ok(value),
        };
        let keys = within("keys", self.keys, KEYS_MAX)?;
        let entries = self.log_entries.unwrap_or_else(|| keys.saturating_mul(BLOCK_ENTRIES).min(LOG_ENTRIES_MAX));
        let entries = within("log_entries", entries, LOG_ENTRIES_MAX)?;
        Ok(MemoryStore {
            clock: self.clock.unwrap_or_default(),
            seeds: Seeds::random(),
            buckets: Table::with_room_for(keys)?,
            windows: Table::with_room_for(keys)?,
            counters: Table::with_room_for(keys)?,
            logs: Table::with_room_for(keys)?,
            pool: Pool::with_room_for(entries)?,
            sweep: AtomicU64::new(0),
            overflow: Sketch::beside(keys, self.has_refuges)?,
        })
    }
}

/// Why a store cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// A size is zero.
    #[error("{field}: 0 is too small; use at least 1")]
    Zero {
        /// The name of the field.
        field: &'static str,
    },
    /// A size is too large.
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge {
        /// The name of the field.
        field: &'static str,
        /// The size.
        value: usize,
        /// The largest size allowed.
        max: usize,
    },
    /// The system cannot allocate the memory.
    #[error("memory: cannot allocate this size ({0}); use fewer keys, fewer log entries or a smaller limit")]
    NoMemory(#[from] std::io::Error),
}
