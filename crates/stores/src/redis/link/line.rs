//! The calls that wait for their turn on a connection, first come, first served.
//!
//! Calls that are the same to the byte are **joined**: they become one command that says how often it is meant, so that a
//! hot key costs the server few commands. Order is kept for each key: a call is joined with an earlier one only if no
//! other call for that key waits between them.
//!
//! A key becomes **hot** when it has [`HOT_UNANSWERED_MIN`] unanswered commands. From then on its next command is **held** when
//! its turn comes, and further calls are joined with it, until the others are answered or nothing more can be joined. Calls
//! for other keys pass it. A key of which a command was held for nothing is hot no longer.

use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use smallvec::{SmallVec, smallvec};

use super::bounds::{HOT_UNANSWERED_MIN, JOINED_MAX};
use super::command::Packed;

/// The places of calls, in their order: mostly of one.
pub(super) type Members = SmallVec<[usize; 1]>;

/// A command that waits, and the places of the calls that it stands for.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) packed: Packed,
    pub(super) members: Members,
    /// The hash of its key, if it has one key alone. Two keys with the same hash are joined less often.
    pub(super) key: Option<u64>,
}

impl Entry {
    fn has_room(&self) -> bool {
        self.packed.times.is_some() && self.members.len() < JOINED_MAX
    }
}

#[derive(Debug, Default)]
pub(super) struct Line {
    /// In their order, without those that are held.
    entries: VecDeque<Entry>,
    /// The number of the first entry, counted from the beginning of the connection.
    first: u64,
    /// Entries of hot keys whose turn has come.
    held: HashMap<u64, Entry>,
    /// The keys of held entries that may go now, before all others.
    released: VecDeque<u64>,
    keys: HashMap<u64, OfKey>,
    hasher: RandomState,
    calls: usize,
}

/// What is known of a key while it has commands that wait or are unanswered.
#[derive(Debug, Default)]
struct OfKey {
    unanswered: usize,
    is_hot: bool,
    last: Last,
}

/// Where the last command of a key waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nowhere,
    /// In line, with this number.
    InLine(u64),
    Held,
    /// It was held, and goes as soon as the window has room.
    Released,
}

impl Line {
    /// Returns how many calls wait.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Returns how many commands wait for nothing but their turn.
    pub(super) fn commands(&self) -> usize {
        self.entries.len() + self.released.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.held.is_empty()
    }

    /// Adds a call, whose place has this number. Returns whether there is something new to send: joining with a command
    /// that waits already is not.
    pub(super) fn push(&mut self, packed: Packed, place: usize) -> bool {
        self.calls += 1;
        let key = packed.key.clone().map(|key| self.hasher.hash_one(&packed.bytes[key]));
        if let Some(hash) = key {
            let of_key = self.keys.entry(hash).or_default();
            let last = match of_key.last {
                Last::Nowhere => None,
                Last::InLine(number) => {
                    usize::try_from(number - self.first).ok().and_then(|at| self.entries.get_mut(at))
                }
                Last::Held | Last::Released => self.held.get_mut(&hash),
            };
            let joined = last.filter(|last| last.has_room() && last.packed == packed).map(|last| {
                last.members.push(place);
                last.has_room()
            });
            let is_open = joined.unwrap_or(false);
            // Nothing more can be joined with what is held.
            let is_released = of_key.last == Last::Held && !is_open;
            if is_released {
                of_key.last = Last::Released;
                self.released.push_back(hash);
            }
            if joined.is_some() {
                return is_released;
            }
            of_key.last = Last::InLine(self.first + self.entries.len() as u64);
        }
        self.entries.push_back(Entry { packed, members: smallvec![place], key });
        true
    }

    /// Takes the next entry out and counts it as unanswered, which [`Line::answered`] ends. Those of hot keys are passed over
    /// if they may be held.
    pub(super) fn pop(&mut self, may_hold: bool) -> Option<Entry> {
        if let Some(entry) = self.released.pop_front().and_then(|key| self.held.remove(&key)) {
            return self.let_go(entry, Last::Released, false);
        }
        while let Some(entry) = self.entries.pop_front() {
            let place = Last::InLine(self.first);
            self.first += 1;
            if let Some(entry) = self.let_go(entry, place, may_hold) {
                return Some(entry);
            }
        }
        None
    }

    /// Lets an entry of this place go, unless it has to be held.
    fn let_go(&mut self, entry: Entry, place: Last, may_hold: bool) -> Option<Entry> {
        if let Some(hash) = entry.key
            && let Some(of_key) = self.keys.get_mut(&hash)
        {
            let is_last = of_key.last == place;
            of_key.is_hot |= of_key.unanswered >= HOT_UNANSWERED_MIN;
            if may_hold && is_last && of_key.is_hot && of_key.unanswered > 0 && entry.has_room() {
                of_key.last = Last::Held;
                self.held.insert(hash, entry);
                return None;
            }
            if is_last {
                of_key.last = Last::Nowhere;
            }
            of_key.is_hot &= place != Last::Released || entry.members.len() > 1;
            of_key.unanswered += 1;
        }
        self.calls -= entry.members.len();
        Some(entry)
    }

    /// A command for this key that was taken out was answered, or was not sent after all.
    pub(super) fn answered(&mut self, key: Option<u64>) {
        let Some(hash) = key else { return };
        let Place::Occupied(mut place) = self.keys.entry(hash) else { return };
        let of_key = place.get_mut();
        of_key.unanswered -= 1;
        if of_key.last == Last::Held && of_key.unanswered == 0 {
            of_key.last = Last::Released;
            self.released.push_back(hash);
        }
        if of_key.unanswered == 0 && of_key.last == Last::Nowhere {
            place.remove();
        }
    }

    /// Keeps the calls for which this holds.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        // An entry without members keeps its number until its turn comes.
        for entry in self.entries.iter_mut().chain(self.held.values_mut()) {
            let before = entry.members.len();
            entry.members.retain(|place| keeps(*place));
            self.calls -= before - entry.members.len();
        }
    }

    /// Returns the places of all calls that wait.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().chain(self.held.values()).flat_map(|entry| entry.members.iter().copied())
    }

    /// Takes all calls out and returns their places.
    pub(super) fn drain(&mut self) -> Vec<usize> {
        let all = self.places().collect();
        self.first += self.entries.len() as u64;
        self.entries.clear();
        self.held.clear();
        self.released.clear();
        self.calls = 0;
        self.keys.retain(|_, of_key| {
            of_key.last = Last::Nowhere;
            of_key.unanswered > 0
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call for a key, `times` words behind it.
    fn call(key: &str, rest: &str) -> Packed {
        let mut packed = Packed::of(&[b"EVALSHA", key.as_bytes(), b"1", rest.as_bytes()]);
        let at = packed.bytes.windows(key.len()).position(|bytes| bytes == key.as_bytes()).unwrap();
        let key = at..at + key.len();
        (packed.times, packed.key) = (Some(key.end + 2..key.end + 9), Some(key));
        packed
    }

    impl Line {
        fn hash_of(&self, key: &str) -> u64 {
            self.hasher.hash_one(key.as_bytes())
        }
    }

    fn taken(line: &mut Line) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| line.pop(false)).map(|entry| entry.members.to_vec()).collect()
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
        let keys = ["a", "a", "a", "b"].map(|key| line.hash_of(key));
        keys.into_iter().for_each(|key| line.answered(Some(key)));
        assert_eq!((line.calls(), line.is_empty(), line.keys.len()), (0, true, 0));
    }

    #[test]
    fn nothing_is_joined_with_what_is_gone() {
        let mut line = Line::default();
        line.push(call("a", "x"), 0);
        line.push(call("b", "x"), 1);
        assert_eq!(line.pop(true).unwrap().members[..], [0]);
        assert!(line.push(call("a", "x"), 2));
        assert!(!line.push(call("a", "x"), 3));
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

    /// Takes out what may go now, and answers nothing of it.
    fn gone(line: &mut Line) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| line.pop(true)).map(|entry| entry.members.to_vec()).collect()
    }

    /// A line whose key `a` is hot, and has a command that is held.
    fn holding() -> Line {
        let mut line = Line::default();
        for place in 0..HOT_UNANSWERED_MIN {
            line.push(call("a", "x"), place);
            assert_eq!(gone(&mut line), [[place]]);
        }
        line.push(call("a", "x"), 10);
        line.push(call("b", "x"), 11);
        assert_eq!(gone(&mut line), [[11]], "other keys pass it");
        line
    }

    #[test]
    fn a_hot_key_is_held_until_its_calls_are_answered() {
        let mut line = holding();
        assert!(!line.push(call("a", "x"), 12), "it is joined");
        assert!(gone(&mut line).is_empty());
        assert_eq!((line.calls(), line.commands(), line.is_empty()), (2, 0, false));
        for key in ["b", "a", "a", "a"] {
            line.answered(Some(line.hash_of(key)));
            assert!(gone(&mut line).is_empty());
        }
        line.answered(Some(line.hash_of("a")));
        assert!(!line.push(call("a", "x"), 13), "it is joined until it is taken out");
        assert!(line.push(call("b", "x"), 14));
        assert_eq!(gone(&mut line), [vec![10, 12, 13], vec![14]]);
        line.push(call("a", "x"), 15);
        assert!(gone(&mut line).is_empty(), "as long as calls meet, one command is under way");
        line.answered(Some(line.hash_of("a")));
        assert_eq!(gone(&mut line), [[15]]);
        line.push(call("a", "x"), 16);
        assert_eq!(gone(&mut line), [[16]], "none was joined with the last one");
        for key in ["a", "a", "b"] {
            line.answered(Some(line.hash_of(key)));
        }
        assert_eq!((line.calls(), line.is_empty(), line.keys.len()), (0, true, 0));
    }

    #[test]
    fn what_cannot_be_joined_is_not_held() {
        let mut line = holding();
        assert!(line.push(call("a", "y"), 12));
        assert_eq!(gone(&mut line), [[10]], "it keeps its place before the other one");
        line.push(call("a", "z"), 13);
        let mut reset = call("a", "0");
        reset.times = None;
        line.push(reset, 14);
        assert_eq!(gone(&mut line), [[12], [13], [14]]);
        let mut line = holding();
        for place in 11..10 + JOINED_MAX {
            let is_full = place == 9 + JOINED_MAX;
            assert_eq!(line.push(call("a", "x"), place), is_full);
        }
        assert!(line.push(call("a", "x"), 100));
        assert_eq!(gone(&mut line).iter().map(Vec::len).collect::<Vec<_>>(), [JOINED_MAX], "and the next one is held");
        assert_eq!(line.calls(), 1);
    }

    #[test]
    fn what_is_held_can_be_taken_away() {
        let mut line = holding();
        line.retain(|place| place != 10);
        assert!(!line.push(call("a", "x"), 12));
        assert_eq!(line.places().collect::<Vec<_>>(), [12]);
        assert_eq!((line.drain(), line.calls(), line.is_empty()), (vec![12], 0, true));
        assert_eq!(line.keys[&line.hash_of("a")].unanswered, HOT_UNANSWERED_MIN);
        line.push(call("a", "x"), 13);
        assert!(gone(&mut line).is_empty(), "those that are unanswered still count");
        line.push(call("a", "x"), 14);
        assert_eq!(taken(&mut line), Vec::<Vec<usize>>::new());
    }
}
