//! Several charges at once, some decided here and some in the store: all of them are taken, or none.
//!
//! Units taken here can be given back, so they are taken first. Ops that cannot be undone here, a refund, a debit or a
//! reset, come last, when nothing has denied.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_core::{Charge, Decision, Decisions, Op, Receipt};
use tidegate_stores::{Call, StoreError};

use super::purse::Remainder;
use super::{Consistent, Inner, Place};

impl Consistent {
    /// Decides charges of which some are decided here.
    pub(super) async fn several(
        &self,
        call: &Call,
        charges: &[Charge<'_>],
        places: &[Place],
    ) -> Result<Decisions, StoreError> {
        let inner = &self.inner;
        let question = inner.denials.question(charges);
        let sent = inner.clock.now();
        if let Some(known) = question.and_then(|question| inner.denials.answer(question, sent)) {
            inner.from_denials.fetch_add(charges.len() as u64, Relaxed);
            return Ok(known);
        }
        let mut joining = Joining {
            call,
            charges,
            places,
            answers: charges.iter().map(|_| None).collect(),
            taken: Taken { inner, each: Vec::new() },
            denied: false,
        };
        joining.decide_here(self, Turn::First).await?;
        joining.take_there(inner).await?;
        joining.decide_here(self, Turn::Last).await?;
        let denied = joining.denied;
        let answers = joining.finish();
        if let (true, Some(question)) = (denied, question) {
            inner.denials.note_eased();
            inner.denials.learn(question, sent, inner.clock.now(), &answers);
        }
        if !denied {
            let each = charges.iter().zip(&answers);
            each.for_each(|(charge, (decision, _))| inner.denials.admitted_here(charge, decision));
        }
        Ok(answers.into_iter().collect())
    }
}

/// Charges on their way. What was taken here goes back if this is dropped before it is finished.
struct Joining<'a> {
    call: &'a Call,
    charges: &'a [Charge<'a>],
    places: &'a [Place],
    answers: Vec<Option<Decision>>,
    taken: Taken<'a>,
    denied: bool,
}

/// When a charge is decided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Here, before the store is asked.
    First,
    /// In the store, together with others.
    There,
    /// Here, if the store has not denied the others.
    Last,
}

impl<'a> Joining<'a> {
    /// The numbers of the charges whose turn it is, and what is asked for them.
    fn asked(&self, turn: Turn) -> Vec<(usize, Charge<'a>)> {
        let turn_of = |charge: &Charge<'_>, place: &Place| match (place, charge.op) {
            (Place::Store, _) => Turn::There,
            (_, Op::Take(_) | Op::Ask(_) | Op::Peek) => Turn::First,
            (_, Op::Debit(_) | Op::Refund(..) | Op::Reset) => Turn::Last,
        };
        let each = self.charges.iter().zip(self.places).enumerate();
        let those = each.filter(|(_, (charge, place))| turn_of(charge, place) == turn);
        those.map(|(number, (charge, _))| (number, if self.denied { charge.looking() } else { *charge })).collect()
    }

    async fn decide_here(&mut self, consistent: &Consistent, turn: Turn) -> Result<(), StoreError> {
        for (number, charge) in self.asked(turn) {
            let charge = if self.denied { charge.looking() } else { charge };
            let Some(place) = self.places.get(number) else { continue };
            let decision = consistent.one(self.call, &charge, place).await?;
            if let (Op::Take(units @ 1..), Some(receipt)) = (charge.op, decision.receipt()) {
                self.taken.each.push(Took { number, place, charge, units, receipt });
            }
            self.denied |= charge.veto && !decision.is_allowed();
            self.answer(number, decision);
        }
        Ok(())
    }

    async fn take_there(&mut self, inner: &Inner) -> Result<(), StoreError> {
        let (numbers, asked): (Vec<usize>, Vec<Charge<'a>>) = self.asked(Turn::There).into_iter().unzip();
        if asked.is_empty() {
            return Ok(());
        }
        let decisions = Box::pin(inner.ask(self.call, &asked)).await?;
        self.denied |= !decisions.is_allowed();
        numbers.into_iter().zip(decisions.iter()).for_each(|(number, decision)| self.answer(number, *decision));
        Ok(())
    }

    fn answer(&mut self, number: usize, decision: Decision) {
        if let Some(answer) = self.answers.get_mut(number) {
            *answer = Some(decision);
        }
    }

    /// The answers. If the whole is denied, what was taken here is there again.
    fn finish(mut self) -> Vec<(Decision, bool)> {
        if !self.denied {
            self.taken.each.clear();
        }
        for took in &self.taken.each {
            if let Some(Some(answer)) = self.answers.get_mut(took.number) {
                *answer = answer.with_remaining(answer.remaining().saturating_add(took.units));
            }
        }
        let told = |decision: Decision| if self.denied { decision.withdrawn() } else { decision };
        let each = self.charges.iter().zip(&self.answers);
        each.filter_map(|(charge, answer)| Some((told((*answer)?), charge.veto))).collect()
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
                let rest = self.replicas.give_back(name, charge, units, Some(receipt), now);
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
    each: Vec<Took<'a>>,
}

struct Took<'a> {
    /// The number of the charge.
    number: usize,
    place: &'a Place,
    charge: Charge<'a>,
    units: u64,
    receipt: Receipt,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for Took { place, charge, units, receipt, .. } in &self.each {
            self.inner.give_back(place, charge, *units, *receipt);
        }
    }
}
