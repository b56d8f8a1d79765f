//! Errors in the configuration of a layer.

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

/// Why a layer, a shaper or a retry policy cannot be built: the field, its value and a fix.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The header name is invalid.
    #[error("header: `{name}` is not the name of a header; use letters, digits and dashes")]
    Header {
        /// The name, shortened.
        name: String,
    },
    /// The cookie name is invalid.
    #[error("cookie: `{name}` is not the name of a cookie; leave out `;`, `=` and spaces around it")]
    Cookie {
        /// The name, shortened.
        name: String,
    },
    /// The settings of the client address are invalid.
    #[error("client address: {0}")]
    ClientAddress(String),
    /// The key has no parts, or too many.
    #[error("key: {count} parts; use 1 to {KEY_PARTS_MAX}")]
    KeyParts {
        /// The number of parts.
        count: usize,
    },
    /// The value of a descriptor entry has more than one part.
    #[error("entry `{name}`: its value has {count} parts; give each part an entry of its own")]
    EntryParts {
        /// The name of the entry.
        name: String,
        /// The number of parts.
        count: usize,
    },
    /// There are too many descriptors.
    #[error("descriptors: {count} are too many; use at most {DESCRIPTORS_MAX}")]
    Descriptors {
        /// The number of descriptors.
        count: usize,
    },
    /// A descriptor has too many entries.
    #[error("entries: {count} are too many for one descriptor; use at most {ENTRIES_MAX}")]
    Entries {
        /// The number of entries.
        count: usize,
    },
    /// A name is empty or too long.
    #[error("name: {length} bytes; use 1 to {NAME_BYTES_MAX}")]
    Name {
        /// The length of the name in bytes.
        length: usize,
    },
    /// The policy has no such domain.
    #[error("domain: there are no rules for `{name}`; use {remedy}")]
    Domain {
        /// The name of the domain, shortened.
        name: String,
        /// A fix: some domains that the policy has.
        remedy: String,
    },
    /// A number or a duration is out of range.
    #[error("{field}: {value} is out of range; use {remedy}")]
    Number {
        /// The name of the field.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// The range that is allowed.
        remedy: String,
    },
    /// A setting would have no effect.
    #[error("{field}: it has no effect {case}; {remedy}")]
    Unused {
        /// The name of the field.
        field: &'static str,
        /// The case in which it has no effect.
        case: &'static str,
        /// A fix.
        remedy: &'static str,
    },
    /// The stack has no parts.
    #[error(
        "stack: it has no part, and would do nothing; use class, shed, rate, tenant or fair, or leave out \
         without_concurrency"
    )]
    NoParts,
    /// Two settings of a queue contradict each other.
    #[error("codel: its numbers differ from those of adaptive_lifo; give both the same numbers")]
    TwoMeasures,
    /// The numbers of a limit are invalid.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The window or the shares of an adaptive limit are invalid.
    #[error(transparent)]
    Adaptive(#[from] AdaptiveError),
    /// The numbers of a shedder are invalid.
    #[error(transparent)]
    Shed(#[from] ShedError),
    /// The numbers of a fair queue are invalid.
    #[error(transparent)]
    Fair(#[from] FairError),
    /// A key cannot be built.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The name of the permits is invalid.
    #[error(transparent)]
    Permit(#[from] PermitError),
    /// The memory for the keys cannot be allocated.
    #[error(transparent)]
    Capacity(Arc<CapacityError>),
    /// The number of permits is invalid, or the memory for the keys cannot be allocated.
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

/// The error for a domain that the policy does not have; it lists those that it has.
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

/// Checks the limit of requests in progress in this process.
pub(crate) fn check_limit(limit: u64) -> Result<(), ConfigError> {
    check_count("limit", limit, PERMIT_COUNTER_MAX)
}

pub(crate) fn check_count(field: &'static str, value: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(ConfigError::number(field, value, format!("1 to {max}"))) }
}

/// Checks a name that appears in headers or metrics.
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

/// Shortens text that was given, for an error message.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
