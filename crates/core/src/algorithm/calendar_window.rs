//! Calendar window: units per day, week, month or year of a time zone. See `spec/calendar_window.md`.

use super::window::{Current, Windows};
use crate::bounds::INTERVAL_NANOS_MIN;
use crate::{Calendar, LimitError, Time};

/// Units per window of a calendar. The words of a state are the end of a window and the units in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CalendarLimit {
    pub(crate) limit: u64,
    pub(crate) calendar: Calendar,
}

impl CalendarLimit {
    /// Lets `limit` units pass in each window of the calendar.
    ///
    /// # Errors
    /// If the limit is zero or above 10 million a second.
    pub(crate) fn new(limit: u64, calendar: Calendar) -> Result<CalendarLimit, LimitError> {
        if limit == 0 {
            return Err(LimitError::Zero { field: "limit" });
        }
        let nanos = u64::try_from(calendar.period().usual().as_nanos()).unwrap_or(u64::MAX);
        if limit > nanos / INTERVAL_NANOS_MIN {
            return Err(LimitError::TooFast { field: "limit", units: limit, nanos });
        }
        Ok(CalendarLimit { limit, calendar })
    }
}

impl Windows for CalendarLimit {
    fn limit(&self) -> u64 {
        self.limit
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
