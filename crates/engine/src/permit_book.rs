//! Permits as this process knows them: those that it decides on itself, and those that the default store holds.
//!
//! | the default store | a permit of a caller is in |
//! |---|---|
//! | is the memory of this process | `here` |
//! | answers | `there`, as far as it was acquired or renewed through this process |
//! | did not answer when it was acquired | `here`; also in `doubtful` if the store may have heard of it after all |
//!
//! While the store does not answer, a key has as many permits in use as are `here` and `there`.

use std::time::Duration;

use tidegate_core::{Clock, LeasedSemaphore, NoRoom, PermitOp, PermitOwner, Permits};
use tidegate_stores::PermitCharge;

use crate::caller::Caller;
use crate::failure::guarded;
use crate::permits::{PermitError, PermitOptions};
use crate::store::StoreError;

/// Permits in the memory of this process.
#[derive(Debug)]
pub(crate) struct PermitBook {
    /// Those of callers that this process decides on.
    here: LeasedSemaphore,
    /// Those of callers that the default store holds.
    there: LeasedSemaphore,
    /// Those of them that are here and that the store may hold as well.
    doubtful: LeasedSemaphore,
    /// Those of the program's own layers, apart from what callers ask for.
    layers: LeasedSemaphore,
    options: PermitOptions,
}

/// What was decided without the store.
pub(crate) struct Alone {
    pub(crate) told: Result<Permits, PermitError>,
    /// For how long the store may still hold the permit, which it is to release when it answers again.
    pub(crate) release_within: Option<Duration>,
}

impl PermitBook {
    pub(crate) fn new(clock: &Clock, layers: LeasedSemaphore, options: PermitOptions) -> PermitBook {
        let [here, there, doubtful] = [(); 3].map(|()| LeasedSemaphore::new(clock.clone()));
        PermitBook { here, there, doubtful, layers, options }
    }

    pub(crate) fn options(&self) -> &PermitOptions {
        &self.options
    }

    /// Permits that are held in the memory of this process and nowhere else.
    pub(crate) fn held_here(&self) -> usize {
        self.here.held() + self.layers.held()
    }

    /// Whose share of the room a caller's permits are. Nobody in particular, as the program itself, is not bounded.
    pub(crate) fn owner(&self, caller: &Caller) -> Option<PermitOwner> {
        let permits = self.options.share.of(self.here.room());
        caller.network().map(|number| PermitOwner { number, permits })
    }

    /// Decides for a layer, in memory.
    pub(crate) fn decide_for_layer(&self, charge: &PermitCharge<'_>) -> Result<Permits, PermitError> {
        decide(&self.layers, None, charge)
    }

    /// Decides for a caller, in memory.
    pub(crate) fn decide(&self, owner: Option<PermitOwner>, charge: &PermitCharge<'_>) -> Result<Permits, PermitError> {
        decide(&self.here, owner, charge)
    }

    /// Notes that the store is about to be asked. A permit takes its owner's share from then on, until the store denies it: if
    /// the caller goes away meanwhile, the store may still have acquired it. Returns whether the store was known to hold it.
    pub(crate) fn ask(&self, owner: Option<PermitOwner>, charge: &PermitCharge<'_>) -> Result<bool, PermitError> {
        let PermitCharge { namespace, key, permit, op } = *charge;
        let was_there = self.there.look(namespace, key, permit).done;
        if let PermitOp::Acquire { lease, .. } = op {
            hold(&self.there, owner, charge, lease)?;
        }
        Ok(was_there)
    }

    /// Notes that the store did not do what it was asked, and will not.
    pub(crate) fn was_not_asked(&self, charge: &PermitCharge<'_>, was_there: bool) -> Result<(), PermitError> {
        if !was_there {
            release(&self.there, charge)?;
        }
        Ok(())
    }

    /// Notes what the store answered, and returns what is told: a permit that the store does not know may have been acquired
    /// here, while it did not answer.
    pub(crate) fn answered(
        &self,
        owner: Option<PermitOwner>,
        charge: &PermitCharge<'_>,
        told: Permits,
    ) -> Result<Permits, PermitError> {
        match charge.op {
            PermitOp::Acquire { .. } if told.done => return Ok(told),
            PermitOp::Renew { lease } if told.done => {
                // It may have been acquired through another process. Without room here, it is held there all the same.
                let _ = hold(&self.there, owner, charge, lease);
                return Ok(told);
            }
            PermitOp::Renew { .. } => {}
            PermitOp::Release => drop(release(&self.doubtful, charge)?),
            _ => {}
        }
        release(&self.there, charge)?;
        let here = match charge.op {
            PermitOp::Acquire { .. } => return Ok(told),
            // One that was renewed while the store was away is in both, and a release is of both.
            _ => decide(&self.here, None, charge)?,
        };
        Ok(if told.done { told } else { here })
    }

    /// Decides though the store does not answer. It may hear of the charge later if that `was_sent`.
    pub(crate) fn decide_alone(
        &self,
        owner: Option<PermitOwner>,
        charge: &PermitCharge<'_>,
        was_there: bool,
        was_sent: bool,
    ) -> Alone {
        let told = match charge.op {
            PermitOp::Acquire { .. } if was_there => self.in_both(charge, true),
            PermitOp::Acquire { limit, lease } => {
                let told = self.acquire_alone(owner, charge, limit, lease, was_sent);
                let is_held = told.as_ref().is_ok_and(|permits| permits.done);
                return Alone { told, release_within: Some(lease).filter(|_| was_sent && !is_held) };
            }
            PermitOp::Renew { lease } => self.renew_alone(owner, charge, lease),
            _ => return self.release_alone(charge),
        };
        Alone { told, release_within: None }
    }

    fn acquire_alone(
        &self,
        owner: Option<PermitOwner>,
        charge: &PermitCharge<'_>,
        limit: u64,
        lease: Duration,
        was_sent: bool,
    ) -> Result<Permits, PermitError> {
        release(&self.there, charge)?;
        let limit = limit.saturating_sub(self.there.look(charge.namespace, charge.key, charge.permit).in_use);
        let acquire = PermitOp::Acquire { limit, lease };
        let told = decide(&self.here, owner, &PermitCharge { op: acquire, ..*charge })?;
        if told.done && was_sent {
            hold(&self.doubtful, None, charge, lease)?;
        }
        self.in_both(charge, told.done)
    }

    fn renew_alone(
        &self,
        owner: Option<PermitOwner>,
        charge: &PermitCharge<'_>,
        lease: Duration,
    ) -> Result<Permits, PermitError> {
        decide(&self.doubtful, None, charge)?;
        if !decide(&self.here, None, charge)?.done {
            // Its holder goes on, beyond any limit: the store has most likely counted it.
            hold(&self.there, owner, charge, lease)?;
        }
        self.in_both(charge, true)
    }

    fn release_alone(&self, charge: &PermitCharge<'_>) -> Alone {
        let PermitCharge { namespace, key, permit, .. } = *charge;
        let left = [&self.there, &self.doubtful].map(|book| book.lease_left(namespace, key, permit));
        let released = [&self.there, &self.doubtful, &self.here].map(|book| release(book, charge));
        let told = match (left.iter().flatten().max(), released) {
            (None, [Ok(_), Ok(_), Ok(here)]) if here.done => self.in_both(charge, true),
            // Only the store can know of it, or has to hear of it.
            _ => Err(PermitError::Store(StoreError::Unanswered)),
        };
        Alone { told, release_within: left.into_iter().flatten().max() }
    }

    /// The permits of a key in use here and there.
    fn in_both(&self, charge: &PermitCharge<'_>, done: bool) -> Result<Permits, PermitError> {
        let look = |book: &LeasedSemaphore| guarded(|| book.look(charge.namespace, charge.key, charge.permit));
        let (here, there) = (look(&self.here)?, look(&self.there)?);
        let ends = [here, there].into_iter().filter(|permits| permits.in_use > 0).map(|permits| permits.next_end);
        Ok(Permits::new(done, here.in_use + there.in_use, ends.min().unwrap_or_default()))
    }
}

fn decide(
    book: &LeasedSemaphore,
    owner: Option<PermitOwner>,
    charge: &PermitCharge<'_>,
) -> Result<Permits, PermitError> {
    let PermitCharge { namespace, key, permit, op } = *charge;
    let decided: Result<Permits, NoRoom> = guarded(|| book.decide_for(owner, namespace, key, permit, op))?;
    Ok(decided?)
}

/// Holds a permit beyond any limit: it is held elsewhere.
fn hold(
    book: &LeasedSemaphore,
    owner: Option<PermitOwner>,
    charge: &PermitCharge<'_>,
    lease: Duration,
) -> Result<Permits, PermitError> {
    decide(book, owner, &PermitCharge { op: PermitOp::Acquire { limit: u64::MAX, lease }, ..*charge })
}

fn release(book: &LeasedSemaphore, charge: &PermitCharge<'_>) -> Result<Permits, PermitError> {
    decide(book, None, &PermitCharge { op: PermitOp::Release, ..*charge })
}
