//! A hash table of fixed size whose slots are reclaimed, never moved.
//!
//! A bucket is a gate and five slots. A key lives in its home bucket or, if that was full when it came, in one of the
//! next ones; the gate counts how many did that, so that most look-ups end in one bucket. Whoever inserts a key holds
//! the gate of its home bucket, so no key is inserted twice. Slots are found without any lock; see `slot.rs` for how
//! they are changed.

#![allow(clippy::cast_possible_truncation, reason = "a scaled hash is below the number of buckets")]

use super::cell::Held;
use super::fingerprint::Fingerprint;
use super::pages::{Pages, Zeroed, prefetch};
use super::slot::Slot;
use crate::Time;
use crate::sync::{AtomicU64, Ordering, Wait};

const SLOTS: usize = 5;

/// Buckets a key may live in. With seven of eight slots live, fewer than one key in a million finds none.
const REACH: usize = 16;

/// Words in which reclaimers leave the time they acted at, by fingerprint.
const HORIZONS: usize = 64;

pub(crate) struct Table<const WORDS: usize> {
    buckets: Pages<Bucket<WORDS>>,
    /// For keys that were reclaimed: the latest instant at which one was. A caller with an older instant must not see
    /// a key as never seen that was not yet so at its instant, so it acts at this one.
    horizons: [AtomicU64; HORIZONS],
}

#[repr(C)]
struct Bucket<const WORDS: usize> {
    gate: AtomicU64,
    slots: [Slot<WORDS>; SLOTS],
}

// SAFETY: a bucket is made of `AtomicU64` alone.
#[allow(unsafe_code)]
unsafe impl<const WORDS: usize> Zeroed for Bucket<WORDS> {
    #[cfg(any(shuttle, miri))]
    fn zero() -> Self {
        Bucket { gate: AtomicU64::new(0), slots: std::array::from_fn(|_| Slot::empty()) }
    }
}

/// The lock of a gate; the bits below count the keys of this home bucket that live in another one.
const GATE_LOCKED: u64 = 1 << 63;

/// Where a key may be inserted: its home bucket, locked against other inserters.
pub(crate) struct Gate<'a> {
    word: &'a AtomicU64,
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!GATE_LOCKED, Ordering::Release);
    }
}

/// A key's slot, and how it was found.
pub(crate) struct Found<'a, const WORDS: usize> {
    pub(crate) held: Held<'a, WORDS>,
    /// The instant to decide at: for a new key, not before it was last forgotten.
    pub(crate) now: Time,
    pub(crate) is_new: bool,
}

impl<const WORDS: usize> Table<WORDS> {
    /// A table with room for `keys` keys, and an eighth more so that they find it.
    pub(crate) fn with_room_for(keys: usize) -> std::io::Result<Table<WORDS>> {
        let slots = keys.saturating_add(keys.div_ceil(7));
        Ok(Table {
            buckets: Pages::zeroed(slots.div_ceil(SLOTS).max(1))?,
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
        ((u128::from(print.high) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Asks for the memory that [`Table::lock`] is going to read.
    #[inline]
    pub(crate) fn prefetch(&self, print: Fingerprint) {
        prefetch(&self.buckets[self.home(print)]);
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

    #[inline]
    fn find(&self, print: Fingerprint) -> Option<&Slot<WORDS>> {
        let home = self.home(print);
        let bucket = &self.buckets[home];
        for slot in &bucket.slots {
            if slot.matches(print) {
                return Some(slot);
            }
        }
        if bucket.gate.load(Ordering::Acquire) & !GATE_LOCKED == 0 {
            return None;
        }
        self.reach(home).skip(SLOTS).find(|slot| slot.matches(print))
    }

    /// The slots a key of this home may live in, nearest first.
    fn reach(&self, home: usize) -> impl Iterator<Item = &Slot<WORDS>> {
        let (before, from) = self.buckets.split_at(home);
        from.iter().chain(before).take(REACH).flat_map(|bucket| &bucket.slots)
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

    /// Takes the slot of a key, in the table or newly given to it, while the caller holds the gate of its home. The
    /// old state of a slot that is given away is handed to `reclaim`. Nothing if every slot in reach is live.
    pub(crate) fn lock_or_insert(
        &self,
        print: Fingerprint,
        now: Time,
        reclaim: impl FnOnce([u64; WORDS]),
    ) -> Option<Found<'_, WORDS>> {
        if let Some(held) = self.lock(print) {
            return Some(Found { held, now, is_new: false });
        }
        let home = self.home(print);
        let (place, slot, mut held) =
            self.reach(home).enumerate().find_map(|(place, slot)| Some((place, slot, slot.cell.claim(now)?)))?;
        let before = slot.print();
        if before.low != 0 {
            self.horizon(before).fetch_max(now.as_nanos(), Ordering::Release);
            reclaim(held.state());
        }
        if place >= SLOTS {
            self.buckets[home].gate.fetch_add(1, Ordering::Relaxed);
        }
        slot.assign(&mut held, print);
        if before.low != 0 && self.is_displaced(before, home, place) {
            self.buckets[self.home(before)].gate.fetch_sub(1, Ordering::Release);
        }
        let horizon = Time::from_nanos(self.horizon(print).load(Ordering::Acquire));
        Some(Found { held, now: now.max(horizon), is_new: true })
    }

    /// Whether a key was kept elsewhere than in its home bucket: in the slot that is `place` slots from the start of
    /// bucket `home`.
    fn is_displaced(&self, print: Fingerprint, home: usize, place: usize) -> bool {
        (home + place / SLOTS) % self.buckets.len() != self.home(print)
    }

    fn horizon(&self, print: Fingerprint) -> &AtomicU64 {
        &self.horizons[print.low as usize % HORIZONS]
    }
}
