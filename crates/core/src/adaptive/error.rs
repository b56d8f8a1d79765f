//! Why numbers are not an adaptive limit, a window or a set of shares.

use std::time::Duration;

use crate::bounds::{ADAPTIVE_LIMIT_MAX, LOAD_TIME_MAX, PARTITIONS_MAX};

/// Why numbers are refused: the field, its value and what would do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptiveError {
    /// A zero where something must pass.
    #[error("{field}: 0 is too small; use at least 1")]
    Zero {
        /// The field at fault.
        field: &'static str,
    },
    /// A duration of nothing.
    #[error("{field}: 0 s is too short; use more than nothing, like {like:?}")]
    NoTime {
        /// The field at fault.
        field: &'static str,
        /// What is used if nothing is said.
        like: Duration,
    },
    /// A duration beyond the bound.
    #[error("{field}: {value:?} is too long; use at most {LOAD_TIME_MAX:?}, like {like:?}")]
    TooLong {
        /// The field at fault.
        field: &'static str,
        /// What it was.
        value: Duration,
        /// What is used if nothing is said.
        like: Duration,
    },
    /// More than the bound.
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that would do.
        max: u64,
    },
    /// The least limit is above the largest.
    #[error("min: {min} is above max, {max}; use a min of 1 to {max}, or a larger max")]
    MinAboveMax {
        /// The least limit.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// The first limit is not between the least and the largest.
    #[error("initial: {initial} is not between min and max; use {min} to {max}")]
    InitialOutside {
        /// The first limit.
        initial: u64,
        /// The least limit.
        min: u64,
        /// The largest.
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
    /// Two factors of which the first must not be the larger one.
    #[error("{field}: {value} is above {other}, {bound}; use at most {bound}, or a larger {other}")]
    OutOfOrder {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The field that must not be smaller.
        other: &'static str,
        /// Its value.
        bound: f64,
    },
    /// Shares that promise more than there is.
    #[error("shares: they add up to {sum}, more than the whole; use shares whose sum is at most 1")]
    SharesAboveOne {
        /// Their sum.
        sum: f64,
    },
    /// More shares than the bound.
    #[error("shares: {count} are too many; use at most {PARTITIONS_MAX}")]
    TooManyShares {
        /// How many there are.
        count: usize,
    },
}

/// Checks the three numbers that bound every adaptive limit.
pub(super) fn check_limits(initial: u64, min: u64, max: u64) -> Result<(), AdaptiveError> {
    for (field, value) in [("initial", initial), ("min", min), ("max", max)] {
        check_count(field, value, ADAPTIVE_LIMIT_MAX)?;
    }
    if min > max {
        return Err(AdaptiveError::MinAboveMax { min, max });
    }
    if initial < min || initial > max {
        return Err(AdaptiveError::InitialOutside { initial, min, max });
    }
    Ok(())
}

/// Checks a count: at least 1 and at most `max`.
pub(super) fn check_count(field: &'static str, value: u64, max: u64) -> Result<(), AdaptiveError> {
    match value {
        0 => Err(AdaptiveError::Zero { field }),
        _ if value > max => Err(AdaptiveError::TooLarge { field, value, max }),
        _ => Ok(()),
    }
}

/// Checks a factor. NaN is in no range.
pub(super) fn check_range(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), AdaptiveError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(AdaptiveError::OutOfRange { field, value, least, most }) }
}

/// Checks that a duration is more than nothing, and within the bound.
pub(super) fn check_time(field: &'static str, value: Duration, like: Duration) -> Result<(), AdaptiveError> {
    match value {
        Duration::ZERO => Err(AdaptiveError::NoTime { field, like }),
        _ if value > LOAD_TIME_MAX => Err(AdaptiveError::TooLong { field, value, like }),
        _ => Ok(()),
    }
}
