//! Asks the stores for what was planned: all of it is taken, or nothing.
//!
//! Everything that one store call decides is decided at one instant, quotas too. Refunds are needed only where a request
//! has several calls: for several stores, or for more charges than one call has. A shared store is not asked about what
//! another one denied before it. `give_back.rs` has those refunds, `follow_up.rs` what a denial entails.

mod follow_up;
mod give_back;

use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{Charge, Decision, Decisions, Limit, MemoryStore, Op};
use tidegate_policy::{OnStoreFailure, Rule, RuleId};

use crate::active::Active;
use crate::error::RequestError;
use crate::failure::{Failures, guarded};
use crate::outcome::{Answer, Denial, Judged};
use crate::penalty;
use crate::plan::{Plan, Planned, Step};
use crate::store::{Backend, ChargeFailure, Placing, StoreError};

pub(crate) use follow_up::follows_up;

/// What the stores said, and whether that denies the request.
pub(crate) struct Settled {
    pub(crate) judged: Vec<Judged>,
    pub(crate) denial: Option<Denial>,
    /// Limits that the request brought with it and that were decided in the memory of this process. Rules count their own.
    pub(crate) fell_back: u64,
}

/// Asks the stores for what a request was planned to charge, and tells what comes of it. If that is one charge, its store
/// may have been `asked` already.
pub(crate) async fn settle(
    active: &Active,
    local: &Backend,
    plan: &Plan,
    asked: Option<Result<Decision, StoreError>>,
) -> Result<Settled, RequestError> {
    let mut settling = Settling::new(active, local, plan);
    if let Some(store) = settling.only_store() {
        settling.ask_one(store, 0, false, asked).await?;
    } else {
        settling.ask_all().await?;
    }
    let is_own = |number: usize| plan.planned.get(number).is_some_and(|planned| planned.rule.is_none());
    let fell_back = settling.fell_back.iter().filter(|(number, _)| is_own(*number)).count() as u64;
    Ok(Settled { denial: settling.denial(), judged: settling.into_judged(), fell_back })
}

/// What is known of a charge before a store is asked.
fn unasked(planned: &Planned) -> Judged {
    let answer = match planned.step {
        Step::Blocked => Answer::Blocked,
        Step::Penalised(left) => Answer::Penalised(left),
        Step::Unlimited => Answer::Unlimited,
        Step::Failed => Answer::Failed { allowed: false },
        Step::Charge(_) => Answer::NotAsked,
    };
    let Planned { descriptor, rule, limit, veto, mode, .. } = *planned;
    Judged { descriptor, rule, limit, own: planned.own.clone(), answer, taken: None, veto, mode }
}

/// Charges that one store decides together, by their numbers in the plan.
type Batch = ArrayVec<usize, CHARGES_MAX>;

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
    key: &'a Range<usize>,
    /// That of the rule; an operator's have none.
    length: Option<Duration>,
    limit: Limit,
}

/// Charges as they are put to a store.
#[derive(Default)]
struct Put<'a> {
    parts: ArrayVec<Part, CHARGES_MAX>,
    charges: ArrayVec<Charge<'a>, CHARGES_MAX>,
    placings: ArrayVec<Placing<'a>, CHARGES_MAX>,
}

impl<'a> Put<'a> {
    fn push(&mut self, part: Part, charge: Charge<'a>, placing: Placing<'a>) {
        self.parts.push(part);
        self.charges.push(charge);
        self.placings.push(placing);
    }
}

struct Settling<'a> {
    active: &'a Active,
    local: &'a Backend,
    plan: &'a Plan,
    /// What is known so far, in the order of the plan.
    judged: Vec<Judged>,
    /// Charges that were decided in the memory of this process instead of their store, and under which limit.
    fell_back: Vec<(usize, Limit)>,
    /// Charges whose keys are penalised for as long as penalties of their rules are, or longer: the clock of the store was
    /// set back.
    overlong: Vec<usize>,
    failures: Failures,
}

impl<'a> Settling<'a> {
    fn new(active: &'a Active, local: &'a Backend, plan: &'a Plan) -> Settling<'a> {
        let judged = plan.planned.iter().map(unasked).collect();
        let (fell_back, overlong, failures) = (Vec::new(), Vec::new(), plan.failures.clone());
        Settling { active, local, plan, judged, fell_back, overlong, failures }
    }

    /// The store to ask if one limit in memory judges the request alone: nothing is taken together with it, and nothing has
    /// to be given back.
    fn only_store(&self) -> Option<&'a MemoryStore> {
        let [planned] = &self.plan.planned[..] else { return None };
        let (Step::Charge(_), Some(Backend::Memory(store))) = (planned.step, self.active.store(planned.store)) else {
            return None;
        };
        let follows = self.rule(0).is_some_and(follows_up);
        (!planned.quota && !follows && planned.looks.count() == 0).then_some(store)
    }

    /// Asks all stores in turn: first those in memory, so that a shared one is spared what they deny. What an earlier one
    /// gave goes back if a later one denies.
    async fn ask_all(&mut self) -> Result<(), RequestError> {
        let mut denied = self.is_denied();
        let active = self.active;
        let is_shared = |store: &usize| active.store(*store).is_some_and(Backend::is_shared);
        let all = 0..active.store_count();
        let mut batch = Batch::new();
        for store in all.clone().filter(|store| !is_shared(store)).chain(all.filter(is_shared)) {
            let mut from = 0;
            while self.fill(&mut batch, store, &mut from) {
                if denied && is_shared(&store) {
                    self.keep_refunds(&mut batch);
                }
                if let Err(error) = self.ask(store, &mut batch, denied).await {
                    self.give_back(|_, _| true).await;
                    return Err(error);
                }
                if !denied && self.is_denied() {
                    self.give_back(|_, _| true).await;
                    denied = true;
                }
            }
        }
        // One call decides a rule as a whole. Its limits can part only where there were several.
        self.give_back(|settling, number| settling.is_over(number)).await;
        self.follow_up(denied).await
    }

    /// Finds the next charges of a store from this place of the plan on, and tells whether there are any. A store decides
    /// so many at once; of a request with more, what the first of them took goes back if the others deny.
    fn fill(&self, batch: &mut Batch, store: usize, from: &mut usize) -> bool {
        batch.clear();
        let mut charges = 0;
        for (number, planned) in self.plan.planned.iter().enumerate().skip(*from) {
            let is_charge = matches!(planned.step, Step::Charge(_)) && limit(self.active, planned).is_some();
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
    async fn ask(&mut self, store: usize, batch: &mut Batch, mut denied: bool) -> Result<(), RequestError> {
        if let ([number], Some(Backend::Memory(store))) = (&batch[..], self.active.store(store))
            && self.plan.planned[*number].looks.count() == 0
        {
            return self.ask_one(store, *number, denied, None).await;
        }
        let looks = self.looks(batch)?;
        while !batch.is_empty() {
            let put = self.put(batch, &looks, denied)?;
            let decisions = match self.active.store(store) {
                Some(backend) => backend.charge(&put.charges, &put.placings).await,
                None => Err(ChargeFailure::Store(StoreError)),
            };
            let decisions = match decisions {
                Ok(decisions) => decisions,
                Err(ChargeFailure::Refused(error)) => return Err(RequestError::Charges(error)),
                Err(ChargeFailure::Store(_)) => {
                    for (part, charge) in put.parts.into_iter().zip(put.charges) {
                        if let Part::Limit(number) = part {
                            self.fail(number, charge).await;
                        }
                    }
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
        let (plan, mut put) = (self.plan, Put::default());
        for number in batch {
            let planned = &plan.planned[*number];
            let (Step::Charge(op), Some(limit)) = (planned.step, limit(self.active, planned)) else { continue };
            let op = if denied { looking(op) } else { op };
            let veto = !denied && (planned.veto || self.is_tentative(planned));
            for look in looks.iter().filter(|look| look.number == *number) {
                let charge = Charge { key: plan.key(look.key)?, limit: &look.limit, op: Op::Ask(1), veto };
                let placing = Placing { tag: plan.placing(planned).tag, ..Placing::default() };
                put.push(Part::Penalty(*number, look.length), charge, placing);
            }
            let charge = Charge { key: plan.key(&planned.key)?, limit, op, veto };
            put.push(Part::Limit(*number), charge, plan.placing(planned));
        }
        Ok(put)
    }

    /// Puts a charge that stands alone to a store in memory, which most requests come to. There is nothing to be taken
    /// together with it, and no list to be made; what else denies its key was looked at when it was planned, or is with
    /// another charge of the rule. It may have been `asked` already.
    async fn ask_one(
        &mut self,
        store: &MemoryStore,
        number: usize,
        denied: bool,
        asked: Option<Result<Decision, StoreError>>,
    ) -> Result<(), RequestError> {
        let planned = &self.plan.planned[number];
        let (Step::Charge(op), Some(limit)) = (planned.step, limit(self.active, planned)) else { return Ok(()) };
        let op = if denied { looking(op) } else { op };
        let key = self.plan.key(&planned.key)?;
        match asked.unwrap_or_else(|| guarded(|| store.decide(key, limit, op))) {
            Ok(decision) => self.note(number, op, &decision),
            Err(StoreError) => self.fail(number, Charge { key, limit, op, veto: planned.veto }).await,
        }
        Ok(())
    }

    /// What may deny the keys of these charges beside their limits.
    fn looks(&self, batch: &[usize]) -> Result<ArrayVec<Look<'a>, CHARGES_MAX>, RequestError> {
        let mut looks = ArrayVec::new();
        for &number in batch {
            let planned = &self.plan.planned[number].looks;
            if let Some((key, length)) = &planned.penalty {
                looks.push(Look { number, key, length: Some(*length), limit: penalty::one_in(*length)? });
            }
            if let Some(key) = &planned.block {
                looks.push(Look { number, key, length: None, limit: penalty::longest()? });
            }
        }
        Ok(looks)
    }

    fn keep_refunds(&self, batch: &mut Batch) {
        batch.retain(|number| matches!(self.plan.planned[*number].step, Step::Charge(Op::Refund(..))));
    }

    /// Keeps the answers to charges. A key that is penalised is denied whatever its limits say, but no shorter than they say.
    fn note_all(&mut self, batch: &[usize], put: &Put<'_>, decisions: &Decisions) {
        let mut penalised: ArrayVec<(Group, Duration), CHARGES_MAX> = ArrayVec::new();
        for ((part, charge), decision) in put.parts.iter().zip(&put.charges).zip(decisions.iter()) {
            match part {
                Part::Limit(number) => self.note(*number, charge.op, decision),
                Part::Penalty(number, length) if !decision.is_allowed() => {
                    let left = decision.reset_after();
                    penalised.push((group(&self.plan.planned[*number]), left));
                    if length.is_some_and(|length| left >= length) {
                        self.overlong.push(*number);
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

    /// Whether a charge that does not veto is put as if it did.
    fn is_tentative(&self, planned: &Planned) -> bool {
        let rule = || self.active.rule(planned.rule?);
        planned.quota || planned.looks.count() > 0 || rule().is_some_and(|rule| rule.limits.len() > 1)
    }

    /// Leaves the rules that are over out of a batch of which nothing was taken. Tells whether there were any.
    fn leave_out_what_is_over(&self, batch: &mut Batch) -> bool {
        let mut over: ArrayVec<Group, CHARGES_MAX> = ArrayVec::new();
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
    fn note(&mut self, number: usize, op: Op, decision: &Decision) {
        let judged = &mut self.judged[number];
        judged.answer = Answer::Decided(*decision);
        judged.taken = if let Op::Take(1..) = op { decision.receipt() } else { None };
    }

    /// Does what the rule chose for a store that does not answer.
    async fn fail(&mut self, number: usize, charge: Charge<'_>) {
        let choice = self.rule(number).map_or(OnStoreFailure::Local(None), |rule| rule.on_store_failure);
        let failed = |allowed| Answer::Failed { allowed };
        match choice {
            OnStoreFailure::Allow => self.judged[number].answer = failed(true),
            OnStoreFailure::Deny => self.judged[number].answer = failed(false),
            OnStoreFailure::Local(limit) => {
                let limit = limit.unwrap_or(*charge.limit);
                self.fell_back.push((number, limit));
                let charge = Charge { limit: &limit, ..charge };
                let decisions = self.local.charge(&[charge], &[Placing::default()]).await.ok();
                match decisions.as_ref().and_then(|decisions| decisions.iter().next()) {
                    Some(decision) => self.note(number, charge.op, decision),
                    None => self.judged[number].answer = failed(true),
                }
            }
        }
        if let Some(id) = self.plan.planned[number].rule {
            self.failures.note(self.active, id);
        }
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

    /// Where a charge was decided, and under which limit.
    fn place(&self, number: usize) -> Option<(&'a Backend, Limit)> {
        if let Some((_, limit)) = self.fell_back.iter().find(|(fallen, _)| *fallen == number) {
            return Some((self.local, *limit));
        }
        let planned = &self.plan.planned[number];
        Some((self.active.store(planned.store)?, *limit(self.active, planned)?))
    }

    /// What came out, in the order of the plan.
    fn into_judged(mut self) -> Vec<Judged> {
        std::mem::take(&mut self.judged)
    }
}

/// The limit of a rule, or the one that the request brought with it.
fn limit<'a>(active: &'a Active, planned: &'a Planned) -> Option<&'a Limit> {
    if let Some(own) = &planned.own {
        return own.limit.as_ref();
    }
    let rule = active.rule(planned.rule?)?;
    rule.limits.get(planned.limit as usize).map(|limit| &limit.limit)
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
