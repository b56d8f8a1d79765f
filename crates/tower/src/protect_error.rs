//! Why a layer cannot be built.

use std::time::Duration;

use tidegate_core::adaptive::AdaptiveError;
use tidegate_core::fair::FairError;
use tidegate_core::shed::ShedError;
use tidegate_core::{KeyError, LimitError, SemaphoreError};
use tidegate_engine::PermitError;

use crate::bounds::{SHARED_LEASE_MAX, SHARED_LEASE_MIN};
use crate::error::ConfigError;

/// Why a layer cannot be built: the field, its value and what would do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtectError {
    /// A limit is out of its bounds.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The permits or keys of a keyed limit are out of their bounds.
    #[error(transparent)]
    Semaphore(#[from] SemaphoreError),
    /// A window or shares of an adaptive limit are out of their bounds.
    #[error(transparent)]
    Adaptive(#[from] AdaptiveError),
    /// The numbers of a shedder are out of their bounds.
    #[error(transparent)]
    Shed(#[from] ShedError),
    /// The numbers of a fair queue are out of their bounds.
    #[error(transparent)]
    Fair(#[from] FairError),
    /// A name, or how keys are found, cannot be right.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Permits cannot be named.
    #[error(transparent)]
    Permit(#[from] PermitError),
    /// A lease is out of its bounds.
    #[error("lease: {value:?} is out of range; use {SHARED_LEASE_MIN:?} to {} hours", SHARED_LEASE_MAX.as_secs() / 3600)]
    Lease {
        /// Its value.
        value: Duration,
    },
    /// A key cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A count is zero or beyond its bound.
    #[error("{field}: {value} is out of range; use 1 to {max}")]
    Count {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that would do.
        max: u64,
    },
    /// A time is zero or beyond its bound.
    #[error("{field}: {value:?} is out of range; use more than 0 s and at most {max:?}")]
    Time {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: Duration,
        /// The longest that would do.
        max: Duration,
    },
    /// A queue where none can be.
    #[error("queue: {with} refuse at once, and have no queue; leave out one of them")]
    NoQueue {
        /// What has no queue.
        with: &'static str,
    },
}

pub(crate) fn check_count(field: &'static str, value: u64, max: u64) -> Result<(), ProtectError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(ProtectError::Count { field, value, max }) }
}

pub(crate) fn check_time(field: &'static str, value: Duration, max: Duration) -> Result<(), ProtectError> {
    if value.is_zero() || value > max { Err(ProtectError::Time { field, value, max }) } else { Ok(()) }
}
