//! Errors in the configuration of an adaptive limit, a window or partitions.

use std::time::Duration;

use crate::bounds::{ADAPTIVE_LIMIT_MAX, LOAD_TIME_MAX, PARTITIONS_MAX};

/// Why a configuration is invalid: the field, its value and a fix.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptiveError {
    /// A number is zero.
    #[error("{field}: 0 is too small; use at least 1")]
    Zero {
        /// The name of the field.
        field: &'static str,
    },
    /// A duration is zero.
    #[error("{field}: 0 s is too short; use more than 0 s, like {like:?}")]
    NoTime {
        /// The name of the field.
        field: &'static str,
        /// The default.
        like: Duration,
    },
    /// A duration is too long.
    #[error("{field}: {value:?} is too long; use at most {LOAD_TIME_MAX:?}, like {like:?}")]
    TooLong {
        /// The name of the field.
        field: &'static str,
        /// The duration.
        value: Duration,
        /// The default.
        like: Duration,
    },
    /// A number is too large.
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge {
        /// The name of the field.
        field: &'static str,
        /// The number.
        value: u64,
        /// The largest number allowed.
        max: u64,
    },
    /// `min` is above `max`.
    #[error("min: {min} is above max, {max}; use a min of 1 to {max}, or a larger max")]
    MinAboveMax {
        /// The smallest limit.
        min: u64,
        /// The largest limit.
        max: u64,
    },
    /// `initial` is not between `min` and `max`.
    #[error("initial: {initial} is not between min and max; use {min} to {max}")]
    InitialOutside {
        /// The initial limit.
        initial: u64,
        /// The smallest limit.
        min: u64,
        /// The largest limit.
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
    /// A factor is above another one that must not be smaller.
    #[error("{field}: {value} is above {other}, {bound}; use at most {bound}, or a larger {other}")]
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
    /// The sum of the shares is above 1.
    #[error("shares: the sum is {sum}; use shares with a sum of at most 1")]
    SharesAboveOne {
        /// The sum.
        sum: f64,
    },
    /// There are too many shares.
    #[error("shares: {count} are too many; use at most {PARTITIONS_MAX}")]
    TooManyShares {
        /// The number of shares.
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
