//! Asks the stores for what was planned: all of it is taken, or nothing.

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{Charge, Decision, Limit, Op, Retry};
use tidegate_policy::{OnStoreFailure, Rule};

use crate::engine::{Active, RequestError};
use crate::failure::guarded;
use crate::outcome::{Answer, Denial, Judged};
use crate::penalty::Penalties;
use crate::plan::{Plan, Planned, Step};
use crate::store::{Backend, ChargeFailure};

/// What the stores said, and whether that denies the request.
pub(crate) struct Settled {
    pub(crate) judged: Vec<Judged>,
    pub(crate) denial: Option<Denial>,
}

/// Asks all stores in turn. What an earlier one gave goes back if a later one denies.
pub(crate) async fn settle(active: &Active, local: &Backend, plan: &Plan) -> Result<Settled, RequestError> {
    let mut settling = Settling {
        active,
        local,
        plan,
        judged: plan.planned.iter().map(unasked).collect(),
        fell_back: Vec::new(),
        gave_back: false,
    };
    let mut denied = settling.is_denied();
    for store in 0..active.store_count() {
        let mut from = 0;
        while let Some(batch) = settling.batch(store, &mut from) {
            if let Err(error) = settling.ask(store, &batch, denied) {
                settling.give_back();
                return Err(error);
            }
            if !denied && settling.is_denied() {
                settling.give_back();
                denied = true;
            }
        }
    }
    if !denied && settling.all_quotas_are_used_up() {
        settling.give_back();
    }
    settling.follow_up()?;
    let denial = settling.denial();
    Ok(Settled { judged: settling.judged, denial })
}

/// What is known before a store is asked.
fn unasked(planned: &Planned) -> Judged {
    let answer = match planned.step {
        Step::Blocked => Answer::Blocked,
        Step::Penalised(left) => Answer::Penalised(left),
        // A charge is answered by its store.
        Step::Unlimited | Step::Charge(_) => Answer::Unlimited,
    };
    let Planned { descriptor, rule, limit, own, veto, mode, .. } = *planned;
    Judged { descriptor, rule, limit, own, answer, veto, mode }
}

/// Charges that one store decides together, by their numbers in the plan.
type Batch = ArrayVec<usize, CHARGES_MAX>;

struct Settling<'a> {
    active: &'a Active,
    local: &'a Backend,
    plan: &'a Plan,
    /// In the order of the plan.
    judged: Vec<Judged>,
    /// Charges that were decided in the memory of this process instead of their store, and under which limit.
    fell_back: Vec<(usize, Limit)>,
    gave_back: bool,
}

impl<'a> Settling<'a> {
    /// The next charges of a store from this place of the plan on. A store decides so many at once; of a request with
    /// more, what the first of them took goes back if the others deny.
    fn batch(&self, store: usize, from: &mut usize) -> Option<Batch> {
        let mut batch = Batch::new();
        for (number, planned) in self.plan.planned.iter().enumerate().skip(*from) {
            if planned.store == store && matches!(planned.step, Step::Charge(_)) {
                batch.push(number);
            }
            *from = number + 1;
            if batch.is_full() {
                break;
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Puts charges to their store; only looks if the request is denied anyway.
    fn ask(&mut self, store: usize, batch: &[usize], denied: bool) -> Result<(), RequestError> {
        let (active, plan) = (self.active, self.plan);
        let mut numbers = Batch::new();
        let mut charges: ArrayVec<Charge<'_>, CHARGES_MAX> = ArrayVec::new();
        for number in batch {
            let Some(planned) = plan.planned.get(*number) else { continue };
            let (Step::Charge(op), Some(limit)) = (planned.step, limit(active, planned)) else { continue };
            let op = if denied { looking(op) } else { op };
            charges.push(Charge { key: plan.key(&planned.key)?, limit, op, veto: planned.veto && !denied });
            numbers.push(*number);
        }
        let decisions = match active.store(store) {
            Some(backend) => backend.charge(&charges),
            None => Err(ChargeFailure::Store(crate::store::StoreError)),
        };
        match decisions {
            Ok(decisions) => {
                for (number, decision) in numbers.into_iter().zip(decisions.iter()) {
                    self.judged[number].answer = Answer::Decided(*decision);
                }
                Ok(())
            }
            Err(ChargeFailure::Refused(error)) => Err(RequestError::Charges(error)),
            Err(ChargeFailure::Store(_)) => {
                numbers.into_iter().zip(charges).for_each(|(number, charge)| self.fail(number, charge));
                Ok(())
            }
        }
    }

    /// Does what the rule chose for a store that does not answer.
    fn fail(&mut self, number: usize, charge: Charge<'_>) {
        let choice = self.rule(number).map_or(OnStoreFailure::Local(None), |rule| rule.on_store_failure);
        self.judged[number].answer = match choice {
            OnStoreFailure::Allow => Answer::Failed { allowed: true },
            OnStoreFailure::Deny => Answer::Failed { allowed: false },
            OnStoreFailure::Local(limit) => {
                let limit = limit.unwrap_or(*charge.limit);
                self.fell_back.push((number, limit));
                let decisions = self.local.charge(&[Charge { limit: &limit, ..charge }]).ok();
                let decision = decisions.as_ref().and_then(|decisions| decisions.iter().next().copied());
                decision.map_or(Answer::Failed { allowed: true }, Answer::Decided)
            }
        };
        if let Some(record) = self.judged[number].rule.and_then(|id| self.active.record(id)) {
            record.all.add(crate::stats::Counter::Failed, 1);
        }
    }

    fn is_denied(&self) -> bool {
        self.denial().is_some()
    }

    /// The gravest reason to deny.
    fn denial(&self) -> Option<Denial> {
        self.judged.iter().filter(|judged| judged.veto).filter_map(|judged| judged.answer.denial()).max()
    }

    /// Whether every quota of the request is used up, which denies it.
    fn all_quotas_are_used_up(&mut self) -> bool {
        let quotas = || self.plan.planned.iter().zip(&self.judged).filter(|(planned, _)| planned.quota);
        let of_rule = |judged: &Judged| (judged.descriptor, judged.rule);
        // A rule is used up if any of its limits is.
        let used_up = |rule| quotas().any(|(_, judged)| of_rule(judged) == rule && !judged.answer.is_allowed());
        if quotas().next().is_none() || !quotas().all(|(_, judged)| used_up(of_rule(judged))) {
            return false;
        }
        for (planned, judged) in self.plan.planned.iter().zip(&mut self.judged) {
            judged.veto |= planned.quota;
        }
        true
    }

    /// Refunds what was taken so far, to where it was taken.
    fn give_back(&mut self) {
        if std::mem::replace(&mut self.gave_back, true) {
            return;
        }
        for number in 0..self.judged.len() {
            let Some((charge, receipt)) = self.taken(number) else { continue };
            let Op::Take(units) = charge.op else { continue };
            let refund = Charge { op: Op::Refund(units, Some(receipt)), ..charge };
            let refunded = match self.fell_back.iter().find(|(fallen, _)| *fallen == number) {
                Some((_, limit)) => self.local.charge(&[Charge { limit, ..refund }]).ok(),
                // If the store fails now, the units come back by themselves.
                None => {
                    self.active.store(self.plan.planned[number].store).and_then(|store| store.charge(&[refund]).ok())
                }
            };
            // The numbers are told as they are after it.
            if let Some(decision) = refunded.as_ref().and_then(|decisions| decisions.iter().next()) {
                self.judged[number].answer = Answer::Decided(*decision);
            }
        }
    }

    /// A charge that took units, and where.
    fn taken(&self, number: usize) -> Option<(Charge<'a>, tidegate_core::Receipt)> {
        let planned = self.plan.planned.get(number)?;
        let Step::Charge(op @ Op::Take(1..)) = planned.step else { return None };
        let receipt = self.judged.get(number)?.answer.decision().and_then(Decision::receipt)?;
        let charge =
            Charge { key: self.plan.key(&planned.key).ok()?, limit: limit(self.active, planned)?, op, veto: false };
        Some((charge, receipt))
    }

    /// Counts denied requests where a rule asks for it, and imposes penalties.
    fn follow_up(&mut self) -> Result<(), RequestError> {
        let (active, plan, denied) = (self.active, self.plan, self.is_denied());
        for (number, planned) in plan.planned.iter().enumerate() {
            let (Some(rule), Step::Charge(op)) = (self.rule(number), planned.step) else { continue };
            let (Some(backend), Some(limit)) = (active.store(planned.store), limit(active, planned)) else { continue };
            let answer = self.judged[number].answer;
            let over = !answer.is_allowed();
            if let (true, Op::Take(units @ 1..)) = (rule.count_denied && (denied || over), op) {
                let debit = Charge { key: plan.key(&planned.key)?, limit, op: Op::Debit(units), veto: false };
                // A store that fails now has failed the request's own charge too, and that was answered.
                let _ = backend.charge(&[debit]);
            }
            if let (true, Some(length), Backend::Memory(store)) = (over, rule.penalty, backend) {
                let key = plan.penalty_key(rule, planned);
                let key = tidegate_core::Key::new(&key).map_err(RequestError::Key)?;
                // A store that fails now leaves the denial without its penalty.
                guarded(|| Penalties::impose(store, key, length)).unwrap_or(Ok(())).map_err(RequestError::Penalty)?;
                self.judged[number].answer = penalised(&answer, length);
            }
        }
        Ok(())
    }

    fn rule(&self, number: usize) -> Option<&'a Rule> {
        self.active.policy.rules().get(self.judged.get(number)?.rule?.index())
    }
}

/// The limit of a rule, or the one that the request brought with it.
fn limit<'a>(active: &'a Active, planned: &'a Planned) -> Option<&'a Limit> {
    if let Some(own) = &planned.own {
        return own.limit.as_ref();
    }
    let rule = active.policy.rules().get(planned.rule?.index())?;
    rule.limits.get(planned.limit as usize).map(|limit| &limit.limit)
}

/// A denial that imposed a penalty: who waits until the limit alone would let it pass is still denied.
fn penalised(answer: &Answer, length: Duration) -> Answer {
    match answer.retry() {
        Some(Retry::After(wait) | Retry::Unknown(wait)) => Answer::Penalised(length.max(wait)),
        // No wait helps a cost above the whole limit, and a penalty that was there is told already.
        Some(Retry::Never) | None => *answer,
    }
}

/// The same question without taking or giving anything.
fn looking(op: Op) -> Op {
    match op {
        Op::Take(units) | Op::Ask(units) => Op::Ask(units),
        Op::Debit(_) | Op::Refund(..) | Op::Peek | Op::Reset => Op::Peek,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use tidegate_core::MemoryStore;
    use tidegate_policy::{Descriptor, LoadOptions, Request, load_text};

    use super::*;

    /// What a rule with this choice answers to a few requests while its store does not.
    fn answers(choice: &str) -> Vec<Option<Denial>> {
        let rule = format!("{{name: all, limit: 2/minute, on_store_failure: {choice}}}");
        settled(&rule).into_iter().map(|settled| settled.denial).collect()
    }

    /// What comes out of three requests under rules whose store does not answer.
    fn settled(rules: &str) -> Vec<Settled> {
        let text = format!("domains: {{api: {{rules: [{rules}]}}}}");
        let policy = load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap();
        let active = Active::for_tests(policy, vec![Backend::Unreachable]);
        let local = Backend::Memory(Arc::new(MemoryStore::builder().keys(8).build().unwrap()));
        let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
        let domain = active.policy.domain("api").unwrap();
        let plan = Plan::of(&active, &Penalties::new(), domain, &request).unwrap();
        (0..3).map(|_| at_once(settle(&active, &local, &plan)).unwrap()).collect()
    }

    fn at_once<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waited"),
        }
    }

    #[test]
    fn what_the_memory_of_this_process_gave_goes_back_there() {
        let five = "{name: five, limit: 9/minute, on_store_failure: {local: 5/minute}}";
        let one = "{name: one, limit: 9/minute, on_store_failure: {local: 1/minute}}";
        let left = |settled: &Settled| settled.judged[0].answer.decision().unwrap().remaining();
        let all = settled(&format!("{five}, {one}"));
        assert_eq!(all.iter().map(left).collect::<Vec<_>>(), [4, 4, 4]);
        assert_eq!(all[2].denial, Some(Denial::OverLimit));
    }

    #[test]
    fn a_store_that_does_not_answer_becomes_the_rules_own_choice() {
        assert_eq!(answers("allow"), [None; 3]);
        assert_eq!(answers("deny"), [Some(Denial::StoreFailure); 3]);
        assert_eq!(answers("{local: 1/minute}"), [None, Some(Denial::OverLimit), Some(Denial::OverLimit)]);
    }
}
