//! Errors of calls, and whether a failed call may have been applied.

use std::sync::Arc;
use std::time::Duration;

use crate::StoreError;
use crate::error::{Cause, Certainty, Remedy};

use super::bounds::{REDIRECTIONS_MAX, WAITING_MAX};

/// Why a call was not answered. It names the store without its password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The call was not applied and will not be.
    #[error("{store}: not sent: {why}")]
    NotSent {
        /// The store.
        store: Arc<str>,
        /// What prevented the call.
        why: Why,
    },
    /// The call was sent and may have been applied, once.
    #[error("{store}: sent, but not answered: {why}")]
    Unknown {
        /// The store.
        store: Arc<str>,
        /// What happened to the answer.
        why: Why,
    },
    /// The server answered with an error.
    #[error("{store}: {error}")]
    Refused {
        /// The store.
        store: Arc<str>,
        /// The message of the server, its code first.
        error: Box<str>,
    },
}

impl CallError {
    /// Returns the code with which an error of a server begins, such as `WRONGTYPE`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            CallError::Refused { error, .. } => error.split(' ').next(),
            CallError::NotSent { .. } | CallError::Unknown { .. } => None,
        }
    }

    /// Returns whether the server denies access, to itself or to a command: an operator must correct that.
    #[must_use]
    pub fn is_access_denied(&self) -> bool {
        match self {
            CallError::NotSent { why, .. } | CallError::Unknown { why, .. } => matches!(why, Why::AccessDenied(_)),
            CallError::Refused { .. } => self.code().is_some_and(is_of_access),
        }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> StoreError {
        let certainty = match &error {
            CallError::NotSent { why, .. } if why.is_overload() => Certainty::Overloaded,
            CallError::Unknown { why: Why::CallerLeft, .. } => Certainty::CallerLeft,
            CallError::NotSent { .. } => Certainty::NotSent,
            CallError::Unknown { .. } => Certainty::Unknown,
            CallError::Refused { .. } => Certainty::Refused,
        };
        let remedy = match &error {
            error if error.is_access_denied() => Remedy::Access,
            CallError::NotSent { why: Why::Connecting | Why::ConnectingTooLate, .. } => Remedy::Wait,
            _ => Remedy::Unknown,
        };
        StoreError::Failed { certainty, cause: Cause::new(error).with_remedy(remedy) }
    }
}

/// Whether an error with this code is about access.
pub(super) fn is_of_access(code: &str) -> bool {
    matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM")
}

/// The reason of a failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// There is no connection, and the last attempt to make one failed.
    #[error("no connection: {0}")]
    NoConnection(Arc<str>),
    /// There is no connection, because the server denies access.
    #[error("no connection: {0}")]
    AccessDenied(Arc<str>),
    /// There is no connection yet.
    #[error("no connection: still connecting")]
    Connecting,
    /// There is no connection yet, and the caller waits no longer. The server may not be at fault.
    #[error("no connection: still connecting, and the call would wait too long")]
    ConnectingTooLate,
    /// Calls failed so often that none is sent until a probe succeeds.
    #[error("the breaker is open: the server did not answer in time and is probed")]
    BreakerOpen,
    /// The queue of calls is full.
    #[error("the node is overloaded: {WAITING_MAX} calls wait on this connection")]
    QueueFull,
    /// The call did not get its turn in time, or would not have.
    #[error("the node is overloaded: the call would wait too long for its turn")]
    TurnTooLate,
    /// The caller's own deadline passed first.
    #[error("the caller's deadline passed first")]
    CallerLeft,
    /// The server did not answer an earlier call in time.
    #[error("an earlier call got no answer within {0:?}")]
    Away(Duration),
    /// The time budget ran out.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(Arc<str>),
    /// The server asked to retry until the time budget ran out.
    #[error("the server is not ready: {0}")]
    NotReady(Box<str>),
    /// Nodes redirected the call too often.
    #[error("more than {REDIRECTIONS_MAX} redirections: the last was {0}")]
    Redirected(Box<str>),
    /// The URL is for a single server, and this one is a node of a Cluster.
    #[error("it is a node of a Cluster ({0}); write redis+cluster://")]
    OfCluster(Box<str>),
    /// No node is known to have the slot.
    #[error("no node of the Cluster has slot {0}")]
    NoNode(u16),
}

impl Why {
    /// Whether the call failed in this node, and the server is not at fault.
    pub(super) fn is_overload(&self) -> bool {
        matches!(self, Why::QueueFull | Why::TurnTooLate | Why::CallerLeft | Why::ConnectingTooLate)
    }
}

/// Why a store cannot be used at all: the file, and the problem with it.
#[derive(Debug, thiserror::Error)]
#[error("{store}: {reason}")]
pub struct OpenError {
    pub(super) store: Arc<str>,
    pub(super) reason: String,
}
