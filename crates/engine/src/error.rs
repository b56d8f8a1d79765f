//! Errors in requests.

use tidegate_core::{ChargeError, KeyError, LimitError};

use crate::store::StoreError;

use crate::bounds::{CHARGES_MAX, COST_MAX, DESCRIPTORS_MAX, ENTRIES_MAX, EXPRESSION_TEXT_MAX};

/// Why a request was not decided: it is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request has no descriptors.
    #[error("descriptors: none; give at least one")]
    NoDescriptors,
    /// The request has too many descriptors.
    #[error("descriptors: {count} are too many; use at most {DESCRIPTORS_MAX}")]
    TooManyDescriptors {
        /// The number of descriptors.
        count: usize,
    },
    /// A descriptor has too many entries.
    #[error("entries: {count} are too many for one descriptor; use at most {ENTRIES_MAX}")]
    TooManyEntries {
        /// The number of entries.
        count: usize,
    },
    /// More limits than are charged for one request.
    #[error(
        "descriptors: more than {CHARGES_MAX} limits apply to them; use fewer descriptors, or rules that match fewer"
    )]
    TooManyLimits,
    /// The cost is too large.
    #[error("cost: {cost} is too large; use at most {COST_MAX}")]
    Cost {
        /// The cost.
        cost: u64,
    },
    /// A key is empty or too long.
    #[error(transparent)]
    Key(KeyError),
    /// An expression in the key of a rule would look at a text that is too long.
    #[error(
        "key: an expression of rule `{rule}` reads a text that is too long; use at most {EXPRESSION_TEXT_MAX} bytes"
    )]
    KeyTooLong {
        /// The rule.
        rule: Box<str>,
    },
    /// The charges cannot be decided together.
    #[error(transparent)]
    Charges(ChargeError),
    /// A penalty of a length that cannot be kept.
    #[error(transparent)]
    Penalty(LimitError),
    /// A key that was to be forgotten, and of which a store in memory that is full knows too little for that.
    #[error(
        "key: not forgotten under {limits} of its limits, since the store in memory is full and counts it approximately; \
         reset it again later, or give the store more keys"
    )]
    NotForgotten {
        /// How many limits still count it. Others have forgotten it.
        limits: usize,
    },
    /// A key that units were to be given back to, and of which a store in memory that is full knows too little for that.
    #[error(
        "key: nothing given back under {limits} of its limits, since the store in memory is full and counts it \
         approximately; try again later, or give the store more keys"
    )]
    NotGranted {
        /// How many limits have given nothing back. Others have.
        limits: usize,
    },
    /// A key that was to be blocked, and for whose block a store in memory that is full has no place.
    #[error(
        "key: not blocked under {limits} of its limits, since the store in memory is full; try again later, or give the \
         store more keys"
    )]
    NotBlocked {
        /// How many limits do not block it. Others do.
        limits: usize,
    },
    /// A key that was to be unblocked, and of whose block a full store in memory knows too little for that.
    #[error(
        "key: still blocked under {limits} of its limits, since the store in memory is full and counts it approximately; \
         try again later, or give the store more keys"
    )]
    NotUnblocked {
        /// How many limits still block it. Others do not.
        limits: usize,
    },
    /// A store that would have to answer does not.
    #[error("store: {0}; see the log")]
    Store(#[from] StoreError),
}
