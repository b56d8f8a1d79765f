//! Sliding counter: two counters, the previous one weighted by how much of it the trailing window still covers.
//! See `spec/sliding_counter.md`.

use super::Words;
use crate::Time;
use crate::decision::{Answer, Decision, Op, Receipt};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingCounter {
    pub(crate) limit: u64,
    pub(crate) window: u64,
}

/// The state, spelled out: the window that starts at `start` has `curr` units, the one before it `prev`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts {
    start: u64,
    prev: u64,
    curr: u64,
}

impl SlidingCounter {
    /// A state ends two windows after the start of its current one, or one if there is nothing in the current one.
    fn unpack(&self, [fresh_at, prev, curr]: [u64; 3]) -> Counts {
        let windows = if curr > 0 { 2 } else { 1 };
        Counts { start: fresh_at.saturating_sub(windows * self.window), prev, curr }
    }

    fn fresh_at(&self, counts: Counts) -> u64 {
        counts.start + if counts.curr > 0 { 2 } else { 1 } * self.window
    }

    /// Units in the window that `now` lies in.
    pub(crate) fn units_of_current(&self, state: [u64; 3], now: Time) -> u64 {
        self.current(state, now).curr
    }

    /// Moves the counts to the window that `now` lies in.
    fn current(&self, state: [u64; 3], now: Time) -> Counts {
        let start = self.start(now);
        let counts = self.unpack(state);
        if state[0] <= now.as_nanos() {
            Counts { start, prev: 0, curr: 0 }
        } else if counts.start < start {
            Counts { start, prev: counts.curr, curr: 0 }
        } else if self.is_ahead(&state, now) {
            // A clock that jumped back must not lock the key out until it catches up.
            Counts { start, ..counts }
        } else {
            // The same window; or the caller's instant is stale: it counts as the start of the state's own window.
            counts
        }
    }

    /// The start of the window that `now` lies in.
    fn start(&self, now: Time) -> u64 {
        now.as_nanos() - now.as_nanos() % self.window
    }

    /// The weight of the previous window after `elapsed` nanoseconds of the current one, in units, rounded up.
    fn weight(&self, prev: u64, elapsed: u64) -> u64 {
        let covered = self.window - elapsed;
        // A product of 64 bits is divided several times faster than one of 128.
        let weight = match prev.checked_mul(covered) {
            Some(product) => product.div_ceil(self.window),
            None => {
                let weight = (u128::from(prev) * u128::from(covered)).div_ceil(u128::from(self.window));
                u64::try_from(weight).unwrap_or(u64::MAX)
            }
        };
        weight.min(prev)
    }

    /// The first instant at which `units` fit, if nobody else spends; `units` are at most the limit.
    fn fits_at(&self, counts: Counts, units: u64) -> u64 {
        // `count · (window − elapsed) ≤ free · window` solved for the least whole `elapsed`.
        let least_elapsed = |count: u64, free: u64| {
            let covered = u128::from(free) * u128::from(self.window) / u128::from(count.max(1));
            self.window.saturating_sub(u64::try_from(covered).unwrap_or(u64::MAX))
        };
        match self.limit.checked_sub(counts.curr.saturating_add(units)) {
            Some(free) => counts.start + least_elapsed(counts.prev, free),
            None => counts.start + self.window + least_elapsed(counts.curr, self.limit - units),
        }
    }
}

impl Words<3> for SlidingCounter {
    #[inline]
    fn is_ahead(&self, state: &[u64; 3], now: Time) -> bool {
        self.unpack(*state).start.saturating_sub(self.start(now)) > self.window
    }

    #[inline]
    fn decide(&self, state: &mut [u64; 3], now: Time, op: Op) -> Decision {
        let before = self.current(*state, now);
        let jumped = self.is_ahead(state, now);
        let mut counts = before;
        let now = now.as_nanos();
        let instant = now.max(counts.start);
        let elapsed = instant - counts.start;
        let mut answer = Answer::Allow;
        match op {
            Op::Take(units) | Op::Ask(units) if units > self.limit => answer = Answer::DenyAlways,
            Op::Take(units @ 1..) | Op::Ask(units) => {
                // Rounding the weight up loses nothing here: everything else in the comparison is whole.
                let used = self.weight(counts.prev, elapsed).saturating_add(counts.curr).saturating_add(units);
                if used > self.limit {
                    answer = Answer::DenyFor(self.fits_at(counts, units) - now);
                } else if matches!(op, Op::Take(_)) {
                    counts.curr += units;
                }
            }
            Op::Take(0) | Op::Peek | Op::Reset => {}
            Op::Debit(units) => {
                counts.curr = counts.curr.max(counts.curr.saturating_add(units).min(2 * self.limit));
            }
            Op::Refund(units, receipt) => match receipt {
                // Any other window is gone, or was never there on this clock.
                Some(Receipt(at))
                    if at < counts.start.saturating_sub(self.window) || at >= counts.start + self.window => {}
                Some(Receipt(at)) if at < counts.start => counts.prev = counts.prev.saturating_sub(units),
                _ => counts.curr = counts.curr.saturating_sub(units),
            },
        }
        // What changes nothing writes nothing, and counts that were emptied still stand in the latest window.
        match op {
            Op::Peek | Op::Ask(_) | Op::Take(0) => {}
            Op::Reset => {
                *state = [0; 3];
                return self.decide(state, Time::from_nanos(now), Op::Peek);
            }
            _ if counts != before || jumped => *state = [self.fresh_at(counts), counts.prev, counts.curr],
            _ => {}
        }
        let used = self.weight(counts.prev, elapsed).saturating_add(counts.curr);
        Decision {
            answer,
            limit: self.limit,
            room: self.limit.saturating_sub(used),
            unit: 1,
            reset_after: if used == 0 { counts.start } else { self.fresh_at(counts) }.saturating_sub(now),
            receipt: Receipt(instant),
        }
    }
}
