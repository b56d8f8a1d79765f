//! Errors of stores, and whether the call may have been applied.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tidegate_core::{ChargeError, NoRoom};

/// Why a store returned no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The charges cannot be decided together in any store.
    #[error(transparent)]
    Charges(#[from] ChargeError),
    /// The store did not answer.
    #[error("{cause}")]
    Failed {
        /// Whether the call may have been applied.
        certainty: Certainty,
        /// The error.
        cause: Cause,
    },
    /// This store does not support the call.
    #[error("{store}: {what}")]
    Unsupported {
        /// The name of the store.
        store: Arc<str>,
        /// What the store does not support.
        what: &'static str,
    },
    /// There is no room for another permit.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// Whether a call without an answer may have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Certainty {
    /// The call was not applied and will not be.
    NotSent,
    /// The call was sent and may have been applied, once.
    Unknown,
    /// The store refused the call, and did not apply it.
    Refused,
    /// This node is overloaded: the call did not get its turn in time. It was not applied and will not be, and the
    /// store is not at fault.
    Overloaded,
    /// The caller's deadline came before the answer: the call may have been applied, once, and the store is not at
    /// fault.
    CallerLeft,
}

/// The error of a store, in its own words. It names the store without its password.
#[derive(Clone)]
pub struct Cause {
    error: Arc<dyn Error + Send + Sync>,
    remedy: Remedy,
}

/// How the error can be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// An operator must correct the credentials or permissions.
    Access,
    /// A connection is being made: the call may succeed soon.
    Wait,
    /// It is not known whether another call can succeed.
    Unknown,
}

impl Cause {
    /// Wraps an error of a store.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Cause {
        Cause { error: Arc::new(error), remedy: Remedy::Unknown }
    }

    pub(crate) fn with_remedy(self, remedy: Remedy) -> Cause {
        Cause { remedy, ..self }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl StoreError {
    /// Returns whether the call may have been applied, or `None` if the charges were invalid.
    #[must_use]
    pub fn certainty(&self) -> Option<Certainty> {
        match self {
            StoreError::Failed { certainty, .. } => Some(*certainty),
            StoreError::Charges(_) | StoreError::Unsupported { .. } | StoreError::NoRoom(_) => None,
        }
    }

    /// Returns whether the call was never sent.
    #[must_use]
    pub fn was_not_sent(&self) -> bool {
        matches!(self.certainty(), Some(Certainty::NotSent | Certainty::Overloaded))
    }

    /// Returns whether the store did not apply the call and will not.
    #[must_use]
    pub fn was_not_applied(&self) -> bool {
        self.was_not_sent() || self.certainty() == Some(Certainty::Refused)
    }

    /// Returns whether the call failed in this node or by its caller's deadline: the store is not at fault.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        matches!(self.certainty(), Some(Certainty::Overloaded | Certainty::CallerLeft))
    }

    /// Returns whether the store denies access, to itself or to a command: an operator must correct that.
    #[must_use]
    pub fn is_access_denied(&self) -> bool {
        matches!(self, StoreError::Failed { cause: Cause { remedy: Remedy::Access, .. }, .. })
    }

    /// Returns whether a connection is being made.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        matches!(self, StoreError::Failed { cause: Cause { remedy: Remedy::Wait, .. }, .. })
    }
}
