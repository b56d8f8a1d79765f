//! The store: charges, inspections, leases, permits and notices, each in one call of a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryFutureExt;
use tidegate_core::{
    Arithmetic, Charge, ChargeError, Decisions, DecisionsExt, Found, LimitExt, Op, Permits, Snapshot, check_charges,
};

use super::clock::StoreClock;
use super::crossing::Crossing;
use super::decode::{self, ReplyError};
use super::link::{Arg, CallError, OpenError, Redis, Reply, Script, Term, slot};
use super::named::NamedCharges;
use super::script::SCRIPTS;
use super::url::Target;
use super::{encode, key};
use crate::error::{Cause, Certainty};
use crate::{
    Bulletin, Call, Health, Lease, Leased, Leasing, NOTICE_BYTES_MAX, NOTICES_MAX, Nature, Notice, PermitCharge,
    PermitStore, Posted, Posting, Store, StoreError,
};

/// The prefix of keys, unless the address sets one.
pub(super) const PREFIX: &str = "tidegate";

const LONG_NOTICE: &str = "a notice of a node has at most 65536 bytes";

/// Redis or Valkey as a store: standalone, behind Sentinel, or as a Cluster. Clones share its connections.
#[derive(Clone)]
pub struct RedisStore {
    pub(super) redis: Redis,
    pub(super) prefix: Box<str>,
    budget: Duration,
    pub(super) wait: Duration,
    pub(super) clock: Arc<StoreClock>,
}

const NO_LEASE: &str = "leases exist for gcra, token_bucket, leaky_bucket and fixed_window only";

/// Why there is no answer, in all detail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RedisError {
    /// It could not be asked, did not answer, or refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It answered what cannot be read. What it did is not known.
    #[error("{store}: {error}")]
    Reply { store: Arc<str>, error: ReplyError },
    /// The charges cannot be decided together, whatever the store.
    #[error(transparent)]
    Charges(#[from] ChargeError),
    /// The limit has no leases.
    #[error("{store}: {NO_LEASE}")]
    NoLease { store: Arc<str> },
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> StoreError {
        match error {
            RedisError::Call(error) => error.into(),
            RedisError::Charges(error) => error.into(),
            RedisError::NoLease { store } => StoreError::Unsupported { store, what: NO_LEASE },
            error @ RedisError::Reply { .. } => {
                StoreError::Failed { certainty: Certainty::Unknown, cause: Cause::new(error) }
            }
        }
    }
}

impl RedisStore {
    /// Opens a store at this address. Nothing connects yet: the server may be down.
    ///
    /// # Errors
    /// Fails if a file that the address names cannot be used.
    pub fn open(target: &Target) -> Result<RedisStore, OpenError> {
        let prefix = target.prefix().unwrap_or(PREFIX).into();
        let redis = Redis::open(target)?;
        Ok(RedisStore { redis, prefix, budget: target.budget(), wait: target.wait(), clock: Arc::default() })
    }

    /// Returns the name of the store in errors and messages: its address, without the password.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.redis.name()
    }

    /// Returns the health of its connections.
    #[must_use]
    pub fn health(&self) -> Health {
        self.redis.health()
    }

    /// Decides charges at one instant.
    pub(crate) async fn decide(&self, call: &Call, charges: &[Charge<'_>]) -> Result<Decisions, RedisError> {
        check_charges(charges)?;
        let named = NamedCharges::new(self, call, charges);
        match self.common_slot(&named.names) {
            Some(slot) => named.decide(slot).await,
            None => Box::pin(Crossing::new(&named).decide()).await,
        }
    }

    /// The slot of all these names; nothing if they have several. Without a Cluster all slots are one.
    fn common_slot(&self, names: &[Vec<u8>]) -> Option<u16> {
        if !self.redis.is_cluster() {
            return Some(0);
        }
        let first = names.first().map_or(0, |name| slot(name));
        names.iter().skip(1).all(|name| slot(name) == first).then_some(first)
    }

    pub(super) async fn look(&self, call: &Call, charge: &Charge<'_>) -> Result<Snapshot, RedisError> {
        let charge = Charge { op: Op::Peek, ..charge.shadow() };
        if charge.limit.arithmetic() != Arithmetic::Log {
            let decisions = self.decide(call, &[charge]).await?;
            let decision = *decisions.first().ok_or_else(|| self.unreadable(ReplyError::Unreadable))?;
            return Ok(Snapshot { decision, entries: Vec::new() });
        }
        let name = key::name(&self.prefix, &charge);
        let reply = self.run(call, &SCRIPTS.inspect_log, &name, &encode::log_numbers(&charge)).await?;
        decode::log_snapshot(&charge, &reply).map_err(|error| self.unreadable(error))
    }

    pub(super) async fn take_lease(&self, call: &Call, lease: &Lease<'_>) -> Result<Leased, RedisError> {
        let take = |units: u64| lease.charge(units);
        let Some((script, last)) = SCRIPTS.lease(lease.limit).zip(lease.sizes.last()) else {
            return Err(RedisError::NoLease { store: Arc::clone(self.name()) });
        };
        let name = key::name(&self.prefix, &take(*last));
        let args = encode::lease(lease.length, lease.sizes.iter().map(|units| take(*units)));
        let reply = self.run(call, script, &name, &args).await?;
        let read = || -> Result<Leased, ReplyError> {
            let (taken, now, words) = decode::leased(&take(*last), &reply)?;
            let units = if taken == 0 { *last } else { *lease.sizes.get(taken - 1).ok_or(ReplyError::Unreadable)? };
            // As the script did: the debt is at least the lease's length.
            let raised = now.plus(lease.length).as_nanos().max(words[0]);
            let found = if lease.limit.algorithm().is_bucket() { [raised, 0, 0] } else { words };
            let decisions = Decisions::of_found(&[take(units)], now, &[Found::Words(found)], taken > 0)?;
            let decision = *decisions.first().ok_or(ReplyError::Unreadable)?;
            let report = decisions.report(0).cloned();
            Ok(Leased { units: if taken == 0 { 0 } else { units }, decision, report })
        };
        read().map_err(|error| self.unreadable(error))
    }

    pub(super) async fn decide_permit(&self, call: &Call, charge: &PermitCharge<'_>) -> Result<Permits, RedisError> {
        let name = key::permits(&self.prefix, charge.namespace, charge.key);
        let (lease, limit) = (charge.op.lease().unwrap_or_default(), charge.op.limit().unwrap_or(0));
        // Rounded up: a permit is never taken away too early.
        let micros = u64::try_from(lease.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        let permit = Arg::from(charge.permit.as_bytes());
        let args = [Arg::from(charge.op.name()), permit, Arg::from(micros.min(LEASE_MICROS_MAX)), Arg::from(limit)];
        let reply = self.run(call, &SCRIPTS.permits, &name, &args).await?;
        let (done, in_use, micros) = decode::permits(&reply).map_err(|error| self.unreadable(error))?;
        Ok(Permits::new(done, in_use, Duration::from_micros(micros)))
    }

    async fn run_bulletin(&self, call: &Call, topic: &str, args: &[Arg<'_>]) -> Result<Reply, RedisError> {
        let names = key::bulletin(&self.prefix, topic);
        let names = [names[0].as_slice(), names[1].as_slice()];
        Ok(self.redis.call(&SCRIPTS.bulletin, &names, args, self.term(call)).await?)
    }

    async fn run(&self, call: &Call, script: &Script, name: &[u8], args: &[Arg<'_>]) -> Result<Reply, RedisError> {
        Ok(self.redis.call(script, &[name], args, self.term(call)).await?)
    }

    /// What a call may take.
    pub(super) fn term(&self, call: &Call) -> Term {
        Term::new(self.budget, self.wait).until(call.deadline)
    }

    pub(super) fn unreadable(&self, error: ReplyError) -> RedisError {
        RedisError::Reply { store: Arc::clone(self.name()), error }
    }
}

/// On a Cluster, all-or-none at one instant holds for charges of one slot. Charges of several slots are taken in their
/// order, and taken units are given back when a later charge is denied: this never over-admits, but may deny other
/// requests meanwhile. Refunds and resets come last, and only if nothing is denied.
impl Store for RedisStore {
    fn charge(
        &self,
        call: &Call,
        charges: &[Charge<'_>],
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send {
        self.decide(call, charges).err_into()
    }

    async fn inspect(&self, call: &Call, charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        Ok(self.look(call, charge).await?)
    }

    fn nature(&self) -> Nature {
        Nature::shared(self.wait + self.budget)
    }

    fn health(&self) -> Health {
        RedisStore::health(self)
    }

    /// Its tasks end with its last clone.
    async fn close(&self) {}
}

impl Leasing for RedisStore {
    async fn lease(&self, call: &Call, lease: &Lease<'_>) -> Result<Leased, StoreError> {
        Ok(self.take_lease(call, lease).await?)
    }
}

impl PermitStore for RedisStore {
    async fn permit(&self, call: &Call, charge: &PermitCharge<'_>) -> Result<Permits, StoreError> {
        Ok(self.decide_permit(call, charge).await?)
    }
}

impl Bulletin for RedisStore {
    async fn publish(&self, call: &Call, notice: &Notice<'_>) -> Result<(), StoreError> {
        let Notice { node, topic, bytes, ttl } = *notice;
        if bytes.len() > NOTICE_BYTES_MAX {
            return Err(StoreError::Unsupported { store: Arc::clone(self.name()), what: LONG_NOTICE });
        }
        let micros = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX).min(LEASE_MICROS_MAX);
        let (op, most) = (Arg::from("publish"), Arg::from(NOTICES_MAX as u64));
        self.run_bulletin(call, topic, &[op, Arg::from(node), Arg::from(micros), Arg::from(bytes), most]).await?;
        Ok(())
    }

    async fn posted(&self, call: &Call, topic: &str) -> Result<Vec<Posted>, StoreError> {
        let reply = self.run_bulletin(call, topic, &[Arg::from("posted")]).await?;
        Ok(decode::posted(&reply).map_err(|error| self.unreadable(error))?)
    }

    async fn read(&self, call: &Call, topic: &str, node: &str) -> Result<Option<Posting>, StoreError> {
        let reply = self.run_bulletin(call, topic, &[Arg::from("read"), Arg::from(node)]).await?;
        Ok(decode::posting(reply).map_err(|error| self.unreadable(error))?)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RedisStore").field("store", self.name()).finish_non_exhaustive()
    }
}

/// The longest lease of a permit, and the longest time of a notice: ten years. Added to an instant in microseconds it stays a whole number to Lua.
const LEASE_MICROS_MAX: u64 = 10 * 365 * 86_400 * 1_000_000;
