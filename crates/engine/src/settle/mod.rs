//! Asks the stores about the plan of a request: all of it is taken, or nothing.
//!
//! Everything that one store call decides is decided at one instant, quotas too. Refunds are needed only if a request
//! has several calls: to several stores, or for more charges than one call has. A shared store is not asked about a
//! request that another store denied before it. `give_back.rs` has those refunds, `follow_up.rs` the consequences of a
//! denial, `without_store.rs` the charges whose store does not answer.

mod follow_up;
mod give_back;
mod without_store;

use std::time::Duration;

use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{Charge, Decision, Decisions, MemoryStore, Op, Phase, Time};
use tidegate_policy::{Rule, RuleId};
use tidegate_stores::Call;

use crate::active::Active;
use crate::crowd::BlockKind;
use crate::error::RequestError;
use crate::failure::Failures;
use crate::few::Few;
use crate::instead::Instead;
use crate::outcome::{Answer, Denial, Judged};
use crate::penalty::Penalty;
use crate::plan::{self, Plan, Planned, Step};
use crate::store::{Applied, Backend, ChargeFailure};

pub(crate) use follow_up::follows_up;

/// What the stores said, and whether that denies the request.
pub(crate) struct Settled {
    pub(crate) judged: Vec<Judged>,
    pub(crate) denial: Option<Denial>,
    /// Limits that the request brought with it and that were decided in the memory of this process. Rules count their own.
    pub(crate) fell_back: u64,
}

/// Asks the stores for what a request was planned to charge, and returns what comes of it.
pub(crate) fn settle<'a>(
    active: &'a Active,
    local: &'a MemoryStore,
    plan: &'a Plan,
    call: &'a Call,
) -> impl Future<Output = Result<Settled, RequestError>> + Send + 'a {
    let mut settling = Settling::new(active, local, plan, call);
    async move {
        let Err(error) = settling.ask_all().await else { return Ok(settling.into_settled()) };
        settling.give_back(|_, _| true).await;
        Err(error)
    }
}

/// What is known of a charge before a store is asked.
fn unasked(planned: &Planned) -> Judged {
    let answer = match planned.step {
        Step::Blocked => Answer::Blocked,
        Step::Penalised(left) => Answer::Penalised(left),
        Step::Unlimited => Answer::Unlimited,
        Step::Failed => Answer::Failed { allowed: false },
        Step::CostFailed => Answer::CostFailed,
        Step::Charge(_) => Answer::NotAsked,
    };
    let Planned { descriptor, rule, limit, veto, mode, .. } = *planned;
    Judged {
        descriptor,
        rule,
        limit,
        own: planned.own.clone(),
        answer,
        taken: None,
        phase: Phase::default(),
        veto,
        mode,
        local: false,
    }
}

/// Charges that one store decides together, by their numbers in the plan.
type Batch = Few<usize>;

/// A rule and the descriptor that it judges: its limits are taken together, or none of them.
type Group = (u32, Option<RuleId>);

fn group(planned: &Planned) -> Group {
    (planned.descriptor, planned.rule)
}

/// What a charge is for, by the number of the plan.
enum Part {
    Limit(usize),
    /// Whether the key of that charge is denied by a penalty of this length; by an operator if there is none.
    Penalty(usize, Option<Duration>),
}

/// A look at a penalty.
struct Look<'a> {
    /// The charge whose key it would deny, by its number in the plan.
    number: usize,
    /// That of the rule; an operator's have none.
    length: Option<Duration>,
    penalty: Penalty<'a>,
}

/// Charges as they are put to a store, and what each is for.
struct Put<'a> {
    parts: Few<Part>,
    charges: Few<Charge<'a>>,
}

impl<'a> Put<'a> {
    fn with_room(charges: usize) -> Put<'a> {
        Put { parts: Few::with_capacity(charges), charges: Few::with_capacity(charges) }
    }

    fn push(&mut self, part: Part, charge: Charge<'a>) {
        self.parts.push(part);
        self.charges.push(charge);
    }
}

/// What is unusual about a charge.
enum Note {
    /// It was decided in this process instead of its store.
    FellBack(Instead),
    /// Its key is penalised for as long as penalties of its rule are, or longer: the clock of the store was set back.
    Overlong,
}

struct Settling<'a> {
    active: &'a Active,
    /// The memory of this process.
    local: &'a MemoryStore,
    plan: &'a Plan,
    call: &'a Call,
    /// What is known so far, in the order of the plan.
    judged: Vec<Judged>,
    /// What is unusual about charges, by their numbers.
    notes: Vec<(usize, Note)>,
    failures: Failures,
}

impl<'a> Settling<'a> {
    fn new(active: &'a Active, local: &'a MemoryStore, plan: &'a Plan, call: &'a Call) -> Settling<'a> {
        let judged = plan.planned.iter().map(unasked).collect();
        Settling { active, local, plan, call, judged, notes: Vec::new(), failures: plan.failures.clone() }
    }

    /// Asks all stores in turn: first those that answer at once, so that the others are spared what they deny. What an
    /// earlier one gave goes back if a later one denies.
    async fn ask_all(&mut self) -> Result<(), RequestError> {
        let mut denied = self.is_denied();
        let (active, mut batch) = (self.active, Batch::new());
        // Each of them is met twice.
        for turn in 0..2 * active.store_count() {
            let (store, awaits) = (turn % active.store_count(), turn >= active.store_count());
            if active.store_awaits(store) != awaits {
                continue;
            }
            let mut from = 0;
            while self.fill(&mut batch, store, &mut from) {
                let only_looks = self.plan.only_looks;
                if denied && awaits && !only_looks {
                    self.keep_refunds(&mut batch);
                }
                self.ask(&mut batch, denied || only_looks).await?;
                if !denied && self.is_denied() {
                    self.give_back(|_, _| true).await;
                    denied = true;
                }
            }
        }
        // One call decides a rule as a whole. Its limits can part only where there were several.
        self.give_back(|settling, number| settling.is_over(number)).await;
        if self.plan.only_looks { Ok(()) } else { self.follow_up(denied).await }
    }

    /// Finds the next charges of a store from this place of the plan on, and tells whether there are any. A store decides
    /// so many at once; of a request with more, what the first of them took goes back if the others deny.
    fn fill(&self, batch: &mut Batch, store: usize, from: &mut usize) -> bool {
        batch.clear();
        let mut charges = 0;
        for (number, planned) in self.plan.planned.iter().enumerate().skip(*from) {
            let is_charge = matches!(planned.step, Step::Charge(_)) && plan::limit(self.active, planned).is_some();
            if is_charge && planned.store == store {
                charges += 1 + planned.looks.count();
                if charges > CHARGES_MAX {
                    break;
                }
                batch.push(number);
            }
            *from = number + 1;
        }
        !batch.is_empty()
    }

    /// Puts charges to their store; only looks if the request is denied anyway.
    ///
    /// Quotas, and rules in shadow that have several limits, are put as if they denied the request. If one of them does,
    /// nothing was taken, and the others are put again without it: so each is taken as a whole or not at all, what no quota
    /// covers is never taken, and mostly one call will do.
    async fn ask(&mut self, batch: &mut Batch, mut denied: bool) -> Result<(), RequestError> {
        let looks = self.looks(batch)?;
        denied |= self.decide_held(batch, &looks, denied)?;
        while !batch.is_empty() {
            let put = self.put(batch, &looks, denied)?;
            let decisions = match self.store_of(batch) {
                Some(backend) => backend.charge_in_place(self.call, &put.charges).await,
                None => Err(ChargeFailure::Unanswered(Applied::No)),
            };
            let decisions = match decisions {
                Ok(decisions) => decisions,
                Err(ChargeFailure::Refused(error)) => return Err(RequestError::Charges(error)),
                Err(failure) => {
                    self.fail_all(put, failure);
                    return Ok(());
                }
            };
            self.note_all(batch, &put, &decisions);
            if decisions.is_allowed() {
                return Ok(());
            }
            if self.is_denied() || !self.leave_out_what_is_over(batch) {
                // Nothing was taken. What comes back comes back all the same.
                self.keep_refunds(batch);
                denied = true;
            }
        }
        Ok(())
    }

    /// Charges as they are put to a store, each behind the looks at what else may deny its key.
    fn put<'l>(&self, batch: &[usize], looks: &'l [Look<'a>], denied: bool) -> Result<Put<'l>, RequestError> {
        let (plan, mut put) = (self.plan, Put::with_room(batch.len() + looks.len()));
        for number in batch {
            let planned = &plan.planned[*number];
            let Step::Charge(op) = planned.step else { continue };
            let op = if denied { looking(op) } else { op };
            let Some(charge) = plan.charge(self.active, planned, op)? else { continue };
            let veto = !denied && (planned.veto || self.is_tentative(planned));
            for look in looks.iter().filter(|look| look.number == *number) {
                let asked = Charge { veto, ..look.penalty.charge(Op::Ask(1)) };
                put.push(Part::Penalty(*number, look.length), asked);
            }
            put.push(Part::Limit(*number), Charge { veto, ..charge });
        }
        Ok(put)
    }

    /// What may deny the keys of these charges beside their limits.
    fn looks(&self, batch: &[usize]) -> Result<Vec<Look<'a>>, RequestError> {
        let (plan, mut looks) = (self.plan, Vec::new());
        for &number in batch {
            let planned = &plan.planned[number];
            let Some(rule) = self.rule(number) else { continue };
            if let Some(length) = planned.looks.penalty {
                looks.push(Look { number, length: Some(length), penalty: plan.penalty(rule, length, planned)? });
            }
            if planned.looks.block {
                looks.push(Look { number, length: None, penalty: plan.block(rule, planned)? });
            }
        }
        Ok(looks)
    }

    /// The store of a batch.
    fn store_of(&self, batch: &[usize]) -> Option<&'a Backend> {
        self.active.store(self.plan.planned.get(*batch.first()?)?.store)
    }

    fn keep_refunds(&self, batch: &mut Batch) {
        batch.retain(|number| matches!(self.plan.planned[*number].step, Step::Charge(Op::Refund(..))));
    }

    /// Keeps the answers to charges. A key that is penalised is denied whatever its limits say, but no shorter than they say.
    fn note_all(&mut self, batch: &[usize], put: &Put<'_>, decisions: &Decisions) {
        let mut penalised: Few<(Group, Duration)> = Few::new();
        for (place, ((part, charge), decision)) in put.parts.iter().zip(&put.charges).zip(decisions.iter()).enumerate()
        {
            match part {
                Part::Limit(number) => self.note(*number, charge, decision),
                Part::Penalty(number, length) if !decision.is_allowed() => {
                    let left = decision.reset_after();
                    self.learn_block(*number, *length, left, decisions.report(place).map(|report| report.at));
                    penalised.push((group(&self.plan.planned[*number]), left));
                    if length.is_some_and(|length| left >= length) {
                        self.notes.push((*number, Note::Overlong));
                    }
                }
                Part::Penalty(..) => {}
            }
        }
        for number in batch {
            let (of, judged) = (group(&self.plan.planned[*number]), &mut self.judged[*number]);
            if let Some(left) = penalised.iter().filter(|(penalised, _)| *penalised == of).map(|(_, left)| *left).max()
            {
                let wait = judged.answer.retry_after().unwrap_or_default();
                judged.answer = Answer::Penalised(wait.max(left));
                judged.taken = None;
            }
        }
    }

    /// Remembers a penalty or block that the store told of.
    fn learn_block(&self, number: usize, length: Option<Duration>, left: Duration, at: Option<Time>) {
        let kind = if length.is_some() { BlockKind::Penalty } else { BlockKind::Operator };
        let planned = &self.plan.planned[number];
        if let Some(id) = planned.rule {
            self.active.learn_block(id, self.plan.key_bytes(planned), kind, left, at);
        }
    }

    /// Whether a charge that does not veto is put as if it did.
    fn is_tentative(&self, planned: &Planned) -> bool {
        let rule = || self.active.rule(planned.rule?);
        planned.quota || planned.looks.count() > 0 || rule().is_some_and(|rule| rule.limits.len() > 1)
    }

    /// Leaves the rules that are over out of a batch of which nothing was taken. Tells whether there were any.
    fn leave_out_what_is_over(&self, batch: &mut Batch) -> bool {
        let mut over: Few<Group> = Few::new();
        for number in batch.iter() {
            let planned = &self.plan.planned[*number];
            // After one that is over, others on the same key were not tried, so they are put again.
            let is_first = over.iter().all(|(_, rule)| *rule != planned.rule);
            if is_first && self.judged[*number].answer.denial().is_some() {
                over.push(group(planned));
            }
        }
        batch.retain(|number| !over.contains(&group(&self.plan.planned[*number])));
        !over.is_empty()
    }

    /// Keeps the answer to a charge, and what it took.
    fn note(&mut self, number: usize, charge: &Charge<'_>, decision: &Decision) {
        self.judged[number].decided(charge, decision);
    }

    /// Whether the request is denied by what is known so far. What was not asked yet denies nothing.
    fn is_denied(&mut self) -> bool {
        if self.are_all_quotas_used_up() {
            for (planned, judged) in self.plan.planned.iter().zip(&mut self.judged) {
                judged.veto |= planned.quota;
            }
        }
        self.denial().is_some()
    }

    /// The gravest reason to deny.
    fn denial(&self) -> Option<Denial> {
        self.judged.iter().filter(|judged| judged.veto).filter_map(|judged| judged.answer.denial()).max()
    }

    fn are_all_quotas_used_up(&self) -> bool {
        let mut quotas = (0..self.judged.len()).filter(|number| self.plan.planned[*number].quota).peekable();
        quotas.peek().is_some() && quotas.all(|number| self.is_over(number))
    }

    /// Whether the rule of a charge would deny: if any of its limits does.
    fn is_over(&self, number: usize) -> bool {
        let planned = &self.plan.planned;
        // They stand side by side.
        let is_same = |other: &usize| group(&planned[*other]) == group(&planned[number]);
        let mut all = (0..number).rev().take_while(is_same).chain((number..planned.len()).take_while(is_same));
        all.any(|other| self.judged[other].answer.denial().is_some())
    }

    fn rule(&self, number: usize) -> Option<&'a Rule> {
        self.active.rule(self.plan.planned.get(number)?.rule?)
    }

    /// What came out, in the order of the plan.
    fn into_settled(mut self) -> Settled {
        let is_own = |number: usize| self.plan.planned.get(number).is_some_and(|planned| planned.rule.is_none());
        let fell_back = |(number, note): &&(usize, Note)| matches!(note, Note::FellBack(_)) && is_own(*number);
        let fell_back = self.notes.iter().filter(fell_back).count() as u64;
        Settled { denial: self.denial(), judged: std::mem::take(&mut self.judged), fell_back }
    }
}

/// The same without taking anything. What comes back comes back though the request is denied.
fn looking(op: Op) -> Op {
    match op {
        Op::Take(units) => Op::Ask(units),
        other => other,
    }
}

#[cfg(test)]
mod tests;
