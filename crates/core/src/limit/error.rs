//! Why numbers are not a limit.

use crate::bounds::INTERVAL_NANOS_MIN;

/// Why numbers are not a limit: the field, its value and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A zero where something must pass.
    #[error("{field}: 0 is too small; use at least 1")]
    Zero {
        /// The field at fault.
        field: &'static str,
    },
    /// A period or window of nothing.
    #[error("{field}: 0 is too small; use at least 1 ns")]
    NoTime {
        /// The field at fault.
        field: &'static str,
    },
    /// A calendar window without a calendar.
    #[error("{field}: missing; use one, such as months of Europe/Berlin")]
    NoCalendar {
        /// The field at fault.
        field: &'static str,
    },
    /// More units than the bound.
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that would do.
        max: u64,
    },
    /// A period or window beyond the bound.
    #[error("{field}: {nanos} ns is too long; use at most {max} ns ({} years)", max / crate::bounds::YEAR_NANOS)]
    TooLong {
        /// The field at fault.
        field: &'static str,
        /// Its value in nanoseconds.
        nanos: u128,
        /// The longest that would do, in nanoseconds.
        max: u64,
    },
    /// More than ten million units a second.
    #[error("{field}: {units} in {nanos} ns is too fast; use at most 10000000 a second (1 in {INTERVAL_NANOS_MIN} ns)")]
    TooFast {
        /// The field at fault.
        field: &'static str,
        /// Units in the period.
        units: u64,
        /// The period in nanoseconds.
        nanos: u64,
    },
    /// Text that is not a rate.
    #[error("rate: cannot read `{text}`; write units/period, like 100/minute, 5/10s or 1/day")]
    Unreadable {
        /// The text, shortened.
        text: String,
    },
}

impl LimitError {
    /// The field at fault, as the functions that make limits call it.
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
