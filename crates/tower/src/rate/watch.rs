//! Shadow mode on a shared store: the decision is made beside the request, which does not wait for it.

use std::sync::Arc;

use http::request::Parts;
use tidegate_core::Time;
use tidegate_core::shed::Judgement;
use tidegate_policy::Response;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::{Judge, Later, PolicyJudge, Shared, Ticket, Told, Verdict};
use crate::ResponseHead;
use crate::bounds::WATCHED_MAX;

/// Bounds how many requests in shadow mode a store is asked about at the same time.
pub(super) struct Watchers(Arc<Semaphore>);

impl Default for Watchers {
    fn default() -> Watchers {
        Watchers(Arc::new(Semaphore::new(WATCHED_MAX)))
    }
}

/// Passes a response to the task that decides about its request.
#[derive(Debug)]
pub(super) struct Watch {
    started: Time,
    tell: oneshot::Sender<Response>,
}

impl Watch {
    pub(super) fn answered(self, judge: &PolicyJudge, head: ResponseHead<'_>) {
        // If nobody listens, no rule counts responses.
        let _ = self.tell.send(judge.response(self.started, head));
    }
}

impl Shared {
    /// Decides about a request in a task of its own. Returns `None` if too many are under way: the request passes
    /// unjudged.
    pub(super) fn watch(self: &Arc<Shared>, parts: Parts) -> Option<Ticket> {
        let Judge::Policy(judge) = &self.judge else { return None };
        let (runtime, started) = (Handle::try_current().ok()?, judge.now());
        let permit = Arc::clone(&self.watchers.0).try_acquire_owned().ok()?;
        let (tell, told) = oneshot::channel();
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            let verdict = shared.judge(&parts).await;
            // Who waits for the service is bounded by that, and not by the store.
            drop(permit);
            shared.watched(verdict, told).await;
        });
        Ticket::new(Told::Nothing, Later::Watch(Box::new(Watch { started, tell })))
    }

    /// Counts the decision about a request, and its response for rules that count responses.
    async fn watched(&self, verdict: Verdict, told: oneshot::Receiver<Response>) {
        let ticket = match verdict {
            Verdict::Deny(_) => return self.switch.count(Judgement::WouldShed),
            Verdict::Pass(ticket) => ticket,
        };
        let Some((_, Later::Report(report))) = ticket.map(Ticket::into_parts) else { return };
        // A caller that left, or a service that failed, has no response.
        let Ok(response) = told.await else { return };
        if let (Judge::Policy(judge), Ok(_permit)) = (&self.judge, self.watchers.0.try_acquire()) {
            judge.report(&report, &response).await;
        }
    }
}
