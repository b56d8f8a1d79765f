//! Leased permits: a concurrency limit for each key, which the caller brings. Each permit has a lease, so that the
//! permit of a dead holder is freed.
//!
//! They are kept in the default store. While a shared one does not answer, each process counts by itself, including the
//! permits of the store that it knows of. Permits acquired here stay here until they are released or their lease ends,
//! so that for this time more than the limit may be held. A release that did not reach the store is retried until it
//! answers.
//!
//! A caller at an address holds at most its share of all permits, through this process, and none for longer than the
//! longest lease, unless it renews.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::{Key, KeyError, NoRoom, PermitOp, PermitOwner, Permits};
use tidegate_stores::{Call, PermitCharge, StoreError as StoreFailure};

use crate::bounds::{
    FAILURE_RETRY, PERMIT_ID_BYTES_MAX, PERMIT_LEASE_CEILING, PERMIT_LEASE_MAX, PERMIT_LEASE_MIN, PERMIT_LIMIT_MAX,
    PERMIT_ROOM_RETRY, PERMIT_SHARE_PARTS_MAX,
};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::inline::{Sourced, own_key};
use crate::keys::{CALLERS, LAYERS};
use crate::store::{Asked, StoreError};

/// The bounds on callers' permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitOptions {
    /// The share of all permits that callers at one address may hold.
    pub share: PermitShare,
    /// The longest lease for callers.
    pub lease_max: Duration,
}

impl Default for PermitOptions {
    fn default() -> PermitOptions {
        PermitOptions { share: PermitShare::default(), lease_max: PERMIT_LEASE_CEILING }
    }
}

/// A share of all permits, such as `1/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitShare {
    parts: u32,
    of: u32,
}

/// The text is no part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a fraction like 1/4, or 1/1 for all of them; at most {PERMIT_SHARE_PARTS_MAX} parts")]
pub struct BadPermitShare;

impl PermitShare {
    /// So much of this many permits, at least one.
    pub(crate) fn of(self, room: usize) -> usize {
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        let share = u128::from(room) * u128::from(self.parts) / u128::from(self.of.max(1));
        usize::try_from(share).unwrap_or(usize::MAX).max(1)
    }
}

impl Default for PermitShare {
    fn default() -> PermitShare {
        PermitShare { parts: 1, of: 4 }
    }
}

impl FromStr for PermitShare {
    type Err = BadPermitShare;

    fn from_str(text: &str) -> Result<PermitShare, BadPermitShare> {
        let (parts, of) = text.split_once('/').ok_or(BadPermitShare)?;
        let whole =
            |text: &str| text.parse::<u32>().ok().filter(|number| (1..=PERMIT_SHARE_PARTS_MAX).contains(number));
        let share = whole(parts).zip(whole(of)).map(|(parts, of)| PermitShare { parts, of });
        share.filter(|share| share.parts <= share.of).ok_or(BadPermitShare)
    }
}

impl fmt::Display for PermitShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.parts, self.of)
    }
}

/// The result of acquiring a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Its name: the caller's, or one that nobody can guess.
    pub id: Box<str>,
    /// Whether it was acquired, and how many permits are in use.
    pub permits: Permits,
    /// Whether this process decided because the store did not answer.
    pub local: bool,
}

/// Counts of operations on permits, over all keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitCounts {
    /// Permits that were acquired, including those that were acquired again.
    pub acquired: u64,
    /// Permits that were denied, because the limit was in use.
    pub denied: u64,
    /// Leases that were renewed.
    pub renewed: u64,
    /// Permits that were released.
    pub released: u64,
    /// Permits that could not be renewed or released, because their lease had ended.
    pub gone: u64,
    /// Permits that are held in the memory of this process now.
    pub held_here: u64,
}

/// Why an operation on a permit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PermitError {
    /// The key is too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The limit is out of bounds.
    #[error("limit: {value} is out of bounds; use 1 to {PERMIT_LIMIT_MAX} permits")]
    Limit {
        /// The limit that was given.
        value: u64,
    },
    /// The lease is out of bounds.
    #[error("lease: {value:?} is out of bounds; use {PERMIT_LEASE_MIN:?} to {max:?}")]
    Lease {
        /// The lease that was given.
        value: Duration,
        /// The longest lease.
        max: Duration,
    },
    /// The name of the permit is none.
    #[error(
        "id: `{shown}` is not a valid id of a permit; use 1 to {PERMIT_ID_BYTES_MAX} letters, digits, `-`, `_` or `:`"
    )]
    Id {
        /// The start of the name, without characters that cannot be shown.
        shown: Box<str>,
    },
    /// This process has no room for another permit.
    #[error("permits: {0}; release some, or wait until leases end")]
    NoRoom(NoRoom),
    /// The caller's address holds as many permits as it may.
    #[error(
        "permits: this address already holds {permits}, the most for one address; release some, or wait until leases end"
    )]
    OverShare {
        /// The most permits of one address.
        permits: usize,
    },
    /// The default store keeps no permits at all.
    #[error("store: {store} does not support permits; use memory: or Redis as the default store")]
    Unsupported {
        /// The name of the store.
        store: Arc<str>,
    },
    /// The store that would know the permit gave no answer.
    #[error("store: {0}; try again, or wait until the lease ends")]
    Store(#[from] StoreError),
    /// The system gave no random bits to name a permit with.
    #[error("id: no random bits from the system; send an id")]
    NoChance,
}

impl From<NoRoom> for PermitError {
    fn from(error: NoRoom) -> PermitError {
        match error {
            NoRoom::OfOwner { permits } => PermitError::OverShare { permits },
            error => PermitError::NoRoom(error),
        }
    }
}

impl From<StoreFailure> for PermitError {
    fn from(error: StoreFailure) -> PermitError {
        match error {
            StoreFailure::Unsupported { store, .. } => PermitError::Unsupported { store },
            StoreFailure::NoRoom(error) => error.into(),
            error => PermitError::Store(match error.is_overload() {
                true => StoreError::Overloaded,
                false => StoreError::Unanswered,
            }),
        }
    }
}

impl PermitError {
    /// Returns how long to wait before a retry, or `None` if the request is at fault.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            PermitError::Store(_) | PermitError::NoChance => Some(FAILURE_RETRY),
            PermitError::NoRoom(_) | PermitError::OverShare { .. } => Some(PERMIT_ROOM_RETRY),
            PermitError::Key(_) | PermitError::Limit { .. } | PermitError::Lease { .. } | PermitError::Id { .. } => {
                None
            }
            PermitError::Unsupported { .. } => None,
        }
    }
}

/// How often what became of permits.
#[derive(Debug, Default)]
pub(crate) struct PermitCounters([AtomicU64; 5]);

#[derive(Clone, Copy)]
enum Counter {
    Acquired,
    Denied,
    Renewed,
    Released,
    Gone,
}

impl PermitCounters {
    fn count(&self, op: PermitOp, told: &Permits) {
        let counter = match (op, told.done) {
            (PermitOp::Acquire { .. }, true) => Counter::Acquired,
            (PermitOp::Acquire { .. }, false) => Counter::Denied,
            (PermitOp::Renew { .. }, true) => Counter::Renewed,
            (_, true) => Counter::Released,
            (_, false) => Counter::Gone,
        };
        self.0[counter as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Engine {
    /// Takes one of `limit` permits of a key for the length of a lease, in the default store. Without an `id` the
    /// permit gets a name of its own. A caller that asks again with the same `id`, because an answer was lost, holds it
    /// once.
    ///
    /// # Errors
    /// Fails if an argument is out of bounds, the caller holds the most permits of one address, or this process has no
    /// room for another.
    pub async fn acquire_permit(
        &self,
        caller: &Caller,
        key: &[u8],
        limit: u64,
        lease: Duration,
        id: Option<&[u8]>,
    ) -> Result<Acquired, PermitError> {
        let op = PermitOp::Acquire { limit, lease };
        check_op(op, self.permit_lease_max())?;
        let id = id.map_or_else(new_permit_id, |id| check_id(id).map(Box::from))?;
        let Sourced { answer: permits, local } = self.decide_permit(caller, key, &id, op).await?;
        Ok(Acquired { id, permits, local })
    }

    /// Extends a permit by a new lease from now on. Not done if the permit is not held: its lease has ended.
    ///
    /// # Errors
    /// Fails if an argument is out of bounds, or this process has no room to keep a permit of a store that does not
    /// answer.
    pub async fn renew_permit(
        &self,
        caller: &Caller,
        key: &[u8],
        id: &[u8],
        lease: Duration,
    ) -> Result<Permits, PermitError> {
        let op = PermitOp::Renew { lease };
        check_op(op, self.permit_lease_max())?;
        Ok(self.decide_permit(caller, key, check_id(id)?, op).await?.answer)
    }

    /// Releases a permit, whoever acquired it. Not done if the permit is not held: it was released before, or its lease
    /// has ended.
    ///
    /// # Errors
    /// Fails if an argument is out of bounds, or the store of the permit does not answer. A permit that the store is
    /// known to hold is released as soon as it answers.
    pub async fn release_permit(&self, key: &[u8], id: &[u8]) -> Result<Permits, PermitError> {
        Ok(self.decide_permit(&Caller::default(), key, check_id(id)?, PermitOp::Release).await?.answer)
    }

    /// Returns the longest lease for callers.
    #[must_use]
    pub fn permit_lease_max(&self) -> Duration {
        self.permits.options().lease_max
    }

    /// Applies an operation to a permit in the default store and nowhere else: the caller decides while that does not
    /// answer. A call without an answer may still have been applied; release the permit to undo it.
    ///
    /// Its keys are the program's own: they never meet those of [`Engine::acquire_permit`], which clients may choose.
    ///
    /// # Errors
    /// Fails if an argument is out of bounds, the store does not answer, or a store in memory has no room for another
    /// permit.
    pub async fn ask_permit(&self, key: &[u8], id: &[u8], op: PermitOp) -> Result<Permits, PermitError> {
        check_op(op, PERMIT_LEASE_MAX)?;
        let (key, permit) = (own_key(key)?, Key::new(check_id(id)?)?);
        let charge = PermitCharge { namespace: &LAYERS, key, permit, op };
        let told = match self.default_store.asked() {
            Some(asked) => Box::pin(asked.decide_permit(&Call::default(), &charge)).await?,
            None => self.permits.decide_for_layer(&charge)?,
        };
        self.permit_counters.count(op, &told);
        Ok(told)
    }

    /// Returns the counts of operations on permits, over all keys.
    #[must_use]
    pub fn permit_counts(&self) -> PermitCounts {
        let count = |counter: Counter| self.permit_counters.0[counter as usize].load(Ordering::Relaxed);
        PermitCounts {
            acquired: count(Counter::Acquired),
            denied: count(Counter::Denied),
            renewed: count(Counter::Renewed),
            released: count(Counter::Released),
            gone: count(Counter::Gone),
            held_here: self.permits.held_here() as u64,
        }
    }

    async fn decide_permit(
        &self,
        caller: &Caller,
        key: &[u8],
        id: &str,
        op: PermitOp,
    ) -> Result<Sourced<Permits>, PermitError> {
        let charge = PermitCharge { namespace: &CALLERS, key: own_key(key)?, permit: Key::new(id)?, op };
        let owner = self.permits.owner(caller);
        let told = match self.default_store.asked() {
            // Boxed: what waits for a network may allocate, and what decides in memory stays small.
            Some(asked) => Box::pin(self.ask_for_permit(asked, owner, &charge)).await?,
            None => Sourced::by_store(self.permits.decide(owner, &charge)?),
        };
        self.permit_counters.count(op, &told.answer);
        Ok(told)
    }

    /// Decides for a caller in a store that has to be awaited, or in this process if that does not answer.
    async fn ask_for_permit(
        &self,
        asked: &Asked,
        owner: Option<PermitOwner>,
        charge: &PermitCharge<'_>,
    ) -> Result<Sourced<Permits>, PermitError> {
        // A release that is still to be repeated must not meet a permit that is held anew.
        if charge.op != PermitOp::Release && !asked.withdraw_release(charge) {
            return Err(PermitError::Store(StoreError::Unanswered));
        }
        let was_there = self.permits.ask(owner, charge)?;
        let error = match asked.decide_permit(&Call::default(), charge).await {
            Ok(told) => return Ok(Sourced::by_store(self.permits.answered(owner, charge, told)?)),
            Err(error) => error,
        };
        // Only what nodes share is replaced by the memory of each; any other answer is one.
        let is_away = matches!(error, StoreFailure::Failed { .. }) && !error.is_overload();
        if is_away && asked.nature().is_shared {
            self.note_fallbacks(1);
            let alone = self.permits.decide_alone(owner, charge, was_there, !error.was_not_applied());
            if let Some(left) = alone.release_within {
                asked.release_later(charge, left);
            }
            return Ok(Sourced::here(alone.told?));
        }
        self.permits.was_not_asked(charge, was_there)?;
        Err(if error.is_overload() { self.note_overloaded_caller().into() } else { error.into() })
    }
}

fn check_op(op: PermitOp, lease_max: Duration) -> Result<(), PermitError> {
    let fits = |lease: &Duration| (PERMIT_LEASE_MIN..=lease_max).contains(lease);
    match (op.limit(), op.lease()) {
        (Some(value), _) if !(1..=PERMIT_LIMIT_MAX).contains(&value) => Err(PermitError::Limit { value }),
        (_, Some(value)) if !fits(&value) => Err(PermitError::Lease { value, max: lease_max }),
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

/// Returns a new name for a permit, of 128 random bits in hex.
///
/// # Errors
/// Fails if the system provides no random bits.
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
