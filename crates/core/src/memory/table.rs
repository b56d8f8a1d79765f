//! A hash table of fixed size whose slots are reclaimed, never moved.
//!
//! A bucket is a gate and five slots. A key lives in its bucket of the front, a small part of the table where few keys
//! are close together; or in its home bucket, in the rest; or, if both were full when it came, in one of a few others
//! that its fingerprint picks: the gate of its home knows how many keys did that and how far they went, so that most
//! look-ups end in one bucket. Whoever inserts a key holds the gate of its home bucket, so no key is inserted twice.
//! Slots are found without any lock; see `slot.rs` for how they are changed.

#![allow(clippy::cast_possible_truncation, reason = "a scaled hash is below the number of buckets")]

use super::cell::Held;
use super::fingerprint::{Fingerprint, scaled};
use super::pages::{Pages, Zeroed, prefetch};
use super::slot::Slot;
use crate::Time;
use crate::sync::{AtomicU64, Ordering, Wait};

const SLOTS: usize = 5;

/// Buckets a key may live in besides that of the front: its home and 31 others. With seven of eight slots live (states
/// of one word: five of six), fewer than one newcomer in a million finds no place.
const REACH: u64 = 32;

/// Divisor of a table's buckets for the front, which has at most half a megabyte of states of one word: as much as a
/// core's cache keeps.
const FRONT_DIVISOR: usize = 8;
const FRONT_BUCKETS_MAX: usize = 4096;

/// Smaller tables have no front, since they fit a cache as they are: 128 KB of states of one word. The model checker needs
/// one in a table of two buckets.
const FRONT_FROM_BUCKETS: usize = if cfg!(shuttle) { 2 } else { 1024 };

/// A key whose state has equalled never seen for this long, 10 s, is not expected back: its slot is as good as one that
/// was never used. So two keys drive each other from a slot at most as often as this.
const EXPECTED_BACK_NANOS: u64 = 10_000_000_000;

/// Words in which reclaimers leave the time they acted at, by fingerprint.
const HORIZONS: usize = 64;

pub(crate) struct Table<const WORDS: usize> {
    buckets: Pages<Bucket<WORDS>>,
    /// How many of the buckets, the first ones, are the front: none in a small table.
    front_buckets: usize,
    /// 1 if most keys are in the front, so that it is better to look there first; else 0.
    front_leads: AtomicU64,
    turnover: Turnover,
}

/// The words that are written as keys come and go, in cache lines of their own, since every look-up reads their
/// neighbours.
#[repr(align(128))]
struct Turnover {
    /// By how much the front leads: a newcomer that goes there adds two, one that goes to the rest takes one, from 0 to the
    /// slots of the front. To look into the front in vain costs less.
    lead: AtomicU64,
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

/// The lowest bit of the farthest probe that a displaced key of this home took, in the word of a gate; the bits below
/// count the displaced keys.
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

/// Holds the slot least likely to be missed: the first whose key is not expected back, or else the one that has
/// equalled never seen for longest. If another thread was faster, it searches again.
fn claim_spare<'a, const WORDS: usize, S: Iterator<Item = &'a Slot<WORDS>>>(
    slots: impl Fn() -> S,
    now: Time,
) -> Option<(&'a Slot<WORDS>, Held<'a, WORDS>)> {
    loop {
        let fresh = slots().map(|slot| (slot.cell.fresh_at(), slot)).filter(|(at, _)| *at <= now.as_nanos());
        let (_, spare) = fresh.min_by_key(|(at, slot)| {
            let is_expected = now.as_nanos() - at < EXPECTED_BACK_NANOS;
            // Of equals one that was never used comes first: all free slots of a semaphore are at instant 0.
            if is_expected { (*at, slot.print() != Fingerprint::NONE) } else { (0, false) }
        })?;
        if let Some(held) = spare.cell.claim(now) {
            return Some((spare, held));
        }
    }
}

fn is_among<const WORDS: usize>(buckets: &[Bucket<WORDS>], slot: &Slot<WORDS>) -> bool {
    buckets.as_ptr_range().contains(&std::ptr::from_ref(slot).cast())
}

impl<const WORDS: usize> Table<WORDS> {
    /// A table with room for `keys` keys, and a fifth more so that most find it at home; a seventh for larger states,
    /// which take enough memory already.
    pub(crate) fn with_room_for(keys: usize) -> std::io::Result<Table<WORDS>> {
        let slots = keys.saturating_add(keys.div_ceil(if WORDS == 1 { 5 } else { 7 }));
        let buckets = slots.div_ceil(SLOTS).max(1);
        let has_front = buckets >= FRONT_FROM_BUCKETS;
        let front_buckets = if has_front { (buckets / FRONT_DIVISOR).clamp(1, FRONT_BUCKETS_MAX) } else { 0 };
        Ok(Table {
            buckets: Pages::zeroed(buckets)?,
            front_buckets,
            front_leads: AtomicU64::new(u64::from(has_front)),
            turnover: Turnover {
                lead: AtomicU64::new((front_buckets * SLOTS) as u64),
                horizons: std::array::from_fn(|_| AtomicU64::new(0)),
            },
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
        self.front_buckets + scaled(hash, self.buckets.len() - self.front_buckets)
    }

    /// The number of a key's bucket in the front. Where there is no front it is bucket 0, in which it does no harm to look.
    #[inline(always)]
    fn front_of(&self, print: Fingerprint) -> usize {
        scaled(print.low, self.front_buckets)
    }

    #[inline(always)]
    fn front_leads(&self) -> bool {
        self.front_leads.load(Ordering::Relaxed) == 1
    }

    /// The number of the bucket in which a key is looked for first.
    #[inline(always)]
    fn first_of(&self, print: Fingerprint) -> usize {
        if self.front_leads() { self.front_of(print) } else { self.home(print) }
    }

    /// Asks for the memory that [`Table::find_first`] reads.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, print: Fingerprint) {
        prefetch(&self.buckets[self.first_of(print)]);
    }

    /// Asks for the memory that [`Table::find_elsewhere`] reads first.
    #[inline(always)]
    pub(crate) fn prefetch_elsewhere(&self, print: Fingerprint) {
        if self.front_leads() {
            prefetch(&self.buckets[self.home(print)]);
        } else {
            prefetch(&self.buckets[self.front_of(print)]);
            prefetch(&self.buckets[self.bucket_at(print, 1)]);
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
        self.buckets[self.first_of(print)].find(print)
    }

    /// Looks everywhere, for a key that was not where most are. There again too: which part is looked at first may have
    /// changed since, and a key that is missed in both would be taken for a new one.
    #[inline(never)]
    pub(crate) fn find_elsewhere(&self, print: Fingerprint) -> Option<&Slot<WORDS>> {
        let find_in = |bucket: usize| self.buckets[bucket].find(print);
        find_in(self.front_of(print)).or_else(|| find_in(self.home(print))).or_else(|| {
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
        let front = (self.front_buckets > 0).then(|| self.front_of(print));
        let near = || front.into_iter().chain([self.home(print)]).flat_map(|bucket| self.slots_of(bucket, print));
        let (probe, slot, mut held) = match claim_spare(near, now) {
            Some((slot, held)) => (0, slot, held),
            None => (1..REACH).find_map(|probe| {
                let slots = || self.slots_of(self.bucket_at(print, probe), print);
                claim_spare(slots, now).map(|(slot, held)| (probe, slot, held))
            })?,
        };
        let before = slot.print();
        self.note_newcomer(self.is_in_front(slot));
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

    /// Changes where keys are looked for first, if for long most newcomers have gone to the other part.
    fn note_newcomer(&self, is_in_front: bool) {
        let most = (self.front_buckets * SLOTS) as u64;
        let next = |lead: u64| match is_in_front {
            true => (lead < most).then(|| (lead + 2).min(most)),
            false => lead.checked_sub(1),
        };
        // At either end nothing is written. Two that meet may leave the wrong order until the next change: that only costs time.
        let moved = self.turnover.lead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        match moved.ok().and_then(next) {
            Some(0) => self.front_leads.store(0, Ordering::Relaxed),
            Some(lead) if lead == most => self.front_leads.store(1, Ordering::Relaxed),
            _ => {}
        }
    }

    fn slots_of(&self, bucket: usize, print: Fingerprint) -> impl Iterator<Item = &Slot<WORDS>> {
        self.buckets[bucket].slots_for(print)
    }

    fn gate_of(&self, print: Fingerprint) -> &AtomicU64 {
        &self.buckets[self.home(print)].gate
    }

    fn is_displaced(&self, print: Fingerprint, slot: &Slot<WORDS>) -> bool {
        !self.is_in_front(slot) && !is_among(std::slice::from_ref(&self.buckets[self.home(print)]), slot)
    }

    fn is_in_front(&self, slot: &Slot<WORDS>) -> bool {
        is_among(&self.buckets[..self.front_buckets], slot)
    }

    /// Whether the key, or one that shares its horizon, was forgotten after `now`: then `now` is too old to start it
    /// anew.
    pub(crate) fn was_forgotten_after(&self, print: Fingerprint, now: Time) -> bool {
        self.horizon(print).load(Ordering::Acquire) > now.as_nanos()
    }

    fn horizon(&self, print: Fingerprint) -> &AtomicU64 {
        &self.turnover.horizons[print.low as usize % HORIZONS]
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "table_tests.rs"]
mod tests;
