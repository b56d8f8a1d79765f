//! Windows: the one that contains an instant, and a window kept in a single word.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::civil::{Date, DateTime, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::anchor::Anchor;
use crate::bounds::NANOS_PER_SECOND;

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

const SECONDS_PER_DAY: i64 = 86_400;

/// More than any zone is ahead of UTC: at an earlier instant no zone has reached a local time.
const AHEAD_SECONDS: i64 = 26 * 3_600;

/// A window of a calendar: the instants from `start` on, before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    start: u64,
    end: u64,
    /// The local date on which it is due to start, in days since the epoch.
    day: i64,
}

impl CalendarWindow {
    /// Returns the first instant of the window, in nanoseconds since the Unix epoch, or 0 if that is before the epoch.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Returns the first instant after the window, in nanoseconds since the Unix epoch. For the last window it is after
    /// [`Time::MAX`](crate::Time::MAX).
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the local date on which the window is due to start, as the number yyyymmdd. Names are unique within a
    /// calendar, and a later window has a larger one.
    #[must_use]
    pub fn name(&self) -> u32 {
        let date = EPOCH.date().saturating_add(SignedDuration::from_hours(24 * self.day));
        let year = u32::from(date.year().unsigned_abs());
        year * 10_000 + u32::from(date.month().unsigned_abs()) * 100 + u32::from(date.day().unsigned_abs())
    }
}

/// A window in whole seconds since the epoch. It may start before the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: i64,
    end: i64,
    day: i64,
}

impl Span {
    /// The window that a second lies in: that of the latest date whose window starts at the second or before.
    pub(super) fn containing(second: i64, zone: &TimeZone, anchor: Anchor) -> Span {
        let starts = |date| first_instant(anchor.local_start(date), zone);
        let mut date = anchor.latest_date(zone.to_datetime(timestamp(second)));
        let mut start = starts(date);
        // Where the local time was put back, the window of a later date may have started already. Where a whole day
        // was skipped, two windows would start at once, and the later one is the one that does.
        loop {
            let next = anchor.next_date(date);
            let end = starts(next);
            if second < end || next == date {
                return Span { start, end, day: days_since_epoch(date) };
            }
            (date, start) = (next, end);
        }
    }

    pub(super) fn to_window(self) -> CalendarWindow {
        let nanos = |second| u64::try_from(second).unwrap_or(0).saturating_mul(NANOS_PER_SECOND);
        CalendarWindow { start: nanos(self.start), end: nanos(self.end), day: self.day }
    }

    /// The date, counted from that of the start in UTC: a few days at most.
    fn day_shift(&self) -> i64 {
        self.day - self.start.div_euclid(SECONDS_PER_DAY)
    }
}

/// The first instant at which a clock of the zone shows this local time or a later one, in seconds since the epoch.
///
/// So a local time that is shown twice counts when it is first shown, and one that is skipped when it is skipped.
fn first_instant(local: DateTime, zone: &TimeZone) -> i64 {
    let local = local.duration_since(EPOCH).as_secs();
    let mut from = local - AHEAD_SECONDS;
    let mut offset = zone.to_offset(timestamp(from)).seconds();
    for transition in zone.following(timestamp(from)) {
        let instant = from.max(local - i64::from(offset));
        let until = transition.timestamp().as_second();
        if instant < until {
            return instant;
        }
        (from, offset) = (until, transition.offset().seconds());
    }
    from.max(local - i64::from(offset))
}

/// The instant of a second. All that windows ask for are in range: they lie between the years 1968 and 2265.
fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

fn days_since_epoch(date: Date) -> i64 {
    date.duration_since(EPOCH.date()).as_secs() / SECONDS_PER_DAY
}

/// The latest window that was found, in one word, so that readers never see halves of two: 34 bits for the second it
/// starts at, 26 for its length in seconds, 4 for its date. At first it is a window of no length, which nothing lies in.
///
/// It is an atomic of the standard library also under the model checker: it outlives the checker's runs, and any
/// interleaving of loads and stores of one word is right.
#[derive(Debug, Default)]
pub(super) struct LatestWindow(AtomicU64);

const START_BITS: u32 = 34;
const LENGTH_BITS: u32 = 26;
const SHIFT_BITS: u32 = 4;
/// Added to the shift of the date, so that it is not negative.
const SHIFT_BIAS: i64 = 1 << (SHIFT_BITS - 1);

impl LatestWindow {
    /// The kept window, if this instant lies in it.
    #[inline]
    pub(super) fn get(&self, now: u64) -> Option<CalendarWindow> {
        // Any order will do: the word is the whole window, and a calendar's windows never change.
        let word = self.0.load(Ordering::Relaxed);
        let start_second = word >> (LENGTH_BITS + SHIFT_BITS);
        let length = (word >> SHIFT_BITS & ((1 << LENGTH_BITS) - 1)) * NANOS_PER_SECOND;
        let start = start_second * NANOS_PER_SECOND;
        if now.wrapping_sub(start) >= length {
            return None;
        }
        let shift = (word & ((1 << SHIFT_BITS) - 1)).cast_signed() - SHIFT_BIAS;
        let day = start_second.cast_signed() / SECONDS_PER_DAY + shift;
        Some(CalendarWindow { start, end: start + length, day })
    }

    /// Keeps a window, unless it does not fit into a word, as one that starts before the epoch.
    pub(super) fn put(&self, span: &Span) {
        if let Some(word) = packed(span) {
            self.0.store(word, Ordering::Relaxed);
        }
    }
}

fn packed(span: &Span) -> Option<u64> {
    let within = |number: i64, bits: u32| u64::try_from(number).ok().filter(|number| *number < 1 << bits);
    let start = within(span.start, START_BITS)?;
    let length = within(span.end - span.start, LENGTH_BITS)?;
    let shift = within(span.day_shift() + SHIFT_BIAS, SHIFT_BITS)?;
    Some(start << (LENGTH_BITS + SHIFT_BITS) | length << SHIFT_BITS | shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = SECONDS_PER_DAY;

    #[test]
    fn a_kept_window_is_found_from_its_first_instant_to_its_last() {
        let latest = LatestWindow::default();
        assert_eq!(latest.get(0), None, "nothing is kept yet");
        // A day and a year, at the epoch and in 2262, with dates up to three days from that in UTC.
        for (start, length, shift) in [(0, 900, 0), (1, DAY, 3), (9_223_372_036, 366 * DAY + 3_600, -3), (DAY, 1, -8)] {
            let span = Span { start, end: start + length, day: start / DAY + shift };
            latest.put(&span);
            let window = span.to_window();
            for at in [window.start, window.end - 1] {
                assert_eq!(latest.get(at), Some(window));
            }
            assert_eq!(latest.get(window.end), None);
            assert_eq!(latest.get(window.start.wrapping_sub(1)), None);
        }
    }

    #[test]
    fn what_does_not_fit_into_a_word_is_not_kept() {
        let latest = LatestWindow::default();
        for span in [
            Span { start: -1, end: 1, day: -1 },
            Span { start: 1 << START_BITS, end: (1 << START_BITS) + 1, day: (1 << START_BITS) / DAY },
            Span { start: 0, end: 1 << LENGTH_BITS, day: 0 },
            Span { start: 0, end: DAY, day: 8 },
            Span { start: 0, end: DAY, day: -9 },
        ] {
            latest.put(&span);
            assert_eq!(latest.0.load(Ordering::Relaxed), 0, "{span:?}");
        }
    }
}
