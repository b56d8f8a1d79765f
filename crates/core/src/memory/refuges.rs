//! Room of its own for each namespace, for keys that find no slot: a flood under one rule fills the table and the annex,
//! and newcomers of the others still find room here.
//!
//! A refuge works as the annex does, with exact instants: a full line gives the entry that passes first to the newcomer,
//! and a key without an entry never counts longer than the first of its line to pass.

#![allow(clippy::cast_possible_truncation, reason = "numbers are cut out of packed words")]

use super::cell::Cell;
use super::fingerprint::{Fingerprint, scaled};
use super::pages::Pages;
use crate::sync::{AtomicU64, Ordering};
use crate::{Namespace, Time};

/// Namespaces with a refuge of their own. Further ones share them, by their hashes.
const REFUGES: usize = if cfg!(shuttle) { 1 } else { 32 };

/// Words of a line: its lock, which is also the instant at which it was last swept, an instant for each entry, and tags of
/// half a word. Of two keys of a line one in four billion has the tag of the other.
const WORDS: usize = if cfg!(shuttle) { 4 } else { 32 };
const ENTRIES: usize = (WORDS - 1) / 3 * 2;
const TAGS_FROM: usize = 1 + ENTRIES;

/// All refuges together have an entry for every second key of the table.
const KEYS_AN_ENTRY: usize = 2;

pub(crate) struct Refuges {
    lines: Pages<Cell<WORDS>>,
    /// The namespace that each refuge belongs to, by a part of its hash, from the first on. They are never given back.
    owners: [AtomicU64; REFUGES],
}

impl Refuges {
    /// Refuges beside tables of `keys` keys.
    pub(crate) fn beside(keys: usize) -> std::io::Result<Refuges> {
        Refuges::with_lines(keys.div_ceil(KEYS_AN_ENTRY * ENTRIES * REFUGES) * REFUGES)
    }

    /// No room for anybody.
    pub(crate) fn none() -> std::io::Result<Refuges> {
        Refuges::with_lines(0)
    }

    fn with_lines(lines: usize) -> std::io::Result<Refuges> {
        Ok(Refuges { lines: Pages::zeroed(lines)?, owners: std::array::from_fn(|_| AtomicU64::new(0)) })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// An instant not before the one that was noted for the key of a namespace; without refuges the last there is.
    pub(crate) fn until(&self, namespace: &Namespace, print: Fingerprint) -> u64 {
        if self.lines.is_empty() {
            return u64::MAX;
        }
        self.find(owner(namespace)).map_or(0, |refuge| {
            let line = Line(self.cell(refuge, print).lock().state());
            line.until(line.place(tag(print)))
        })
    }

    /// Notes that what the key took counts until an instant. Callers of one key hold its gate.
    pub(crate) fn note(&self, namespace: &Namespace, print: Fingerprint, until: u64, now: Time) {
        if self.lines.is_empty() {
            return;
        }
        let held = self.cell(self.claim(owner(namespace)), print).lock();
        let mut line = Line(held.state());
        line.sweep(now.as_nanos());
        let place = line.place(tag(print));
        if until > line.until(place) {
            line.set(place, tag(print), until);
        }
        held.release(line.0);
    }

    /// The refuge of an owner, or `None` if none of its keys ever needed one.
    fn find(&self, owner: u64) -> Option<usize> {
        for (number, place) in self.owners.iter().enumerate() {
            match place.load(Ordering::Acquire) {
                0 => return None,
                found if found == owner => return Some(number),
                _ => {}
            }
        }
        Some(shared(owner))
    }

    /// The refuge of an owner, which is given one if any is left.
    fn claim(&self, owner: u64) -> usize {
        let is_own = |place: &AtomicU64| match place.compare_exchange(0, owner, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found == owner,
        };
        self.owners.iter().position(is_own).unwrap_or_else(|| shared(owner))
    }

    fn cell(&self, refuge: usize, print: Fingerprint) -> &Cell<WORDS> {
        let length = self.lines.len() / REFUGES;
        &self.lines[refuge * length + scaled(print.low, length)]
    }
}

/// The number of a namespace: never zero, which marks a refuge without an owner.
fn owner(namespace: &Namespace) -> u64 {
    (namespace.hash() as u64).max(1)
}

fn shared(owner: u64) -> usize {
    (owner % REFUGES as u64) as usize
}

/// The tag of a key: never zero, which marks a free entry. The line was chosen by the other half of its bits.
fn tag(print: Fingerprint) -> u32 {
    (print.high as u32).max(1)
}

/// The words of a line while it is held.
struct Line([u64; WORDS]);

impl Line {
    fn tag(&self, place: usize) -> u32 {
        (self.0[TAGS_FROM + place / 2] >> (32 * (place % 2))) as u32
    }

    /// When an entry passes; for a free one when the line was swept, since an older caller must not take its key for
    /// never seen.
    fn until(&self, place: usize) -> u64 {
        if self.tag(place) == 0 { self.0[0] } else { self.0[1 + place] }
    }

    fn set(&mut self, place: usize, tag: u32, until: u64) {
        let (word, low) = (&mut self.0[TAGS_FROM + place / 2], 32 * (place % 2));
        *word = *word & !(u64::from(u32::MAX) << low) | u64::from(tag) << low;
        self.0[1 + place] = until;
    }

    /// The place of a tag, or else of the entry that passes first.
    fn place(&self, tag: u32) -> usize {
        let first_to_pass = || (0..ENTRIES).min_by_key(|place| self.until(*place)).unwrap_or(0);
        (0..ENTRIES).find(|place| self.tag(*place) == tag).unwrap_or_else(first_to_pass)
    }

    /// Sets entries free that have passed.
    fn sweep(&mut self, now: u64) {
        if now <= self.0[0] {
            return;
        }
        for place in 0..ENTRIES {
            if self.until(place) <= now {
                self.set(place, 0, 0);
            }
        }
        self.0[0] = now;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::Purpose;

    fn print(line: u64, tag: u64) -> Fingerprint {
        Fingerprint { high: tag, low: line << 61 }
    }

    #[test]
    fn a_full_line_tells_of_others_what_passes_first_and_never_less_than_before() {
        let (refuges, names) = (Refuges::beside(10_000).unwrap(), Namespace::of(Purpose::Caller));
        let now = Time::from_nanos(1 << 40);
        let noted = |tag: u64| now.as_nanos() + tag * 37 % 101 + 1;
        let mut least = 0;
        for tag in 1..=1_000 {
            refuges.note(&names, print(0, tag), noted(tag), now);
            let unknown = refuges.until(&names, print(0, 5_000));
            assert!(unknown >= least, "what is told of the unknown goes back");
            least = unknown;
            for earlier in 1..=tag {
                assert!(refuges.until(&names, print(0, earlier)) >= noted(earlier), "key {earlier} after {tag}");
            }
            if tag <= ENTRIES as u64 {
                assert_eq!(refuges.until(&names, print(0, tag)), noted(tag), "instants are exact");
            }
        }
        assert!(least > now.as_nanos());
        assert_eq!(refuges.until(&names, print(1, 1)), 0, "another line");
        let later = Time::from_nanos(now.as_nanos() + 1_000);
        refuges.note(&names, print(0, 1), later.as_nanos() + 1, later);
        assert_eq!(refuges.until(&names, print(0, 5_000)), later.as_nanos(), "all but one are free");
    }

    #[test]
    fn namespaces_share_a_refuge_only_when_all_are_taken() {
        let refuges = Refuges::beside(10_000).unwrap();
        let names = |number: usize| Namespace::named(Purpose::Rule, &[&number.to_string()]);
        let fill = |number: usize| {
            for tag in 1..=ENTRIES as u64 {
                refuges.note(&names(number), print(0, tag), 1 << 50, Time::from_nanos(1));
            }
        };
        for number in 0..REFUGES {
            assert_eq!(refuges.until(&names(number), print(0, 9_999)), 0, "namespace {number}");
            fill(number);
            assert_eq!(refuges.until(&names(number), print(0, 9_999)), 1 << 50, "namespace {number}");
        }
        assert_eq!(refuges.until(&names(REFUGES), print(0, 9_999)), 1 << 50, "one too many");
    }
}
