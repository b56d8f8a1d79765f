//! The heaviest keys of one rule over the last minute and the last hour.
//!
//! Each thread counts in a place of its own, and nobody waits to count: where a place is taken, as while somebody reads it,
//! the next one will do. A place counts minutes. When one ends, its keys are added to the hour of the rule, which all
//! threads share, so that most requests touch a single table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use tidegate_core::{KeyCounts, KeyHasher, Time};

use super::generations::{Generations, Lists};
use super::memory::{Memory, Room};
use crate::bounds::{TOP_SHARDS, TOP_SHARDS_TRIED};
use crate::stats::shard_number;

/// The span that keys are counted over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopWindow {
    /// The last minute.
    #[default]
    Minute,
    /// The last hour.
    Hour,
}

impl TopWindow {
    /// Both of them.
    pub const ALL: [TopWindow; 2] = [TopWindow::Minute, TopWindow::Hour];

    /// Its length.
    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            TopWindow::Minute => Duration::from_secs(60),
            TopWindow::Hour => Duration::from_secs(3_600),
        }
    }
}

const MINUTE_NANOS: u64 = 60_000_000_000;
const MINUTES_IN_AN_HOUR: u64 = 60;

/// What was seen of the keys of a rule.
#[derive(Debug)]
pub(crate) struct Top {
    hasher: KeyHasher,
    /// Whether it has a few keys at most: it counts all requests as one.
    is_small: bool,
    shards: OnceLock<Box<[Shard]>>,
    hour: Mutex<Option<Generations>>,
    memory: Memory,
    /// Whether there was no memory for it at its last request.
    is_refused: AtomicBool,
    missed: AtomicU64,
}

/// The place of a few threads, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Option<Minutes>>);

/// The keys of the present minute and of the one before.
#[derive(Debug)]
struct Minutes {
    generations: Generations,
    /// Whether the minute before has to be added to the hour.
    is_owed: bool,
}

/// What was counted of keys over a span that slides.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) total: KeyCounts,
    pub(super) keys: HashMap<Box<[u8]>, KeyCounts>,
}

impl Top {
    pub(super) fn new(room: &Arc<Room>, hasher: &KeyHasher, is_small: bool) -> Top {
        let (hasher, memory) = (hasher.clone(), Memory::of(room));
        Top {
            hasher,
            is_small,
            shards: OnceLock::new(),
            hour: Mutex::default(),
            memory,
            is_refused: AtomicBool::new(false),
            missed: AtomicU64::new(0),
        }
    }

    /// Counts a request of a key.
    #[inline]
    pub(crate) fn note(&self, key: &[u8], counts: &KeyCounts, now: Time) {
        let Some(shards) = self.shards.get().map(|shards| &**shards).or_else(|| self.make_shards()) else { return };
        let first = shard_number();
        for turn in 0..TOP_SHARDS_TRIED {
            let Some(shard) = shards.get((first + turn) % shards.len()) else { return };
            let Some(mut minutes) = try_lock(&shard.0) else { continue };
            let minute = now.as_nanos() / MINUTE_NANOS;
            if minutes.is_none() {
                *minutes = self.begin(minute);
            }
            if let Some(minutes) = &mut *minutes {
                // While the minute before cannot be added to the hour, the present one goes on.
                if !minutes.is_owed && minutes.generations.begin(minute) {
                    minutes.is_owed = true;
                }
                minutes.generations.latest().add(self.hasher.hash(key), key, counts, &self.memory);
                if minutes.is_owed {
                    self.settle(minutes);
                }
            }
            return;
        }
        self.missed.fetch_add(1, Relaxed);
    }

    /// Requests that were not counted because all places were taken.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Whether any request was counted.
    pub(super) fn has_begun(&self) -> bool {
        self.shards.get().is_some()
    }

    /// Whether keys went uncounted because other rules had taken all memory.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }

    /// What was seen of all keys, and of the heaviest ones.
    pub(super) fn seen(&self, window: TopWindow, now: Time) -> Seen {
        let mut seen = Seen::default();
        let span = Span::at(window, now);
        // Held to the end: what a minute adds to the hour must be seen once.
        let hour = lock(&self.hour);
        for shard in self.shards.get().into_iter().flatten() {
            let shard = lock(&shard.0);
            let Some(minutes) = &*shard else { continue };
            let (settled, _) = minutes.generations.before();
            for (minute, lists) in minutes.generations.each() {
                match window {
                    TopWindow::Minute => seen.add(lists, span.share_of(minute)),
                    TopWindow::Hour if minute == settled && !minutes.is_owed => {}
                    TopWindow::Hour => seen.add(lists, span.share_of(minute / MINUTES_IN_AN_HOUR)),
                }
            }
        }
        if let (TopWindow::Hour, Some(hours)) = (window, &*hour) {
            for (number, lists) in hours.each() {
                seen.add(lists, span.share_of(number));
            }
        }
        seen
    }

    #[cold]
    fn make_shards(&self) -> Option<&[Shard]> {
        if !self.memory.take(TOP_SHARDS * size_of::<Shard>()) {
            self.is_refused.store(true, Relaxed);
            return None;
        }
        // If somebody else was quicker, a few bytes stay taken.
        Some(self.shards.get_or_init(|| (0..TOP_SHARDS).map(|_| Shard::default()).collect()))
    }

    #[cold]
    fn begin(&self, minute: u64) -> Option<Minutes> {
        let generations = Generations::new(minute, self.is_small, &self.memory);
        self.is_refused.store(generations.is_none(), Relaxed);
        Some(Minutes { generations: generations?, is_owed: false })
    }

    /// Adds the minute before to its hour, unless somebody else is at it: then the next request does.
    #[cold]
    fn settle(&self, minutes: &mut Minutes) {
        let Some(mut hours) = try_lock(&self.hour) else { return };
        minutes.is_owed = false;
        let (minute, lists) = minutes.generations.before();
        let hour = minute / MINUTES_IN_AN_HOUR;
        if hours.is_none() {
            *hours = Generations::new(hour, self.is_small, &self.memory);
        }
        let Some(hours) = &mut *hours else { return };
        hours.begin(hour);
        // A minute that ended more than an hour ago is of none of both.
        let Some(of_hour) = hours.of(hour) else { return };
        let mut rest = lists.total();
        for (key, counts) in lists.keys() {
            of_hour.add(self.hasher.hash(key), key, &counts, &self.memory);
            rest = less(&rest, &counts);
        }
        of_hour.add_to_total(&rest);
    }
}

impl Seen {
    /// Adds the given share of what lists have seen.
    fn add(&mut self, lists: &Lists, share: Share) {
        if share.parts == 0 {
            return;
        }
        self.total += share.of(&lists.total());
        for (key, counts) in lists.keys() {
            let counts = share.of(&counts);
            match self.keys.get_mut(key) {
                Some(known) => *known += counts,
                None => {
                    self.keys.insert(key.into(), counts);
                }
            }
        }
    }
}

/// A span that ends now.
struct Span {
    /// The number of the span of the epoch that is now.
    number: u64,
    /// How much of the one before belongs to it.
    before: Share,
}

impl Span {
    fn at(window: TopWindow, now: Time) -> Span {
        let length = MINUTE_NANOS * (window.length().as_secs() / 60);
        let left = length - now.as_nanos() % length;
        Span { number: now.as_nanos() / length, before: Share { parts: left, whole: length } }
    }

    /// How much of the span of this number belongs to it.
    fn share_of(&self, number: u64) -> Share {
        // A later one was counted before the clock went back.
        if number >= self.number {
            Share { parts: 1, whole: 1 }
        } else if number + 1 == self.number {
            self.before
        } else {
            Share { parts: 0, whole: 1 }
        }
    }
}

/// A fraction of a whole.
#[derive(Clone, Copy)]
struct Share {
    parts: u64,
    whole: u64,
}

impl Share {
    /// That share of counts, rounded down.
    fn of(self, counts: &KeyCounts) -> KeyCounts {
        let part = |count: u64| {
            let part = u128::from(count) * u128::from(self.parts) / u128::from(self.whole.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        KeyCounts {
            requests: part(counts.requests),
            denials: part(counts.denials),
            shadow_denials: part(counts.shadow_denials),
        }
    }
}

fn less(counts: &KeyCounts, other: &KeyCounts) -> KeyCounts {
    KeyCounts {
        requests: counts.requests.saturating_sub(other.requests),
        denials: counts.denials.saturating_sub(other.denials),
        shadow_denials: counts.shadow_denials.saturating_sub(other.shadow_denials),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
