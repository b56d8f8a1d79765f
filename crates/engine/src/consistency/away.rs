//! Decisions without the store, from the last states that it reported.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_core::{Charge, Decision, LimitExt, Op};
use tidegate_stores::PermitCharge;

use super::name::Spelling;
use super::{Consistent, keeper};

impl Consistent {
    /// Decides a charge without the store, under one of `parts` equal parts of its limit. With `owes`, the store did not
    /// apply the charge and will not: what is admitted is debited when it is back.
    pub(crate) fn go_on(&self, charge: &Charge<'_>, parts: u64, owes: bool) -> Decision {
        let inner = &self.inner;
        let now = inner.clock.now();
        if inner.store_is_replicated(charge) {
            let name = Spelling::new(charge);
            if let Some((state, clock)) = inner.replicas.copy(&name) {
                inner.last.adopt(charge, &state, clock, now);
            }
        }
        inner.decided_away.fetch_add(1, Relaxed);
        let decision = inner.last.decide(charge, parts, owes, now);
        if inner.last.owes() && tokio::runtime::Handle::try_current().is_ok() {
            keeper::start(inner);
            inner.keeper.wake.notify_one();
        }
        decision
    }

    /// Looks at a penalty or block without the store: what this node has seen of it holds.
    pub(crate) fn look_away(&self, charge: &Charge<'_>) -> Option<Decision> {
        let charge = Charge { op: Op::Peek, ..*charge };
        self.inner.last.look(&charge, self.inner.clock.now())
    }

    /// Whether any key is to be decided here though the store answers.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.inner.last.holds_any()
    }

    /// Whether a charge is to be decided here though the store answers: it does not know yet of what was admitted here.
    #[inline]
    pub(crate) fn holds(&self, charge: &Charge<'_>) -> bool {
        self.inner.last.holds(charge)
    }

    /// Has a permit released that the store may hold for this long, as soon as it answers.
    pub(crate) fn release_later(&self, charge: &PermitCharge<'_>, left: Duration) {
        let inner = &self.inner;
        inner.releases.add(charge, left, inner.clock.now());
        if tokio::runtime::Handle::try_current().is_ok() {
            keeper::start(inner);
            inner.keeper.wake.notify_one();
        }
    }

    /// Has a permit not released any more. Returns whether that was possible: a release may be on its way.
    pub(crate) fn withdraw_release(&self, charge: &PermitCharge<'_>) -> bool {
        self.inner.releases.withdraw(charge)
    }

    /// How many nodes use the store, as far as it is known: at least this one.
    pub(crate) fn nodes(&self) -> u64 {
        self.inner.nodes.load(Relaxed).max(1)
    }

    /// Announces this node to the others from now on, and counts them.
    pub(crate) fn count_nodes(&self) {
        self.inner.counts_nodes.store(true, Relaxed);
        self.start_counting();
        self.inner.keeper.wake.notify_one();
    }

    /// Starts to announce this node if it is to be counted and that has not begun: whoever asked for it had no runtime.
    pub(crate) fn start_counting(&self) {
        if self.inner.counts_nodes.load(Relaxed) && tokio::runtime::Handle::try_current().is_ok() {
            keeper::start(&self.inner);
        }
    }
}

impl super::Inner {
    fn store_is_replicated(self: &Arc<Self>, charge: &Charge<'_>) -> bool {
        charge.placement.consistency == tidegate_core::Consistency::Async && charge.limit.can_be_copied()
    }
}
