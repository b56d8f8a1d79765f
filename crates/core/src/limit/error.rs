//! Errors in the numbers of a limit.

use crate::bounds::INTERVAL_NANOS_MIN;

/// Why a limit is invalid: the field, its value and a fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A number is zero.
    #[error("{field}: 0 is too small; use at least 1")]
    Zero {
        /// The name of the field.
        field: &'static str,
    },
    /// A period or window is zero.
    #[error("{field}: 0 is too small; use at least 1 ns")]
    NoTime {
        /// The name of the field.
        field: &'static str,
    },
    /// A calendar window has no calendar.
    #[error("{field}: missing; use one, such as months of Europe/Berlin")]
    NoCalendar {
        /// The name of the field.
        field: &'static str,
    },
    /// A number of units is too large.
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge {
        /// The name of the field.
        field: &'static str,
        /// The number.
        value: u64,
        /// The largest number allowed.
        max: u64,
    },
    /// A period or window is too long.
    #[error("{field}: {nanos} ns is too long; use at most {max} ns ({} years)", max / crate::bounds::YEAR_NANOS)]
    TooLong {
        /// The name of the field.
        field: &'static str,
        /// Its length in nanoseconds.
        nanos: u128,
        /// The longest allowed, in nanoseconds.
        max: u64,
    },
    /// A rate is above ten million units per second.
    #[error("{field}: {units} in {nanos} ns is too fast; use at most 10000000 a second (1 in {INTERVAL_NANOS_MIN} ns)")]
    TooFast {
        /// The name of the field.
        field: &'static str,
        /// Units in the period.
        units: u64,
        /// The period in nanoseconds.
        nanos: u64,
    },
    /// The text is not a rate.
    #[error("rate: cannot read `{text}`; write units/period, like 100/minute, 5/10s or 1/day")]
    Unreadable {
        /// The text, shortened.
        text: String,
    },
}

impl LimitError {
    /// Returns the field, by its name in the functions that create limits.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            LimitError::Zero { field } | LimitError::NoTime { field } | LimitError::NoCalendar { field } => field,
            LimitError::TooLarge { field, .. } => field,
            LimitError::TooLong { field, .. } | LimitError::TooFast { field, .. } => field,
            LimitError::Unreadable { .. } => "rate",
        }
    }
}
