//! What is wrong with the configuration of a layer.

use std::sync::Arc;

use tidegate_core::{CapacityError, LimitError};
use tidegate_engine::bounds::{DESCRIPTORS_MAX, ENTRIES_MAX};

use crate::bounds::{KEY_PARTS_MAX, NAME_BYTES_MAX};

/// Why a layer could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not the name of a header.
    #[error("header: `{name}` is not the name of a header; use letters, digits and dashes")]
    Header {
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
    /// The name of a limit that cannot stand in a header.
    #[error("name: {length} bytes; use 1 to {NAME_BYTES_MAX}")]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// No rules stand under the domain.
    #[error("domain: no rules stand under `{name}`; name a domain of the policy")]
    Domain {
        /// The domain, shortened.
        name: String,
    },
    /// A number that is out of bounds.
    #[error("{field}: {value} is out of bounds; use {remedy}")]
    Number {
        /// What it is of.
        field: &'static str,
        /// The number, as it was given.
        value: String,
        /// What would do.
        remedy: String,
    },
    /// The numbers of a limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The memory for the keys.
    #[error(transparent)]
    Capacity(Arc<CapacityError>),
}

impl From<CapacityError> for ConfigError {
    fn from(error: CapacityError) -> ConfigError {
        ConfigError::Capacity(Arc::new(error))
    }
}

/// Text that somebody gave, short enough to be told.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
