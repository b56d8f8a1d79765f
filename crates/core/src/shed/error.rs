//! Errors in the configuration of a shedder.

use std::time::Duration;

use crate::bounds::LOAD_TIME_MAX;

/// Why a configuration is invalid: the field, its value and a fix.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShedError {
    /// A number is zero or too large.
    #[error("{field}: {value} is out of range; use 1 to {max}")]
    Count {
        /// The name of the field.
        field: &'static str,
        /// The number.
        value: u64,
        /// The largest number allowed.
        max: u64,
    },
    /// A factor is out of range or NaN.
    #[error("{field}: {value} is out of range; use {least} to {most}")]
    OutOfRange {
        /// The name of the field.
        field: &'static str,
        /// The factor.
        value: f64,
        /// The smallest factor allowed.
        least: f64,
        /// The largest factor allowed.
        most: f64,
    },
    /// A factor is not below another one.
    #[error("{field}: {value} is not below {other}, {bound}; use a smaller {field}, or a larger {other}")]
    OutOfOrder {
        /// The name of the field.
        field: &'static str,
        /// The factor.
        value: f64,
        /// The name of the other field.
        other: &'static str,
        /// The other factor.
        bound: f64,
    },
    /// A duration is zero, or longer than a day.
    #[error("{field}: {value:?} is out of range; use more than 0 s and at most {LOAD_TIME_MAX:?}, like {like:?}")]
    Time {
        /// The name of the field.
        field: &'static str,
        /// The duration.
        value: Duration,
        /// The default.
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
