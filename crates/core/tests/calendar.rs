//! Calendars: named cases, and the code against the walk over days of `model/calendar.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use jiff::Timestamp;
use proptest::prelude::*;
use tidegate_core::{Calendar, CalendarError, CalendarPeriod, CalendarWindow, Time, agreed_hash};
use tidegate_testkit::conformance::model::calendar::{Civil, Window};

use CalendarPeriod::{Day, Month, Week, Year};

fn nanos(instant: &str) -> u64 {
    let instant: Timestamp = instant.parse().unwrap();
    instant.as_nanosecond().try_into().unwrap()
}

fn plain(window: CalendarWindow) -> Window {
    Window { start: window.start(), end: window.end(), name: window.name() }
}

/// The window of an instant, found anew: a calendar keeps the window that it was asked for last.
fn window_at(calendar: Calendar, at: u64) -> Window {
    let last = calendar.window_at(Time::MAX);
    assert!(last.end() > Time::MAX.as_nanos());
    plain(calendar.window_at(Time::from_nanos(at)))
}

/// Checks windows that follow each other: the local date of each, and the instants at which they start; the last
/// instant ends the last window.
fn check((period, zone, anchor): (CalendarPeriod, &str, &str), names: &[u32], starts: &[&str]) {
    let calendar = Calendar::new(period, zone, Some(anchor)).unwrap();
    let civil = Civil::new(period, zone, anchor);
    assert_eq!(starts.len(), names.len() + 1, "the test itself");
    for (name, edges) in names.iter().zip(starts.windows(2)) {
        let expected = Window { start: nanos(edges[0]), end: nanos(edges[1]), name: *name };
        let part = (expected.end - expected.start) / 96;
        for at in (0..96).map(|parts| expected.start + parts * part).chain([expected.end - 1]) {
            assert_eq!(window_at(calendar, at), expected, "{calendar} at {at}");
            assert_eq!(civil.window_at(at), expected, "the model of {calendar} at {at}");
        }
    }
}

#[test]
fn days_are_23_and_25_hours_long_in_berlin() {
    let zone = "Europe/Berlin";
    check(
        (Day, zone, "00:00"),
        &[20260328, 20260329, 20260330],
        &["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"],
    );
    check(
        (Day, zone, "00:00"),
        &[20261024, 20261025, 20261026],
        &["2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"],
    );
}

/// 02:30 is skipped on 2026-03-29, when 02:00 is 03:00 at once, and comes twice on 2026-10-25.
#[test]
fn an_anchor_that_is_skipped_or_comes_twice() {
    let calendar = (Day, "Europe/Berlin", "02:30");
    check(
        calendar,
        &[20260328, 20260329, 20260330],
        &["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"],
    );
    check(
        calendar,
        &[20261024, 20261025, 20261026],
        &["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"],
    );
}

#[test]
fn new_york_changes_on_sundays_at_two() {
    let zone = "America/New_York";
    check(
        (Day, zone, "02:30"),
        &[20260307, 20260308, 20260309],
        &["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"],
    );
    check(
        (Day, zone, "01:30"),
        &[20261031, 20261101, 20261102],
        &["2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z", "2026-11-03T06:30:00Z"],
    );
    check(
        (Week, zone, "sunday"),
        &[20260301, 20260308, 20260315],
        &["2026-03-01T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-15T04:00:00Z", "2026-03-22T04:00:00Z"],
    );
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    check(
        (Day, "Australia/Lord_Howe", "01:45"),
        &[20260404, 20260405, 20260406],
        &["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z", "2026-04-06T15:15:00Z"],
    );
    check(
        (Day, "Australia/Lord_Howe", "02:15"),
        &[20261003, 20261004, 20261005],
        &["2026-10-02T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z", "2026-10-05T15:15:00Z"],
    );
}

/// Clocks go back by an hour for the month of Ramadan.
#[test]
fn casablanca_changes_for_ramadan() {
    check(
        (Day, "Africa/Casablanca", "02:30"),
        &[20250222, 20250223, 20250224],
        &["2025-02-22T01:30:00Z", "2025-02-23T01:30:00Z", "2025-02-24T02:30:00Z", "2025-02-25T02:30:00Z"],
    );
    check(
        (Day, "Africa/Casablanca", "02:30"),
        &[20250405, 20250406, 20250407],
        &["2025-04-05T02:30:00Z", "2025-04-06T02:00:00Z", "2025-04-07T01:30:00Z", "2025-04-08T01:30:00Z"],
    );
}

/// After 2011-12-29 came 2011-12-31, a Saturday.
#[test]
fn apia_skipped_a_day() {
    let zone = "Pacific/Apia";
    check(
        (Day, zone, "00:00"),
        &[20111228, 20111229, 20111231, 20120101],
        &[
            "2011-12-28T10:00:00Z",
            "2011-12-29T10:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-31T10:00:00Z",
            "2012-01-01T10:00:00Z",
        ],
    );
    // A window that was due at noon of the skipped day starts when the day is skipped.
    check(
        (Day, zone, "12:00"),
        &[20111229, 20111230, 20111231],
        &["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
    );
    check(
        (Week, zone, "friday"),
        &[20111223, 20111230, 20120106],
        &["2011-12-23T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-05T10:00:00Z", "2012-01-12T10:00:00Z"],
    );
    check(
        (Month, zone, "30"),
        &[20111130, 20111230, 20120130],
        &["2011-11-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z", "2012-02-28T10:00:00Z"],
    );
    check(
        (Year, zone, "12-30"),
        &[20101230, 20111230],
        &["2010-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-12-29T10:00:00Z"],
    );
}

#[test]
fn kathmandu_is_a_quarter_to_six_ahead() {
    check((Day, "Asia/Kathmandu", "00:00"), &[20260101], &["2025-12-31T18:15:00Z", "2026-01-01T18:15:00Z"]);
    // It was 15 minutes less until 1986.
    check(
        (Year, "Asia/Kathmandu", "01-01"),
        &[19850101, 19860101],
        &["1984-12-31T18:30:00Z", "1985-12-31T18:30:00Z", "1986-12-31T18:15:00Z"],
    );
}

#[test]
fn troll_changes_by_two_hours() {
    check(
        (Day, "Antarctica/Troll", "02:00"),
        &[20260328, 20260329, 20260330],
        &["2026-03-28T02:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-31T00:00:00Z"],
    );
    check(
        (Day, "Antarctica/Troll", "02:00"),
        &[20261024, 20261025, 20261026],
        &["2026-10-24T00:00:00Z", "2026-10-25T00:00:00Z", "2026-10-26T02:00:00Z", "2026-10-27T02:00:00Z"],
    );
}

/// Where midnight was skipped, and where the hour before it came twice.
#[test]
fn sao_paulo_changed_at_midnight() {
    let zone = "America/Sao_Paulo";
    check(
        (Day, zone, "00:00"),
        &[20181103, 20181104, 20181105],
        &["2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-06T02:00:00Z"],
    );
    check(
        (Day, zone, "00:00"),
        &[20190216, 20190217],
        &["2019-02-16T02:00:00Z", "2019-02-17T03:00:00Z", "2019-02-18T03:00:00Z"],
    );
    check(
        (Day, zone, "23:30"),
        &[20190215, 20190216, 20190217],
        &["2019-02-16T01:30:00Z", "2019-02-17T01:30:00Z", "2019-02-18T02:30:00Z", "2019-02-19T02:30:00Z"],
    );
}

#[test]
fn short_months_end_a_late_anchor() {
    check(
        (Month, "UTC", "31"),
        &[20270131, 20270228, 20270331, 20270430, 20270531],
        &[
            "2027-01-31T00:00:00Z",
            "2027-02-28T00:00:00Z",
            "2027-03-31T00:00:00Z",
            "2027-04-30T00:00:00Z",
            "2027-05-31T00:00:00Z",
            "2027-06-30T00:00:00Z",
        ],
    );
    check(
        (Month, "UTC", "31"),
        &[20280131, 20280229, 20280331],
        &["2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-04-30T00:00:00Z"],
    );
    check(
        (Month, "Europe/Berlin", "15"),
        &[20260215, 20260315, 20260415],
        &["2026-02-14T23:00:00Z", "2026-03-14T23:00:00Z", "2026-04-14T22:00:00Z", "2026-05-14T22:00:00Z"],
    );
}

#[test]
fn leap_days_are_clamped_in_other_years() {
    check(
        (Year, "UTC", "02-29"),
        &[20270228, 20280229, 20290228],
        &["2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z", "2030-02-28T00:00:00Z"],
    );
    // 2100 is no leap year.
    check((Year, "UTC", "02-29"), &[21000228], &["2100-02-28T00:00:00Z", "2101-02-28T00:00:00Z"]);
    check(
        (Year, "Europe/London", "04-06"),
        &[20250406, 20260406],
        &["2025-04-05T23:00:00Z", "2026-04-05T23:00:00Z", "2027-04-05T23:00:00Z"],
    );
}

#[test]
fn weeks_go_on_across_the_end_of_a_year() {
    check(
        (Week, "Asia/Tokyo", "monday"),
        &[20261221, 20261228, 20270104],
        &["2026-12-20T15:00:00Z", "2026-12-27T15:00:00Z", "2027-01-03T15:00:00Z", "2027-01-10T15:00:00Z"],
    );
    check(
        (Week, "UTC", "thursday"),
        &[20261231, 20270107],
        &["2026-12-31T00:00:00Z", "2027-01-07T00:00:00Z", "2027-01-14T00:00:00Z"],
    );
}

/// An instant is 0 at least, so that a window that started before the epoch seems to start there.
#[test]
fn the_first_and_the_last_windows() {
    for (period, zone, anchor, name, end) in [
        (Day, "Europe/Berlin", "00:00", 19700101, "1970-01-01T23:00:00Z"),
        (Day, "America/New_York", "00:00", 19691231, "1970-01-01T05:00:00Z"),
        (Week, "UTC", "monday", 19691229, "1970-01-05T00:00:00Z"),
        (Month, "Africa/Monrovia", "1", 19691201, "1970-01-01T00:44:30Z"),
        (Year, "UTC", "04-06", 19690406, "1970-04-06T00:00:00Z"),
    ] {
        let calendar = Calendar::new(period, zone, Some(anchor)).unwrap();
        let first = calendar.window_at(Time::from_nanos(0));
        assert_eq!(plain(first), Window { start: 0, end: nanos(end), name }, "{calendar}");
        assert_eq!(calendar.previous(&first), None, "{calendar}");
    }
    // 2262-04-11 23:47:16 in UTC.
    for (period, name, end) in [
        (Day, 22620411, "2262-04-12"),
        (Week, 22620407, "2262-04-14"),
        (Month, 22620401, "2262-05-01"),
        (Year, 22620101, "2263-01-01"),
    ] {
        let calendar = Calendar::new(period, "UTC", None).unwrap();
        let last = calendar.window_at(Time::MAX);
        assert_eq!((last.name(), calendar.next(&last)), (name, None), "{calendar}");
        let midnight: jiff::civil::Date = end.parse().unwrap();
        let end = midnight.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_nanosecond();
        assert_eq!(i128::from(last.end()), end, "{calendar}");
        let before = calendar.previous(&last).unwrap();
        assert_eq!(calendar.next(&before), Some(last), "{calendar}");
    }
}

#[test]
fn spellings_of_one_calendar_are_one() {
    let calendar = |period, zone, anchor| Calendar::new(period, zone, anchor).unwrap();
    for (one, other, text) in [
        (calendar(Day, "utc", None), calendar(Day, "UTC", Some("00:00")), "day;UTC;00:00"),
        (
            calendar(Week, "europe/berlin", Some("Monday")),
            calendar(Week, "Europe/Berlin", None),
            "week;Europe/Berlin;monday",
        ),
        (
            calendar(Month, "EUROPE/BERLIN", Some("05")),
            calendar(Month, "Europe/Berlin", Some("5")),
            "month;Europe/Berlin;5",
        ),
        (calendar(Month, "Asia/Tokyo", None), calendar(Month, "Asia/Tokyo", Some("1")), "month;Asia/Tokyo;1"),
        (
            calendar(Year, "America/New_York", None),
            calendar(Year, "america/new_york", Some("01-01")),
            "year;America/New_York;01-01",
        ),
    ] {
        assert_eq!(one, other);
        assert_eq!(one.to_string(), text);
        assert_eq!(format!("{};{};{}", one.period(), one.time_zone(), one.anchor()), text);
        assert_eq!((one.identity(), other.identity()), (agreed_hash(text.as_bytes()), agreed_hash(text.as_bytes())));
    }
    // Stores keep this number: it never changes.
    assert_eq!(calendar(Month, "Europe/Berlin", Some("15")).identity(), 5_754_222_907_168_265_357);
    assert_ne!(calendar(Month, "Europe/Berlin", Some("15")), calendar(Month, "Europe/Berlin", Some("16")));
    assert_ne!(calendar(Day, "UTC", None), calendar(Day, "Etc/UTC", None), "links are zones of their own");
}

/// Texts that are refused, and the whole complaint.
#[test]
fn complaints_name_the_field_the_value_and_a_fix() {
    let complaint = |period, zone, anchor| Calendar::new(period, zone, Some(anchor)).unwrap_err().to_string();
    for zone in ["", "Europe/Belin", "Etc/Unknown", "+02:00", "CET-1CEST", "/etc/localtime", "../UTC"] {
        assert_eq!(
            complaint(Day, zone, "00:00"),
            format!(
                "time_zone: `{zone}` is unknown; use a name of the IANA time-zone database, such as Europe/Berlin or UTC"
            )
        );
    }
    for anchor in ["", "24:00", "9:00", "09:60", "09:00:00", "+9:00", "monday", "15"] {
        assert_eq!(
            complaint(Day, "UTC", anchor),
            format!("anchor: `{anchor}` is not a time of day; use HH:MM from 00:00 to 23:59")
        );
    }
    for anchor in ["", "mon", "1", "montag"] {
        assert_eq!(
            complaint(Week, "UTC", anchor),
            format!(
                "anchor: `{anchor}` is not a day of the week; use monday, tuesday, wednesday, thursday, friday, \
                 saturday or sunday"
            )
        );
    }
    for anchor in ["", "0", "32", "-1", "+1", "001", "1st", "256"] {
        assert_eq!(
            complaint(Month, "UTC", anchor),
            format!("anchor: `{anchor}` is not a day of the month; use 1 to 31")
        );
    }
    for anchor in ["", "02-30", "00-01", "13-01", "1-1", "2024-01-01", "0101"] {
        assert_eq!(
            complaint(Year, "UTC", anchor),
            format!("anchor: `{anchor}` is not a day of the year; use MM-DD from 01-01 to 12-31")
        );
    }
    let error: CalendarError = "hour".parse::<CalendarPeriod>().unwrap_err();
    assert_eq!(error.to_string(), "period: `hour` is unknown; use day, week, month or year");
    assert!(complaint(Day, &"x".repeat(5_000), "00:00").len() < 200, "a long text is shortened");
    for period in CalendarPeriod::ALL {
        assert_eq!(period.to_string().parse(), Ok(period));
    }
}

/// 1970 to 2200, in nanoseconds.
const CENTURIES: u64 = 230 * 31_556_952 * 1_000_000_000;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// An instant near one at which clocks are changed, if there is one later.
fn near_a_change(civil: &Civil, from: u64, choice: u64) -> u64 {
    let from = Timestamp::from_nanosecond(i128::from(from)).unwrap();
    let zone = civil.time_zone();
    let change = zone.following(from).next().map_or(from, |change| change.timestamp());
    // Up to three hours before and after, in steps of five minutes; and now and then a nanosecond less.
    let seconds = i64::try_from(choice % 73).unwrap() * 300 - 10_800;
    let nanos = (change.as_nanosecond() + i128::from(seconds) * 1_000_000_000).max(1) - i128::from(choice / 73 % 2);
    u64::try_from(nanos).unwrap().min(CENTURIES)
}

proptest! {
    #![proptest_config(cases(10_000))]
    #[test]
    fn windows_agree_with_a_walk_over_days(which in 0..Civil::count(), at in 0..CENTURIES, choice in any::<u64>()) {
        let civil = Civil::any(which);
        let calendar = civil.calendar();
        for at in [at, near_a_change(&civil, at, choice)] {
            let expected = civil.window_at(at);
            prop_assert_eq!(window_at(calendar, at), expected, "{} at {}", calendar, at);
            for edge in [expected.start, expected.end - 1] {
                prop_assert_eq!(plain(calendar.window_at(Time::from_nanos(edge))), expected, "{} at {}", calendar, edge);
            }
        }
    }

    /// Without a gap and without an overlap, each named by a later date than the one before.
    #[test]
    fn windows_tile_time(which in 0..Civil::count(), at in 0..CENTURIES, choice in any::<u64>()) {
        let civil = Civil::any(which);
        let calendar = civil.calendar();
        let mut window = calendar.window_at(Time::from_nanos(near_a_change(&civil, at, choice)));
        for _ in 0..8 {
            prop_assert!(window.start() < window.end());
            prop_assert_eq!((window.start() % 1_000_000_000, window.end() % 1_000_000_000), (0, 0));
            prop_assert!(u128::from(window.end() - window.start()) <= calendar.period().longest().as_nanos());
            let next = calendar.next(&window).unwrap();
            prop_assert_eq!(next.start(), window.end(), "{}", calendar);
            prop_assert!(next.name() > window.name(), "{}: {:?}, then {:?}", calendar, window, next);
            prop_assert_eq!(calendar.previous(&next), Some(window), "{}", calendar);
            window = next;
        }
    }
}

/// Windows of the model and of the core at the end of the transitions that a zone lists, where its rule begins.
#[test]
fn windows_agree_where_the_rule_of_a_zone_begins() {
    for zone in ["America/Godthab", "America/Nuuk"] {
        let civil = Civil::new(Day, zone, "23:00");
        let at = 1_698_530_400_000_000_000;
        let expected = Window { start: 1_698_454_800_000_000_000, end: 1_698_541_200_000_000_000, name: 20_231_027 };
        assert_eq!((civil.window_at(at), window_at(civil.calendar(), at)), (expected, expected));
    }
}

/// Threads that ask for different windows of one calendar at once each get their own.
#[test]
fn readers_never_see_halves_of_two_windows() {
    let calendar = Calendar::new(Month, "America/St_Johns", Some("31")).unwrap();
    let edges: Vec<CalendarWindow> =
        std::iter::successors(Some(calendar.window_at(Time::from_nanos(CENTURIES / 4))), |last| calendar.next(last))
            .take(8)
            .collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let edges = &edges;
            scope.spawn(move || {
                for round in 0..5_000 {
                    let window = edges[(thread + round * 3) % edges.len()];
                    for at in [window.start(), window.end() - 1] {
                        assert_eq!(calendar.window_at(Time::from_nanos(at)), window);
                    }
                }
            });
        }
    });
}
