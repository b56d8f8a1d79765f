//! The store itself: charges, looks, leases and permits, each in one call of a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Charge, ChargeError, Decision, Decisions, Found, Key, Limit, Numbers, Op, Permits, Snapshot, State, Time,
    check_charges,
};

use super::crossing::Crossing;
use super::decode::{self, ReplyError};
use super::link::{Arg, CallError, Health, OpenError, Redis, Script, Term, slot};
use super::script::SCRIPTS;
use super::url::Target;
use super::{encode, key};

/// What keys begin with if the address of the store says nothing.
const PREFIX: &str = "tidegate";

/// Redis or Valkey as a store: standalone, behind Sentinel, or as a Cluster. Clones share its connections.
#[derive(Clone)]
pub struct RedisStore {
    redis: Redis,
    prefix: Box<str>,
    budget: Duration,
}

/// A charge, and the hash tag that chooses its slot on a Cluster; none if empty.
#[derive(Clone, Copy, Debug)]
pub struct Tagged<'a> {
    /// The charge.
    pub charge: Charge<'a>,
    /// Charges with the same tag have the same slot.
    pub tag: &'a [u8],
}

/// Units that were taken in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// How many: one of the sizes that were asked for.
    pub units: u64,
    /// The answer, with the receipt to give back what is not spent.
    pub decision: Decision,
}

/// An answer, and the state that it left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The answer.
    pub decision: Decision,
    /// The state of the key after it.
    pub state: State,
    /// When that was, by the store's clock.
    pub now: Time,
}

/// Why a store did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It could not be asked, did not answer, or refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It answered what cannot be read.
    #[error("{store}: {error}")]
    Reply {
        /// The store.
        store: Box<str>,
        /// What is wrong with the answer.
        error: ReplyError,
    },
    /// The charges cannot be decided together, whatever the store.
    #[error(transparent)]
    Charges(#[from] ChargeError),
}

impl RedisStore {
    /// A store at this address. Nothing is connected yet: it may be absent.
    ///
    /// # Errors
    /// If a file that the address names cannot be used.
    pub fn open(target: &Target) -> Result<RedisStore, OpenError> {
        let prefix = target.prefix().unwrap_or(PREFIX).into();
        Ok(RedisStore { redis: Redis::open(target)?, prefix, budget: target.budget() })
    }

    /// How errors and messages call it: its address, without the password.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.redis.name()
    }

    /// How its connections do.
    #[must_use]
    pub fn health(&self) -> Health {
        self.redis.health()
    }

    /// How long a call may take as a whole.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Decides charges at one instant: takes all that fit if no vetoing charge is denied, else none.
    ///
    /// On a Cluster this holds for charges of one slot. Those of several slots are taken in their order, and what was
    /// taken is given back when a later one is denied: never too much passes, but somebody else may be denied meanwhile.
    /// Their refunds and resets come after all that takes, and only if nothing is denied.
    ///
    /// # Errors
    /// If the store does not answer, or the charges cannot be decided together.
    pub async fn charge(&self, charges: &[Tagged<'_>]) -> Result<Decisions, StoreError> {
        let names: Vec<Vec<u8>> = charges.iter().map(|one| self.name_of(one)).collect();
        let plain: Vec<Charge<'_>> = charges.iter().map(|one| one.charge).collect();
        check_charges(&plain)?;
        let slots: Vec<u16> = match self.redis.is_cluster() {
            true => names.iter().map(|name| slot(name)).collect(),
            false => Vec::new(),
        };
        let first = slots.first().copied().unwrap_or(0);
        if slots.iter().any(|slot| *slot != first) {
            return Box::pin(Crossing::new(self, &names, &slots, &plain).decide()).await;
        }
        self.charge_slot(first, &names, &plain, Term::of(self.budget)).await
    }

    /// Decides charges of one slot.
    pub(super) async fn charge_slot(
        &self,
        slot: u16,
        names: &[Vec<u8>],
        charges: &[Charge<'_>],
        term: Term,
    ) -> Result<Decisions, StoreError> {
        let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let (script, args) = match charges {
            [] => return Ok(Decisions::default()),
            [one] => (SCRIPTS.one(one.limit.algorithm()), encode::one(one)),
            several => (&SCRIPTS.several, encode::several(several)),
        };
        let reply = self.redis.call_at(slot, script, &keys, &args, term).await?;
        decode::decisions(charges, &reply).map_err(|error| self.unreadable(error))
    }

    /// Decides one charge, and tells the state that it left behind, so that a caller can go on from there alone.
    ///
    /// # Errors
    /// If the store does not answer, or the limit keeps a log.
    pub async fn charge_and_tell(&self, one: &Tagged<'_>) -> Result<Told, StoreError> {
        let charge = &one.charge;
        if let Numbers::Log { .. } = charge.limit.numbers(charge.key) {
            return Err(self.unreadable(ReplyError::NoState));
        }
        let reply =
            self.run(SCRIPTS.one(charge.limit.algorithm()), &[&self.name_of(one)], &encode::one(charge)).await?;
        let read = || -> Result<Told, ReplyError> {
            let (taken, now, words) = decode::leased(charge, &reply)?;
            let (state, decision) = State::of_found(charge, now, words, taken == 1)?;
            Ok(Told { decision, state, now })
        };
        read().map_err(|error| self.unreadable(error))
    }

    /// Looks at a key, with the entries of its log where the limit keeps one.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn inspect(&self, key: Key<'_>, tag: &[u8], limit: &Limit) -> Result<Snapshot, StoreError> {
        let charge = Charge { key, limit, op: Op::Peek, veto: false };
        let Numbers::Log { .. } = limit.numbers(key) else {
            let decisions = self.charge(&[Tagged { charge, tag }]).await?;
            let decision = decisions.iter().next().copied().ok_or_else(|| self.unreadable(ReplyError::Unreadable))?;
            return Ok(Snapshot { decision, entries: Vec::new() });
        };
        let name = self.name_of(&Tagged { charge, tag });
        let reply = self.run(&SCRIPTS.inspect_log, &[&name], &encode::log_numbers(&charge)).await?;
        decode::log_snapshot(&charge, &reply).map_err(|error| self.unreadable(error))
    }

    /// Takes units in advance, to be spent within `length` from before this call: the first of `sizes` that fits. Of a
    /// fixed window they are to be spent before the window ends too. Nothing is taken if no size fits; the answer is then
    /// that of the last.
    ///
    /// # Errors
    /// If the store does not answer, or the algorithm has no leases.
    pub async fn lease(
        &self,
        key: Key<'_>,
        tag: &[u8],
        limit: &Limit,
        sizes: &[u64],
        length: Duration,
    ) -> Result<Leased, StoreError> {
        let take = |units: u64| Charge::take(key, limit, units);
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let is_bucket = matches!(limit.numbers(key), Numbers::Bucket { .. });
        let Some((script, last)) = SCRIPTS.lease(limit.algorithm()).zip(sizes.last()) else {
            return Err(self.unreadable(ReplyError::NoLease));
        };
        let name = self.name_of(&Tagged { charge: take(*last), tag });
        let args = encode::lease(nanos, sizes.iter().map(|units| take(*units)));
        let reply = self.run(script, &[&name], &args).await?;
        let read = || -> Result<Leased, ReplyError> {
            let (taken, now, words) = decode::leased(&take(*last), &reply)?;
            let units = if taken == 0 { *last } else { *sizes.get(taken - 1).ok_or(ReplyError::Unreadable)? };
            // As the script did: the debt is at least the lease's length.
            let raised = now.plus(length).as_nanos().max(words[0]);
            let found = if is_bucket { [raised, 0, 0] } else { words };
            let decisions = Decisions::of_found(&[take(units)], now, &[Found::Words(found)], taken > 0)?;
            let decision = *decisions.iter().next().ok_or(ReplyError::Unreadable)?;
            Ok(Leased { units: if taken == 0 { 0 } else { units }, decision })
        };
        read().map_err(|error| self.unreadable(error))
    }

    /// Takes one of `limit` permits under a key for the length of a lease. Who asks again with the same permit holds it
    /// once, for longer.
    ///
    /// A permit has a name of at least one byte. One whose lease ends later than the longest lease of the key from now was
    /// given before the store's clock was set back, and is cut to that: so a holder that died keeps nobody out for longer
    /// than that lease.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn acquire(
        &self,
        key: Key<'_>,
        permit: &[u8],
        lease: Duration,
        limit: u64,
    ) -> Result<Permits, StoreError> {
        self.permits("acquire", key, permit, lease, limit).await
    }

    /// Holds a permit for another lease from now on.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn renew(&self, key: Key<'_>, permit: &[u8], lease: Duration) -> Result<Permits, StoreError> {
        self.permits("renew", key, permit, lease, 0).await
    }

    /// Gives a permit back.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn release(&self, key: Key<'_>, permit: &[u8]) -> Result<Permits, StoreError> {
        self.permits("release", key, permit, Duration::ZERO, 0).await
    }

    async fn permits(
        &self,
        op: &str,
        key: Key<'_>,
        permit: &[u8],
        lease: Duration,
        limit: u64,
    ) -> Result<Permits, StoreError> {
        let name = key::permits(&self.prefix, key);
        // Rounded up: a permit is never taken away too early.
        let micros = u64::try_from(lease.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let args = [Arg::from(op), Arg::from(permit), Arg::from(micros.min(LEASE_MICROS_MAX)), Arg::from(limit)];
        let reply = self.run(&SCRIPTS.permits, &[&name], &args).await?;
        let (done, in_use, micros) = decode::permits(&reply).map_err(|error| self.unreadable(error))?;
        Ok(Permits { done, in_use, next_end: Duration::from_micros(micros) })
    }

    async fn run(&self, script: &Script, keys: &[&[u8]], args: &[Arg<'_>]) -> Result<redis::Value, StoreError> {
        Ok(self.redis.call(script, keys, args, self.budget).await?)
    }

    fn name_of(&self, one: &Tagged<'_>) -> Vec<u8> {
        key::name(&self.prefix, one.tag, one.charge.limit, one.charge.key)
    }

    fn unreadable(&self, error: ReplyError) -> StoreError {
        StoreError::Reply { store: (**self.name()).into(), error }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RedisStore").field("store", self.name()).finish_non_exhaustive()
    }
}

/// The longest lease of a permit: ten years. Added to an instant in microseconds it stays a whole number to Lua.
const LEASE_MICROS_MAX: u64 = 10 * 365 * 86_400 * 1_000_000;
