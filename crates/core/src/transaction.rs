//! Several charges decided at one instant: all are taken, or none. The memory store decides by this code, and the
//! replies of scripts are decoded and checked by it; `several.lua` does the same for stores that decide by a script.

use arrayvec::ArrayVec;

use crate::bounds::CHARGES_MAX;
use crate::charge::Decisions;
use crate::decision::Answer;
use crate::{Charge, Decision, Op};

/// The state of one key during a transaction. Nothing changes before all charges were tried.
pub(crate) trait Trial {
    /// Decides a charge after those before it, and continues from there. `number` is the index of the charge.
    fn try_next(&mut self, number: usize, charge: &Charge<'_>) -> Decision;

    /// The decision about `op` on the state as it was before the transaction.
    fn untouched(&self, number: usize, charge: &Charge<'_>, op: Op) -> Decision;

    /// Takes a charge for good, after all were tried and none stops them. A state that is tried on a copy does nothing
    /// here.
    fn take(&mut self, _charge: &Charge<'_>, foreseen: Decision) -> Decision {
        foreseen
    }
}

/// A key's state, and the units that earlier charges want of it.
pub(crate) struct Place<T> {
    pub(crate) trial: T,
    /// Units that earlier charges want, and whether one of them was denied.
    asked: u64,
    denied: bool,
}

/// The place of each charge's key: charges to one key are composed in order.
pub(crate) type PlaceOf = ArrayVec<usize, CHARGES_MAX>;

/// Decides all charges, at most [`CHARGES_MAX`]. Returns whether they pass: then the places hold the new states.
pub(crate) fn transact<T: Trial>(
    charges: &[Charge<'_>],
    places: &mut [Place<T>],
    place_of: &PlaceOf,
) -> (Decisions, bool) {
    let mut foreseen: ArrayVec<Decision, CHARGES_MAX> = ArrayVec::new();
    for ((number, charge), place) in charges.iter().enumerate().zip(place_of) {
        foreseen.push(places[*place].foresee(number, charge));
    }
    let allowed = charges.iter().zip(&foreseen).all(|(charge, decision)| decision.is_allowed() || !charge.veto);
    let mut each: ArrayVec<(Decision, bool), CHARGES_MAX> = ArrayVec::new();
    for ((number, charge), (decision, place)) in charges.iter().enumerate().zip(foreseen.into_iter().zip(place_of)) {
        let place = &mut places[*place];
        let settled = if allowed { place.trial.take(charge, decision) } else { place.refuse(number, charge, decision) };
        each.push((settled, charge.veto));
    }
    (each.into_iter().collect(), allowed)
}

impl<T: Trial> Place<T> {
    pub(crate) fn new(trial: T) -> Place<T> {
        Place { trial, asked: 0, denied: false }
    }

    /// The decision about a charge, after those before it.
    fn foresee(&mut self, number: usize, charge: &Charge<'_>) -> Decision {
        let decision = self.trial.try_next(number, charge);
        let (Op::Take(units @ 1..) | Op::Debit(units @ 1..)) = charge.op else { return decision };
        let whole = self.asked.saturating_add(units);
        let is_debit = matches!(charge.op, Op::Debit(_));
        let fits = is_debit || decision.is_allowed() && !self.denied;
        if fits || charge.veto {
            self.asked = whole;
            self.denied |= !fits;
        }
        if fits {
            return decision;
        }
        // Those before it would be asked for again too: what counts is when all fit.
        let together = self.trial.untouched(number, charge, Op::Take(whole)).answer;
        let answer = if whole == units || together == Answer::Allow { decision.answer } else { together };
        Decision { answer, ..decision }
    }

    /// The decision about a charge that was not taken: its verdict, with the numbers of the untouched state.
    fn refuse(&self, number: usize, charge: &Charge<'_>, foreseen: Decision) -> Decision {
        let answer = if foreseen.is_allowed() { Answer::AllowAlone } else { foreseen.answer };
        Decision { answer, ..self.trial.untouched(number, charge, Op::Peek) }
    }
}
