//! How long a call may take, in the server and in this node.

use std::time::Duration;

use tokio::time::Instant;

use super::bounds::LEAVE_MARGIN;
use super::pipe::Patience;

/// What a call, or several that are made one after the other, may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// What the server may take, for all attempts together.
    pub(super) budget: Duration,
    /// How long a call may wait for its turn in this node.
    wait: Duration,
    /// When the caller no longer waits.
    leave: Option<Instant>,
}

impl Term {
    /// One of whom nothing else is known.
    pub(crate) fn new(budget: Duration, wait: Duration) -> Term {
        Term { budget, wait, leave: None }
    }

    /// The same for a caller with this deadline: it has to have its answer a moment before.
    pub(crate) fn until(self, deadline: Option<std::time::Instant>) -> Term {
        let leave = deadline.map(|deadline| {
            let deadline = Instant::from_std(deadline);
            deadline.checked_sub(LEAVE_MARGIN).unwrap_or(deadline)
        });
        Term { leave: leave.or(self.leave), ..self }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience { wait: self.wait, leave: self.leave }
    }

    /// How long the caller waits for anything, if that is to begin now.
    pub(super) fn patience_left(&self) -> Duration {
        let left = |leave: Instant| leave.saturating_duration_since(Instant::now());
        self.leave.map_or(self.wait, |leave| left(leave).min(self.wait))
    }
}
