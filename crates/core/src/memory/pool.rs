//! Blocks of log entries, shared by all logs of a store.

#![allow(clippy::cast_possible_truncation, reason = "numbers are cut out of packed words")]

use std::ops::ControlFlow;

use super::pages::{Pages, Zeroed};
use crate::algorithm::Words;
use crate::algorithm::log::{Entries, Entry, Log};
use crate::bounds::BLOCK_ENTRIES;
use crate::sync::{AtomicU64, Ordering};
use crate::{Decision, Op, Time};

/// Bits of a block's number, so that two of them and two places fit one word of a slot.
const NUMBER_BITS: u32 = 28;

pub(crate) struct Pool {
    blocks: Pages<Block>,
    /// The first free block and, in the upper half, a count of changes, so that a thread that slept does not take an
    /// old view for the present one. Block 0 is never used: it means none.
    free: AtomicU64,
    /// Blocks from this number on were never used.
    unused: AtomicU64,
    /// How often there was none to take.
    without_room: AtomicU64,
}

#[repr(C)]
struct Block {
    entries: [[AtomicU64; 2]; BLOCK_ENTRIES],
    next: AtomicU64,
    /// Fills the second cache line.
    _rest: AtomicU64,
}

// SAFETY: a block is made of `AtomicU64` alone.
#[allow(unsafe_code)]
unsafe impl Zeroed for Block {
    #[cfg(any(shuttle, miri))]
    fn zero() -> Self {
        let zero = |_| AtomicU64::new(0);
        Block {
            entries: std::array::from_fn(|_| std::array::from_fn(zero)),
            next: AtomicU64::new(0),
            _rest: AtomicU64::new(0),
        }
    }
}

impl Pool {
    /// A pool with room for `entries` entries in full blocks.
    pub(crate) fn with_room_for(entries: usize) -> std::io::Result<Pool> {
        let blocks = Pages::zeroed(entries.div_ceil(BLOCK_ENTRIES) + 1)?;
        Ok(Pool { blocks, free: AtomicU64::new(0), unused: AtomicU64::new(1), without_room: AtomicU64::new(0) })
    }

    /// A pool that a log of this many entries never empties: its oldest block may be used up but not yet given back.
    pub(crate) fn for_one_log(entries: u64) -> std::io::Result<Pool> {
        Pool::with_room_for(usize::try_from(entries).unwrap_or(usize::MAX).saturating_add(2 * BLOCK_ENTRIES))
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }

    /// Whether the next log that needs a block gets none.
    #[inline]
    pub(crate) fn is_dry(&self) -> bool {
        self.free.load(Ordering::Relaxed) as u32 == 0 && self.unused.load(Ordering::Relaxed) >= self.blocks.len() as u64
    }

    /// Takes the last block back from a log that has nothing in it.
    pub(crate) fn settle(&self, state: &mut [u64; 3]) {
        let mut chain = Chain::from_words(self, *state);
        if chain.head != 0 && chain.back().is_none() {
            self.give(chain.head, chain.tail);
            (chain.head, chain.tail) = (0, 0);
            *state = chain.to_words();
        }
    }

    fn block(&self, number: u32) -> &Block {
        &self.blocks[number as usize]
    }

    fn take(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Acquire);
        while free as u32 != 0 {
            let next = self.block(free as u32).next.load(Ordering::Relaxed);
            match self.free.compare_exchange(free, retag(free, next), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(free as u32),
                Err(now) => free = now,
            }
        }
        let more = |unused: u64| (unused < self.blocks.len() as u64).then_some(unused + 1);
        let Ok(unused) = self.unused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else {
            self.without_room.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        u32::try_from(unused).ok()
    }

    /// How often a log needed a block and got none.
    pub(crate) fn without_room(&self) -> u64 {
        self.without_room.load(Ordering::Relaxed)
    }

    /// Gives back the blocks from `first` to `last`, which are linked already.
    fn give(&self, first: u32, last: u32) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            self.block(last).next.store(u64::from(free as u32), Ordering::Relaxed);
            let new = retag(free, u64::from(first));
            match self.free.compare_exchange(free, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}

/// The head of the free list with another first block, and its count of changes one higher.
fn retag(free: u64, first: u64) -> u64 {
    ((free >> 32).wrapping_add(1) << 32) | first
}

/// A log in blocks of a pool, from the three words that a slot keeps of it. Whoever has a chain holds that slot.
pub(crate) struct Chain<'a> {
    pool: &'a Pool,
    units: u64,
    head: u32,
    tail: u32,
    /// The first entry's place in the head block.
    first: usize,
    /// One beyond the last entry's place in the tail block.
    end: usize,
}

impl<'a> Chain<'a> {
    fn from_words(pool: &'a Pool, [_, place, units]: [u64; 3]) -> Chain<'a> {
        let number = |shift: u32| (place >> shift) as u32 & ((1 << NUMBER_BITS) - 1);
        Chain {
            pool,
            units,
            head: number(0),
            tail: number(NUMBER_BITS),
            first: (place >> (2 * NUMBER_BITS)) as usize & 7,
            end: (place >> (2 * NUMBER_BITS + 3)) as usize & 7,
        }
    }

    fn to_words(&self) -> [u64; 3] {
        self.words(self.back().map_or(0, |newest| newest.out_at))
    }

    fn words(&self, fresh_at: u64) -> [u64; 3] {
        let place = u64::from(self.head)
            | u64::from(self.tail) << NUMBER_BITS
            | (self.first as u64) << (2 * NUMBER_BITS)
            | (self.end as u64) << (2 * NUMBER_BITS + 3);
        [fresh_at, place, self.units]
    }

    /// Makes sure that a first entry will find room.
    fn reserve(&mut self) -> bool {
        if self.tail == 0 {
            let Some(block) = self.pool.take() else { return false };
            (self.head, self.tail, self.first, self.end) = (block, block, 0, 0);
        }
        true
    }

    fn entry(&self, block: u32, place: usize) -> Entry {
        let [out_at, units] = &self.pool.block(block).entries[place];
        Entry { out_at: out_at.load(Ordering::Relaxed), units: units.load(Ordering::Relaxed) }
    }

    fn set_entry(&self, block: u32, place: usize, entry: Entry) {
        let [out_at, units] = &self.pool.block(block).entries[place];
        out_at.store(entry.out_at, Ordering::Relaxed);
        units.store(entry.units, Ordering::Relaxed);
    }

    fn next(&self, block: u32) -> u32 {
        self.pool.block(block).next.load(Ordering::Relaxed) as u32
    }

    /// The places of all entries, oldest first.
    fn places(&self) -> impl Iterator<Item = (u32, usize)> {
        let (mut block, mut place) = (self.head, self.first);
        std::iter::from_fn(move || {
            if block == self.tail && place == self.end {
                return None;
            }
            if place == BLOCK_ENTRIES {
                (block, place) = (self.next(block), 0);
            }
            place += 1;
            Some((block, place - 1))
        })
    }
}

/// A log whose entries are in a pool.
pub(crate) struct PooledLog<'a> {
    pub(crate) log: &'a Log,
    pub(crate) pool: &'a Pool,
}

impl<'a> PooledLog<'a> {
    pub(crate) fn chain(&self, state: [u64; 3]) -> Chain<'a> {
        Chain::from_words(self.pool, state)
    }
}

/// A log that is being changed: blocks come and go meanwhile, so its words must not stay as they were if that panics.
struct Changing<'s, 'a> {
    chain: Chain<'a>,
    state: &'s mut [u64; 3],
}

impl Changing<'_, '_> {
    fn finish(self) {
        *self.state = self.chain.to_words();
        // Only a panic leaves the rest to be done.
        std::mem::forget(self);
    }
}

impl Drop for Changing<'_, '_> {
    fn drop(&mut self) {
        let Chain { pool, tail, end, .. } = self.chain;
        // Looked at with care: to panic while a panic unwinds would end the process.
        let entries = pool.blocks.get(tail as usize).map(|block| &block.entries);
        let newest = entries.and_then(|entries| entries.get(end.checked_sub(1)?));
        let fresh_at = newest.map_or(0, |[out_at, _]| out_at.load(Ordering::Relaxed));
        *self.state = self.chain.words(fresh_at.max(self.state[0]));
    }
}

impl Words<3> for PooledLog<'_> {
    fn decide(&self, state: &mut [u64; 3], now: Time, op: Op) -> Decision {
        let mut changing = Changing { chain: self.chain(*state), state };
        let decision = self.log.decide(&mut changing.chain, now, op);
        changing.finish();
        decision
    }

    fn settle(&self, state: &mut [u64; 3]) {
        self.pool.settle(state);
    }

    fn is_ahead(&self, [newest, ..]: &[u64; 3], now: Time) -> bool {
        self.log.is_ahead(*newest, now.as_nanos())
    }

    fn is_ready(&self, state: &[u64; 3]) -> bool {
        *state != [0; 3]
    }

    fn prepare(&self, state: &mut [u64; 3]) -> bool {
        let mut chain = self.chain(*state);
        let ready = chain.reserve();
        *state = chain.to_words();
        ready
    }

    fn forget(&self, state: [u64; 3]) {
        let mut chain = self.chain(state);
        chain.clear();
        self.pool.settle(&mut chain.to_words());
    }
}

impl Entries for Chain<'_> {
    fn units(&self) -> u64 {
        self.units
    }

    fn front(&self) -> Option<Entry> {
        self.places().next().map(|(block, place)| self.entry(block, place))
    }

    fn back(&self) -> Option<Entry> {
        let empty = self.tail == 0 || self.end == 0;
        (!empty).then(|| self.entry(self.tail, self.end - 1))
    }

    fn pop_front(&mut self) {
        let Some(oldest) = self.front() else { return };
        self.units -= oldest.units;
        if self.first == BLOCK_ENTRIES {
            let next = self.next(self.head);
            self.pool.give(self.head, self.head);
            (self.head, self.first) = (next, 0);
        }
        self.first += 1;
        if self.head == self.tail && self.first == self.end {
            self.clear();
        }
    }

    fn push_back(&mut self, entry: Entry) -> bool {
        if !self.reserve() {
            return false;
        }
        if self.end == BLOCK_ENTRIES {
            let Some(block) = self.pool.take() else { return false };
            self.pool.block(self.tail).next.store(u64::from(block), Ordering::Relaxed);
            (self.tail, self.end) = (block, 0);
        }
        self.set_entry(self.tail, self.end, entry);
        self.end += 1;
        self.units += entry.units;
        true
    }

    fn set_back(&mut self, entry: Entry) {
        if let Some(newest) = self.back() {
            self.units = self.units - newest.units + entry.units;
            self.set_entry(self.tail, self.end - 1, entry);
        }
    }

    fn amend(&mut self, mut keep: impl FnMut(&mut Entry) -> bool) {
        let (last, mut units) = (self.tail, 0);
        let (mut block, mut place) = (self.head, self.first);
        for (from_block, from_place) in self.places() {
            let mut entry = self.entry(from_block, from_place);
            if !keep(&mut entry) {
                continue;
            }
            if place == BLOCK_ENTRIES {
                (block, place) = (self.next(block), 0);
            }
            self.set_entry(block, place, entry);
            place += 1;
            units += entry.units;
        }
        if (block, place) == (self.head, self.first) {
            return self.clear();
        }
        if block != last {
            self.pool.give(self.next(block), last);
        }
        (self.tail, self.end, self.units) = (block, place, units);
    }

    fn visit(&self, mut visit: impl FnMut(Entry) -> ControlFlow<()>) {
        for (block, place) in self.places() {
            if visit(self.entry(block, place)).is_break() {
                return;
            }
        }
    }

    /// Keeps one block, so that the next entry finds room whatever others take.
    fn clear(&mut self) {
        if self.head != self.tail {
            self.pool.give(self.next(self.head), self.tail);
        }
        (self.tail, self.first, self.end, self.units) = (self.head, 0, 0, 0);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A log that lost a block before a panic must not still read it, since another log may have it by then.
    #[test]
    fn a_log_that_panicked_halfway_has_the_entries_it_had_then() {
        let pool = Pool::with_room_for(3 * BLOCK_ENTRIES).unwrap();
        let log = Log::sliding(30, 1_000);
        let pooled = PooledLog { log: &log, pool: &pool };
        let mut state = [0; 3];
        for now in 0..10 {
            pooled.decide(&mut state, Time::from_nanos(now), Op::Take(1));
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut changing = Changing { chain: pooled.chain(state), state: &mut state };
            (0..8).for_each(|_| changing.chain.pop_front());
            panic!("as it was told");
        }));
        assert!(panicked.is_err());
        let mut other = [0; 3];
        for now in 0..14 {
            pooled.decide(&mut other, Time::from_nanos(5_000 + now), Op::Take(2));
        }
        let (mut entries, mut units) = (Vec::new(), 0);
        let chain = pooled.chain(state);
        chain.visit(|entry| {
            entries.push(entry.out_at);
            units += entry.units;
            if entries.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!((entries, units, chain.units()), (vec![1_008, 1_009], 2, 2));
        assert_eq!(state[0], 1_009, "it is fresh when the newest is out");
    }
}
