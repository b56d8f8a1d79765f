//! The calls that wait for their turn on a connection, first come, first served.
//!
//! Calls that are the same to the byte are **joined**: they become one command that says how often it is meant, so that a
//! hot key costs the server few commands. Order is kept for each key: a call is joined with an earlier one only if no
//! other call for that key waits between them.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::bounds::JOINED_MAX;
use super::command::Packed;

/// The places of calls, in their order: mostly of one.
pub(super) type Members = SmallVec<[usize; 1]>;

/// A command that waits, and the places of the calls that it stands for.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) packed: Packed,
    pub(super) members: Members,
}

#[derive(Debug, Default)]
pub(super) struct Line {
    entries: VecDeque<Entry>,
    /// The number of the first entry, counted from the beginning of the connection.
    first: u64,
    /// The last entry of each key, by its hash, of those that can be joined. Keys with the same hash are joined less often.
    last_of_key: HashMap<u64, u64>,
    hasher: RandomState,
    calls: usize,
}

impl Line {
    /// Returns how many calls wait.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Returns how many commands wait.
    pub(super) fn commands(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a call, whose place has this number. Returns whether it was joined with an earlier one.
    pub(super) fn push(&mut self, packed: Packed, place: usize) -> bool {
        self.calls += 1;
        let next = self.first + self.entries.len() as u64;
        let Some(hash) = self.hash_of_key(&packed) else {
            self.entries.push_back(Entry { packed, members: smallvec![place] });
            return false;
        };
        if let Some(number) = self.last_of_key.get_mut(&hash) {
            let at = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
            let entry = self.entries.get_mut(at).filter(|_| *number >= self.first);
            if let Some(entry) = entry
                && entry.packed == packed
                && entry.members.len() < JOINED_MAX
            {
                entry.members.push(place);
                return true;
            }
            *number = next;
        } else {
            self.last_of_key.insert(hash, next);
        }
        self.entries.push_back(Entry { packed, members: smallvec![place] });
        false
    }

    /// Takes the first entry out.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.first += 1;
        self.calls -= entry.members.len();
        if self.entries.is_empty() {
            self.last_of_key.clear();
        } else if let Some(hash) = self.hash_of_key(&entry.packed)
            && self.last_of_key.get(&hash).is_some_and(|last| *last < self.first)
        {
            self.last_of_key.remove(&hash);
        }
        Some(entry)
    }

    fn hash_of_key(&self, packed: &Packed) -> Option<u64> {
        let join = packed.join.as_ref()?;
        Some(self.hasher.hash_one(&packed.bytes[join.key.clone()]))
    }

    /// Keeps the calls for which this holds.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        // An entry without members keeps its number until its turn comes.
        for entry in &mut self.entries {
            let before = entry.members.len();
            entry.members.retain(|place| keeps(*place));
            self.calls -= before - entry.members.len();
        }
    }

    /// Returns the places of all calls that wait.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().flat_map(|entry| entry.members.iter().copied())
    }

    /// Takes all calls out and returns their places.
    pub(super) fn drain(&mut self) -> Vec<usize> {
        let all = self.places().collect();
        *self = Line { first: self.first + self.entries.len() as u64, ..Line::default() };
        all
    }
}

/// Where a command that can be joined has its key, and how often it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) key: Range<usize>,
    /// The word that says how often: a `1` with its length before it.
    pub(super) times: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call for a key, `times` words behind it.
    fn call(key: &str, rest: &str) -> Packed {
        let mut packed = Packed::of(&[b"EVALSHA", key.as_bytes(), b"1", rest.as_bytes()]);
        let at = packed.bytes.windows(key.len()).position(|bytes| bytes == key.as_bytes()).unwrap();
        let key = at..at + key.len();
        packed.join = Some(Join { times: key.end + 2..key.end + 9, key });
        packed
    }

    fn taken(line: &mut Line) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| line.pop()).map(|entry| entry.members.to_vec()).collect()
    }

    #[test]
    fn equal_calls_become_one_in_the_order_of_their_keys() {
        let mut line = Line::default();
        for (place, (key, rest)) in
            [("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), ("a", "x"), ("b", "x"), ("a", "x")].into_iter().enumerate()
        {
            line.push(call(key, rest), place);
        }
        line.push(Packed::of(&[b"PING"]), 7);
        line.push(Packed::of(&[b"PING"]), 8);
        assert_eq!(line.calls(), 9);
        assert_eq!(taken(&mut line), [vec![0, 2], vec![1, 5], vec![3], vec![4, 6], vec![7], vec![8]]);
        assert_eq!((line.calls(), line.is_empty(), line.last_of_key.len()), (0, true, 0));
    }

    #[test]
    fn nothing_is_joined_with_what_is_gone() {
        let mut line = Line::default();
        line.push(call("a", "x"), 0);
        line.push(call("b", "x"), 1);
        assert_eq!(line.pop().unwrap().members[..], [0]);
        assert!(!line.push(call("a", "x"), 2));
        assert!(line.push(call("a", "x"), 3));
        line.retain(|place| place != 3);
        assert_eq!(line.calls(), 2);
        assert_eq!(taken(&mut line), [vec![1], vec![2]]);
    }

    #[test]
    fn only_so_many_are_joined() {
        let mut line = Line::default();
        for place in 0..2 * JOINED_MAX + 1 {
            line.push(call("a", "x"), place);
        }
        let lengths: Vec<usize> = taken(&mut line).iter().map(Vec::len).collect();
        assert_eq!(lengths, [JOINED_MAX, JOINED_MAX, 1]);
    }
}
