//! Refunds of units that were taken in vain, to where they were taken.

use tidegate_core::{Charge, Consistency, Decision, Key, Limit, Namespace, Op, Placement};
use tidegate_stores::Call;
use tokio::runtime::Handle;

use super::Settling;
use super::without_store::Place;
use crate::failure::guarded;
use crate::keys::key_of;
use crate::outcome::Answer;
use crate::plan::Step;
use crate::store::{Applied, Backend};

/// Units that were taken in vain: what gives them back, and where.
struct Owed<'a> {
    place: Place<'a>,
    charge: Charge<'a>,
}

impl<'a> Settling<'a> {
    /// Refunds what was taken so far and is `wanted` back, to where it was taken.
    pub(super) async fn give_back(&mut self, wanted: impl Fn(&Self, usize) -> bool) {
        for number in 0..self.judged.len() {
            if self.judged[number].taken.is_none() || !wanted(self, number) {
                continue;
            }
            let Some(Owed { place, charge }) = self.owed(number) else { continue };
            // If the store fails now, the units come back by themselves. The numbers are reported as they are after it.
            let refund = Charge { limit: &place.limit, ..charge };
            if let Some(decision) = self.charge_at(&place, &refund).await {
                self.judged[number].answer = Answer::Decided(decision);
            }
        }
    }

    /// Puts a charge to where another one of its request was decided.
    pub(super) async fn charge_at(&self, place: &Place<'_>, charge: &Charge<'_>) -> Option<Decision> {
        match place.instead {
            Some(instead) => instead.decide(place.backend, self.local, charge, Applied::No).ok(),
            None => place.backend.decide(&Call::default(), charge).await.ok(),
        }
    }

    /// What was taken for a charge and is to go back. It is returned once.
    fn owed(&mut self, number: usize) -> Option<Owed<'a>> {
        let receipt = self.judged[number].taken.take()?;
        let (plan, active) = (self.plan, self.active);
        let Step::Charge(Op::Take(units)) = plan.planned[number].step else { return None };
        let place = self.place(number)?;
        let charge = plan.charge(active, &plan.planned[number], Op::Refund(units, Some(receipt))).ok()??.shadow();
        Some(Owed { place, charge })
    }
}

/// A request that goes away before it is settled, because nobody waits for it any more, gives back what it took: to memory
/// at once, to other stores in a task of its own. Without a runtime those units come back by themselves, later.
impl Drop for Settling<'_> {
    fn drop(&mut self) {
        for number in 0..self.judged.len() {
            let Some(Owed { place, charge }) = self.owed(number) else { continue };
            let Place { backend, limit, instead } = place;
            match (instead, backend.states()) {
                (Some(instead), _) => {
                    let _ = instead.decide(backend, self.local, &charge, Applied::No);
                }
                (None, Some(states)) => {
                    let _ = guarded(|| states.decide_in(charge.namespace, charge.key, &limit, charge.op));
                }
                (None, None) => Later::new(backend, &charge, limit).spawn(),
            }
        }
    }
}

/// A refund that outlives its request.
struct Later {
    backend: Backend,
    namespace: Namespace,
    key: Box<[u8]>,
    limit: Limit,
    op: Op,
    tag: Box<[u8]>,
    consistency: Consistency,
}

impl Later {
    fn new(backend: &Backend, charge: &Charge<'_>, limit: Limit) -> Later {
        Later {
            backend: backend.clone(),
            namespace: charge.namespace.clone(),
            key: charge.key.as_bytes().into(),
            limit,
            op: charge.op,
            tag: charge.placement.tag.into(),
            consistency: charge.placement.consistency,
        }
    }

    fn spawn(self) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let key: Key<'_> = key_of(&self.key).unwrap_or(Key::ALL);
                let placement = Placement { tag: &self.tag, consistency: self.consistency };
                let refund = Charge::new(key, &self.limit, self.op).within(&self.namespace).placed(placement).shadow();
                // If the store fails now, the units come back by themselves.
                let _ = self.backend.charge(&Call::default(), &[refund]).await;
            });
        }
    }
}
