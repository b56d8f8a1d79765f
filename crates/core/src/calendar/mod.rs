//! Calendars: days, weeks, months and years of a time zone, with an anchor. See `spec/calendar_window.md`.
//!
//! Time zones come from the database that is compiled in, so that nothing is read and all nodes of one version agree.

mod anchor;
mod error;
mod window;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::Time;
use crate::bounds::{CALENDARS_MAX, NANOS_PER_SECOND};
use crate::hash::agreed_hash;
use anchor::Anchor;
use window::{LatestWindow, Span};

pub use anchor::CalendarPeriod;
pub use error::CalendarError;
pub use window::CalendarWindow;

/// A period of the calendar in a time zone, with the point in it at which windows start.
///
/// It is a handle that can be copied: equal calendars are stored once per process, and never freed.
///
/// ```
/// use tidegate_core::{Calendar, CalendarPeriod, Time};
///
/// // From the 15th of each month on, in Berlin.
/// let billing = Calendar::new(CalendarPeriod::Month, "Europe/Berlin", Some("15"))?;
/// let window = billing.window_at(Time::from_nanos(1_700_000_000_000_000_000));     // 2023-11-14 23:13:20 in Berlin
/// assert_eq!(window.name(), 20_231_015);
/// assert_eq!(window.end(), 1_700_002_800_000_000_000);                            // 46 minutes and 40 seconds later
/// # Ok::<(), tidegate_core::CalendarError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Calendar(&'static Entry);

/// The data of a calendar.
struct Entry {
    zone: TimeZone,
    anchor: Anchor,
    /// The canonical text.
    text: Box<str>,
    /// The hash of the canonical text.
    identity: u64,
    latest: LatestWindow,
}

/// All calendars of the process by their canonical text. They are never freed, which is what lets a handle be copied.
static CALENDARS: Mutex<BTreeMap<String, Calendar>> = Mutex::new(BTreeMap::new());

impl Calendar {
    /// Creates the calendar of a period in a time zone.
    ///
    /// The zone is a name of the IANA database, in any case. The anchor is HH:MM for days, the name of a weekday for
    /// weeks, 1 to 31 for months and MM-DD for years; without one, windows start at midnight, on Mondays, on the 1st
    /// and on 01-01. In a month without the day of the anchor, the window starts on the last day.
    ///
    /// # Errors
    /// Fails if the zone is unknown, the anchor does not suit the period, or the process has
    /// [`CALENDARS_MAX`](crate::bounds::CALENDARS_MAX) other calendars.
    pub fn new(period: CalendarPeriod, time_zone: &str, anchor: Option<&str>) -> Result<Calendar, CalendarError> {
        let anchor = Anchor::parse(period, anchor)?;
        let zone = zone_named(time_zone)?;
        Calendar::kept(&mut CALENDARS.lock().unwrap_or_else(PoisonError::into_inner), zone, anchor)
    }

    /// The calendar out of this table, which is given a new one unless it is full.
    fn kept(
        calendars: &mut BTreeMap<String, Calendar>,
        zone: TimeZone,
        anchor: Anchor,
    ) -> Result<Calendar, CalendarError> {
        let text = canonical(&zone, anchor);
        if let Some(calendar) = calendars.get(&text) {
            return Ok(*calendar);
        }
        if calendars.len() >= CALENDARS_MAX {
            return Err(CalendarError::TooMany { text });
        }
        let (identity, latest) = (agreed_hash(text.as_bytes()), LatestWindow::default());
        let entry = Entry { zone, anchor, text: text.as_str().into(), identity, latest };
        let calendar = Calendar(Box::leak(Box::new(entry)));
        calendars.insert(text, calendar);
        Ok(calendar)
    }

    /// Returns the window that contains an instant.
    ///
    /// It evaluates the zone's rules only if the instant is in another window than that of the last call.
    #[inline]
    #[must_use]
    pub fn window_at(self, now: Time) -> CalendarWindow {
        match self.0.latest.get(now.as_nanos()) {
            Some(window) => window,
            None => self.find(now),
        }
    }

    #[cold]
    fn find(self, now: Time) -> CalendarWindow {
        let span = self.span_at(now.as_nanos());
        self.0.latest.put(&span);
        span.to_window()
    }

    fn span_at(self, nanos: u64) -> Span {
        let second = i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX);
        Span::containing(second, &self.0.zone, self.0.anchor)
    }

    /// Returns the window after this one, or `None` if it would start after [`Time::MAX`].
    #[must_use]
    pub fn next(self, window: &CalendarWindow) -> Option<CalendarWindow> {
        // It is found without being kept: most callers go on to ask for the present window.
        if window.end() > Time::MAX.as_nanos() { None } else { Some(self.span_at(window.end()).to_window()) }
    }

    /// The end of the window after this one, also if that starts after [`Time::MAX`].
    pub(crate) fn end_after(self, window: &CalendarWindow) -> u64 {
        self.span_at(window.end()).to_window().end()
    }

    /// Returns the window before this one, or `None` if it would end at the epoch or before.
    #[must_use]
    pub fn previous(self, window: &CalendarWindow) -> Option<CalendarWindow> {
        window.start().checked_sub(1).map(|last| self.span_at(last).to_window())
    }

    /// Returns the period.
    #[must_use]
    pub fn period(self) -> CalendarPeriod {
        self.0.anchor.period()
    }

    /// Returns the name of the time zone as the database spells it.
    #[must_use]
    pub fn time_zone(self) -> &'static str {
        name_of(&self.0.zone)
    }

    /// Returns the anchor, also if it is the default: `00:00`, `monday`, `1` or `01-01`.
    #[must_use]
    pub fn anchor(self) -> String {
        self.0.anchor.to_string()
    }

    /// Returns the canonical text, period;zone;anchor, such as `month;Europe/Berlin;15`. Different calendars have different
    /// texts.
    #[inline]
    #[must_use]
    pub fn text(self) -> &'static str {
        &self.0.text
    }

    /// Returns a number that identifies the calendar, the same in every process: a fixed hash
    /// ([`agreed_hash`](crate::agreed_hash)) of [`Calendar::text`].
    #[inline]
    #[must_use]
    pub fn identity(self) -> u64 {
        self.0.identity
    }
}

/// Writes [`Calendar::text`].
impl fmt::Display for Calendar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.text())
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Calendar({self})")
    }
}

/// Compares the handles: equal calendars are stored once.
impl PartialEq for Calendar {
    fn eq(&self, other: &Calendar) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.identity().hash(hasher);
    }
}

fn canonical(zone: &TimeZone, anchor: Anchor) -> String {
    format!("{};{};{anchor}", anchor.period(), name_of(zone))
}

fn name_of(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or_default()
}

/// The zone of this name out of the bundled database, whatever else the features of other crates make jiff look at.
fn zone_named(name: &str) -> Result<TimeZone, CalendarError> {
    let found =
        TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown() && zone.iana_name().is_some());
    found.ok_or_else(|| CalendarError::UnknownZone { text: CalendarError::shortened(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_refuses_new_calendars_and_still_finds_its_own() {
        let mut calendars = BTreeMap::new();
        let mut add = |number: usize| {
            let (hour, minute) = (number / 60 % 24, number % 60);
            let zone = ["UTC", "Europe/Berlin", "Asia/Tokyo"][number / 1440];
            let anchor = Anchor::parse(CalendarPeriod::Day, Some(&format!("{hour:02}:{minute:02}")))?;
            Calendar::kept(&mut calendars, zone_named(zone)?, anchor)
        };
        let first = add(0).unwrap();
        for number in 1..CALENDARS_MAX {
            assert_ne!(add(number).unwrap(), first, "{number}");
        }
        assert_eq!(
            add(CALENDARS_MAX).unwrap_err().to_string(),
            "calendar: no room for `day;Asia/Tokyo;20:16`: this process already has 4096 calendars; use fewer different \
             periods, time zones and anchors, or restart"
        );
        assert_eq!(add(0), Ok(first));
    }
}
