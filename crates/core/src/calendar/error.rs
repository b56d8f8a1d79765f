//! Errors in the fields of a calendar.

use super::CalendarPeriod;
use crate::bounds::CALENDARS_MAX;

/// Why a calendar is invalid: the field, its value and a fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalendarError {
    /// The period is unknown.
    #[error("period: `{text}` is unknown; use day, week, month or year")]
    UnknownPeriod {
        /// The text, shortened.
        text: String,
    },
    /// The time zone is not in the bundled database.
    #[error("time_zone: `{text}` is unknown; use a name of the IANA time-zone database, such as Europe/Berlin or UTC")]
    UnknownZone {
        /// The text, shortened.
        text: String,
    },
    /// The anchor does not suit the period.
    #[error("anchor: `{text}` is not a {}; use {}", anchored_at(*period), anchors(*period))]
    BadAnchor {
        /// The text, shortened.
        text: String,
        /// The period of the anchor.
        period: CalendarPeriod,
    },
    /// The process has too many different calendars.
    #[error(
        "calendar: no room for `{text}`: this process already has {CALENDARS_MAX} calendars; use fewer different \
         periods, time zones and anchors, or restart"
    )]
    TooMany {
        /// The calendar that was refused.
        text: String,
    },
}

impl CalendarError {
    /// The start of a text from outside, which may be long.
    pub(super) fn shortened(text: &str) -> String {
        text.chars().take(40).collect()
    }
}

fn anchored_at(period: CalendarPeriod) -> &'static str {
    match period {
        CalendarPeriod::Day => "time of day",
        CalendarPeriod::Week => "day of the week",
        CalendarPeriod::Month => "day of the month",
        CalendarPeriod::Year => "day of the year",
    }
}

fn anchors(period: CalendarPeriod) -> &'static str {
    match period {
        CalendarPeriod::Day => "HH:MM from 00:00 to 23:59",
        CalendarPeriod::Week => "monday, tuesday, wednesday, thursday, friday, saturday or sunday",
        CalendarPeriod::Month => "1 to 31",
        CalendarPeriod::Year => "MM-DD from 01-01 to 12-31",
    }
}
