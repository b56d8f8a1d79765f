//! Why a store gave no answer, and what is known of what it did.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tidegate_core::{ChargeError, NoRoom};

/// Why a store gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The charges cannot be decided together, whatever the store.
    #[error(transparent)]
    Charges(#[from] ChargeError),
    /// The store does not answer.
    #[error("{cause}")]
    Failed {
        /// What is known of what it did.
        certainty: Certainty,
        /// What went wrong.
        cause: Cause,
    },
    /// This store cannot do that at all.
    #[error("{store}: {what}")]
    Unsupported {
        /// The store.
        store: Arc<str>,
        /// What the store does not support.
        what: &'static str,
    },
    /// There is no room for another permit.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// What is known of a call without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Certainty {
    /// It was not applied and will not be.
    NotSent,
    /// It was sent and may have been applied, once.
    Unknown,
    /// The store refused it, and did not apply it.
    Refused,
    /// This node is overloaded: the call did not get its turn in time. It was not applied and will not be, and says nothing
    /// about the store.
    Overloaded,
    /// The caller's deadline came before the answer: it may have been applied, once, and says nothing about the store.
    CallerLeft,
}

/// What went wrong, in the words of the store. It names the store without its password.
#[derive(Clone)]
pub struct Cause {
    error: Arc<dyn Error + Send + Sync>,
    remedy: Remedy,
}

/// Who can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Somebody has to correct who may do what.
    Access,
    /// A connection is being made: soon it may work.
    Wait,
    /// It may work again, or not.
    Unknown,
}

impl Cause {
    /// What went wrong.
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
    /// What is known of what the store did; nothing if it was not the store's fault.
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

    /// Whether the store does not let us in, or not do what was asked: somebody has to correct that.
    #[must_use]
    pub fn is_access_denied(&self) -> bool {
        matches!(self, StoreError::Failed { cause: Cause { remedy: Remedy::Access, .. }, .. })
    }

    /// Whether a connection is being made.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        matches!(self, StoreError::Failed { cause: Cause { remedy: Remedy::Wait, .. }, .. })
    }
}
