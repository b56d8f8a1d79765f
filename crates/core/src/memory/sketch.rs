//! A count-min sketch of arrival times, for keys that find no slot.
//!
//! Each key has four cells, which it shares with others at random. A cell holds the latest theoretical arrival time of
//! any of its keys, so the least of a key's four cells is never before its own: the sketch may deny too much, never
//! too little. Instants pass by themselves, so nothing has to be aged or cleared.

use super::fingerprint::Fingerprint;
use super::pages::Pages;
use crate::Time;
use crate::sync::{AtomicU64, Ordering};

const ROWS: usize = 4;
const WIDTH_MIN: usize = 1 << 10;
const WIDTH_MAX: usize = 1 << 20;

pub(crate) struct Sketch {
    cells: Pages<AtomicU64>,
    width: usize,
    /// The latest instant in any cell: from then on the sketch knows nothing.
    latest: AtomicU64,
}

impl Sketch {
    /// A sketch beside a table of `keys` keys: a cell a row for each 32 of them.
    pub(crate) fn beside(keys: usize) -> std::io::Result<Sketch> {
        let width = (keys / 32).clamp(WIDTH_MIN, WIDTH_MAX);
        Ok(Sketch { cells: Pages::zeroed(width * ROWS)?, width, latest: AtomicU64::new(0) })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }

    /// Whether all that the sketch counted has come back by `now`.
    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.latest.load(Ordering::Acquire) <= now.as_nanos()
    }

    /// An instant not before the key's own arrival time.
    pub(crate) fn arrival(&self, print: Fingerprint) -> u64 {
        self.cells_of(print).map(|cell| cell.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Moves the key's arrival time forward. Callers of one key hold its gate between reading and raising.
    pub(crate) fn raise(&self, print: Fingerprint, arrival: u64) {
        self.latest.fetch_max(arrival, Ordering::Release);
        for cell in self.cells_of(print) {
            cell.fetch_max(arrival, Ordering::Release);
        }
    }

    fn cells_of(&self, print: Fingerprint) -> impl Iterator<Item = &AtomicU64> {
        // The table chose the home bucket by the upper bits of `high`; the rows use other mixtures of both halves.
        let bits = [print.low, print.low >> 32, print.high, print.high ^ (print.low >> 16)];
        (0..ROWS).map(move |row| {
            let spread = (bits[row] & 0xffff_ffff) * self.width as u64;
            &self.cells[row * self.width + (spread >> 32) as usize]
        })
    }
}
