//! How long a call may take, in the server and in this node.

use std::time::Duration;

use tokio::time::Instant;

use super::bounds::LEAVE_MARGIN;
use super::pipe::Patience;

/// What a request may take, in all calls that are made for it one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// What the server may take, for all attempts together.
    pub(super) budget: Duration,
    /// Until when a request may wait in this node for turns and connections.
    until: Instant,
    /// When the caller no longer waits.
    leave: Option<Instant>,
}

impl Term {
    /// Returns the term of a request that begins now, without a deadline.
    pub(crate) fn new(budget: Duration, wait: Duration) -> Term {
        Term { budget, until: Instant::now() + wait, leave: None }
    }

    /// Returns the same term with a wait that begins now, for what is owed however long the request has waited.
    pub(crate) fn anew(self, wait: Duration) -> Term {
        Term { until: Instant::now() + wait, ..self }
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
        Patience { until: self.until, leave: self.leave }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_once_however_many_calls_it_makes() {
        let (start, wait) = (Instant::now(), Duration::from_millis(100));
        let term = Term::new(Duration::from_millis(10), wait);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(term.patience().end(), start + wait);
        assert_eq!(term.anew(wait).patience().end(), Instant::now() + wait, "what is owed");
        let deadline = start + Duration::from_millis(80);
        let hurried = term.until(Some(deadline.into_std()));
        for term in [hurried, hurried.anew(wait), hurried.until(None)] {
            assert_eq!(term.patience().end(), deadline - LEAVE_MARGIN);
        }
    }
}
