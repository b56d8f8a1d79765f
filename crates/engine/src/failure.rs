//! The outcome when a decision panics: the same as when a store does not answer.
//!
//! Each use of a store is guarded, so that the failure choice of a rule applies to its own store. A request as a whole
//! is guarded too, and so is the report of a response, for panics outside of a store. The panic itself is logged by the
//! process's panic hook.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures_util::FutureExt;
use tidegate_core::{Charge, Decision, Limit, MemoryStore};
use tidegate_policy::{Mode, OnStoreFailure, Request, Rule, RuleId};

use crate::active::Active;
use crate::engine::Engine;
use crate::outcome::{Denial, Judgements, Outcome};
use crate::store::StoreError;

/// Does something with a store; if that panics, it did not answer. A store lets go of all its locks then, and leaves
/// states that admit nothing more, so it can be asked again.
#[inline]
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| StoreError::Unanswered)
}

/// What a future gives that waits for nothing; if it panics, a store did not answer.
pub(crate) fn guarded_at_once<W: Future>(work: impl FnOnce() -> W) -> Result<W::Output, StoreError> {
    guarded(|| pin!(work()).now_or_never()).and_then(|done| done.ok_or(StoreError::Unanswered))
}

/// What a future gives; if it panics, a store did not answer.
pub(crate) fn guarded_future<T>(
    mut work: impl Future<Output = T> + Unpin,
) -> impl Future<Output = Result<T, StoreError>> {
    poll_fn(move |context| match guarded(|| work.poll_unpin(context)) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    })
}

/// Whether a rule denies while one of its stores does not answer.
fn denies_without_store(active: &Active, rule: &Rule) -> bool {
    rule.limits.iter().any(|limit| matches!(active.on_store_failure(rule, limit.store), OnStoreFailure::Deny))
}

/// The rules that could not ask their store about a request, and why. Each counts that once, whatever its limits are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(Vec<(RuleId, Failed)>);

/// Why a rule could not ask its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The store did not answer.
    Unanswered,
    /// This node is overloaded.
    Overloaded,
}

impl Failures {
    pub(crate) fn note(&mut self, active: &Active, id: RuleId, failed: Failed) {
        if !self.0.contains(&(id, failed)) {
            self.0.push((id, failed));
            active.count_failure(id, failed);
        }
    }
}

impl Engine {
    /// Returns how many requests, responses and keys were answered although their decision panicked, and were not
    /// counted as a failure of a rule: those with a limit of the caller, and those for which it is not known which
    /// rules apply.
    #[must_use]
    pub fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }

    /// Decides in memory under a limit that the caller brings.
    #[inline]
    pub(crate) fn decide_guarded(&self, store: &MemoryStore, charge: &Charge<'_>) -> Decision {
        guarded(|| store.decide_in(charge.namespace, charge.key, charge.limit, charge.op))
            .unwrap_or_else(|_| self.untaken(charge.limit))
    }

    /// The answer for a key under a limit that the caller brings. No rule chose what happens then, so it passes, as under
    /// a rule that does not choose.
    #[cold]
    pub(crate) fn untaken(&self, limit: &Limit) -> Decision {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        Decision::untaken(limit)
    }

    /// The answer to a request of which it is not known which rules apply: if any rule of its domain denies without its
    /// store, that might have been one.
    #[cold]
    pub(crate) fn unplanned(&self, request: &Request<'_>) -> Outcome {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        let active = self.active.load();
        let denies = active.policy.rules().iter().zip(active.records()).any(|(rule, record)| {
            &*rule.domain == request.domain
                && record.mode(rule.mode) == Mode::Enforce
                && denies_without_store(&active, rule)
        });
        let known_domain = active.policy.domain(request.domain).is_some();
        let denial = denies.then_some(Denial::StoreFailure);
        let denials = denial.and(active.denials.as_deref()).filter(|_| !active.shadow);
        let nobody = std::iter::empty();
        let decision = denials.and_then(|denials| denials.note(&active, request.domain, Denial::StoreFailure, nobody));
        Outcome { active, known_domain, denial, shadow: self.is_in_shadow(), judged: Judgements::NONE, decision }
    }

    /// The answer to a report of which it is not known which rules apply: none has counted it.
    #[cold]
    pub(crate) fn unreported(&self) -> usize {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        0
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tidegate_core::Retry;
    use tidegate_policy::{Descriptor, LoadOptions, load_text};

    use super::*;
    use crate::Options;
    use crate::bounds::FAILURE_RETRY;

    #[test]
    fn a_future_that_panics_late_is_a_store_that_does_not_answer() {
        let mut polls = 0;
        let work = poll_fn(move |_| {
            polls += 1;
            if polls == 2 { panic!("as it was told") } else { Poll::<u8>::Pending }
        });
        let work = pin!(work);
        let mut work = pin!(guarded_future(work));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(work.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(work.as_mut().poll(&mut context), Poll::Ready(Err(StoreError::Unanswered)));
    }

    #[test]
    fn a_request_without_a_plan_is_denied_only_where_a_rule_would_deny_it() {
        let engine = Engine::new(Options::default()).unwrap();
        let text = "domains:
  open: {rules: [{name: a, limit: 1/minute, on_store_failure: allow}]}
  shut: {rules: [{name: a, limit: 1/minute}, {name: b, limit: 1/minute, on_store_failure: deny}]}
  trial: {rules: [{name: a, limit: 1/minute, on_store_failure: deny, mode: shadow}]}
";
        engine.install(load_text("test.yaml", text, &LoadOptions::default()).policy.unwrap()).unwrap();
        let answer = |domain| {
            let outcome =
                engine.unplanned(&Request { domain, descriptors: &[Descriptor::default()], http: None, cost: 1 });
            (outcome.is_known_domain(), outcome.denial(), outcome.retry())
        };
        assert_eq!(answer("open"), (true, None, None));
        assert_eq!(answer("shut"), (true, Some(Denial::StoreFailure), Some(Retry::Unknown(FAILURE_RETRY))));
        assert_eq!(answer("trial"), (true, None, None));
        assert_eq!(answer("none"), (false, None, None));
        assert_eq!(engine.undecided(), 4);
    }
}
