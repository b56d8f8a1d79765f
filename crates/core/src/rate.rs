//! Rates: units per period, and their text form.

use std::str::FromStr;
use std::time::Duration;

use crate::LimitError;
use crate::bounds::{INTERVAL_NANOS_MIN, NANOS_PER_SECOND, SPAN_NANOS_MAX, YEAR_NANOS};

/// Units per period, from one in 100 years to 10 million per second.
///
/// ```
/// use tidegate::Rate;
/// assert_eq!("5/10s".parse::<Rate>()?, Rate::new(5, std::time::Duration::from_secs(10))?);
/// assert_eq!("100/minute".parse::<Rate>()?, Rate::per_minute(100)?);
/// # Ok::<(), tidegate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    units: u64,
    period: u64,
}

impl Rate {
    /// Creates a rate of `units` per `period`.
    ///
    /// # Errors
    /// Fails if either is zero, or the rate is out of bounds.
    pub fn new(units: u64, period: Duration) -> Result<Rate, LimitError> {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Rate::from_nanos(units, nanos)
    }

    /// Creates a rate of `units` per `period` nanoseconds.
    ///
    /// # Errors
    /// Fails if either is zero, or the rate is out of bounds.
    pub fn from_nanos(units: u64, period: u64) -> Result<Rate, LimitError> {
        if units == 0 {
            return Err(LimitError::Zero { field: "rate" });
        }
        if period == 0 {
            return Err(LimitError::NoTime { field: "period" });
        }
        if period > SPAN_NANOS_MAX {
            return Err(LimitError::TooLong { field: "period", nanos: period.into(), max: SPAN_NANOS_MAX });
        }
        if u128::from(units) * u128::from(INTERVAL_NANOS_MIN) > u128::from(period) {
            return Err(LimitError::TooFast { field: "rate", units, nanos: period });
        }
        Ok(Rate { units, period })
    }

    /// Creates a rate of `units` per second.
    ///
    /// # Errors
    /// Fails if `units` is zero or above 10 million.
    pub fn per_second(units: u64) -> Result<Rate, LimitError> {
        Rate::from_nanos(units, NANOS_PER_SECOND)
    }

    /// Creates a rate of `units` per minute.
    ///
    /// # Errors
    /// Fails if `units` is zero or above 10 million per second.
    pub fn per_minute(units: u64) -> Result<Rate, LimitError> {
        Rate::from_nanos(units, 60 * NANOS_PER_SECOND)
    }

    /// Creates a rate of `units` per hour.
    ///
    /// # Errors
    /// Fails if `units` is zero or above 10 million per second.
    pub fn per_hour(units: u64) -> Result<Rate, LimitError> {
        Rate::from_nanos(units, 3600 * NANOS_PER_SECOND)
    }

    /// Returns the units of each period.
    #[must_use]
    pub fn units(self) -> u64 {
        self.units
    }

    /// Returns the period.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// The emission interval: nanoseconds between two units, rounded up, so that the rate is never exceeded.
    #[must_use]
    pub(crate) fn interval(self) -> u64 {
        self.period.div_ceil(self.units)
    }
}

impl FromStr for Rate {
    type Err = LimitError;

    /// Parses `100/minute`, `5/10s` or `1/day`; spaces around the slash are allowed. A month is 30 days, a year 365.
    fn from_str(text: &str) -> Result<Rate, LimitError> {
        let unreadable = || LimitError::Unreadable { text: text.chars().take(40).collect() };
        let (units, period) = text.split_once('/').ok_or_else(unreadable)?;
        let units = units.trim().parse::<u64>().map_err(|_| unreadable())?;
        let period = period.trim();
        let digits = period.len() - period.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, word) = period.split_at(digits);
        let count = if count.is_empty() { 1 } else { count.parse::<u64>().map_err(|_| unreadable())? };
        let unit = unit_nanos(word.trim()).ok_or_else(unreadable)?;
        let nanos = u128::from(count) * u128::from(unit);
        let period =
            u64::try_from(nanos).map_err(|_| LimitError::TooLong { field: "period", nanos, max: SPAN_NANOS_MAX })?;
        Rate::from_nanos(units, period)
    }
}

fn unit_nanos(word: &str) -> Option<u64> {
    const SECOND: u64 = NANOS_PER_SECOND;
    Some(match word {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => SECOND,
        "m" | "min" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "week" | "weeks" => 7 * 86_400 * SECOND,
        "month" | "months" => 30 * 86_400 * SECOND,
        "y" | "year" | "years" => YEAR_NANOS,
        _ => return None,
    })
}
