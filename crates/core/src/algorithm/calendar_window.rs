//! Calendar window: units per day, week, month or year of a time zone. See `spec/calendar_window.md`.

use super::Words;
use crate::bounds::INTERVAL_NANOS_MIN;
use crate::decision::{Answer, Decision, Op, Receipt};
use crate::{Calendar, LimitError, Time};

/// Units per window of a calendar. The words of a state are the end of a window and the units in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarLimit {
    pub(crate) limit: u64,
    pub(crate) calendar: Calendar,
}

/// The window that counts, and the units in it.
struct Current {
    start: u64,
    end: u64,
    count: u64,
    /// Whether the count comes from a window so late that the clock must have jumped back.
    jumped: bool,
}

impl CalendarLimit {
    /// Lets `limit` units pass in each window of the calendar.
    ///
    /// # Errors
    /// If the limit is zero or above 10 million a second.
    pub fn new(limit: u64, calendar: Calendar) -> Result<CalendarLimit, LimitError> {
        if limit == 0 {
            return Err(LimitError::Zero { field: "limit" });
        }
        let nanos = u64::try_from(calendar.period().usual().as_nanos()).unwrap_or(u64::MAX);
        if limit > nanos / INTERVAL_NANOS_MIN {
            return Err(LimitError::TooFast { field: "limit", units: limit, nanos });
        }
        Ok(CalendarLimit { limit, calendar })
    }

    /// Decides one operation of a key that has this state, and changes the state accordingly.
    pub fn apply(&self, state: &mut [u64; 2], now: Time, op: Op) -> Decision {
        self.decide(state, now, op)
    }

    fn current(&self, [end, count]: [u64; 2], now: Time) -> Current {
        let present = self.calendar.window_at(now);
        let at_present = |count, jumped| Current { start: present.start(), end: present.end(), count, jumped };
        if end <= now.as_nanos() {
            at_present(0, false)
        } else if end <= present.end() {
            at_present(count, false)
        } else if end > self.calendar.end_after(&present) {
            // A clock that jumped back must not lock the key out until it catches up.
            at_present(count, true)
        } else {
            // The caller's instant is stale: it counts as the start of the state's own window, which is the next one.
            Current { start: present.end(), end, count, jumped: false }
        }
    }
}

impl Words<2> for CalendarLimit {
    #[inline]
    fn is_ahead(&self, state: &[u64; 2], now: Time) -> bool {
        self.current(*state, now).jumped
    }

    #[inline]
    fn decide(&self, state: &mut [u64; 2], now: Time, op: Op) -> Decision {
        let Current { start, end, count: before, jumped } = self.current(*state, now);
        let mut count = before;
        let now = now.as_nanos();
        let mut answer = Answer::Allow;
        match op {
            Op::Take(units) | Op::Ask(units) if units > self.limit => answer = Answer::DenyAlways,
            Op::Take(units) if units > 0 && count.saturating_add(units) > self.limit => {
                answer = Answer::DenyFor(end - now);
            }
            Op::Ask(units) if count.saturating_add(units) > self.limit => answer = Answer::DenyFor(end - now),
            Op::Take(units) => count += units,
            Op::Debit(units) => count = count.max(count.saturating_add(units).min(2 * self.limit)),
            Op::Refund(units, receipt) => {
                if receipt.is_none_or(|receipt| (start..end).contains(&receipt.0)) {
                    count = count.saturating_sub(units);
                }
            }
            Op::Ask(_) | Op::Peek | Op::Reset => {}
        }
        // What changes nothing writes nothing, and a window that was emptied is still the latest one.
        match op {
            Op::Peek | Op::Ask(_) | Op::Take(0) => {}
            Op::Reset => {
                *state = [0, 0];
                return self.decide(state, Time::from_nanos(now), Op::Peek);
            }
            _ if count != before || jumped => *state = [end, count],
            _ => {}
        }
        Decision {
            answer,
            limit: self.limit,
            room: self.limit.saturating_sub(count),
            unit: 1,
            reset_after: if count == 0 { start.saturating_sub(now) } else { end - now },
            receipt: Receipt(now.max(start)),
        }
    }
}
