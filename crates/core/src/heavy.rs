//! The keys that are seen most often, in fixed memory.
//!
//! A hash leads to one bucket of eight places. A key that has a place there is counted exactly from then on. One that has none
//! meets the place that was seen least, say `c` times, and takes it over with a chance of 1 / (c + 1): frequent keys get in soon
//! and stay, and a flood of keys that are seen once mostly passes by. So a key is never counted too often; what is missing is
//! what it was seen before it got its place. Decision 39 has the measurements, and what it was compared with.
//!
//! A place holds a hash and counts. The bytes of the key are copied when it took a free place, or is seen again.

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::AddAssign;

use crate::dice::Dice;

/// Places in a bucket: their hashes fill half a cache line.
const PLACES: usize = 8;

/// Buckets of a table: 256 places. Half as many would do to find the 20 heaviest of a million keys.
const BUCKETS: usize = 32;

/// Bytes by which the room for keys grows.
const NAMES_STEP_BYTES: usize = 1 << 10;

/// Most bytes of all keys of a table: every place has room for one of 120 bytes, and 32 for the longest that rules make.
const NAMES_BYTES_MAX: usize = 32 << 10;

const _: () = assert!(NAMES_BYTES_MAX < NO_NAME as usize, "an offset fits in 16 bits, beside that of no name");

/// The place has no bytes of its key.
const NO_NAME: u16 = u16::MAX;

/// How often a key was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Requests.
    pub requests: u64,
    /// Requests that were denied.
    pub denials: u64,
    /// Requests that passed in shadow and would have been denied.
    pub shadow_denials: u64,
}

impl AddAssign for KeyCounts {
    fn add_assign(&mut self, other: KeyCounts) {
        self.requests = self.requests.saturating_add(other.requests);
        self.denials = self.denials.saturating_add(other.denials);
        self.shadow_denials = self.shadow_denials.saturating_add(other.shadow_denials);
    }
}

/// What makes a key heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeavyBy {
    /// Its requests.
    Requests,
    /// Its denials, those in shadow among them.
    Denials,
}

impl HeavyBy {
    /// Returns how much these counts weigh.
    #[must_use]
    pub fn weight(self, counts: &KeyCounts) -> u64 {
        match self {
            HeavyBy::Requests => counts.requests,
            HeavyBy::Denials => counts.denials.saturating_add(counts.shadow_denials),
        }
    }
}

/// Hashes keys such that nobody who chooses keys can make two of them meet.
#[derive(Clone)]
pub struct KeyHasher {
    start: u64,
    shared: SharedSeed,
}

impl KeyHasher {
    /// Returns a hasher with seeds of its own.
    #[must_use]
    pub fn random() -> KeyHasher {
        let source = RandomState::new();
        KeyHasher { start: source.hash_one(0), shared: SharedSeed::from_u64(source.hash_one(1)) }
    }

    /// Returns the hash of a key.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.start, &self.shared);
        hasher.write(key);
        // The quick hash leaves some bits weak, and all are used.
        let mixed = hasher.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

/// Eight places. Counts are of the time since a key got its place; `floors` are what the key before it was seen.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Bucket {
    /// The upper half of the hash of each key; never 0, which marks a free place.
    prints: [u32; PLACES],
    weights: [u32; PLACES],
    floors: [u32; PLACES],
    denials: [u32; PLACES],
    shadow_denials: [u32; PLACES],
    /// Where the bytes of each key are.
    names: [u16; PLACES],
}

const EMPTY: Bucket = Bucket {
    prints: [0; PLACES],
    weights: [0; PLACES],
    floors: [0; PLACES],
    denials: [0; PLACES],
    shadow_denials: [0; PLACES],
    names: [NO_NAME; PLACES],
};

impl Bucket {
    /// How much the key of a place may have been seen, with those before it.
    fn estimate(&self, place: usize) -> u64 {
        u64::from(self.weights[place]) + u64::from(self.floors[place])
    }

    /// The place that was seen least; a free one if there is any.
    fn least(&self) -> usize {
        let mut least = 0;
        for place in 1..PLACES {
            if self.estimate(place) < self.estimate(least) {
                least = place;
            }
        }
        least
    }

    fn add(&mut self, place: usize, weight: u64, counts: &KeyCounts) {
        let plus = |count: &mut u32, more: u64| *count = count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        plus(&mut self.weights[place], weight);
        plus(&mut self.denials[place], counts.denials);
        plus(&mut self.shadow_denials[place], counts.shadow_denials);
    }

    fn counts(&self, place: usize, by: HeavyBy) -> KeyCounts {
        KeyCounts {
            requests: if by == HeavyBy::Requests { self.weights[place].into() } else { 0 },
            denials: self.denials[place].into(),
            shadow_denials: self.shadow_denials[place].into(),
        }
    }
}

/// The keys that were seen most often since it was cleared.
#[derive(Debug)]
pub struct HeavyHitters {
    by: HeavyBy,
    buckets: Box<[Bucket]>,
    /// The bytes of keys, each after its length in two bytes. Those of keys that lost their places stay until it is full.
    names: Vec<u8>,
    /// How much a key has to weigh for its bytes to be copied: those of some lighter ones were dropped for want of room.
    bar: u32,
    total: KeyCounts,
    dice: Dice,
}

impl HeavyHitters {
    /// Returns a table in which nothing was seen; `seed` is for its chances.
    #[must_use]
    pub fn new(by: HeavyBy, seed: u64) -> HeavyHitters {
        HeavyHitters::with_buckets(by, BUCKETS, seed)
    }

    /// Returns a table for a stream of few keys: up to eight.
    #[must_use]
    pub fn of_few(by: HeavyBy, seed: u64) -> HeavyHitters {
        HeavyHitters::with_buckets(by, 1, seed)
    }

    fn with_buckets(by: HeavyBy, buckets: usize, seed: u64) -> HeavyHitters {
        let (buckets, dice) = (vec![EMPTY; buckets].into(), Dice::new(seed));
        HeavyHitters { by, buckets, names: Vec::new(), bar: 0, total: KeyCounts::default(), dice }
    }

    /// Counts a key with this hash. `may_grow` is asked before it takes more bytes of memory; if it refuses, further keys
    /// may have no bytes.
    #[inline]
    pub fn add(&mut self, hash: u64, key: &[u8], counts: &KeyCounts, may_grow: impl FnOnce(usize) -> bool) {
        self.total += *counts;
        let weight = self.by.weight(counts);
        #[allow(clippy::cast_possible_truncation, reason = "each half is used for itself")]
        let (print, number) = (((hash >> 32) as u32).max(1), hash as u32 as usize & (self.buckets.len() - 1));
        let bucket = &mut self.buckets[number];
        let found = bucket.prints.iter().position(|other| *other == print);
        let place = match found {
            Some(place) => place,
            None => {
                let place = bucket.least();
                let floor = bucket.estimate(place);
                if floor > 0 && !wins(&mut self.dice, weight, floor) {
                    return;
                }
                bucket.prints[place] = print;
                bucket.weights[place] = 0;
                bucket.floors[place] = u32::try_from(floor).unwrap_or(u32::MAX);
                bucket.denials[place] = 0;
                bucket.shadow_denials[place] = 0;
                bucket.names[place] = NO_NAME;
                place
            }
        };
        bucket.add(place, weight, counts);
        let is_named = bucket.names[place] != NO_NAME;
        let is_seen_again = found.is_some() || bucket.floors[place] == 0;
        if !is_named && is_seen_again && bucket.weights[place] > self.bar {
            self.name(number, place, key, may_grow);
        }
    }

    /// Adds to the total alone.
    pub fn add_to_total(&mut self, counts: &KeyCounts) {
        self.total += *counts;
    }

    /// What was seen of all keys.
    #[must_use]
    pub fn total(&self) -> &KeyCounts {
        &self.total
    }

    /// The keys that have a place and bytes, in no order, each with how often it was seen since it got its place. Requests of
    /// a table by denials are unknown, and shown as 0.
    pub fn keys(&self) -> impl Iterator<Item = (&[u8], KeyCounts)> {
        let places = self.buckets.iter().flat_map(|bucket| (0..PLACES).map(move |place| (bucket, place)));
        places.filter_map(|(bucket, place)| Some((self.bytes_of(bucket.names[place])?, bucket.counts(place, self.by))))
    }

    /// The bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + self.names.capacity()
    }

    /// The bytes of memory that a table takes before it has seen anything.
    #[must_use]
    pub const fn bytes_at_first() -> usize {
        BUCKETS * size_of::<Bucket>()
    }

    /// The most bytes of memory that it takes.
    #[must_use]
    pub const fn bytes_max() -> usize {
        HeavyHitters::bytes_at_first() + NAMES_BYTES_MAX
    }

    /// Forgets everything. It keeps its memory.
    pub fn clear(&mut self) {
        self.buckets.fill(EMPTY);
        self.names.clear();
        self.bar = 0;
        self.total = KeyCounts::default();
    }

    /// Copies the bytes of the key of a place.
    fn name(&mut self, number: usize, place: usize, key: &[u8], may_grow: impl FnOnce(usize) -> bool) {
        let needed = size_of::<u16>() + key.len();
        if self.names.len() + needed > self.names.capacity() {
            // Most bytes may be of keys that lost their places.
            let is_dense = self.bytes_in_use() + needed > self.names.capacity() / 2;
            if !is_dense || !self.grow(needed, may_grow) {
                self.compact();
            }
        }
        if self.names.len() + needed > self.names.capacity() {
            return;
        }
        let (Ok(start), Ok(length)) = (u16::try_from(self.names.len()), u16::try_from(key.len())) else { return };
        self.names.extend_from_slice(&length.to_ne_bytes());
        self.names.extend_from_slice(key);
        self.buckets[number].names[place] = start;
    }

    fn grow(&mut self, needed: usize, may_grow: impl FnOnce(usize) -> bool) -> bool {
        let before = self.names.capacity();
        let after = (self.names.len() + needed).next_multiple_of(NAMES_STEP_BYTES).max(2 * before).min(NAMES_BYTES_MAX);
        if after < self.names.len() + needed || !may_grow(after - before) {
            return false;
        }
        self.names.reserve_exact(after - self.names.len());
        true
    }

    /// The bytes of keys that have a place.
    fn bytes_in_use(&self) -> usize {
        let names = self.buckets.iter().flat_map(|bucket| bucket.names);
        names.filter_map(|name| Some(with_length(&self.names, name)?.len())).sum()
    }

    /// Keeps the bytes of the heaviest keys, as many as fill half of the room, and drops those of all others.
    fn compact(&mut self) {
        if self.names.is_empty() {
            return;
        }
        let mut kept: Vec<(u32, usize, usize)> = Vec::new();
        for (number, bucket) in self.buckets.iter().enumerate() {
            let named = (0..PLACES).filter(|place| bucket.names[*place] != NO_NAME);
            kept.extend(named.map(|place| (bucket.weights[place], number, place)));
        }
        kept.sort_unstable_by_key(|(weight, ..)| std::cmp::Reverse(*weight));
        let room = Vec::with_capacity(self.names.capacity());
        let names = std::mem::replace(&mut self.names, room);
        for (weight, number, place) in kept {
            let name = &mut self.buckets[number].names[place];
            let bytes = with_length(&names, *name).unwrap_or_default();
            *name = NO_NAME;
            if self.names.len() + bytes.len() <= self.names.capacity() / 2
                && let Ok(start) = u16::try_from(self.names.len())
            {
                self.names.extend_from_slice(bytes);
                *name = start;
            } else {
                self.bar = self.bar.max(weight);
            }
        }
    }

    fn bytes_of(&self, name: u16) -> Option<&[u8]> {
        with_length(&self.names, name)?.get(size_of::<u16>()..)
    }
}

/// Whether a key takes over a place that was seen `floor` times.
fn wins(dice: &mut Dice, weight: u64, floor: u64) -> bool {
    let end = u128::from(weight) + u128::from(floor);
    (u128::from(dice.roll()) * end) >> 64 < u128::from(weight)
}

/// The bytes of a key with its length before them.
fn with_length(names: &[u8], name: u16) -> Option<&[u8]> {
    let rest = names.get(usize::from(name)..).filter(|_| name != NO_NAME)?;
    let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
    rest.get(..size_of::<u16>() + length)
}

#[cfg(test)]
#[path = "heavy_tests.rs"]
mod tests;
