//! The memory of denials: for each thread a ring of bytes, in which the newest entry takes the place of the oldest.
//!
//! An entry can be rewritten while it is there: a key that is denied more than once in a second has one entry, with the
//! numbers of the last denial.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bounds::{EXPLAIN_RECENT_SHARE, EXPLAIN_RING_BYTES_MIN};
use crate::stats::shard_number;

/// Bits of a place that number the bytes of one ring; those above number the ring.
const OFFSET_BITS: u32 = 56;

/// All rings. Each thread mostly has its own: the lock is for those that read.
#[derive(Debug)]
pub(crate) struct Rings {
    rings: Box<[Mutex<Ring>]>,
}

/// Entries as bytes, one after the other, on cache lines of their own. Places count all bytes that were ever written.
#[derive(Debug)]
#[repr(align(128))]
struct Ring {
    /// Bytes to make at the first denial.
    capacity: usize,
    bytes: Box<[u8]>,
    /// The next place.
    head: u64,
    recent: Box<[Recent]>,
    /// The entry that is being made.
    scratch: Vec<u8>,
}

/// An entry that may be rewritten.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    print: u64,
    second: u64,
    /// 0 if there is none.
    place: u64,
}

/// The entry at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Entry(Vec<u8>),
    /// Newer ones took its place.
    Overwritten,
}

impl Rings {
    /// Makes rings of so many bytes in total. Nothing is allocated before the first denial.
    pub(crate) fn new(bytes: usize) -> Rings {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let count = threads.min(bytes / EXPLAIN_RING_BYTES_MIN).max(1);
        let capacity = (bytes / count).max(EXPLAIN_RING_BYTES_MIN);
        let ring = || {
            Mutex::new(Ring { capacity, bytes: Box::default(), head: 1, recent: Box::default(), scratch: Vec::new() })
        };
        Rings { rings: (0..count).map(|_| ring()).collect() }
    }

    /// Keeps an entry and returns its place. If there is one with this print and second, it is rewritten by `again`; else
    /// `write` appends a new one to an empty list.
    pub(crate) fn keep(
        &self,
        print: u64,
        second: u64,
        again: impl FnOnce(&mut [u8]),
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<u64> {
        let number = shard_number() % self.rings.len();
        let mut ring = lock(self.rings.get(number)?);
        let place = ring.keep(print, second, again, write)?;
        Some((number as u64) << OFFSET_BITS | place)
    }

    /// Reads the entry at a place that [`Rings::keep`] returned.
    pub(crate) fn read(&self, place: u64) -> Option<Kept> {
        let ring = self.rings.get(usize::try_from(place >> OFFSET_BITS).ok()?)?;
        let place = place & ((1 << OFFSET_BITS) - 1);
        let mut ring = lock(ring);
        match ring.is_kept(place) {
            true => ring.entry(place).map(|entry| Kept::Entry(entry.to_vec())),
            false => Some(Kept::Overwritten),
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.rings.iter().map(|ring| lock(ring).size()).sum()
    }
}

/// Bytes before each entry that hold its length.
const LENGTH_BYTES: usize = 4;

impl Ring {
    fn keep(
        &mut self,
        print: u64,
        second: u64,
        again: impl FnOnce(&mut [u8]),
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<u64> {
        self.allocate();
        let number = usize::try_from(print % self.recent.len().max(1) as u64).ok()?;
        let known = *self.recent.get(number)?;
        if (known.print, known.second) == (print, second) && known.place != 0 && self.is_kept(known.place) {
            again(self.entry(known.place)?);
            return Some(known.place);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        write(&mut scratch);
        let place = self.push(&scratch);
        self.scratch = scratch;
        *self.recent.get_mut(number)? = Recent { print, second, place: place? };
        place
    }

    fn allocate(&mut self) {
        if self.bytes.is_empty() {
            let recents = (self.capacity / EXPLAIN_RECENT_SHARE / size_of::<Recent>()).max(1);
            self.recent = vec![Recent::default(); recents].into();
            // The system gives the memory when it is written.
            self.bytes = vec![0; self.capacity - recents * size_of::<Recent>()].into();
        }
    }

    /// Writes an entry. One that is longer than the ring is not kept.
    fn push(&mut self, entry: &[u8]) -> Option<u64> {
        let (room, length) = (self.bytes.len() as u64, u32::try_from(entry.len()).ok()?);
        let whole = (LENGTH_BYTES + entry.len()) as u64;
        let place = match room.checked_sub(self.head % room)? {
            // What is left of this round is too short.
            left if left < whole => self.head + left,
            _ => self.head,
        };
        let start = usize::try_from(place % room).ok()?;
        let target = self.bytes.get_mut(start..start + LENGTH_BYTES + entry.len())?;
        let (before, body) = target.split_at_mut(LENGTH_BYTES);
        before.copy_from_slice(&length.to_le_bytes());
        body.copy_from_slice(entry);
        self.head = place + whole;
        Some(place)
    }

    /// Whether an entry that was at a place is still there.
    fn is_kept(&self, place: u64) -> bool {
        place < self.head && place + self.bytes.len() as u64 >= self.head
    }

    fn entry(&mut self, place: u64) -> Option<&mut [u8]> {
        let start = usize::try_from(place % self.bytes.len().max(1) as u64).ok()?;
        let (length, rest) = self.bytes.get_mut(start..)?.split_first_chunk_mut::<LENGTH_BYTES>()?;
        rest.get_mut(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
    }

    #[cfg(test)]
    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.recent)
    }
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the number as an entry of a length that varies.
    fn keep(rings: &Rings, number: u64) -> u64 {
        let entry = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.resize(8 + usize::try_from(number * 7 % 900).unwrap(), 0);
        };
        rings.keep(number, 0, |_| panic!("it is new"), entry).unwrap()
    }

    fn read(rings: &Rings, place: u64) -> Option<u64> {
        match rings.read(place).unwrap() {
            Kept::Entry(bytes) => Some(u64::from_le_bytes(bytes[..8].try_into().unwrap())),
            Kept::Overwritten => None,
        }
    }

    #[test]
    fn the_newest_entries_are_kept_in_bounded_memory() {
        let rings = Rings::new(EXPLAIN_RING_BYTES_MIN);
        assert_eq!(rings.bytes(), 0, "nothing was denied yet");
        let places: Vec<u64> = (0..10_000).map(|number| keep(&rings, number)).collect();
        let kept: Vec<Option<u64>> = places.iter().map(|place| read(&rings, *place)).collect();
        let first = kept.iter().position(Option::is_some).unwrap();
        assert!((9_600..9_900).contains(&first), "{first}");
        for (number, kept) in (0..10_000_u64).zip(kept) {
            assert_eq!(kept, (number >= first as u64).then_some(number));
        }
        assert!(rings.bytes() <= EXPLAIN_RING_BYTES_MIN, "{}", rings.bytes());
    }

    #[test]
    fn an_entry_of_the_same_second_is_rewritten() {
        let rings = Rings::new(EXPLAIN_RING_BYTES_MIN);
        let add = |second: u64| rings.keep(7, second, |entry| entry[0] += 1, |bytes| bytes.push(1)).unwrap();
        let first = add(1);
        assert_eq!((add(1), add(1)), (first, first));
        let second = add(2);
        assert_ne!(first, second);
        assert_eq!(rings.read(first), Some(Kept::Entry(vec![3])));
        assert_eq!(rings.read(second), Some(Kept::Entry(vec![1])));
        // It is not rewritten once its bytes are those of others.
        (0..10_000).for_each(|number| {
            keep(&rings, 1_000 + number);
        });
        assert_eq!(rings.read(second), Some(Kept::Overwritten));
        assert_ne!(add(2), second);
    }

    #[test]
    fn an_entry_that_is_too_long_is_not_kept() {
        let rings = Rings::new(EXPLAIN_RING_BYTES_MIN);
        let long = |bytes: &mut Vec<u8>| bytes.resize(2 * EXPLAIN_RING_BYTES_MIN, 0);
        assert_eq!(rings.keep(1, 1, |_| {}, long), None);
        let place = keep(&rings, 5);
        assert_eq!(read(&rings, place), Some(5));
        assert_eq!(rings.read(9 << OFFSET_BITS | 1), None, "there are not that many rings");
    }
}
