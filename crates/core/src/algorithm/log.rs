//! Sliding log and sliced window: a log of charges, each with the instant at which it is out.
//!
//! A sliced window is a sliding log whose charges are kept until the slice they fell in is out as a whole, so that one
//! entry a slice is enough. See `spec/sliding_log.md` and `spec/sliced_window.md`.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::Time;
use crate::decision::{Answer, Decision, Op, Receipt};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    /// Length of a slice; 1 makes it the exact log.
    slice: u64,
    /// The longest an entry lives: from the start of its slice until it is out.
    lifetime: u64,
}

/// Units that count until an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) out_at: u64,
    pub(crate) units: u64,
}

/// Where entries live, oldest first.
pub(crate) trait Entries {
    /// Sum of the units of all entries.
    fn units(&self) -> u64;
    fn front(&self) -> Option<Entry>;
    fn back(&self) -> Option<Entry>;
    fn pop_front(&mut self);
    /// Appends an entry, or answers false if there is no room for it. There is always room for a first one.
    fn push_back(&mut self, entry: Entry) -> bool;
    fn set_back(&mut self, entry: Entry);
    /// Visits all entries from the oldest on, stores what the visitor changed, and drops those it does not keep.
    fn amend(&mut self, keep: impl FnMut(&mut Entry) -> bool);
    fn visit(&self, visit: impl FnMut(Entry) -> ControlFlow<()>);
    fn clear(&mut self);
}

impl Log {
    pub(crate) fn sliding(limit: u64, window: u64) -> Log {
        Log { limit, window, slice: 1, lifetime: window }
    }

    /// Slices are rounded up to whole nanoseconds, which lets a window end up to `slices` nanoseconds late, never
    /// early.
    pub(crate) fn sliced(limit: u64, window: u64, slices: u64) -> Log {
        let slice = window.div_ceil(slices);
        Log { limit, window, slice, lifetime: slice * (slices + 1) }
    }

    pub(crate) fn slice(&self) -> u64 {
        self.slice
    }

    pub(crate) fn lifetime(&self) -> u64 {
        self.lifetime
    }

    /// The most entries a log can hold: one for each unit, debits included, or one for each slice.
    pub(crate) fn entries_max(&self) -> u64 {
        (2 * self.limit).min(self.lifetime / self.slice + 1)
    }

    /// When a charge at `now` is out.
    fn out_at(&self, now: u64) -> u64 {
        now - now % self.slice + self.lifetime
    }

    pub(crate) fn decide(&self, log: &mut impl Entries, now: Time, op: Op) -> Decision {
        let nanos = now.as_nanos();
        let peek = matches!(op, Op::Peek | Op::Ask(_) | Op::Take(0));
        if !peek && self.is_ahead(newest(log), nanos) {
            self.pull_back(log, nanos);
        }
        let foreseen = self.foresee(log, now, op, 0);
        if peek || !foreseen.is_allowed() {
            return foreseen;
        }
        let out_at = foreseen.receipt.0;
        match op {
            Op::Take(units) => append(log, nanos, Entry { out_at, units }),
            Op::Debit(units) => {
                let used = log.units() - units_out(log, nanos);
                append(log, nanos, Entry { out_at, units: units.min((2 * self.limit).saturating_sub(used)) });
            }
            Op::Refund(units, receipt) => give_back(log, nanos, units, receipt),
            Op::Reset => {
                log.clear();
                return self.foresee(log, now, Op::Peek, 0);
            }
            Op::Ask(_) | Op::Peek => {}
        }
        let used = log.units() - units_out(log, nanos);
        self.answer(Answer::Allow, used, self.fresh_at(log, used).saturating_sub(nanos), out_at)
    }

    /// The decision about `op` with `pending` units more in the log, without a change to it. It assumes that refunds
    /// and resets free nothing.
    pub(crate) fn foresee(&self, log: &impl Entries, now: Time, op: Op, pending: u64) -> Decision {
        let now = now.as_nanos();
        let used = log.units() - units_out(log, now) + pending;
        let jumped = self.is_ahead(newest(log), now);
        let answer = match op {
            Op::Take(units) | Op::Ask(units) if units > self.limit => Answer::DenyAlways,
            Op::Take(units @ 1..) | Op::Ask(units) if used + units > self.limit => {
                Answer::DenyFor(self.fits_at(log, now, used, units).saturating_sub(now))
            }
            _ => Answer::Allow,
        };
        let (fresh_at, latest) = match jumped {
            true if used == 0 => (0, 0),
            true => (self.out_at(now), 0),
            false => (self.fresh_at(log, used), newest(log)),
        };
        // A stale instant counts as the newest entry's own.
        self.answer(answer, used, fresh_at.saturating_sub(now), self.out_at(now).max(latest))
    }

    fn answer(&self, answer: Answer, used: u64, reset_after: u64, out_at: u64) -> Decision {
        Decision {
            answer,
            limit: self.limit,
            room: self.limit.saturating_sub(used),
            unit: 1,
            reset_after,
            receipt: Receipt(out_at),
        }
    }

    /// When the log equals never seen: when its last unit is out. Without units it still has the instant of its newest
    /// entry.
    fn fresh_at(&self, log: &impl Entries, used: u64) -> u64 {
        if used == 0 { newest(log).saturating_sub(self.lifetime) } else { newest_counting(log) }
    }

    /// Whether a log whose newest entry is out at `newest` was written by a clock more than a window ahead of `now`.
    pub(crate) fn is_ahead(&self, newest: u64, now: u64) -> bool {
        newest > self.out_at(now).saturating_add(self.window)
    }

    /// The first instant at which `units` fit beside `used`, if nobody else spends. What is used beyond the entries of
    /// the log itself comes back last, one lifetime from `now` at the latest.
    fn fits_at(&self, log: &impl Entries, now: u64, mut used: u64, units: u64) -> u64 {
        let mut at = None;
        log.visit(|entry| {
            if entry.out_at > now {
                used -= entry.units;
            }
            if used + units > self.limit {
                return ControlFlow::Continue(());
            }
            at = Some(entry.out_at);
            ControlFlow::Break(())
        });
        at.unwrap_or_else(|| self.out_at(now))
    }

    /// A clock that jumped back by more than a window must not lock the key out until it catches up: what counts,
    /// counts from now on, for one window.
    fn pull_back(&self, log: &mut impl Entries, now: u64) {
        let entry = Entry { out_at: self.out_at(now), units: log.units() };
        log.clear();
        append(log, now, entry);
    }
}

/// When the newest entry is out; 0 without any.
fn newest(log: &impl Entries) -> u64 {
    log.back().map_or(0, |entry| entry.out_at)
}

/// When the newest entry that has units left is out; 0 without any.
fn newest_counting(log: &impl Entries) -> u64 {
    if log.back().is_some_and(|entry| entry.units > 0) {
        return newest(log);
    }
    let mut newest = 0;
    log.visit(|entry| {
        newest = if entry.units > 0 { entry.out_at } else { newest };
        ControlFlow::Continue(())
    });
    newest
}

/// Sums the units that are out at `now`.
fn units_out(log: &impl Entries, now: u64) -> u64 {
    let mut out = 0;
    log.visit(|entry| {
        if entry.out_at > now {
            return ControlFlow::Break(());
        }
        out += entry.units;
        ControlFlow::Continue(())
    });
    out
}

/// Drops the entries that are out at `now`.
fn drop_out(log: &mut impl Entries, now: u64) {
    if newest(log) <= now {
        return log.clear();
    }
    while log.front().is_some_and(|oldest| oldest.out_at <= now) {
        log.pop_front();
    }
}

/// Appends a charge, and drops the entries that are out by then. Nothing else drops entries: for a caller that read the
/// clock before, they may still count, and only a charge leaves a later instant behind that shows it.
///
/// If there is no room for another entry, the newest one takes the charge and lives as long: too strict for the units
/// already in it, never too lax.
fn append(log: &mut impl Entries, now: u64, entry: Entry) {
    if entry.units == 0 {
        return;
    }
    drop_out(log, now);
    match log.back() {
        // An emptied entry only kept the instant, which the charge brings itself.
        Some(newest) if newest.units == 0 || newest.out_at == entry.out_at || !log.push_back(entry) => {
            log.set_back(Entry { out_at: entry.out_at, units: newest.units + entry.units });
        }
        Some(_) => {}
        None => {
            let found_room = log.push_back(entry);
            debug_assert!(found_room, "a first entry finds the room that was made ready for it");
        }
    }
}

/// Takes units off the entries that still count and drops those it empties, except the newest: that one shows a stale
/// caller which instant counts.
fn give_back(log: &mut impl Entries, now: u64, mut units: u64, receipt: Option<Receipt>) {
    let newest = newest(log);
    log.amend(|entry| {
        if entry.out_at > now && receipt.is_none_or(|receipt| receipt.0 == entry.out_at) {
            let given = units.min(entry.units);
            entry.units -= given;
            units -= given;
        }
        entry.units > 0 || entry.out_at == newest
    });
}

impl Entries for VecDeque<Entry> {
    fn units(&self) -> u64 {
        self.iter().map(|entry| entry.units).sum()
    }

    fn front(&self) -> Option<Entry> {
        self.front().copied()
    }

    fn back(&self) -> Option<Entry> {
        self.back().copied()
    }

    fn pop_front(&mut self) {
        self.pop_front();
    }

    fn push_back(&mut self, entry: Entry) -> bool {
        self.push_back(entry);
        true
    }

    fn set_back(&mut self, entry: Entry) {
        if let Some(newest) = self.back_mut() {
            *newest = entry;
        }
    }

    fn amend(&mut self, keep: impl FnMut(&mut Entry) -> bool) {
        self.retain_mut(keep);
    }

    fn visit(&self, visit: impl FnMut(Entry) -> ControlFlow<()>) {
        let _ = self.iter().copied().try_for_each(visit);
    }

    fn clear(&mut self) {
        self.clear();
    }
}
