//! Why numbers are not a shedder.

use std::time::Duration;

use crate::bounds::LOAD_TIME_MAX;

/// Why numbers are refused: the field, its value and what would do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShedError {
    /// A number that is zero or beyond its bound.
    #[error("{field}: {value} is out of range; use 1 to {max}")]
    Count {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that would do.
        max: u64,
    },
    /// A factor that is not a number, or beyond its range.
    #[error("{field}: {value} is out of range; use {least} to {most}")]
    OutOfRange {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The least that would do.
        least: f64,
        /// The most that would do.
        most: f64,
    },
    /// Two factors of which the first must be the smaller one.
    #[error("{field}: {value} is not below {other}, {bound}; use a smaller {field}, or a larger {other}")]
    OutOfOrder {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The field that must be larger.
        other: &'static str,
        /// Its value.
        bound: f64,
    },
    /// A duration of nothing, or one beyond a day.
    #[error("{field}: {value:?} is out of range; use more than 0 s and at most {LOAD_TIME_MAX:?}, like {like:?}")]
    Time {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: Duration,
        /// What is used if nothing is said.
        like: Duration,
    },
}

pub(super) fn check_count(field: &'static str, value: u64, max: u64) -> Result<(), ShedError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(ShedError::Count { field, value, max }) }
}

/// Checks a factor. NaN is in no range.
pub(super) fn check_range(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), ShedError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(ShedError::OutOfRange { field, value, least, most }) }
}

pub(super) fn check_below(field: &'static str, value: f64, other: &'static str, bound: f64) -> Result<(), ShedError> {
    if value < bound { Ok(()) } else { Err(ShedError::OutOfOrder { field, value, other, bound }) }
}

pub(super) fn check_time(field: &'static str, value: Duration, like: Duration) -> Result<(), ShedError> {
    if value.is_zero() || value > LOAD_TIME_MAX { Err(ShedError::Time { field, value, like }) } else { Ok(()) }
}
