//! The follow-up of a rule's decisions.

use std::time::Duration;

use tidegate_core::{Charge, Op, Time};
use tidegate_policy::Rule;

use super::{Note, Settling};
use crate::crowd::BlockKind;
use crate::error::RequestError;
use crate::outcome::{Answer, Denial};
use crate::plan::{Planned, Step};
use crate::store::Backend;

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
                && let Some(place) = self.place(number)
                // Overload says nothing about the limit.
                && self.judged[number].answer != Answer::Overloaded
                && self.denial() != Some(Denial::Overloaded)
            {
                let charge = plan.charge(active, planned, Op::Debit(units))?;
                if let Some(charge) = charge {
                    // If the store fails now, the answer stands, and these units are not counted.
                    let debit = Charge { limit: &place.limit, ..charge.shadow() };
                    let _ = self.charge_at(&place, &debit).await;
                }
            }
            // A penalty that is there is not lengthened, and who is denied for want of a store did nothing wrong.
            if let (Answer::Decided(denial), Some(length), Some(backend)) =
                (self.judged[number].answer, rule.penalty, active.store_of(rule))
                && !denial.is_allowed()
                && let Some(at) = plan.penalty(rule, length, planned)?.impose_or_go_on(backend, length).await?
            {
                self.note_penalty(planned, length, at);
                // No wait helps a cost above the whole limit.
                if let Some(wait) = denial.retry_after() {
                    self.judged[number].answer = Answer::Penalised(length.max(wait));
                }
            }
        }
        self.cut_overlong().await
    }

    /// Has penalties begin anew that would last longer than their rules say. Nobody is denied for longer than was told
    /// because a clock was set back, or because the rule said more before.
    async fn cut_overlong(&self) -> Result<(), RequestError> {
        for (number, planned) in self.plan.planned.iter().enumerate() {
            if let Some(rule) = self.rule(number)
                && let (Some(length), Some(backend)) = (rule.penalty, self.active.store_of(rule))
                && (self.is_overlong(number) || self.is_overlong_in_memory(rule, length, planned)?)
            {
                // A store that fails now is asked again by the next request.
                let penalty = self.plan.penalty(rule, length, planned)?;
                if let Ok(at) = penalty.impose(backend, length).await? {
                    self.note_penalty(planned, length, at);
                }
            }
        }
        Ok(())
    }

    /// Remembers a penalty that was imposed.
    fn note_penalty(&self, planned: &Planned, length: Duration, at: Option<Time>) {
        if let Some(id) = planned.rule {
            self.active.note_block(id, self.plan.key_bytes(planned), BlockKind::Penalty, length, at);
        }
    }

    /// Whether its store said so of a penalty that was looked at beside a charge.
    fn is_overlong(&self, number: usize) -> bool {
        self.notes.iter().any(|(of, note)| *of == number && matches!(note, Note::Overlong))
    }

    /// Whether a penalty in memory, which was looked at when its charge was planned, is longer than its rule says.
    fn is_overlong_in_memory(&self, rule: &Rule, length: Duration, planned: &Planned) -> Result<bool, RequestError> {
        match (planned.step, self.active.store_of(rule).and_then(Backend::states)) {
            // The penalty alone is looked at again: a block or the limit itself may deny for longer. It is read as no longer
            // than its rule says.
            (Step::Penalised(left), Some(store)) if left >= length => {
                Ok(self.plan.penalty(rule, length, planned)?.left_in(store) == Ok(Some(length)))
            }
            _ => Ok(false),
        }
    }
}
