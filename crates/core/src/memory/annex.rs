//! Lines of short entries, for keys that find no slot: enough of them for a flood larger than the store.
//!
//! A key belongs to one line, and its entry there holds the instant until which its units count. A full line gives the
//! entry that passes first to the new key. So a key without an entry never counts longer than the first of its line to
//! pass, and that instant is used for it: never too early, and too late only if a line is full of others or one of them
//! has the same tag. Entries that have passed are free, so nothing has to be aged.
//!
//! An entry is half a word: a tag of the key, and an instant that is rounded up by at most a 4,096th of its distance or
//! half a millisecond. If sources of keys are to be kept apart, the number of the key's source is stored beside it, so
//! that one source cannot take the room of all others.

#![allow(clippy::cast_possible_truncation, reason = "numbers are cut out of packed words")]

use std::ops::Range;

use super::cell::{Cell, Held};
use super::fingerprint::{Fingerprint, scaled};
use super::pages::Pages;
use crate::Time;
use crate::bounds::{SPAN_NANOS_MAX, WINDOW_NANOS_MAX};

/// Words of a line, of which the first is its lock and the instant at which it was last swept. Long lines fill up
/// more evenly: with 62 entries and two thirds of them needed, one line in 600 is full
/// if keys fall at random.
const WORDS: usize = if cfg!(shuttle) { 4 } else { 32 };

/// Words of a line for the sources of its entries, where these are kept.
const SOURCE_WORDS: usize = if cfg!(shuttle) { 1 } else { 4 };

/// Bits of the source of an entry. 0 is nobody in particular.
const SOURCE_BITS: u32 = 4;
const SOURCES: u32 = (1 << SOURCE_BITS) - 1;
const SOURCES_IN_WORD: usize = (u64::BITS / SOURCE_BITS) as usize;
const _: () = assert!(2 * (WORDS - 1 - SOURCE_WORDS) <= SOURCES_IN_WORD * SOURCE_WORDS);

/// A source has at most this many times the entries of a line that are free: alone it takes two thirds of them, and
/// however many sources do so, some are left.
const SOURCE_SHARE: usize = 2;

/// Bits of an entry: a tag above a scale above the number of a tick.
const TAG_BITS: u32 = 14;
const SCALE_BITS: u32 = 4;
const TICK_BITS: u32 = 14;
const TICKS: u64 = 1 << TICK_BITS;
const SCALES: u32 = 1 << SCALE_BITS;

/// Nanoseconds of a tick of the finest scale, as a power of two; each further scale's is four times as long.
const FINEST_SHIFT: u32 = 19;

const fn shift(scale: u32) -> u32 {
    FINEST_SHIFT + 2 * scale
}

// The coarsest scale reaches whatever a limit can remember: twice a span, or a bucket and a log in its place.
const _: () = assert!(2 * SPAN_NANOS_MAX + 4 * WINDOW_NANOS_MAX < (TICKS - 1) << shift(SCALES - 1));
const _: () = assert!(TAG_BITS + SCALE_BITS + TICK_BITS == u32::BITS);

pub(crate) struct Annex {
    lines: Pages<Cell<WORDS>>,
    /// Words of each line for sources: none if they are not kept.
    source_words: usize,
}

impl Annex {
    /// An annex to tables of `keys` keys, with entries for half as many again.
    pub(crate) fn beside(keys: usize, keeps_sources: bool) -> std::io::Result<Annex> {
        let source_words = if keeps_sources { SOURCE_WORDS } else { 0 };
        let entries = keys.saturating_add(keys / 2);
        Ok(Annex { lines: Pages::zeroed(entries.div_ceil(2 * (WORDS - 1 - source_words)))?, source_words })
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// An instant not before the one that was noted for the key.
    pub(crate) fn until(&self, print: Fingerprint) -> u64 {
        let line = self.line(&self.cell(print).lock());
        line.until(line.place(tag(print)))
    }

    /// Notes that what the key took counts until an instant. Callers of one key hold its gate.
    pub(crate) fn note(&self, print: Fingerprint, until: u64, source: u32, now: Time) {
        let held = self.cell(print).lock();
        let mut line = self.line(&held);
        line.sweep(now.as_nanos());
        let place = line.place(tag(print));
        // Where the key has no entry and would not pass after the first to pass, its line says enough of it.
        if until > line.until(place) {
            line.set(place, entry(tag(print), until, line.swept()));
            line.set_source(place, source_number(source));
        }
        held.release(line.words);
    }

    /// How long a source has to wait until one more key of it finds room beside its others, or `None` if it does now.
    pub(crate) fn crowded_for(&self, print: Fingerprint, source: u32, now: Time) -> Option<u64> {
        if self.source_words == 0 {
            return None;
        }
        let line = self.line(&self.cell(print).lock());
        let (now, source) = (now.as_nanos(), source_number(source));
        let live = || line.places().filter(|place| line.entry(*place) != 0 && line.until(*place) > now);
        let own = || live().filter(|place| line.source(*place) == source);
        let free = line.places().len() - live().count();
        let is_crowded = own().count() >= SOURCE_SHARE * free && line.place_of(tag(print)).is_none();
        is_crowded.then(|| own().map(|place| line.until(place) - now).min().unwrap_or(0))
    }

    fn cell(&self, print: Fingerprint) -> &Cell<WORDS> {
        &self.lines[scaled(print.mixed(), self.lines.len())]
    }

    fn line(&self, held: &Held<'_, WORDS>) -> Line {
        Line { words: held.state(), source_words: self.source_words }
    }
}

/// The number of a source in a line.
fn source_number(source: u32) -> u64 {
    u64::from(if source == 0 { 0 } else { 1 + source % SOURCES })
}

/// The tag of a key: never zero, which marks a free entry. The line was chosen by the upper bits.
fn tag(print: Fingerprint) -> u32 {
    (print.mixed() as u32 % (1 << TAG_BITS)).max(1)
}

/// An entry for an instant after `swept`, in the finest scale that reaches it.
fn entry(tag: u32, until: u64, swept: u64) -> u32 {
    let reaches = |scale: &u32| ticks(until, *scale) - (swept >> shift(*scale)) < TICKS;
    let scale = (0..SCALES).find(reaches).unwrap_or(SCALES - 1);
    tag << (SCALE_BITS + TICK_BITS) | scale << TICK_BITS | (ticks(until, scale) % TICKS) as u32
}

/// The number of the first tick that is not before an instant.
fn ticks(until: u64, scale: u32) -> u64 {
    until.div_ceil(1 << shift(scale))
}

/// The words of a line while it is held.
struct Line {
    words: [u64; WORDS],
    source_words: usize,
}

impl Line {
    /// The places of all entries.
    fn places(&self) -> Range<usize> {
        0..2 * (WORDS - 1 - self.source_words)
    }

    /// The instant at which entries that had passed were last set free: those that are left pass later.
    fn swept(&self) -> u64 {
        self.words[0]
    }

    fn entry(&self, place: usize) -> u32 {
        (self.words[1 + self.source_words + place / 2] >> (32 * (place % 2))) as u32
    }

    fn set(&mut self, place: usize, entry: u32) {
        let (word, low) = (&mut self.words[1 + self.source_words + place / 2], 32 * (place % 2));
        *word = *word & !(u64::from(u32::MAX) << low) | u64::from(entry) << low;
    }

    /// Which source the entry of a place is of.
    fn source(&self, place: usize) -> u64 {
        let (word, low) = (self.words[1 + place / SOURCES_IN_WORD], SOURCE_BITS as usize * (place % SOURCES_IN_WORD));
        word >> low & u64::from(SOURCES)
    }

    fn set_source(&mut self, place: usize, source: u64) {
        if self.source_words > 0 {
            let low = SOURCE_BITS as usize * (place % SOURCES_IN_WORD);
            let word = &mut self.words[1 + place / SOURCES_IN_WORD];
            *word = *word & !(u64::from(SOURCES) << low) | source << low;
        }
    }

    /// When an entry passes. A free one may have been freed as late as the line was swept: an older caller must not
    /// take its key for never seen.
    fn until(&self, place: usize) -> u64 {
        let entry = self.entry(place);
        if entry == 0 {
            return self.swept();
        }
        let shift = shift(entry >> TICK_BITS & (SCALES - 1));
        let first = self.swept() >> shift;
        // Of all ticks with this number it is the next.
        let ahead = u64::from(entry).wrapping_sub(first) % TICKS;
        (first + ahead) << shift
    }

    /// The place of a tag, or else of the entry that passes first.
    fn place(&self, tag: u32) -> usize {
        let first_to_pass = || self.places().min_by_key(|place| self.until(*place)).unwrap_or(0);
        self.place_of(tag).unwrap_or_else(first_to_pass)
    }

    fn place_of(&self, tag: u32) -> Option<usize> {
        self.places().find(|place| self.entry(*place) >> (SCALE_BITS + TICK_BITS) == tag)
    }

    /// Sets entries free that have passed, before their ticks come round again.
    fn sweep(&mut self, now: u64) {
        if now <= self.swept() {
            return;
        }
        for place in self.places() {
            if self.until(place) <= now {
                self.set(place, 0);
            }
        }
        self.words[0] = now;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::bounds::YEAR_NANOS;

    /// A key of the one line, with this tag.
    fn print(line: u64, tag: u64) -> Fingerprint {
        static BY_TAG: LazyLock<Vec<Fingerprint>> = LazyLock::new(|| {
            let mut by_tag = vec![Fingerprint::NONE; 1 << TAG_BITS];
            for number in 1..1_u64 << 19 {
                let spread = |odd: u64| number.wrapping_mul(odd).rotate_left(29);
                let print = Fingerprint { high: spread(0xbf58_476d_1ce4_e5b9), low: spread(0x94d0_49bb_1331_11eb) };
                by_tag[super::tag(print) as usize] = print;
            }
            assert!(!by_tag[1..].contains(&Fingerprint::NONE), "some tag has no key");
            by_tag
        });
        assert_eq!(line, 0);
        BY_TAG[(tag as usize % (1 << TAG_BITS)).max(1)]
    }

    #[test]
    fn an_instant_is_told_late_by_little_and_never_early() {
        let annex = Annex::beside(1, false).unwrap();
        let start = 1_700_000_000_000_000_003;
        for (tag, distance) in
            (1..).zip([1, 999, 1 << 19, 20_000_000_000, 86_400_000_000_000, YEAR_NANOS, 200 * YEAR_NANOS])
        {
            annex.note(print(0, tag), start + distance, 0, Time::from_nanos(start));
            for _ in 0..2 {
                let late = annex.until(print(0, tag)) - (start + distance);
                assert!(late <= (distance >> 12).max(1 << 19), "{late} ns late after {distance}");
                // Sweeping a little later changes nothing of what has not passed.
                annex.note(print(0, 999), start, 0, Time::from_nanos(start + 1));
            }
        }
    }

    #[test]
    fn a_full_line_tells_of_others_what_passes_first_and_never_less_than_before() {
        let annex = Annex::beside(1, false).unwrap();
        let now = Time::from_nanos(1 << 40);
        let noted = |tag: u64| now.as_nanos() + (tag % 97 + 1) * 1_000_000_000;
        let mut least = 0;
        for tag in 1..=1_000 {
            annex.note(print(0, tag), noted(tag), 0, now);
            let unknown = annex.until(print(0, 5_000));
            assert!(unknown >= least, "what is told of the unknown goes back");
            least = unknown;
            for earlier in 1..=tag {
                assert!(annex.until(print(0, earlier)) >= noted(earlier), "key {earlier} after {tag}");
            }
        }
        assert!(least > now.as_nanos());
        let later = Time::from_nanos(now.as_nanos() + 200_000_000_000);
        annex.note(print(0, 1), later.as_nanos() + 1, 0, later);
        assert_eq!(annex.until(print(0, 5_000)), later.as_nanos(), "all but one are free");
    }

    #[test]
    fn entries_pass_however_long_nobody_looks() {
        let annex = Annex::beside(1, false).unwrap();
        for round in 1..200_u64 {
            // Steps that let the ticks of every scale come round to the same numbers and others.
            let now = round * 0x0013_5791_3579_1357;
            for tag in 0..62_u64 {
                annex.note(print(0, round * 64 + tag), now + (1 << (tag / 2 + 20)), 0, Time::from_nanos(now));
            }
            let first = annex.until(print(0, 16_000)) - now;
            assert!((1 << 20..=(1 << 20) + (1 << 19)).contains(&first), "round {round}: {first}");
        }
    }
}
