//! Shadow mode on a shared store: what would have become of a request is found out beside it, and nobody waits for it.

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

/// How many requests a store may be asked about at once.
pub(super) struct Watchers(Arc<Semaphore>);

impl Default for Watchers {
    fn default() -> Watchers {
        Watchers(Arc::new(Semaphore::new(WATCHED_MAX)))
    }
}

/// Tells those who find out of a response what it was.
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
    /// Has a request judged in a task of its own. Nothing if it passes without: too many are under way.
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

    /// Counts what would have become of a request, and its response, for rules that count those.
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
