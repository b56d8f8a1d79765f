//! Periods and anchors: the local dates and times at which windows start.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time, Weekday};

use super::CalendarError;

/// The length of a calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CalendarPeriod {
    /// From one time of day to the same of the next day.
    Day,
    /// From one day of the week to the next of the same name.
    Week,
    /// From one day of a month to the same of the next month.
    Month,
    /// From one day of a year to the same of the next year.
    Year,
}

impl CalendarPeriod {
    /// All periods, the shortest first.
    pub const ALL: [CalendarPeriod; 4] =
        [CalendarPeriod::Day, CalendarPeriod::Week, CalendarPeriod::Month, CalendarPeriod::Year];

    /// Returns the name in the configuration and on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CalendarPeriod::Day => "day",
            CalendarPeriod::Week => "week",
            CalendarPeriod::Month => "month",
            CalendarPeriod::Year => "year",
        }
    }

    /// Returns the length of the period's shortest window without clock changes: 1, 7, 28 or 365 days.
    #[must_use]
    pub const fn usual(self) -> Duration {
        let days = match self {
            CalendarPeriod::Day => 1,
            CalendarPeriod::Week => 7,
            CalendarPeriod::Month => 28,
            CalendarPeriod::Year => 365,
        };
        Duration::from_secs(days * 86_400)
    }

    /// Returns a length that no window of the period exceeds, whatever clock changes there are: 2, 8, 32 or 367 days.
    /// No zone has put its clocks back by a whole day since 1970.
    #[must_use]
    pub const fn longest(self) -> Duration {
        let days = match self {
            CalendarPeriod::Day => 2,
            CalendarPeriod::Week => 8,
            CalendarPeriod::Month => 32,
            CalendarPeriod::Year => 367,
        };
        Duration::from_secs(days * 86_400)
    }
}

impl FromStr for CalendarPeriod {
    type Err = CalendarError;

    /// Parses a name as returned by [`CalendarPeriod::name`].
    fn from_str(text: &str) -> Result<CalendarPeriod, CalendarError> {
        let named = CalendarPeriod::ALL.into_iter().find(|period| period.name() == text);
        named.ok_or_else(|| CalendarError::UnknownPeriod { text: CalendarError::shortened(text) })
    }
}

impl fmt::Display for CalendarPeriod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A period with the point in it at which windows start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// Each day at this time.
    Day(Time),
    /// Each week on this day, at midnight.
    Week(Weekday),
    /// Each month on this day, 1 to 31, or on the month's last if it is shorter.
    Month(i8),
    /// Each year on this day of this month; 02-29 is 02-28 in years without it.
    Year { month: i8, day: i8 },
}

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// A year that has every day, to check a month and a day against.
const LEAP_YEAR: i16 = 2024;

impl Anchor {
    /// Reads the anchor of a period; without a text, the start of the period.
    pub(super) fn parse(period: CalendarPeriod, text: Option<&str>) -> Result<Anchor, CalendarError> {
        let anchor = match (period, text) {
            (CalendarPeriod::Day, None) => Some(Anchor::Day(Time::midnight())),
            (CalendarPeriod::Week, None) => Some(Anchor::Week(Weekday::Monday)),
            (CalendarPeriod::Month, None) => Some(Anchor::Month(1)),
            (CalendarPeriod::Year, None) => Some(Anchor::Year { month: 1, day: 1 }),
            (CalendarPeriod::Day, Some(text)) => time_of_day(text).map(Anchor::Day),
            (CalendarPeriod::Week, Some(text)) => weekday(text).map(Anchor::Week),
            (CalendarPeriod::Month, Some(text)) => number(text).filter(|day| (1..=31).contains(day)).map(Anchor::Month),
            (CalendarPeriod::Year, Some(text)) => day_of_year(text),
        };
        anchor.ok_or_else(|| CalendarError::BadAnchor {
            text: text.map(CalendarError::shortened).unwrap_or_default(),
            period,
        })
    }

    pub(super) fn period(self) -> CalendarPeriod {
        match self {
            Anchor::Day(_) => CalendarPeriod::Day,
            Anchor::Week(_) => CalendarPeriod::Week,
            Anchor::Month(_) => CalendarPeriod::Month,
            Anchor::Year { .. } => CalendarPeriod::Year,
        }
    }

    /// The local time at which the window of this date is due to start.
    pub(super) fn local_start(self, date: Date) -> DateTime {
        match self {
            Anchor::Day(time) => date.to_datetime(time),
            Anchor::Week(_) | Anchor::Month(_) | Anchor::Year { .. } => date.to_datetime(Time::midnight()),
        }
    }

    /// The latest date whose window is due to start by this local time.
    pub(super) fn latest_date(self, local: DateTime) -> Date {
        let today = local.date();
        match self {
            Anchor::Day(time) if local.time() < time => today.saturating_sub(1.day()),
            Anchor::Day(_) => today,
            Anchor::Week(weekday) => today.saturating_sub(today.weekday().since(weekday).days()),
            Anchor::Month(day) => {
                let this = day_in_month(today, day);
                if this <= today { this } else { day_in_month(today.first_of_month().saturating_sub(1.month()), day) }
            }
            Anchor::Year { month, day } => {
                let this = day_in_year(today, month, day);
                if this <= today {
                    this
                } else {
                    day_in_year(today.first_of_year().saturating_sub(1.year()), month, day)
                }
            }
        }
    }

    /// The date after this one on which a window is due to start.
    pub(super) fn next_date(self, date: Date) -> Date {
        match self {
            Anchor::Day(_) => date.saturating_add(1.day()),
            Anchor::Week(_) => date.saturating_add(7.days()),
            Anchor::Month(day) => day_in_month(date.first_of_month().saturating_add(1.month()), day),
            Anchor::Year { month, day } => day_in_year(date.first_of_year().saturating_add(1.year()), month, day),
        }
    }
}

/// Writes the one text of an anchor, however it was read.
impl fmt::Display for Anchor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anchor::Day(time) => write!(formatter, "{:02}:{:02}", time.hour(), time.minute()),
            Anchor::Week(weekday) => {
                let named = WEEKDAYS.iter().find(|(_, named)| named == weekday);
                formatter.write_str(named.map_or("", |(name, _)| name))
            }
            Anchor::Month(day) => write!(formatter, "{day}"),
            Anchor::Year { month, day } => write!(formatter, "{month:02}-{day:02}"),
        }
    }
}

/// This day of the month that `date` lies in, or the month's last.
fn day_in_month(date: Date, day: i8) -> Date {
    let first = date.first_of_month();
    first.saturating_add((day.min(first.days_in_month()) - 1).days())
}

/// This day of the year that `date` lies in, or the last of that month.
fn day_in_year(date: Date, month: i8, day: i8) -> Date {
    day_in_month(date.first_of_year().saturating_add((month - 1).months()), day)
}

/// A number of one or two digits.
fn number(text: &str) -> Option<i8> {
    let is_number = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Two numbers of two digits each.
fn pair(text: &str, separator: char) -> Option<(i8, i8)> {
    let (one, other) = text.split_once(separator)?;
    if one.len() == 2 && other.len() == 2 { Some((number(one)?, number(other)?)) } else { None }
}

fn time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = pair(text, ':')?;
    Time::new(hour, minute, 0, 0).ok()
}

fn weekday(text: &str) -> Option<Weekday> {
    WEEKDAYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, weekday)| *weekday)
}

fn day_of_year(text: &str) -> Option<Anchor> {
    let (month, day) = pair(text, '-')?;
    Date::new(LEAP_YEAR, month, day).ok().map(|_| Anchor::Year { month, day })
}
