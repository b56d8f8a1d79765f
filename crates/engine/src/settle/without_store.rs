//! Charges whose store does not answer: they follow the failure choice of their rules.

use std::time::Duration;

use tidegate_core::{Charge, Limit, Op};
use tidegate_policy::{Local, OnStoreFailure, Share};

use super::{Batch, Group, Look, Note, Part, Put, Settling, group, looking};
use crate::error::RequestError;
use crate::failure::Failed;
use crate::instead::Instead;
use crate::outcome::Answer;
use crate::plan::{self, Step};
use crate::store::{Applied, Backend, ChargeFailure};

/// Where a charge was decided.
pub(super) struct Place<'a> {
    pub(super) backend: &'a Backend,
    pub(super) limit: Limit,
    /// What decided instead of the store; nothing if the store did.
    pub(super) instead: Option<Instead>,
}

impl<'a> Settling<'a> {
    /// Does what the rules chose for charges that their store gave no answer to. What this node has seen of penalties and
    /// blocks holds.
    pub(super) fn fail_all(&mut self, put: Put<'_>, failure: ChargeFailure) {
        let mut penalised: Option<(Group, Duration)> = None;
        for (part, charge) in put.parts.into_iter().zip(put.charges) {
            match part {
                Part::Penalty(number, _) if failure != ChargeFailure::Overloaded => {
                    let of = group(&self.plan.planned[number]);
                    let before = penalised.filter(|(other, _)| *other == of).map(|(_, left)| left);
                    let left = self.left_of_penalty(number, &charge).max(before);
                    penalised = left.map(|left| (of, left)).or(penalised);
                }
                Part::Penalty(..) => {}
                Part::Limit(number) => {
                    let of = group(&self.plan.planned[number]);
                    match penalised.filter(|(other, _)| *other == of) {
                        Some((_, left)) => self.judged[number].answer = Answer::Penalised(left),
                        None => self.fail(number, charge, failure),
                    }
                }
            }
        }
    }

    /// Decides charges here whose keys the store does not know in full yet, though it answers, and takes them out of the
    /// batch. Returns whether one of them denies the request.
    pub(super) fn decide_held(
        &mut self,
        batch: &mut Batch,
        looks: &[Look<'a>],
        denied: bool,
    ) -> Result<bool, RequestError> {
        let Some(asked) = self.store_of(batch).and_then(Backend::asked).filter(|asked| asked.holds_any()) else {
            return Ok(false);
        };
        let (plan, mut left) = (self.plan, Batch::new());
        for &number in batch.iter() {
            let planned = &plan.planned[number];
            let Step::Charge(op) = planned.step else { continue };
            let op = if denied { looking(op) } else { op };
            let Some(charge) = plan.charge(self.active, planned, op)? else { continue };
            if !asked.holds(&charge) || !matches!(self.choice(number), OnStoreFailure::Local(Local::Share(_))) {
                left.push(number);
                continue;
            }
            let mut put = Put::with_room(1 + looks.len());
            for look in looks.iter().filter(|look| look.number == number) {
                put.push(Part::Penalty(number, look.length), look.penalty.charge(Op::Ask(1)));
            }
            put.push(Part::Limit(number), charge);
            self.fail_all(put, ChargeFailure::Unanswered(Applied::No));
        }
        *batch = left;
        Ok(!denied && self.is_denied())
    }

    /// Where a charge was decided; nothing if it has no limit.
    pub(super) fn place(&self, number: usize) -> Option<Place<'a>> {
        let planned = &self.plan.planned[number];
        let (_, limit) = plan::limit(self.active, planned)?;
        let instead = self.notes.iter().find_map(|(of, note)| match note {
            Note::FellBack(instead) if *of == number => Some(*instead),
            _ => None,
        });
        Some(Place { backend: self.active.store(planned.store)?, limit: *limit, instead })
    }

    /// Does what the rule chose for a charge without an answer. Overload is not an outage: no local limit decides.
    fn fail(&mut self, number: usize, charge: Charge<'_>, failure: ChargeFailure) {
        let failed = |allowed| Answer::Failed { allowed };
        let is_overload = failure == ChargeFailure::Overloaded;
        match self.choice(number) {
            OnStoreFailure::Allow => self.judged[number].answer = failed(true),
            OnStoreFailure::Deny => self.judged[number].answer = failed(false),
            OnStoreFailure::Local(_) if is_overload => self.judged[number].answer = Answer::Overloaded,
            OnStoreFailure::Local(choice) => self.decide_instead(number, &charge, choice, failure),
        }
        if let (Some(id), false) = (self.plan.planned[number].rule, self.plan.only_looks) {
            self.failures.note(self.active, id, if is_overload { Failed::Overloaded } else { Failed::Unanswered });
        }
    }

    fn decide_instead(&mut self, number: usize, charge: &Charge<'_>, choice: Local, failure: ChargeFailure) {
        let applied = if let ChargeFailure::Unanswered(applied) = failure { applied } else { Applied::No };
        let store = self.active.store(self.plan.planned[number].store);
        let decided = store.and_then(|backend| {
            let instead = Instead::of(backend, choice, charge.limit);
            self.notes.push((number, Note::FellBack(instead)));
            instead.decide(backend, self.local, charge, applied).ok()
        });
        match decided {
            Some(decision) => {
                self.note(number, charge, &decision);
                self.judged[number].local = true;
            }
            None => self.judged[number].answer = Answer::Failed { allowed: true },
        }
    }

    /// What the rule of a charge does without its store. Limits that requests bring go on here.
    fn choice(&self, number: usize) -> OnStoreFailure {
        match self.rule(number) {
            Some(rule) => self.active.on_store_failure(rule, self.plan.planned[number].store),
            None => OnStoreFailure::Local(Local::Share(Share::Whole)),
        }
    }

    /// How long a penalty or block still holds that this node has seen.
    fn left_of_penalty(&self, number: usize, look: &Charge<'_>) -> Option<Duration> {
        let asked = self.active.store(self.plan.planned[number].store)?.asked()?;
        asked.look_away(look).and_then(|decision| crate::penalty::left(&decision))
    }
}
