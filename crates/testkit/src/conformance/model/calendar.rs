//! Calendars, literally: a walk over all days of some years, one by one, with a look at each whether a window is due to
//! start on it, and a search for the instant at which it does.

use std::collections::BTreeSet;

use jiff::civil::{Date, Time as TimeOfDay};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use tidegate_core::{Calendar, CalendarPeriod};

/// A calendar, spelled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The period.
    pub period: CalendarPeriod,
    /// The name of the time zone.
    pub zone: String,
    /// The anchor as it is written.
    pub anchor: String,
}

/// A window: its instants in nanoseconds, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first nanosecond.
    pub start: u64,
    /// The first nanosecond after it.
    pub end: u64,
    /// The local date on which it is due to start, as yyyymmdd.
    pub name: u32,
}

impl Civil {
    /// The calendar of these texts.
    pub fn new(period: CalendarPeriod, zone: &str, anchor: &str) -> Civil {
        Civil { period, zone: zone.to_owned(), anchor: anchor.to_owned() }
    }

    /// One of six calendars of each zone of the database: fewer than a process may have.
    pub fn any(choice: u64) -> Civil {
        let zones: Vec<String> = TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
        let zone = &zones[usize::try_from(choice / 6 % zones.len() as u64).unwrap()];
        // Which anchors it has depends on the zone's name, so that there are many of them over all zones.
        let word = zone.bytes().fold(choice % 6, |word, byte| word * 31 % 1_000_003 + u64::from(byte));
        let one_of = |anchors: &[&str]| anchors[usize::try_from(word % anchors.len() as u64).unwrap()].to_owned();
        let (period, anchor) = match choice % 6 {
            0 => (CalendarPeriod::Day, "00:00".to_owned()),
            1 => (CalendarPeriod::Day, changing_time(zone, word)),
            2 => (CalendarPeriod::Week, one_of(&WEEKDAYS)),
            3 => (CalendarPeriod::Month, "1".to_owned()),
            4 => (CalendarPeriod::Month, (word % 31 + 1).to_string()),
            _ if word.is_multiple_of(2) => {
                (CalendarPeriod::Year, one_of(&["01-01", "02-29", "12-30", "12-31", "04-06"]))
            }
            _ => (CalendarPeriod::Year, format!("{:02}-{:02}", word % 12 + 1, word % 28 + 1)),
        };
        Civil::new(period, zone, &anchor)
    }

    /// How many calendars [`Civil::any`] chooses from.
    pub fn count() -> u64 {
        TimeZoneDatabase::bundled().available().count() as u64 * 6
    }

    /// Makes the calendar.
    pub fn calendar(&self) -> Calendar {
        Calendar::new(self.period, &self.zone, Some(&self.anchor)).unwrap()
    }

    /// Finds the time zone.
    pub fn time_zone(&self) -> TimeZone {
        TimeZoneDatabase::bundled().get(&self.zone).unwrap()
    }

    /// The window that an instant lies in.
    pub fn window_at(&self, nanos: u64) -> Window {
        let zone = self.time_zone();
        let now = Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
        let reach = match self.period {
            CalendarPeriod::Day => 4,
            CalendarPeriod::Week => 10,
            CalendarPeriod::Month => 35,
            CalendarPeriod::Year => 370,
            unknown => panic!("the model does not know {unknown:?}"),
        };
        let today = zone.to_datetime(now).date();
        let mut date = today.saturating_sub(SignedDuration::from_hours(24 * reach));
        let last = today.saturating_add(SignedDuration::from_hours(24 * reach));
        let (mut window, mut end) = (None, None);
        while date <= last {
            if self.is_due_on(date) {
                let start = first_instant(date, self.time_of_day(), &zone);
                if start <= now {
                    // Of two that start at once, the later date.
                    window = Some((start, date));
                } else if end.is_none() {
                    end = Some(start);
                }
            }
            date = date.tomorrow().unwrap();
        }
        let (start, date) = window.unwrap();
        let name = date.strftime("%Y%m%d").to_string().parse().unwrap();
        Window { start: nanos_of(start), end: nanos_of(end.unwrap()), name }
    }

    /// The window after this one.
    pub fn next(&self, window: Window) -> Window {
        self.window_at(window.end)
    }

    fn is_due_on(&self, date: Date) -> bool {
        let tomorrow = date.tomorrow().unwrap();
        match self.period {
            CalendarPeriod::Day => true,
            CalendarPeriod::Week => date.strftime("%A").to_string().to_lowercase() == self.anchor,
            CalendarPeriod::Month => {
                let day: i8 = self.anchor.parse().unwrap();
                date.day() == day || date.day() < day && tomorrow.day() == 1
            }
            CalendarPeriod::Year => {
                let (month, day) = self.anchor.split_once('-').unwrap();
                let anchor: (i8, i8) = (month.parse().unwrap(), day.parse().unwrap());
                let day = |date: Date| (date.month(), date.day());
                day(date) == anchor || anchor == (2, 29) && day(date) == (2, 28) && day(tomorrow) == (3, 1)
            }
            unknown => panic!("the model does not know {unknown:?}"),
        }
    }

    fn time_of_day(&self) -> TimeOfDay {
        match self.period {
            CalendarPeriod::Day => self.anchor.parse().unwrap(),
            _ => TimeOfDay::midnight(),
        }
    }
}

/// A time of day that some change of clocks skips or repeats, or one nearby.
fn changing_time(zone: &str, word: u64) -> String {
    let zone = TimeZoneDatabase::bundled().get(zone).unwrap();
    let changes = zone.following(Timestamp::UNIX_EPOCH).take(usize::try_from(word % 50).unwrap() + 1);
    let instant = changes.last().map_or(Timestamp::UNIX_EPOCH, |change| change.timestamp());
    let shown_before = zone.to_datetime(instant - SignedDuration::from_secs(1));
    let minutes = [-60, -30, -15, 1, 16, 31, 61][usize::try_from(word % 7).unwrap()];
    shown_before.saturating_add(SignedDuration::from_mins(minutes)).strftime("%H:%M").to_string()
}

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The instant at which a local time is shown for the first time; or, if it is skipped, the first instant after.
///
/// Only instants are looked up, never local times: where the transitions that a zone lists end and its rule begins, jiff takes
/// a local time for one that the rule alone would show (America/Nuuk on 2023-10-28 at 23:00).
fn first_instant(date: Date, time: TimeOfDay, zone: &TimeZone) -> Timestamp {
    let local = date.to_datetime(time);
    let as_utc = Offset::UTC.to_timestamp(local).unwrap();
    // No clock is 27 hours from UTC, and none is changed twice within three hours.
    let around = (-27..=27).step_by(3).map(|hours| as_utc + SignedDuration::from_hours(hours));
    let candidates: BTreeSet<Timestamp> =
        around.map(|instant| zone.to_offset(instant).to_timestamp(local).unwrap()).collect();
    if let Some(shown) = candidates.iter().find(|instant| zone.to_datetime(**instant) == local) {
        return *shown;
    }
    // Between these two the clock goes from a time before the gap to one after it.
    let (mut early, mut late) = (candidates.first().unwrap().as_second(), candidates.last().unwrap().as_second());
    while late - early > 1 {
        let middle = i64::midpoint(early, late);
        let is_late = zone.to_datetime(Timestamp::from_second(middle).unwrap()) > local;
        (early, late) = if is_late { (early, middle) } else { (middle, late) };
    }
    Timestamp::from_second(late).unwrap()
}

/// Nanoseconds since the epoch, of instants before it 0.
fn nanos_of(instant: Timestamp) -> u64 {
    u64::try_from(instant.as_nanosecond().max(0)).unwrap()
}
