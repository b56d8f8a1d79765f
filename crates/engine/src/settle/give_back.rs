//! What was taken in vain goes back to where it was taken.

use tidegate_core::{Charge, Key, Limit, Op};

use super::Settling;
use crate::failure::guarded;
use crate::outcome::Answer;
use crate::plan::Step;
use crate::store::Backend;

/// Units that were taken in vain: what gives them back, and where.
struct Owed<'a> {
    backend: &'a Backend,
    key: Key<'a>,
    limit: Limit,
    op: Op,
}

impl<'a> Settling<'a> {
    /// Refunds what was taken so far and is `wanted` back, to where it was taken.
    pub(super) async fn give_back(&mut self, wanted: impl Fn(&Self, usize) -> bool) {
        for number in 0..self.judged.len() {
            if self.judged[number].taken.is_none() || !wanted(self, number) {
                continue;
            }
            let Some(Owed { backend, key, limit, op }) = self.owed(number) else { continue };
            let refund = Charge { key, limit: &limit, op, veto: false };
            // If the store fails now, the units come back by themselves.
            let placing = self.plan.placing(&self.plan.planned[number]);
            let refunded = backend.charge(&[refund], &[placing]).await.ok();
            // The numbers are told as they are after it.
            if let Some(decision) = refunded.as_ref().and_then(|decisions| decisions.iter().next()) {
                self.judged[number].answer = Answer::Decided(*decision);
            }
        }
    }

    /// What was taken for a charge and is to go back. It is told once.
    fn owed(&mut self, number: usize) -> Option<Owed<'a>> {
        let receipt = self.judged[number].taken.take()?;
        let plan = self.plan;
        let Step::Charge(Op::Take(units)) = plan.planned[number].step else { return None };
        let (backend, limit) = self.place(number)?;
        let key = plan.key(&plan.planned[number].key).ok()?;
        Some(Owed { backend, key, limit, op: Op::Refund(units, Some(receipt)) })
    }
}

/// A request that goes away before it is settled, because nobody waits for it any more, gives back what memory gave it.
/// What it took of a shared store stays taken: to give that back takes a call. So nothing too much passes, and units that
/// nobody used come back by themselves.
impl Drop for Settling<'_> {
    fn drop(&mut self) {
        for number in 0..self.judged.len() {
            if let Some(Owed { backend: Backend::Memory(store), key, limit, op }) = self.owed(number) {
                let _ = guarded(|| store.decide(key, &limit, op));
            }
        }
    }
}
