//! A count-min sketch of arrival times, for keys that find no slot.
//!
//! Each key has four cells, which it shares with others at random. A cell holds the latest theoretical arrival time of
//! any of its keys, so the least of a key's four cells is never before its own: the sketch may deny too much, never
//! too little. Instants pass by themselves, so nothing has to be aged or cleared.
//!
//! Limits share cells only with limits of the same kind of state and of a like span: else a flood of keys that take a
//! day to come back would shut out keys that take a second. That makes each part narrow: of a hundred keys in the
//! narrowest, one shares all its cells with others. The annex, which all limits share, serves a flood, and the refuges keep
//! namespaces apart. All are read, and the lowest count holds, because none undercounts.

#![allow(clippy::cast_possible_truncation, reason = "a scaled hash is below the width")]

use super::annex::Annex;
use super::fingerprint::Fingerprint;
use super::pages::Pages;
use super::refuges::Refuges;
use crate::limit::Shape;
use crate::sync::{AtomicU64, Ordering};
use crate::{Limit, Namespace, Time};

const ROWS: usize = 4;

/// Spans within one scale differ by at most this power of two; but those below a quarter of a second are one scale,
/// since a flood of them is over as soon.
const SCALE_BITS: u32 = 4;
const SCALE_FIRST: u32 = 28 / SCALE_BITS - 1;
const SCALES: usize = (u64::BITS / SCALE_BITS - SCALE_FIRST) as usize;
const PARTS: usize = 4 * SCALES;

/// Of a hundred keys, one shares all four cells with others: (1 − e^(−100 / 256))⁴. A checker makes it anew for each
/// schedule.
const WIDTH_MIN: usize = if cfg!(shuttle) { 2 } else { 256 };

/// Of 25,000 keys in each part, one in a hundred shares all four cells; all parts together stay smaller than the
/// tables.
const WIDTH_MAX: usize = 1 << 16;

pub(crate) struct Sketch {
    annex: Annex,
    refuges: Refuges,
    cells: Pages<AtomicU64>,
    width: usize,
    /// For each part, the latest instant in any of its cells.
    latest: [AtomicU64; PARTS],
}

/// The cells that a limit shares with its like.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    annex: &'a Annex,
    refuges: &'a Refuges,
    namespace: &'a Namespace,
    cells: &'a [AtomicU64],
    width: usize,
    latest: &'a AtomicU64,
    /// How long after its arrival time a key's units may still count.
    memory: u64,
}

impl Sketch {
    /// A sketch beside tables of `keys` keys, with refuges if namespaces and sources are to be kept apart.
    pub(crate) fn beside(keys: usize, has_refuges: bool) -> std::io::Result<Sketch> {
        let width = (keys / 1024).clamp(WIDTH_MIN, WIDTH_MAX);
        let cells = Pages::zeroed(PARTS * ROWS * width)?;
        let latest = std::array::from_fn(|_| AtomicU64::new(0));
        let refuges = if has_refuges { Refuges::beside(keys)? } else { Refuges::none()? };
        Ok(Sketch { annex: Annex::beside(keys, has_refuges)?, refuges, cells, width, latest })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.annex.bytes() + self.refuges.bytes() + size_of_val(&*self.cells)
    }

    pub(crate) fn part<'a>(&'a self, namespace: &'a Namespace, limit: &Limit) -> Part<'a> {
        let kind = match limit.shape() {
            Shape::Bucket(_) => 0,
            Shape::Window(_) | Shape::Calendar(_) => 1,
            Shape::Counter(_) => 2,
            Shape::Log(_) => 3,
        };
        let scale = (limit.as_bucket().span().max(1).ilog2() / SCALE_BITS).saturating_sub(SCALE_FIRST) as usize;
        let part = kind * SCALES + scale;
        let cells = &self.cells[part * ROWS * self.width..][..ROWS * self.width];
        let (annex, refuges, latest) = (&self.annex, &self.refuges, &self.latest[part]);
        Part { annex, refuges, namespace, cells, width: self.width, latest, memory: limit.outlives_bucket() }
    }
}

impl<'a> Part<'a> {
    /// An instant not before the key's own arrival time.
    pub(crate) fn arrival(self, print: Fingerprint) -> u64 {
        let in_cells = self.cells_of(print).map(|cell| cell.load(Ordering::Acquire)).min().unwrap_or(0);
        if in_cells == 0 {
            return 0;
        }
        let in_refuge = self.refuges.until(self.namespace, print);
        in_cells.min(self.annex.until(print).min(in_refuge).saturating_sub(self.memory))
    }

    /// Moves the key's arrival time forward. Callers of one key hold its gate between reading and raising.
    pub(crate) fn raise(self, print: Fingerprint, arrival: u64, now: Time) {
        self.latest.fetch_max(arrival, Ordering::Release);
        for cell in self.cells_of(print) {
            cell.fetch_max(arrival, Ordering::Release);
        }
        let (until, source) = (arrival.saturating_add(self.memory), self.namespace.source());
        self.annex.note(print, until, source, now);
        self.refuges.note(self.namespace, print, until, now);
    }

    /// How long a source has to wait until there is room for one more of its keys that is not remembered, since it has
    /// its share of the room, or `None` if there is room or the source is not known.
    pub(crate) fn crowded_for(self, print: Fingerprint, now: Time) -> Option<u64> {
        match self.namespace.source() {
            0 => None,
            _ if self.remembers(print, now) => None,
            source => self.annex.crowded_for(print, source, now),
        }
    }

    /// Whether what was counted here for the key may still count at `now`.
    pub(crate) fn remembers(self, print: Fingerprint, now: Time) -> bool {
        let counts = |arrival: u64| arrival > 0 && arrival.saturating_add(self.memory) > now.as_nanos();
        counts(self.latest.load(Ordering::Acquire)) && counts(self.arrival(print))
    }

    fn cells_of(self, print: Fingerprint) -> impl Iterator<Item = &'a AtomicU64> {
        // The table chose a key's buckets by the upper bits of `high` and `low`. Whoever comes here found all of them full,
        // which says little of which keys meet in a row.
        let bits = [print.low, print.low >> 32, print.high, print.high ^ (print.low >> 16)];
        (0..ROWS).map(move |row| {
            let spread = (bits[row] & 0xffff_ffff) * self.width as u64;
            &self.cells[row * self.width + (spread >> 32) as usize]
        })
    }
}
