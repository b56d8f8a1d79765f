//! A hash table of fixed size whose slots are reclaimed, never moved.
//!
//! A bucket is a gate and five slots. A key lives in its bucket of the front, a small part of the table where few keys
//! are close together; or in its home bucket, in the rest; or, if both were full when it came, in one of a few others
//! that its fingerprint picks: the gate of its home knows how many keys did that and how far they went, so that most
//! look-ups end in one bucket. Whoever inserts a key holds the gate of its home bucket, so no key is inserted twice.
//! Slots are found without any lock; see `slot.rs` for how they are changed.

#![allow(clippy::cast_possible_truncation, reason = "a scaled hash is below the number of buckets")]

use super::cell::Held;
use super::fingerprint::Fingerprint;
use super::pages::{Pages, Zeroed, prefetch};
use super::slot::Slot;
use crate::Time;
use crate::sync::{AtomicU64, Ordering, Wait};

const SLOTS: usize = 5;

/// Buckets a key may live in. With seven of eight slots live (states of one word: five of six), fewer than one newcomer
/// in a million finds no place.
const REACH: u64 = 32;

/// The front is this part of a table, unless the table fits a cache as it is.
const FRONT_SHARE: usize = 8;
const FRONT_FROM_BUCKETS: usize = if cfg!(shuttle) { 2 } else { 1024 };

/// Half a megabyte of states of one word: what a core keeps close.
const FRONT_BUCKETS_MAX: usize = 4096;

/// Once the rest has seen so many times the keys that the front has room for, keys are looked for at home first.
const OUTGROWN_TIMES: usize = if cfg!(shuttle) { 1 } else { 4 };

/// Words in which reclaimers leave the time they acted at, by fingerprint.
const HORIZONS: usize = 64;

pub(crate) struct Table<const WORDS: usize> {
    buckets: Pages<Bucket<WORDS>>,
    /// How many of the buckets, the first ones, are the front: none in a small table.
    front: usize,
    /// How many more slots of the rest may come into use until keys are looked for there first.
    until_outgrown: AtomicU64,
    /// For keys that were reclaimed: the latest instant at which one was. A caller with an older instant must not see
    /// a key as never seen that was not yet so at its instant, so it reads the clock again.
    horizons: [AtomicU64; HORIZONS],
}

#[repr(C)]
struct Bucket<const WORDS: usize> {
    slots: [Slot<WORDS>; SLOTS],
    gate: AtomicU64,
}

impl<const WORDS: usize> Bucket<WORDS> {
    #[inline(always)]
    fn find(&self, print: Fingerprint) -> Option<&Slot<WORDS>> {
        self.slots_for(print).find(|slot| slot.matches(print))
    }

    /// The slots in the order in which a key tries them: half of the keys begin at the far end, so that with
    /// states of one word each of the bucket's two cache lines serves its own half alone as long as there is room.
    #[inline(always)]
    fn slots_for(&self, print: Fingerprint) -> impl Iterator<Item = &Slot<WORDS>> {
        let from_the_end = print.low & 1 == 1;
        (0..SLOTS).map(move |place| &self.slots[if from_the_end { SLOTS - 1 - place } else { place }])
    }
}

// SAFETY: a bucket is made of `AtomicU64` alone.
#[allow(unsafe_code)]
unsafe impl<const WORDS: usize> Zeroed for Bucket<WORDS> {
    #[cfg(any(shuttle, miri))]
    fn zero() -> Self {
        Bucket { gate: AtomicU64::new(0), slots: std::array::from_fn(|_| Slot::empty()) }
    }
}

/// The lock of a gate.
const GATE_LOCKED: u64 = 1 << 63;

/// Above this bit of a gate stands the farthest probe that a displaced key of this home took, below it how many are
/// displaced.
const FARTHEST_SHIFT: u32 = 32;

/// The probes after the home bucket that a look-up has to make, by the word of a gate.
fn probes_beyond(gate: u64) -> std::ops::RangeInclusive<u64> {
    let is_any_displaced = gate as u32 != 0;
    1..=if is_any_displaced { (gate & !GATE_LOCKED) >> FARTHEST_SHIFT } else { 0 }
}

/// The word of a gate after one more key of its home was placed at probe `probe`.
fn with_displaced(gate: u64, probe: u64) -> u64 {
    let farthest = (*probes_beyond(gate).end()).max(probe);
    (gate & GATE_LOCKED) | farthest << FARTHEST_SHIFT | (u64::from(gate as u32) + 1)
}

/// Where a key may be inserted: its home bucket, locked against other inserters.
pub(crate) struct Gate<'a> {
    word: &'a AtomicU64,
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!GATE_LOCKED, Ordering::Release);
    }
}

/// A number that looks independent for each `probe`: both are spread over 128 bits, which are folded.
fn mix(bits: u64, probe: u64) -> u64 {
    let spread = u128::from(bits ^ probe.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * 0xd6e8_feb8_6659_fd93;
    (spread >> 64) as u64 ^ spread as u64
}

/// Holds that of the given slots which has equalled never seen for longest.
fn claim_oldest<'a, const WORDS: usize, S: Iterator<Item = &'a Slot<WORDS>>>(
    slots: impl Fn() -> S,
    now: Time,
) -> Option<(&'a Slot<WORDS>, Held<'a, WORDS>)> {
    loop {
        let fresh = slots().map(|slot| (slot.cell.fresh_at(), slot)).filter(|(at, _)| *at <= now.as_nanos());
        let (_, oldest) = fresh.min_by_key(|(at, slot)| (*at, slot.print() != Fingerprint::NONE))?;
        if let Some(held) = oldest.cell.claim(now) {
            return Some((oldest, held));
        }
    }
}

fn is_among<const WORDS: usize>(buckets: &[Bucket<WORDS>], slot: &Slot<WORDS>) -> bool {
    buckets.as_ptr_range().contains(&std::ptr::from_ref(slot).cast())
}

/// A number below `end`, in proportion to a hash.
#[inline]
fn scaled(hash: u64, end: usize) -> usize {
    ((u128::from(hash) * end as u128) >> 64) as usize
}

impl<const WORDS: usize> Table<WORDS> {
    /// A table with room for `keys` keys, and a fifth more so that most find it at home; a seventh for larger states,
    /// which take enough memory already.
    pub(crate) fn with_room_for(keys: usize) -> std::io::Result<Table<WORDS>> {
        let slots = keys.saturating_add(keys.div_ceil(if WORDS == 1 { 5 } else { 7 }));
        let buckets = slots.div_ceil(SLOTS).max(1);
        let has_front = buckets >= FRONT_FROM_BUCKETS;
        let front = if has_front { (buckets / FRONT_SHARE).clamp(1, FRONT_BUCKETS_MAX) } else { 0 };
        Ok(Table {
            buckets: Pages::zeroed(buckets)?,
            front,
            until_outgrown: AtomicU64::new((front * SLOTS * OUTGROWN_TIMES) as u64),
            horizons: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    /// Bytes of memory that the table will never exceed.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// The number of a key's home bucket.
    #[inline]
    pub(crate) fn home(&self, print: Fingerprint) -> usize {
        self.bucket_at(print, 0)
    }

    /// The number of the bucket that a key's probe leads to; probe 0 is home. Probes jump to and fro at random: beside
    /// each other, full buckets would clump together and fill whole stretches of the table.
    #[inline]
    fn bucket_at(&self, print: Fingerprint, probe: u64) -> usize {
        let hash = if probe == 0 { print.high } else { mix(print.low, probe) };
        self.front + scaled(hash, self.buckets.len() - self.front)
    }

    /// The number of a key's bucket in the front. Where there is no front it is bucket 0, where the key may be or not.
    #[inline(always)]
    fn front(&self, print: Fingerprint) -> usize {
        scaled(print.low, self.front)
    }

    /// Whether most keys are in the rest, so that it is better to look there first.
    #[inline(always)]
    fn is_outgrown(&self) -> bool {
        self.until_outgrown.load(Ordering::Relaxed) == 0
    }

    /// The number of the bucket in which a key is looked for first.
    #[inline(always)]
    fn first(&self, print: Fingerprint) -> usize {
        if self.is_outgrown() { self.home(print) } else { self.front(print) }
    }

    /// Asks for the memory that [`Table::find_first`] reads.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, print: Fingerprint) {
        prefetch(&self.buckets[self.first(print)]);
    }

    /// Asks for the memory that [`Table::find_elsewhere`] reads first.
    #[inline(always)]
    pub(crate) fn prefetch_elsewhere(&self, print: Fingerprint) {
        if self.is_outgrown() {
            prefetch(&self.buckets[self.front(print)]);
            prefetch(&self.buckets[self.bucket_at(print, 1)]);
        } else {
            prefetch(&self.buckets[self.home(print)]);
        }
    }

    /// Takes the slot of a key that is in the table.
    #[inline]
    pub(crate) fn lock(&self, print: Fingerprint) -> Option<Held<'_, WORDS>> {
        while let Some(slot) = self.find(print) {
            if let Some(held) = slot.lock(print) {
                return Some(held);
            }
        }
        None
    }

    /// Looks for a key's slot. Whoever uses it makes sure that it is still the key's.
    #[inline(always)]
    pub(crate) fn find(&self, print: Fingerprint) -> Option<&Slot<WORDS>> {
        match self.find_first(print) {
            None => self.find_elsewhere(print),
            found => found,
        }
    }

    /// Looks where most keys are.
    #[inline(always)]
    pub(crate) fn find_first(&self, print: Fingerprint) -> Option<&Slot<WORDS>> {
        self.buckets[self.first(print)].find(print)
    }

    /// Looks everywhere, for a key that was not where most are.
    #[inline(never)]
    pub(crate) fn find_elsewhere(&self, print: Fingerprint) -> Option<&Slot<WORDS>> {
        let find_in = |bucket: usize| self.buckets[bucket].find(print);
        find_in(self.front(print)).or_else(|| find_in(self.home(print))).or_else(|| {
            let gate = self.gate_of(print).load(Ordering::Acquire);
            probes_beyond(gate).find_map(|probe| find_in(self.bucket_at(print, probe)))
        })
    }

    /// Locks a key's home bucket against other inserters. Who takes several takes them in ascending order of homes.
    pub(crate) fn gate(&self, home: usize) -> Gate<'_> {
        let word = &self.buckets[home].gate;
        let mut wait = Wait::new();
        while word.fetch_or(GATE_LOCKED, Ordering::Acquire) & GATE_LOCKED != 0 {
            while word.load(Ordering::Relaxed) & GATE_LOCKED != 0 {
                wait.pause();
            }
        }
        Gate { word }
    }

    /// Takes a key's slot: that which it has, or else a new one. The caller holds the gate of its home. The old state
    /// of a slot that is given away is handed to `reclaim`. Nothing if every slot in reach is live.
    pub(crate) fn insert<'a>(
        &'a self,
        print: Fingerprint,
        now: Time,
        reclaim: impl FnOnce([u64; WORDS]),
    ) -> Option<Held<'a, WORDS>> {
        if let Some(held) = self.lock(print) {
            return Some(held);
        }
        let front = (self.front > 0).then(|| self.front(print));
        let near = || front.into_iter().chain([self.home(print)]).flat_map(|bucket| self.slots_of(bucket, print));
        let (probe, slot, mut held) = match claim_oldest(near, now) {
            Some((slot, held)) => (0, slot, held),
            None => (1..REACH).find_map(|probe| {
                let slots = || self.slots_of(self.bucket_at(print, probe), print);
                claim_oldest(slots, now).map(|(slot, held)| (probe, slot, held))
            })?,
        };
        let before = slot.print();
        if before == Fingerprint::NONE && !self.is_in_front(slot) {
            // At zero it stays, so there is no error to look at.
            let _ = self.until_outgrown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        }
        // First it is nobody's: what is given back must not be found in the slot again, even if that panics.
        let old = std::mem::replace(held.state_mut(), [0; WORDS]);
        if before.low != 0 {
            self.horizon(before).fetch_max(now.as_nanos(), Ordering::Release);
            reclaim(old);
        }
        if probe > 0 {
            let displaced = |gate| Some(with_displaced(gate, probe));
            // The update never declines, so there is no error to look at.
            let _ = self.gate_of(print).fetch_update(Ordering::Release, Ordering::Relaxed, displaced);
        }
        slot.assign(&mut held, print);
        if before.low != 0 && self.is_displaced(before, slot) {
            self.gate_of(before).fetch_sub(1, Ordering::Release);
        }
        Some(held)
    }

    /// Gives up the states that equal never seen at `now` in the buckets that `numbers` turn to, without waiting.
    pub(crate) fn sweep(&self, numbers: impl Iterator<Item = u64>, now: Time, reclaim: impl Fn([u64; WORDS])) {
        for number in numbers {
            for slot in &self.buckets[(number % self.buckets.len() as u64) as usize].slots {
                if let Some(mut held) = slot.cell.claim(now)
                    && held.state() != [0; WORDS]
                {
                    self.horizon(slot.print()).fetch_max(now.as_nanos(), Ordering::Release);
                    reclaim(std::mem::replace(held.state_mut(), [0; WORDS]));
                }
            }
        }
    }

    fn slots_of(&self, bucket: usize, print: Fingerprint) -> impl Iterator<Item = &Slot<WORDS>> {
        self.buckets[bucket].slots_for(print)
    }

    fn gate_of(&self, print: Fingerprint) -> &AtomicU64 {
        &self.buckets[self.home(print)].gate
    }

    fn is_displaced(&self, print: Fingerprint, slot: &Slot<WORDS>) -> bool {
        !self.is_in_front(slot) && !is_among(&self.buckets[self.home(print)..][..1], slot)
    }

    fn is_in_front(&self, slot: &Slot<WORDS>) -> bool {
        is_among(&self.buckets[..self.front], slot)
    }

    /// Whether the key, or one that shares its horizon, was forgotten after `now`: then `now` is too old to start it
    /// anew.
    pub(crate) fn was_forgotten_after(&self, print: Fingerprint, now: Time) -> bool {
        self.horizon(print).load(Ordering::Acquire) > now.as_nanos()
    }

    fn horizon(&self, print: Fingerprint) -> &AtomicU64 {
        &self.horizons[print.low as usize % HORIZONS]
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "table_tests.rs"]
mod tests;
