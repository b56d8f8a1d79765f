//! Several charges at once, of which some are decided here and some in the store: all of them are taken, or none.

use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{Charge, Decision, Decisions, Op, Receipt};
use tidegate_stores::redis::StoreError;

use super::purse::Remainder;
use super::{Inner, Place, Shared, SharedCharge};

impl Shared {
    /// Decides charges of which some are decided here.
    pub(super) async fn several(
        &self,
        charges: &[SharedCharge<'_>],
        places: &[Place],
    ) -> Result<Decisions, StoreError> {
        let inner = &self.inner;
        let call = inner.denials.call(charges);
        let sent = inner.clock.now();
        if let Some(known) = call.and_then(|call| inner.denials.answer(call, sent)) {
            inner.from_denials.fetch_add(charges.len() as u64, Relaxed);
            return Ok(known);
        }
        let mut answers: ArrayVec<Option<Decision>, CHARGES_MAX> = charges.iter().map(|_| None).collect();
        let mut taken = Taken { inner, each: ArrayVec::new() };
        let mut denied = false;
        let here = |place: &Place| !matches!(place, Place::Store);
        for ((one, place), answer) in charges.iter().zip(places).zip(&mut answers).filter(|((_, place), _)| here(place))
        {
            let asked = if denied { looking(one) } else { *one };
            let decision = self.one(&asked, place).await?;
            if !denied && let (Op::Take(units @ 1..), Some(receipt)) = (one.charge.op, decision.receipt()) {
                taken.each.push((place, one.charge, units, receipt));
            }
            denied |= one.charge.veto && !decision.is_allowed();
            *answer = Some(decision);
        }
        let mut asked: ArrayVec<SharedCharge<'_>, CHARGES_MAX> = ArrayVec::new();
        for (one, _) in charges.iter().zip(places).filter(|(_, place)| !here(place)) {
            asked.push(if denied { looking(one) } else { *one });
        }
        if !asked.is_empty() {
            let decisions = inner.ask(&asked).await?;
            denied |= !decisions.is_allowed();
            answers.iter_mut().filter(|answer| answer.is_none()).zip(decisions.iter()).for_each(
                |(answer, decision)| {
                    *answer = Some(*decision);
                },
            );
        }
        if !denied {
            taken.each.clear();
        }
        let units = |charge: &Charge<'_>| if let Op::Take(units) = charge.op { units } else { 0 };
        let answers: ArrayVec<(Decision, bool), CHARGES_MAX> = charges
            .iter()
            .zip(places)
            .zip(answers)
            .filter_map(|((one, place), answer)| Some((one, place, answer?)))
            .map(|(one, place, answer)| {
                let back = denied && here(place) && answer.receipt().is_some();
                let left = answer.remaining().saturating_add(if back { units(&one.charge) } else { 0 });
                let answer = if back { answer.with_remaining(left) } else { answer };
                (if denied { answer.untaken() } else { answer }, one.charge.veto)
            })
            .collect();
        if let (true, Some(call)) = (denied, call) {
            inner.denials.learn(call, sent, inner.clock.now(), &answers);
        }
        Ok(answers.into_iter().collect())
    }
}

impl Inner {
    /// Puts units back that were taken here, or has them given back to the store.
    fn give_back(&self, place: &Place, charge: &Charge<'_>, units: u64, receipt: Receipt) {
        let now = self.clock.now();
        let limit = *charge.limit;
        match place {
            Place::Store => {}
            Place::Lease(name, terms) => {
                if !self.leases.give_back(name, units, receipt, now) {
                    let receipt = terms.receipt(&limit, receipt);
                    self.leases.queue(name, [Remainder { limit, units, receipt }]);
                }
            }
            Place::Replica(name) => {
                let rest = self.replicas.give_back(name, charge.key, &limit, units, Some(receipt), now);
                if rest > 0 {
                    self.leases.queue(name, [Remainder { limit, units: rest, receipt }]);
                }
            }
        }
    }
}

/// What was taken here, and goes back if it is dropped before the whole has passed.
struct Taken<'a> {
    inner: &'a Inner,
    each: ArrayVec<(&'a Place, Charge<'a>, u64, Receipt), CHARGES_MAX>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (place, charge, units, receipt) in &self.each {
            self.inner.give_back(place, charge, *units, *receipt);
        }
    }
}

/// The same question without taking or giving anything, or a veto.
fn looking<'a>(one: &SharedCharge<'a>) -> SharedCharge<'a> {
    let op = match one.charge.op {
        Op::Take(units) | Op::Ask(units) => Op::Ask(units),
        Op::Debit(_) | Op::Refund(..) | Op::Peek | Op::Reset => Op::Peek,
    };
    SharedCharge { charge: Charge { op, veto: false, ..one.charge }, ..*one }
}
