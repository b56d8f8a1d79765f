//! Why a request was not decided.

use tidegate_core::{ChargeError, KeyError, LimitError};

use crate::store::StoreError;

use crate::bounds::{CHARGES_MAX, COST_MAX, DESCRIPTORS_MAX, ENTRIES_MAX, EXPRESSION_TEXT_MAX};

/// Why a request was not decided: it is itself at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Nothing to decide.
    #[error("descriptors: none; give at least one")]
    NoDescriptors,
    /// More than are looked up.
    #[error("descriptors: {count} are too many; use at most {DESCRIPTORS_MAX}")]
    TooManyDescriptors {
        /// How many there were.
        count: usize,
    },
    /// More than are matched.
    #[error("entries: {count} are too many for one descriptor; use at most {ENTRIES_MAX}")]
    TooManyEntries {
        /// How many there were.
        count: usize,
    },
    /// More limits than are charged for one request.
    #[error("descriptors: more than {CHARGES_MAX} limits apply to them; use fewer, or rules that match fewer")]
    TooManyLimits,
    /// More units than any limit has.
    #[error("cost: {cost} is too large; use at most {COST_MAX}")]
    Cost {
        /// The cost.
        cost: u64,
    },
    /// A key that cannot be counted on.
    #[error(transparent)]
    Key(KeyError),
    /// An expression in the key of a rule would look at a text that is too long.
    #[error(
        "key: an expression of rule `{rule}` looks at a longer text than it may; use at most {EXPRESSION_TEXT_MAX} bytes"
    )]
    KeyTooLong {
        /// The rule.
        rule: Box<str>,
    },
    /// Charges that cannot be made together.
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
    /// A store that would have to answer does not.
    #[error("store: {0}; the log names it")]
    Store(#[from] StoreError),
}
