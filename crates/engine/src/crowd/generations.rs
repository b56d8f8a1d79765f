//! The heaviest keys of two spans of time, the present one and the one before it, from which a span that slides is put
//! together: all of the present one, and of the one before the share that still overlaps, as if it had been even. The sum
//! is exact if a key's requests were even over the earlier span. If all of them came at its beginning, they are counted for up to
//! one span too long; if all came at its end, too few are counted by the same measure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use tidegate_core::{HeavyBy, HeavyHitters, KeyCounts};

use super::memory::Memory;
use crate::bounds::TOP_KEYS_READ_MAX;

/// The heaviest keys of one span of time, by requests and by denials.
#[derive(Debug)]
pub(super) struct Lists {
    requests: HeavyHitters,
    /// Made with the first denial: many rules never deny.
    denials: Option<HeavyHitters>,
    /// Whether there are only a few keys.
    is_small: bool,
}

impl Lists {
    /// Returns empty lists; `None` if there is no memory for them.
    fn new(is_small: bool, memory: &Memory) -> Option<Lists> {
        let requests = table(is_small, HeavyBy::Requests, memory)?;
        Some(Lists { requests, denials: None, is_small })
    }

    #[inline]
    pub(super) fn add(&mut self, hash: u64, key: &[u8], counts: &KeyCounts, memory: &Memory) {
        self.requests.add(hash, key, counts, |bytes| memory.take(bytes));
        if counts.denials | counts.shadow_denials > 0 {
            self.add_denial(hash, key, counts, memory);
        }
    }

    fn add_denial(&mut self, hash: u64, key: &[u8], counts: &KeyCounts, memory: &Memory) {
        if self.denials.is_none() {
            self.denials = table(self.is_small, HeavyBy::Denials, memory);
        }
        if let Some(denials) = &mut self.denials {
            denials.add(hash, key, counts, |bytes| memory.take(bytes));
        }
    }

    /// Adds to the total alone.
    pub(super) fn add_to_total(&mut self, counts: &KeyCounts) {
        self.requests.add_to_total(counts);
    }

    /// What was seen of all keys.
    pub(super) fn total(&self) -> KeyCounts {
        *self.requests.total()
    }

    /// The heaviest keys of both lists. What one list has missed of a key, before it got its place, the other may have.
    pub(super) fn keys(&self) -> HashMap<&[u8], KeyCounts> {
        let mut keys: HashMap<&[u8], KeyCounts> = heaviest(&self.requests, HeavyBy::Requests).into_iter().collect();
        let denials = self.denials.as_ref().map(|table| heaviest(table, HeavyBy::Denials));
        for (key, counts) in denials.into_iter().flatten() {
            let known = keys.entry(key).or_default();
            known.denials = known.denials.max(counts.denials);
            known.shadow_denials = known.shadow_denials.max(counts.shadow_denials);
            known.requests = known.requests.max(known.denials + known.shadow_denials);
        }
        keys
    }

    fn clear(&mut self) {
        self.requests.clear();
        if let Some(denials) = &mut self.denials {
            denials.clear();
        }
    }
}

fn table(is_small: bool, by: HeavyBy, memory: &Memory) -> Option<HeavyHitters> {
    let seed = RandomState::new().hash_one(0);
    let table = if is_small { HeavyHitters::of_few(by, seed) } else { HeavyHitters::new(by, seed) };
    memory.take(table.bytes()).then_some(table)
}

fn heaviest(table: &HeavyHitters, by: HeavyBy) -> Vec<(&[u8], KeyCounts)> {
    let mut keys: Vec<(&[u8], KeyCounts)> = table.keys().collect();
    if keys.len() > TOP_KEYS_READ_MAX {
        keys.select_nth_unstable_by_key(TOP_KEYS_READ_MAX, |(_, counts)| std::cmp::Reverse(by.weight(counts)));
        keys.truncate(TOP_KEYS_READ_MAX);
    }
    keys
}

/// The number of a span that was never.
const NEVER: u64 = u64::MAX;

/// The lists of two spans. Spans are numbered from the epoch on.
#[derive(Debug)]
pub(super) struct Generations {
    now: (u64, Lists),
    before: (u64, Lists),
}

impl Generations {
    /// Returns empty lists from the span of this number on; `None` if there is no memory for them.
    pub(super) fn new(span: u64, is_small: bool, memory: &Memory) -> Option<Generations> {
        let (now, before) = (Lists::new(is_small, memory)?, Lists::new(is_small, memory)?);
        Some(Generations { now: (span, now), before: (NEVER, before) })
    }

    /// Begins the span of this number unless it has begun. Returns whether it had not.
    #[inline]
    pub(super) fn begin(&mut self, span: u64) -> bool {
        if span <= self.now.0 {
            return false;
        }
        self.turn(span);
        true
    }

    #[cold]
    fn turn(&mut self, span: u64) {
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.1.clear();
        self.now.0 = span;
    }

    /// The lists of the latest span.
    #[inline]
    pub(super) fn latest(&mut self) -> &mut Lists {
        &mut self.now.1
    }

    /// The number of the span before the latest, and its lists.
    pub(super) fn before(&self) -> (u64, &Lists) {
        (self.before.0, &self.before.1)
    }

    /// The lists of the span of this number, if it is one of both.
    pub(super) fn of(&mut self, span: u64) -> Option<&mut Lists> {
        [&mut self.now, &mut self.before].into_iter().find(|(number, _)| *number == span).map(|(_, lists)| lists)
    }

    /// Both spans that were, each with its number.
    pub(super) fn each(&self) -> impl Iterator<Item = (u64, &Lists)> {
        [&self.now, &self.before]
            .into_iter()
            .filter(|(number, _)| *number != NEVER)
            .map(|(number, lists)| (*number, lists))
    }
}
