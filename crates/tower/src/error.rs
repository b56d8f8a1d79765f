//! What is wrong with the configuration of a layer.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::adaptive::AdaptiveError;
use tidegate_core::bounds::PERMIT_COUNTER_MAX;
use tidegate_core::fair::FairError;
use tidegate_core::shed::ShedError;
use tidegate_core::{CapacityError, KeyError, LimitError, SemaphoreError};
use tidegate_engine::PermitError;
use tidegate_engine::bounds::{DESCRIPTORS_MAX, ENTRIES_MAX};

use crate::bounds::{DOMAINS_TOLD_MAX, KEY_PARTS_MAX, NAME_BYTES_MAX};

/// Why a layer, a shaper or a policy for retries cannot be made: the field, its value and what would do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not the name of a header.
    #[error("header: `{name}` is not the name of a header; use letters, digits and dashes")]
    Header {
        /// The name, shortened.
        name: String,
    },
    /// Not the name of a cookie: no request has one.
    #[error("cookie: `{name}` is not the name of a cookie; leave out `;`, `=` and spaces around it")]
    Cookie {
        /// The name, shortened.
        name: String,
    },
    /// How the client's address is found cannot be right.
    #[error("client address: {0}")]
    ClientAddress(String),
    /// More parts than a key may have, or none.
    #[error("key: {count} parts; use 1 to {KEY_PARTS_MAX}")]
    KeyParts {
        /// How many there were.
        count: usize,
    },
    /// An entry of a descriptor is one value.
    #[error("entry `{name}`: its value has {count} parts; give each part an entry of its own")]
    EntryParts {
        /// The entry.
        name: String,
        /// How many there were.
        count: usize,
    },
    /// More descriptors than are looked up.
    #[error("descriptors: {count} are too many; use at most {DESCRIPTORS_MAX}")]
    Descriptors {
        /// How many there were.
        count: usize,
    },
    /// More entries than are matched.
    #[error("entries: {count} are too many for one descriptor; use at most {ENTRIES_MAX}")]
    Entries {
        /// How many there were.
        count: usize,
    },
    /// A name that is empty or too long.
    #[error("name: {length} bytes; use 1 to {NAME_BYTES_MAX}")]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// No rules stand under the domain.
    #[error("domain: no rules stand under `{name}`; use {remedy}")]
    Domain {
        /// The domain, shortened.
        name: String,
        /// What would do: some domains of the policy.
        remedy: String,
    },
    /// A number or a time that is out of its range.
    #[error("{field}: {value} is out of range; use {remedy}")]
    Number {
        /// What it is of.
        field: &'static str,
        /// The number, as it was given.
        value: String,
        /// What would do.
        remedy: String,
    },
    /// Something was set that would have no effect.
    #[error("{field}: it has no effect {case}; {remedy}")]
    Unused {
        /// What was set.
        field: &'static str,
        /// When it has none.
        case: &'static str,
        /// What would do.
        remedy: &'static str,
    },
    /// A stack of nothing.
    #[error(
        "stack: it has no part, and would do nothing; use class, shed, rate, tenant or fair, or leave out \
         without_concurrency"
    )]
    NoParts,
    /// A queue has one measure of whether it stands.
    #[error("codel: its numbers are not those of adaptive_lifo; give both the same")]
    TwoMeasures,
    /// The numbers of a limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The window or the shares of an adaptive limit.
    #[error(transparent)]
    Adaptive(#[from] AdaptiveError),
    /// The numbers of a shedder.
    #[error(transparent)]
    Shed(#[from] ShedError),
    /// The numbers of a fair queue.
    #[error(transparent)]
    Fair(#[from] FairError),
    /// A key that cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Permits that cannot be named.
    #[error(transparent)]
    Permit(#[from] PermitError),
    /// The memory for the keys.
    #[error(transparent)]
    Capacity(Arc<CapacityError>),
    /// The permits of a semaphore, or the memory for its keys.
    #[error(transparent)]
    Semaphore(Arc<SemaphoreError>),
}

impl From<CapacityError> for ConfigError {
    fn from(error: CapacityError) -> ConfigError {
        ConfigError::Capacity(Arc::new(error))
    }
}

impl From<SemaphoreError> for ConfigError {
    fn from(error: SemaphoreError) -> ConfigError {
        ConfigError::Semaphore(Arc::new(error))
    }
}

impl ConfigError {
    pub(crate) fn number(field: &'static str, value: impl Display, remedy: impl Into<String>) -> ConfigError {
        ConfigError::Number { field, value: value.to_string(), remedy: remedy.into() }
    }

    pub(crate) fn unused(field: &'static str, case: &'static str, remedy: &'static str) -> ConfigError {
        ConfigError::Unused { field, case, remedy }
    }
}

/// The error of a domain that a policy has not, which names those that it has.
pub(crate) fn unknown_domain(name: &str, known: &[&str]) -> ConfigError {
    let told: Vec<String> = known.iter().take(DOMAINS_TOLD_MAX).map(|name| format!("`{}`", shortened(name))).collect();
    let told = told.join(", ");
    let remedy = match known.len().saturating_sub(DOMAINS_TOLD_MAX) {
        _ if known.is_empty() => "a policy that has it: this one has no domains".to_owned(),
        0 => format!("one of the policy: {told}"),
        more => format!("one of the policy: {told} and {more} more"),
    };
    ConfigError::Domain { name: shortened(name), remedy }
}

/// Checks how many may be in progress at once in this process.
pub(crate) fn check_limit(limit: u64) -> Result<(), ConfigError> {
    check_count("limit", limit, PERMIT_COUNTER_MAX)
}

pub(crate) fn check_count(field: &'static str, value: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(ConfigError::number(field, value, format!("1 to {max}"))) }
}

/// Checks a name that stands in headers or metrics.
pub(crate) fn check_name(name: &str) -> Result<(), ConfigError> {
    let length = name.len();
    if (1..=NAME_BYTES_MAX).contains(&length) { Ok(()) } else { Err(ConfigError::Name { length }) }
}

pub(crate) fn check_time(field: &'static str, value: Duration, max: Duration) -> Result<(), ConfigError> {
    if !value.is_zero() && value <= max {
        return Ok(());
    }
    Err(ConfigError::number(field, format!("{value:?}"), format!("more than 0 s and at most {max:?}")))
}

/// Text that somebody gave, short enough to be told.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
