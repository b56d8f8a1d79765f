//! Charges of several slots of a Cluster. No script reaches all of them, so they are put slot by slot.
//!
//! What takes is put first, and given back when a later slot denies. What gives, refunds and resets, cannot be undone: until
//! nobody has denied it is only looked at. So a call that is denied leaves nothing behind.

use futures_util::future::join_all;
use smallvec::smallvec;
use tidegate_core::{Charge, Decision, Decisions, DecisionsExt, Op, Report};

use super::link::{Term, slot};
use super::named::{NamedCharges, Names};
use super::store::RedisError;
use crate::Call;

pub(super) struct Crossing<'a> {
    all: &'a NamedCharges<'a>,
    /// Of each charge.
    slots: Vec<u16>,
    answers: Vec<Option<Decision>>,
    reports: Vec<Option<Report>>,
}

impl<'a> Crossing<'a> {
    pub(super) fn new(all: &'a NamedCharges<'a>) -> Crossing<'a> {
        let slots = all.names.iter().map(|name| slot(name)).collect();
        let (answers, reports) = (vec![None; all.charges.len()], vec![None; all.charges.len()]);
        Crossing { all, slots, answers, reports }
    }

    /// Decides them, each slot within a budget, and all of them within one wait. What goes back because of a denial or a
    /// failure waits as if nobody were in a hurry: units that are not given back are lost to everybody.
    pub(super) async fn decide(mut self) -> Result<Decisions, RedisError> {
        if let Err(error) = self.put().await {
            self.give_back().await;
            return Err(error);
        }
        let each =
            self.all.charges.iter().zip(self.answers).filter_map(|(charge, answer)| Some((answer?, charge.veto)));
        let decisions: Decisions = each.collect();
        Ok(decisions.reporting(self.reports))
    }

    async fn put(&mut self) -> Result<(), RedisError> {
        let mut denied = false;
        for numbers in self.by_slot(|_| true) {
            let put = |charge: &Charge<'a>| match charge.op {
                _ if denied => charge.looking(),
                op if gives(op) => Charge { op: op.looking(), ..*charge },
                _ => *charge,
            };
            let decisions = self.ask(&numbers, put, self.all.term).await?;
            if !denied && !decisions.is_allowed() {
                denied = true;
                self.give_back().await;
            }
            for ((place, number), decision) in numbers.into_iter().enumerate().zip(decisions.iter()) {
                self.answers[number] = Some(if denied { decision.withdrawn() } else { *decision });
                self.reports[number] = decisions.report(place).cloned();
            }
        }
        if denied { Ok(()) } else { self.put_what_gives().await }
    }

    /// Nobody denied: what was only looked at is done, in all slots at the same time. It is owed, so it may wait however long
    /// the slots before it have waited.
    async fn put_what_gives(&mut self) -> Result<(), RedisError> {
        let (slots, term) = (self.by_slot(gives), self.all.term.anew(self.all.store.wait));
        let answered = join_all(slots.iter().map(|numbers| self.ask(numbers, |charge| *charge, term))).await;
        for (numbers, decisions) in slots.into_iter().zip(answered) {
            let decisions = decisions?;
            for ((place, number), decision) in numbers.into_iter().enumerate().zip(decisions.iter()) {
                self.answers[number] = Some(*decision);
                self.reports[number] = decisions.report(place).cloned();
            }
        }
        Ok(())
    }

    /// Gives back what was taken, all at the same time. If that fails, the units come back by themselves, later.
    async fn give_back(&mut self) {
        let term = self.all.store.term(&Call::default());
        let Crossing { all: NamedCharges { store, names, charges, .. }, ref slots, .. } = *self;
        let refunds = self.answers.iter().enumerate().filter_map(|(number, answer)| {
            let (Op::Take(units @ 1..) | Op::Debit(units @ 1..)) = charges[number].op else { return None };
            let refund = Op::Refund(units, Some(answer.as_ref()?.receipt()?));
            Some(async move {
                let refund = [Charge { op: refund, veto: false, ..charges[number] }];
                let names = smallvec![names[number].clone()];
                let named = NamedCharges { store, term, names, charges: &refund };
                let after = named.decide(slots[number]).await.ok()?;
                Some((number, *after.first()?, after.report(0).cloned()))
            })
        });
        for (number, after, report) in join_all(refunds).await.into_iter().flatten() {
            (self.answers[number], self.reports[number]) = (Some(after), report);
        }
        self.answers.iter_mut().flatten().for_each(|answer| *answer = answer.withdrawn());
    }

    /// The numbers of the charges of each slot whose op is so, in the order of the charges.
    fn by_slot(&self, is_so: impl Fn(Op) -> bool) -> Vec<Vec<usize>> {
        let mut slots: Vec<(u16, Vec<usize>)> = Vec::new();
        for (number, (charge, slot)) in self.all.charges.iter().zip(&self.slots).enumerate() {
            if !is_so(charge.op) {
                continue;
            }
            match slots.iter_mut().find(|(of, _)| of == slot) {
                Some((_, numbers)) => numbers.push(number),
                None => slots.push((*slot, vec![number])),
            }
        }
        slots.into_iter().map(|(_, numbers)| numbers).collect()
    }

    /// Puts charges of one slot, as `put` makes them.
    async fn ask(
        &self,
        numbers: &[usize],
        put: impl Fn(&Charge<'a>) -> Charge<'a>,
        term: Term,
    ) -> Result<Decisions, RedisError> {
        let store = self.all.store;
        let names: Names = numbers.iter().map(|number| self.all.names[*number].clone()).collect();
        let charges: Vec<Charge<'_>> = numbers.iter().map(|number| put(&self.all.charges[*number])).collect();
        let slot = numbers.first().map_or(0, |number| self.slots[*number]);
        NamedCharges { store, term, names, charges: &charges }.decide(slot).await
    }
}

/// Whether an op gives back what cannot be taken again.
fn gives(op: Op) -> bool {
    matches!(op, Op::Refund(..) | Op::Reset)
}
