//! What rounding the emission interval up to whole nanoseconds costs: never a unit too many, at most 0.01 % too few up
//! to 100,000 a second, at most 1 % too few up to 10 million a second.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use tidegate_core::bounds::{NANOS_PER_SECOND, SPAN_NANOS_MAX, YEAR_NANOS};
use tidegate_core::{Limit, Op, Rate, Retry, State, Time, Verdict, decide};

const UNITS: u64 = 10_000_000;

/// Units in a period of nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Exact {
    units: u64,
    period: u64,
}

impl Exact {
    /// What a bucket of exact fractions has let pass after `elapsed`: its burst, and all whole units since.
    fn admits(self, burst: u64, elapsed: u64) -> u64 {
        let since = u128::from(elapsed) * u128::from(self.units) / u128::from(self.period);
        burst + u64::try_from(since).unwrap()
    }

    /// Units of the exact model for each one that may be missing.
    fn tolerance(self) -> u64 {
        let is_fast = u128::from(self.units) * u128::from(NANOS_PER_SECOND) > 100_000 * u128::from(self.period);
        if is_fast { 100 } else { 10_000 }
    }
}

/// At least 200 rates from one a year to ten million a second.
fn rates() -> Vec<Exact> {
    let mut rates = Vec::new();
    let mut add = |units: u64, period: u64| {
        if u128::from(units) * 100 <= u128::from(period) {
            rates.push(Exact { units, period });
        }
    };
    let awkward = [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 17, 19, 23, 29, 31, 37, 60, 97, 99, 100, 101, 997, 1_000, 1_009];
    let (minute, hour, day) = (60 * NANOS_PER_SECOND, 3_600 * NANOS_PER_SECOND, 86_400 * NANOS_PER_SECOND);
    for period in [NANOS_PER_SECOND, minute, hour, day, 30 * day, YEAR_NANOS, 7_777_777_777] {
        awkward.iter().for_each(|units| add(*units, period));
    }
    // Just beside the powers of ten and of two, where rounding is worst.
    for units in [9_999, 10_007, 65_537, 99_991, 99_999, 100_000, 100_003, 524_287, 999_983, 999_999, 1_000_003] {
        add(units, NANOS_PER_SECOND);
        add(units, minute);
    }
    for units in [1_048_576, 2_097_143, 3_333_333, 4_999_999, 5_000_001, 6_700_417, 8_388_593, 9_900_991, 9_999_991] {
        add(units, NANOS_PER_SECOND);
    }
    for units in [9_999_999, 10_000_000] {
        add(units, NANOS_PER_SECOND);
        add(60 * units - 1, minute);
    }
    // A spread by a factor of 1.3 between the ends.
    let mut units = 1;
    while units < 10_000_000 {
        add(units, NANOS_PER_SECOND);
        units += (units * 3 / 10).max(1);
    }
    rates
}

/// A caller who takes `cost` units at a time, always exactly when told to, until `UNITS` passed or 90 years.
fn check(rate: Exact, burst: u64, cost: u64) {
    let limit = Limit::gcra(Rate::from_nanos(rate.units, rate.period).unwrap(), burst).unwrap();
    let mut state = State::fresh(&limit);
    let (mut now, mut admitted) = (0, 0);
    while admitted < UNITS && now < 90 * YEAR_NANOS {
        let decision = decide(&limit, &mut state, Time::from_nanos(now), Op::Take(cost));
        match decision.verdict() {
            Verdict::Allow => {
                admitted += cost;
                let most = rate.admits(burst, now);
                assert!(admitted <= most, "{admitted} units after {now} ns, exactly {most}: {rate:?}");
            }
            Verdict::Deny(Retry::After(wait)) => {
                now += u64::try_from(wait.as_nanos()).unwrap();
                let (exact, lost) = (rate.admits(burst, now), rate.admits(burst, now) - admitted);
                // What is just coming is not lost.
                let lost = lost.saturating_sub(cost);
                assert!(lost <= exact / rate.tolerance(), "{lost} of {exact} units lost after {now} ns: {rate:?}");
            }
            verdict => panic!("{verdict:?} under {rate:?}"),
        }
    }
}

#[test]
fn no_rate_loses_more_than_told_and_none_gives_a_unit_too_many() {
    let rates = rates();
    assert!(rates.len() >= 200, "{} rates", rates.len());
    for rate in rates {
        let most = SPAN_NANOS_MAX / rate.period.div_ceil(rate.units);
        let burst = most.min(10_000);
        // In large costs, in odd ones that do not divide the burst, and in one whole burst at a time.
        for cost in [burst.div_ceil(10), (burst / 7).max(1), burst] {
            check(rate, burst, cost);
        }
    }
}

macro_rules! one_unit_at_a_time {
    ($($name:ident: $units:expr, $period:expr, $burst:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check(Exact { units: $units, period: $period }, $burst, 1);
            }
        )*
    };
}

one_unit_at_a_time! {
    seven_a_second_one_at_a_time: 7, NANOS_PER_SECOND, 1;
    almost_a_hundred_thousand_a_second_one_at_a_time: 99_999, NANOS_PER_SECOND, 100;
    almost_ten_million_a_second_one_at_a_time: 9_999_999, NANOS_PER_SECOND, 1_000;
    a_thousand_an_hour_one_at_a_time: 1_009, 3_600 * NANOS_PER_SECOND, 5;
}

/// The bounds themselves: T exceeds the exact interval by less than a nanosecond.
#[test]
fn the_loss_is_less_than_a_nanosecond_an_interval() {
    for rate in rates() {
        let interval = rate.period.div_ceil(rate.units);
        let limit = Limit::gcra(Rate::from_nanos(rate.units, rate.period).unwrap(), 1).unwrap();
        let decision = decide(&limit, &mut State::fresh(&limit), Time::from_nanos(0), Op::Take(1));
        assert_eq!(decision.reset_after(), Duration::from_nanos(interval), "{rate:?}");
        assert!(u128::from(interval) * u128::from(rate.units) < u128::from(rate.period) + u128::from(rate.units));
    }
}
