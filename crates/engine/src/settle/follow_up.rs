//! What is done when the limits of a rule have answered.

use tidegate_core::{Charge, Op};
use tidegate_policy::Rule;

use super::Settling;
use crate::error::RequestError;
use crate::outcome::Answer;
use crate::plan::Step;

/// Whether more is done for a rule when its limits have answered. Whatever [`Settling::follow_up`] learns to do belongs here.
pub(crate) fn follows_up(rule: &Rule) -> bool {
    rule.penalty.is_some() || rule.count_denied
}

impl Settling<'_> {
    /// Counts denied requests where a rule asks for it, and imposes penalties.
    pub(super) async fn follow_up(&mut self, denied: bool) -> Result<(), RequestError> {
        let (active, plan) = (self.active, self.plan);
        for (number, planned) in plan.planned.iter().enumerate() {
            let (Some(rule), Step::Charge(op)) = (self.rule(number), planned.step) else { continue };
            if let (true, Op::Take(units @ 1..)) = (rule.count_denied && (denied || self.is_over(number)), op)
                && let Some((backend, limit)) = self.place(number)
            {
                let debit = Charge { key: plan.key(&planned.key)?, limit: &limit, op: Op::Debit(units), veto: false };
                // If the store fails now, the answer stands, and these units are not counted.
                let _ = backend.charge(&[debit], &[plan.placing(planned)]).await;
            }
            // A penalty that is there is not lengthened, and who is denied for want of a store did nothing wrong.
            if let (Answer::Decided(denial), Some(length), Some(backend)) =
                (self.judged[number].answer, rule.penalty, active.store_of(rule))
                && !denial.is_allowed()
                // A store that fails now leaves the denial without its penalty.
                && plan.penalty(rule, length, planned)?.impose(backend, length).await?.is_ok()
                // No wait helps a cost above the whole limit.
                && let Some(wait) = denial.retry_after()
            {
                self.judged[number].answer = Answer::Penalised(length.max(wait));
            }
        }
        self.cut_overlong().await
    }

    /// Has penalties begin anew that would last longer than their rules say. Nobody is denied for longer because a clock
    /// was set back.
    async fn cut_overlong(&self) -> Result<(), RequestError> {
        for number in &self.overlong {
            if let Some(rule) = self.rule(*number)
                && let (Some(length), Some(backend)) = (rule.penalty, self.active.store_of(rule))
            {
                // A store that fails now is asked again by the next request.
                let penalty = self.plan.penalty(rule, length, &self.plan.planned[*number])?;
                let _ = penalty.impose(backend, length).await?;
            }
        }
        Ok(())
    }
}
