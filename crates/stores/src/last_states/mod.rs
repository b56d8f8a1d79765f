//! The last states that a store reported, from which this process decides while the store is away.
//!
//! What an outage finds is remembered by the clock of this process until it equals never seen, so that no limit starts anew.
//! What is admitted here for calls that never reached the store is **owed** to it: it is debited once when the store is back,
//! and until that debit is answered the key is decided here.
//!
//! Keys that callers bring, who choose them, have a room of their own, and what rules owe is debited before what callers owe.
//!
//! Each node admits at most what its limit, going on from the last state that it remembers, admits in that time.

mod debit;
mod entry;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::{Charge, Decision, Decisions, Op, Purpose, Report, State, Time};

use crate::clock_offset::ClockOffset;

pub use debit::Debit;
use entry::Entry;

/// Keys of rules that are remembered of each store, and as many that callers bring, at about 120 bytes each: 14 MB if all are
/// in use, and as much again. Of more, those that used least of their limits are forgotten.
pub const LAST_STATES_MAX: usize = SHARDS * SHARD_KEYS_MAX;

/// Keys of a shard: as many as a table of a power of two holds.
const SHARD_KEYS_MAX: usize = 1_792;

/// Locks that keys of rules are divided among, and as many for those that callers bring.
const SHARDS: usize = 64;

/// Slices of a log that decides here. Exact logs may have thousands of entries, of a hundred thousand keys.
const LOG_SLICES: u64 = 30;

/// Reports that are older than another one by less than this were overtaken on the way. Otherwise the clock was set back.
const STALE_REPORT_MAX: Duration = Duration::from_secs(1);

/// What stands for a key: a hash of its namespace, limit, tag and bytes. The first bit says whether a caller brought it.
type Print = u128;

const OF_CALLER: Print = 1 << 127;

/// A part of the keys.
#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Print, Entry>,
    /// Keys that owe units, in the order in which they are debited.
    owing: VecDeque<Print>,
}

/// The last states of the keys of one store.
#[derive(Debug)]
pub struct LastStates {
    shards: Box<[Mutex<Shard>]>,
    seeds: [RandomState; 2],
    /// Keys that owe units.
    owing: AtomicUsize,
    /// The shard whose keys are debited next, of rules and of callers.
    next_owing: AtomicUsize,
    /// Keys that are decided here until their debit is answered.
    held: AtomicUsize,
    /// The clock by the last report, for keys that nothing is known of.
    clock: Mutex<Option<ClockOffset>>,
    unknown: AtomicU64,
}

impl Default for LastStates {
    fn default() -> LastStates {
        LastStates {
            shards: (0..2 * SHARDS).map(|_| Mutex::default()).collect(),
            seeds: [RandomState::new(), RandomState::new()],
            owing: AtomicUsize::new(0),
            next_owing: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            clock: Mutex::default(),
            unknown: AtomicU64::new(0),
        }
    }
}

impl LastStates {
    /// Remembers what the store reports with its answers. `sent` and `learned` are before and after the call, by the clock of
    /// this process.
    pub fn learn(&self, charges: &[Charge<'_>], decisions: &Decisions, sent: Time, learned: Time) {
        for (number, (charge, decision)) in charges.iter().zip(decisions.iter()).enumerate() {
            if let Some(report) = decisions.report(number) {
                self.learn_one(charge, report, decision, sent, learned);
            }
        }
    }

    /// Remembers what the store reports of one key.
    pub fn learn_one(&self, charge: &Charge<'_>, report: &Report, decision: &Decision, sent: Time, learned: Time) {
        let print = self.print(charge);
        let mut shard = self.shard(print);
        let is_fresh = report.state.is_fresh(report.at);
        if let Some(entry) = shard.entries.get_mut(&print) {
            entry.learn(charge, report, decision, (sent, learned));
            if entry.is_fresh(learned) {
                shard.entries.remove(&print);
            }
        } else if !is_fresh {
            self.make_room(&mut shard, learned);
            shard.entries.insert(print, Entry::new(report, sent, learned, decision));
        }
        drop(shard);
        if let Ok(mut clock) = self.clock.try_lock() {
            let newer = ClockOffset::new(report.at, sent, learned);
            *clock = Some(clock.map_or(newer, |clock| clock.or_newer(newer)));
        }
    }

    /// Goes on from a copy of a key's state that was kept elsewhere, unless something was decided here since the store's last
    /// report.
    pub fn adopt(&self, charge: &Charge<'_>, state: &State, clock: ClockOffset, now: Time) {
        let print = self.print(charge);
        let mut shard = self.shard(print);
        if shard.entries.get(&print).is_none_or(|entry| !entry.is_ahead && !entry.owes()) {
            self.make_room(&mut shard, now);
            shard.entries.insert(print, Entry::copied(state.clone(), clock));
        }
    }

    /// Decides a charge without the store, under one of `parts` equal parts of its limit. With `owes`, the store did not apply
    /// the charge and will not: what is admitted is debited when it is back.
    pub fn decide(&self, charge: &Charge<'_>, parts: u64, owes: bool, now: Time) -> Decision {
        let print = self.print(charge);
        let mut shard = self.shard(print);
        if !shard.entries.contains_key(&print) {
            if let Op::Take(1..) | Op::Ask(1..) = charge.op {
                self.unknown.fetch_add(1, Relaxed);
            }
            self.make_room(&mut shard, now);
        }
        let Shard { entries, owing } = &mut *shard;
        let entry = entries.entry(print).or_insert_with(|| Entry::unknown(charge.limit, self.clock_or(now)));
        let was_held = entry.is_held();
        let decision = entry.decide(charge, parts.max(1), owes, now);
        if entry.is_held() && !was_held {
            self.held.fetch_add(1, Relaxed);
        }
        if let Some(owed) = entry.owed.as_mut().filter(|owed| !owed.is_listed) {
            owed.is_listed = true;
            owing.push_back(print);
            self.owing.fetch_add(1, Relaxed);
        }
        decision
    }

    /// Looks whether a key is denied, if anything is known of it.
    pub fn look(&self, charge: &Charge<'_>, now: Time) -> Option<Decision> {
        let print = self.print(charge);
        self.shard(print).entries.get_mut(&print).map(|entry| entry.decide(charge, 1, false, now))
    }

    /// Whether any key is to be decided here though the store answers.
    #[inline]
    #[must_use]
    pub fn holds_any(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    /// Whether a key is to be decided here though the store answers: it does not know yet of what was admitted here.
    #[inline]
    #[must_use]
    pub fn holds(&self, charge: &Charge<'_>) -> bool {
        if !self.holds_any() {
            return false;
        }
        let print = self.print(charge);
        self.shard(print).entries.get(&print).is_some_and(Entry::is_held)
    }

    /// Whether any key owes units.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.owing() > 0
    }

    /// How many keys owe units.
    #[must_use]
    pub fn owing(&self) -> usize {
        self.owing.load(Relaxed)
    }

    /// Takes out the next debits, at most this many: those of rules first.
    #[must_use]
    pub fn debits(self: &Arc<Self>, most: usize, now: Time) -> Vec<Debit> {
        let mut debits = Vec::new();
        let first = self.next_owing.fetch_add(1, Relaxed) % SHARDS;
        let (of_rules, of_callers) = self.shards.split_at(SHARDS);
        let from_first = |shards| <[_]>::iter(shards).cycle().skip(first).take(SHARDS);
        for shard in from_first(of_rules).chain(from_first(of_callers)) {
            let mut shard = lock(shard);
            let mut left = shard.owing.len();
            while debits.len() < most && left > 0 {
                left -= 1;
                let Some(print) = shard.owing.pop_front() else { break };
                self.owing.fetch_sub(1, Relaxed);
                let Some(entry) = shard.entries.get_mut(&print) else { continue };
                match entry.push(now) {
                    Some((key, units)) => debits.push(Debit::new(Arc::clone(self), print, key, units)),
                    None => self.settle(entry),
                }
            }
        }
        debits
    }

    /// Decisions for keys that nothing was known of: they went on from a state that was never seen.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Relaxed)
    }

    /// A debit has ended.
    fn pushed(&self, print: Print, was_applied: bool) {
        let mut shard = self.shard(print);
        let Shard { entries, owing } = &mut *shard;
        let Some(entry) = entries.get_mut(&print) else { return };
        let was_held = entry.is_held();
        entry.pushed(was_applied);
        if was_held && !entry.is_held() {
            self.held.fetch_sub(1, Relaxed);
        }
        if entry.owes() {
            owing.push_back(print);
            self.owing.fetch_add(1, Relaxed);
        } else {
            self.settle(entry);
        }
    }

    /// Ends the debt of a key that owes nothing any more.
    fn settle(&self, entry: &mut Entry) {
        if entry.owes() {
            return;
        }
        if entry.is_held() {
            self.held.fetch_sub(1, Relaxed);
        }
        entry.owed = None;
    }

    /// Makes room for another key: states that equal never seen go, and if that is not enough an eighth of the others, those
    /// that used least of their limits first.
    fn make_room(&self, shard: &mut Shard, now: Time) {
        if shard.entries.len() < SHARD_KEYS_MAX {
            return;
        }
        let mut kept: Vec<(Print, Entry)> = shard.entries.drain().filter(|(_, entry)| !entry.is_fresh(now)).collect();
        kept.sort_by_key(|(_, entry)| (entry.owes(), entry.heat));
        let excess = kept.len().saturating_sub(SHARD_KEYS_MAX - SHARD_KEYS_MAX / 8);
        let held = kept.drain(..excess).filter(|(_, entry)| entry.is_held()).count();
        self.held.fetch_sub(held, Relaxed);
        // Made anew: one from which others went grows, though it is not fuller.
        shard.entries = HashMap::with_capacity(SHARD_KEYS_MAX);
        shard.entries.extend(kept);
        // Those that are forgotten are not debited: the list would grow with every key that comes in an outage.
        let before = shard.owing.len();
        shard.owing.retain(|print| shard.entries.contains_key(print));
        self.owing.fetch_sub(before - shard.owing.len(), Relaxed);
    }

    fn clock_or(&self, now: Time) -> ClockOffset {
        lock(&self.clock).unwrap_or_else(|| ClockOffset::new(now, now, now))
    }

    fn print(&self, charge: &Charge<'_>) -> Print {
        let [low, high] = self.seeds.each_ref().map(|seed| {
            let mut hasher = seed.build_hasher();
            charge.namespace.hash().hash(&mut hasher);
            charge.limit.identity().hash(&mut hasher);
            charge.placement.tag.hash(&mut hasher);
            charge.key.as_bytes().hash(&mut hasher);
            hasher.finish()
        });
        let print = u128::from(high) << 64 | u128::from(low);
        match charge.namespace.purpose() {
            Some(Purpose::Caller | Purpose::RequestLimit) => print | OF_CALLER,
            _ => print & !OF_CALLER,
        }
    }

    fn shard(&self, print: Print) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(print % SHARDS as u128).unwrap_or(0);
        let number = if print & OF_CALLER == 0 { number } else { SHARDS + number };
        #[expect(clippy::indexing_slicing, reason = "the remainder is below half of the length")]
        lock(&self.shards[number])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
