//! Permits: so many at once for each key, under a limit that the caller brings. Each has a lease, so that a holder that died
//! frees its own.
//!
//! They live in the default store. While a shared one does not answer, each process counts by itself: permits are acquired
//! in its memory, and those of the store are kept there by who renews them. What was acquired here stays here until it is
//! released or its lease ends, so that for this long more than the limit may be held.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::{Key, KeyError, LeasedSemaphore, NoRoom, PermitOp, Permits};
use tidegate_stores::{Call, PermitCharge, StoreError as StoreFailure};

use crate::bounds::{
    FAILURE_RETRY, PERMIT_ID_BYTES_MAX, PERMIT_LEASE_MAX, PERMIT_LEASE_MIN, PERMIT_LIMIT_MAX, PERMIT_ROOM_RETRY,
};
use crate::engine::Engine;
use crate::failure::guarded;
use crate::inline::{Sourced, own_key};
use crate::keys::{CALLERS, LAYERS};
use crate::store::StoreError;

/// A permit that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Its name: the caller's, or one that nobody can guess.
    pub id: Box<str>,
    /// Whether it was acquired, and how many are in use.
    pub permits: Permits,
    /// Whether this process decided because the store did not answer.
    pub local: bool,
}

/// What became of permits, over all keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitCounts {
    /// Permits that were acquired, those asked for again among them.
    pub acquired: u64,
    /// Permits that were not, because so many were in use.
    pub denied: u64,
    /// Leases that were renewed.
    pub renewed: u64,
    /// Permits that were released.
    pub released: u64,
    /// Permits that were to be renewed or released and were not there: their lease had ended.
    pub gone: u64,
    /// Permits that are held in the memory of this process now.
    pub held_here: u64,
}

/// Why there is no answer about a permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PermitError {
    /// The key cannot be counted on.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The limit is out of bounds.
    #[error("limit: {value} is out of bounds; use 1 to {PERMIT_LIMIT_MAX} permits")]
    Limit {
        /// What was asked for.
        value: u64,
    },
    /// The lease is out of bounds.
    #[error("lease: {value:?} is out of bounds; use {PERMIT_LEASE_MIN:?} to {} hours", PERMIT_LEASE_MAX.as_secs() / 3600)]
    Lease {
        /// What was asked for.
        value: Duration,
    },
    /// The name of the permit is none.
    #[error("id: `{shown}` is no name of a permit; use 1 to {PERMIT_ID_BYTES_MAX} letters, digits, `-`, `_` or `:`")]
    Id {
        /// Its beginning, without what cannot be shown.
        shown: Box<str>,
    },
    /// This process has no room for another permit.
    #[error("permits: {0}; release some, or wait until leases end")]
    NoRoom(#[from] NoRoom),
    /// The default store keeps no permits at all.
    #[error("store: {store} keeps no permits; use memory: or a Redis as the default store")]
    Unsupported {
        /// The store.
        store: Arc<str>,
    },
    /// The store that would know the permit gave no answer.
    #[error("store: {0}; the permit comes back when its lease ends, or ask again")]
    Store(#[from] StoreError),
    /// The system gave no random bits to name a permit with.
    #[error("id: the system gives no random bits; bring an id")]
    NoChance,
}

impl From<StoreFailure> for PermitError {
    fn from(error: StoreFailure) -> PermitError {
        match error {
            StoreFailure::Unsupported { store, .. } => PermitError::Unsupported { store },
            StoreFailure::NoRoom(error) => PermitError::NoRoom(error),
            error => PermitError::Store(match error.is_overload() {
                true => StoreError::Overloaded,
                false => StoreError::Unanswered,
            }),
        }
    }
}

impl PermitError {
    /// How long to wait before asking again, if the request is not at fault.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            PermitError::Store(_) | PermitError::NoChance => Some(FAILURE_RETRY),
            PermitError::NoRoom(_) => Some(PERMIT_ROOM_RETRY),
            PermitError::Key(_) | PermitError::Limit { .. } | PermitError::Lease { .. } | PermitError::Id { .. } => {
                None
            }
            PermitError::Unsupported { .. } => None,
        }
    }
}

/// Permits in the memory of this process, and what was counted.
#[derive(Debug)]
pub(crate) struct PermitBook {
    here: LeasedSemaphore,
    counters: [AtomicU64; 5],
}

#[derive(Clone, Copy)]
enum Counter {
    Acquired,
    Denied,
    Renewed,
    Released,
    Gone,
}

impl PermitBook {
    pub(crate) fn new(here: LeasedSemaphore) -> PermitBook {
        PermitBook { here, counters: Default::default() }
    }

    fn decide(&self, charge: &PermitCharge<'_>) -> Result<Permits, PermitError> {
        let PermitCharge { namespace, key, permit, op } = *charge;
        Ok(guarded(|| self.here.decide(namespace, key, permit, op))??)
    }

    /// Decides though the store that may know the permit does not answer.
    fn decide_alone(&self, charge: &PermitCharge<'_>) -> Result<Permits, PermitError> {
        let told = self.decide(charge)?;
        match charge.op {
            _ if told.done => Ok(told),
            PermitOp::Acquire { .. } => Ok(told),
            // Its holder goes on: it is kept here, beyond any limit, since the store has most likely counted it.
            PermitOp::Renew { lease } => {
                self.decide(&PermitCharge { op: PermitOp::Acquire { limit: u64::MAX, lease }, ..*charge })
            }
            // A release, and whatever else only the store can know.
            _ => Err(PermitError::Store(StoreError::Unanswered)),
        }
    }

    fn count(&self, op: PermitOp, told: &Permits) {
        let counter = match (op, told.done) {
            (PermitOp::Acquire { .. }, true) => Counter::Acquired,
            (PermitOp::Acquire { .. }, false) => Counter::Denied,
            (PermitOp::Renew { .. }, true) => Counter::Renewed,
            (_, true) => Counter::Released,
            (_, false) => Counter::Gone,
        };
        self.counters[counter as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Takes one of `limit` permits under a key for the length of a lease, in the default store. Without an `id` the permit
    /// gets a name of its own. Who asks again with the same `id`, because an answer was lost, holds it once.
    ///
    /// # Errors
    /// If what was asked for is out of bounds, or this process has no room for another permit.
    pub async fn acquire_permit(
        &self,
        key: &[u8],
        limit: u64,
        lease: Duration,
        id: Option<&[u8]>,
    ) -> Result<Acquired, PermitError> {
        let op = PermitOp::Acquire { limit, lease };
        check_op(op)?;
        let id = id.map_or_else(new_permit_id, |id| check_id(id).map(Box::from))?;
        let Sourced { answer: permits, local } = self.decide_permit(key, &id, op).await?;
        Ok(Acquired { id, permits, local })
    }

    /// Holds a permit for another lease from now on. It is not done if the permit is not held: its lease has ended.
    ///
    /// # Errors
    /// If what was asked for is out of bounds, or this process has no room to keep a permit of a store that does not answer.
    pub async fn renew_permit(&self, key: &[u8], id: &[u8], lease: Duration) -> Result<Permits, PermitError> {
        let op = PermitOp::Renew { lease };
        check_op(op)?;
        Ok(self.decide_permit(key, check_id(id)?, op).await?.answer)
    }

    /// Gives a permit back. It is not done if the permit is not held: it was released before, or its lease has ended.
    ///
    /// # Errors
    /// If what was asked for is out of bounds, or the store that would know the permit does not answer.
    pub async fn release_permit(&self, key: &[u8], id: &[u8]) -> Result<Permits, PermitError> {
        Ok(self.decide_permit(key, check_id(id)?, PermitOp::Release).await?.answer)
    }

    /// Does something with a permit in the default store and nowhere else: what is done while that does not answer is the
    /// caller's choice. A call without an answer may still have been heard, and is made good by a release.
    ///
    /// Its keys are the program's own: they never meet those of [`Engine::acquire_permit`], which clients may choose.
    ///
    /// # Errors
    /// If what was asked for is out of bounds, the store does not answer, or one in memory has no room for another permit.
    pub async fn ask_permit(&self, key: &[u8], id: &[u8], op: PermitOp) -> Result<Permits, PermitError> {
        check_op(op)?;
        let (key, permit) = (own_key(key)?, Key::new(check_id(id)?)?);
        let charge = PermitCharge { namespace: &LAYERS, key, permit, op };
        let told = match self.default_store.asked() {
            Some(asked) => Box::pin(asked.decide_permit(&Call::default(), &charge)).await?,
            None => self.permits.decide(&charge)?,
        };
        self.permits.count(op, &told);
        Ok(told)
    }

    /// What became of permits, over all keys.
    #[must_use]
    pub fn permit_counts(&self) -> PermitCounts {
        let count = |counter: Counter| self.permits.counters[counter as usize].load(Ordering::Relaxed);
        PermitCounts {
            acquired: count(Counter::Acquired),
            denied: count(Counter::Denied),
            renewed: count(Counter::Renewed),
            released: count(Counter::Released),
            gone: count(Counter::Gone),
            held_here: self.permits.here.held() as u64,
        }
    }

    async fn decide_permit(&self, key: &[u8], id: &str, op: PermitOp) -> Result<Sourced<Permits>, PermitError> {
        let charge = PermitCharge { namespace: &CALLERS, key: own_key(key)?, permit: Key::new(id)?, op };
        let told = match self.default_store.asked() {
            // Boxed: what waits for a network may allocate, and what decides in memory stays small.
            Some(asked) => match Box::pin(asked.decide_permit(&Call::default(), &charge)).await {
                Ok(told) => Sourced::by_store(self.beside_store(&charge, told)?),
                // Only what nodes share is replaced by the memory of each; any other answer is one.
                Err(error @ StoreFailure::Failed { .. }) if asked.nature().is_shared && !error.is_overload() => {
                    self.note_fallbacks(1);
                    Sourced::here(self.permits.decide_alone(&charge)?)
                }
                Err(error) if error.is_overload() => return Err(self.note_overloaded_caller().into()),
                Err(error) => return Err(error.into()),
            },
            None => Sourced::by_store(self.permits.decide(&charge)?),
        };
        self.permits.count(op, &told.answer);
        Ok(told)
    }

    /// What is told after the store has answered: a permit that it does not know may have been acquired here, while it did
    /// not answer.
    fn beside_store(&self, charge: &PermitCharge<'_>, told: Permits) -> Result<Permits, PermitError> {
        let is_looked_up = match charge.op {
            PermitOp::Acquire { .. } => false,
            PermitOp::Renew { .. } => !told.done,
            // One that was renewed here is in both, and a release is of both.
            _ => true,
        };
        if !is_looked_up {
            return Ok(told);
        }
        let here = self.permits.decide(charge)?;
        Ok(if told.done { told } else { here })
    }
}

fn check_op(op: PermitOp) -> Result<(), PermitError> {
    let fits = |lease: &Duration| (PERMIT_LEASE_MIN..=PERMIT_LEASE_MAX).contains(lease);
    match (op.limit(), op.lease()) {
        (Some(value), _) if !(1..=PERMIT_LIMIT_MAX).contains(&value) => Err(PermitError::Limit { value }),
        (_, Some(value)) if !fits(&value) => Err(PermitError::Lease { value }),
        _ => Ok(()),
    }
}

/// A name that stands in paths and on command lines as it is.
fn check_id(id: &[u8]) -> Result<&str, PermitError> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_:".contains(byte);
    match std::str::from_utf8(id) {
        Ok(text) if (1..=PERMIT_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_plain) => Ok(text),
        _ => Err(PermitError::Id { shown: id.escape_ascii().take(PERMIT_ID_BYTES_MAX).map(char::from).collect() }),
    }
}

/// A name for a permit, of 128 random bits in hex.
///
/// # Errors
/// If the system gives no random bits.
pub fn new_permit_id() -> Result<Box<str>, PermitError> {
    use fmt::Write;

    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|_| PermitError::NoChance)?;
    let mut name = String::with_capacity(2 * bits.len());
    for byte in bits {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    Ok(name.into())
}
