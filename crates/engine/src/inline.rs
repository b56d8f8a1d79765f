//! Keys under limits that callers bring, apart from all rules.

use std::sync::atomic::Ordering;

use tidegate_core::{Charge, Decision, Decisions, Key, KeyError, Limit, Op, Snapshot};
use tidegate_policy::{Local, Share};
use tidegate_stores::Call;

use crate::approximate::{forgetting, is_approximate};
use crate::bounds::OWN_KEY_BYTES_MAX;
use crate::caller::Caller;
use crate::engine::Engine;
use crate::error::RequestError;
use crate::instead::Instead;
use crate::keys::CALLERS;
use crate::store::{Applied, ChargeFailure, StoreError};

/// A decision by limits that a caller brings, and whether the store made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The decision.
    pub answer: T,
    /// Whether it was decided in this process because the store did not answer.
    pub local: bool,
}

impl<T> Sourced<T> {
    pub(crate) fn by_store(answer: T) -> Sourced<T> {
        Sourced { answer, local: false }
    }

    pub(crate) fn here(answer: T) -> Sourced<T> {
        Sourced { answer, local: true }
    }
}

impl Engine {
    /// Returns whether the default store has to be awaited.
    #[inline]
    #[must_use]
    pub fn default_store_awaits(&self) -> bool {
        self.callers.states().is_none()
    }

    /// Decides about a key by a limit that the caller brings, in the default store.
    ///
    /// # Errors
    /// Fails if the key is too long, or this node is overloaded.
    #[inline]
    pub async fn decide(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, RequestError> {
        Ok(self.decide_for(&Caller::default(), key, limit, op).await?.answer)
    }

    /// Decides as [`Engine::decide`] does, for a caller, and returns whether the store decided.
    ///
    /// # Errors
    /// Fails as [`Engine::decide`] does.
    #[inline]
    pub async fn decide_for(
        &self,
        caller: &Caller,
        key: &[u8],
        limit: &Limit,
        op: Op,
    ) -> Result<Sourced<Decision>, RequestError> {
        let charge = inline_charge(limited_key(key).map_err(RequestError::Key)?, limit, op);
        Ok(self.decide_charge(charge.within(caller.namespace())).await?)
    }

    /// Decides for a key in the store of callers; in this process if that does not answer, going on from its last state.
    /// Overload is an error.
    #[inline]
    async fn decide_charge(&self, charge: Charge<'_>) -> Result<Sourced<Decision>, StoreError> {
        if let Some(store) = self.callers.states() {
            return Ok(Sourced::by_store(self.decide_guarded(store, &charge)));
        }
        if self.callers.holds(&charge) {
            return Ok(Sourced::here(self.decide_here(&charge, Applied::No)));
        }
        match self.callers.charge(&Call::default(), &[charge]).await {
            Ok(decisions) => decisions.first().copied().map(Sourced::by_store).ok_or(StoreError::Unanswered),
            Err(ChargeFailure::Unanswered(applied)) => Ok(Sourced::here(self.decide_here(&charge, applied))),
            Err(ChargeFailure::Overloaded) => Err(self.note_overloaded_caller()),
            Err(ChargeFailure::Refused(_)) => Err(StoreError::Unanswered),
        }
    }

    /// Decides in this process, because the default store does not answer.
    #[cold]
    fn decide_here(&self, charge: &Charge<'_>, applied: Applied) -> Decision {
        self.note_fallbacks(1);
        self.decide_instead(charge, applied)
    }

    fn decide_instead(&self, charge: &Charge<'_>, applied: Applied) -> Decision {
        let instead = Instead::of(&self.callers, CALLERS_CHOICE, charge.limit);
        let decided = instead.decide(&self.callers, &self.local, charge, applied);
        decided.unwrap_or_else(|_| self.untaken(charge.limit))
    }

    /// Looks at a key under a limit that the caller brings, or changes it, in the default store and nowhere else: what is
    /// said of a key must be true of it.
    ///
    /// # Errors
    /// If the key is too long, the store does not answer, or it is in memory and full and counts the key approximately, so that
    /// it cannot be forgotten and units cannot be given back to it.
    pub async fn administer(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, RequestError> {
        let charge = inline_charge(limited_key(key).map_err(RequestError::Key)?, limit, op);
        if matches!(op, Op::Refund(..)) && is_approximate(&self.callers, &charge)? {
            return Err(RequestError::NotGranted { limits: 1 });
        }
        let decision = self.callers.decide(&Call::default(), &forgetting(&self.callers, &charge)).await?;
        match op {
            Op::Reset if is_approximate(&self.callers, &charge)? => Err(RequestError::NotForgotten { limits: 1 }),
            _ => Ok(decision),
        }
    }

    /// Decides about several keys by limits that the caller brings, all or none.
    ///
    /// # Errors
    /// Fails if a key is too long, or the charges cannot be decided together.
    pub async fn decide_all(&self, charges: &[(&[u8], Limit, Op)]) -> Result<Decisions, RequestError> {
        Ok(self.decide_all_for(&Caller::default(), charges).await?.answer)
    }

    /// Decides as [`Engine::decide_all`] does, for a caller, and returns whether the store decided.
    ///
    /// # Errors
    /// Fails as [`Engine::decide_all`] does.
    pub async fn decide_all_for(
        &self,
        caller: &Caller,
        charges: &[(&[u8], Limit, Op)],
    ) -> Result<Sourced<Decisions>, RequestError> {
        let mut made = Vec::with_capacity(charges.len());
        for (key, limit, op) in charges {
            let charge = inline_charge(limited_key(key).map_err(RequestError::Key)?, limit, *op);
            made.push(charge.within(caller.namespace()));
        }
        let is_held = made.iter().any(|charge| self.callers.holds(charge));
        let charged = match is_held {
            true => Err(ChargeFailure::Unanswered(Applied::No)),
            false => self.callers.charge(&Call::default(), &made).await,
        };
        match charged {
            Ok(decisions) => Ok(Sourced::by_store(decisions)),
            Err(ChargeFailure::Refused(error)) => Err(RequestError::Charges(error)),
            Err(ChargeFailure::Overloaded) => Err(self.note_overloaded_caller().into()),
            Err(ChargeFailure::Unanswered(applied)) if self.callers.asked().is_some() => {
                Ok(Sourced::here(self.decide_all_here(&made, applied)))
            }
            Err(ChargeFailure::Unanswered(_)) => {
                let untaken = made.iter().map(|charge| (self.untaken(charge.limit), charge.veto));
                Ok(Sourced::by_store(untaken.collect()))
            }
        }
    }

    /// Decides several charges in this process, all or none: what was taken goes back when a later one denies.
    #[cold]
    fn decide_all_here(&self, charges: &[Charge<'_>], applied: Applied) -> Decisions {
        // What goes back below is no further charge.
        self.note_fallbacks(charges.len() as u64);
        let mut taken: Vec<(&Charge<'_>, Decision)> = Vec::with_capacity(charges.len());
        let mut denied = false;
        for charge in charges {
            let charge_now = if denied { charge.looking() } else { *charge };
            let decision = self.decide_instead(&charge_now, applied);
            denied |= charge.veto && !decision.is_allowed();
            taken.push((charge, decision));
        }
        let settled = taken.into_iter().map(|(charge, decision)| {
            if let (true, Op::Take(units @ 1..), Some(receipt)) = (denied, charge.op, decision.receipt()) {
                let back = self.decide_instead(&Charge { op: Op::Refund(units, Some(receipt)), ..*charge }, applied);
                return (back.withdrawn(), charge.veto);
            }
            (if denied { decision.withdrawn() } else { decision }, charge.veto)
        });
        settled.collect()
    }

    /// Returns the details of a key under a limit that the caller brings.
    ///
    /// # Errors
    /// Fails if the key is too long, or the store does not answer.
    pub async fn inspect_key(&self, key: &[u8], limit: &Limit) -> Result<Snapshot, RequestError> {
        let charge = inline_charge(limited_key(key).map_err(RequestError::Key)?, limit, Op::Peek);
        Ok(self.callers.inspect(&Call::default(), &charge).await?)
    }

    /// Returns how many charges by limits that callers and requests brought were decided in the memory of this process,
    /// because the default store did not answer.
    #[must_use]
    pub fn fell_back(&self) -> u64 {
        self.fell_back.load(Ordering::Relaxed)
    }

    /// Returns how many requests under limits that callers brought, and for permits, were not decided because this node was
    /// overloaded.
    #[must_use]
    pub fn overloaded_callers(&self) -> u64 {
        self.overloaded_callers.load(Ordering::Relaxed)
    }

    /// Counts a request of a caller that this node was too busy to put to the store, and returns its answer.
    pub(crate) fn note_overloaded_caller(&self) -> StoreError {
        self.overloaded_callers.fetch_add(1, Ordering::Relaxed);
        StoreError::Overloaded
    }

    pub(crate) fn note_fallbacks(&self, charges: u64) {
        if charges > 0 {
            self.fell_back.fetch_add(charges, Ordering::Relaxed);
        }
    }
}

/// No rule could choose for limits that callers bring: they go on in this process.
const CALLERS_CHOICE: Local = Local::Share(Share::Whole);

fn inline_charge<'a>(key: Key<'a>, limit: &'a Limit, op: Op) -> Charge<'a> {
    Charge::new(key, limit, op).within(&CALLERS)
}

/// Checks a key that a caller brings with its limit. An empty one is a key like any other, as in redis-cell.
#[inline]
pub(crate) fn limited_key(key: &[u8]) -> Result<Key<'_>, KeyError> {
    if key.is_empty() { Ok(Key::ALL) } else { own_key(key) }
}

/// A key that somebody brings.
#[inline]
pub(crate) fn own_key(key: &[u8]) -> Result<Key<'_>, KeyError> {
    match key.len() {
        // With the byte of its purpose before it, it is at most as long as a key may be.
        length if length > OWN_KEY_BYTES_MAX => Err(KeyError::TooLong { length, max: OWN_KEY_BYTES_MAX }),
        _ => Key::new(key),
    }
}
