//! What keeps calls away from a store that several nodes share.
//!
//! | to find | look in |
//! |---|---|
//! | charges: which of them the store is asked for | this file, `several.rs` |
//! | denials that are still true | `denials.rs` |
//! | slices of a budget, spent here: how large, for how long | `spend.rs`, `slice.rs` |
//! | what is held of one key, of all keys | `purse.rs`, `leases.rs` |
//! | copies of states, put right from time to time | `replica.rs`, `replicas.rs` |
//! | work in the background | `keeper.rs` |
//!
//! **Exact**: the store is asked, unless the same call is known to be denied.
//!
//! **Leased**: never lets too much pass. What is leased counts as spent at the end of its lease, and no later is it spent.
//! A burst after idle times is up to a lease's length short. What remains is told as what is left here and what the store
//! said was left; other nodes may hold more, or have taken of it.
//!
//! **Async**: a node learns of units of the others when it pushes its own. So at most what the other nodes let pass in a
//! [`SYNC_PAUSE`](crate::bounds::SYNC_PAUSE) and the time of a call is let pass too much; all of it is counted, as far as
//! debits go: one further limit beyond the limit. A node that was not asked for a while goes by what it knew, for one such
//! pause. While the store does not answer, each node goes on by itself.

mod denials;
mod keeper;
mod leases;
mod name;
mod purse;
mod replica;
mod replicas;
mod several;
mod slice;
mod spend;

#[cfg(test)]
mod left_over_tests;
#[cfg(test)]
mod live_runs;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod purse_tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{
    Charge, Clock, Decision, Decisions, Key, Limit, Numbers, Op, PermitOp, Permits, Snapshot, Time, check_charges,
};
use tidegate_policy::Consistency;
use tidegate_stores::redis::{Health, RedisStore, ReplyError, StoreError, Tagged};

use crate::bounds::EASED_KEY_BYTES_MAX;
use denials::Denials;
use keeper::Keeper;
use leases::Leases;
use name::Spelling;
use replicas::Replicas;
use slice::Terms;

/// A charge to a shared store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedCharge<'a> {
    /// The charge.
    pub(crate) charge: Charge<'a>,
    /// The hash tag that chooses its slot on a Cluster; none if empty.
    pub(crate) tag: &'a [u8],
    /// What its limit asks for. Where the algorithm cannot do it, it is decided exactly.
    pub(crate) consistency: Consistency,
}

/// How a shared store does, and what it was spared.
#[derive(Clone, Debug)]
pub(crate) struct SharedHealth {
    /// Its connections.
    pub(crate) store: Health,
    /// Charges that were known to be denied.
    pub(crate) from_denials: u64,
    /// Charges that were decided by what was leased, or by what the store said when it leased nothing.
    pub(crate) from_leases: u64,
    /// Charges that were decided on a replica.
    pub(crate) from_replicas: u64,
    /// Calls to the store, those in the background among them.
    #[cfg(test)]
    pub(crate) calls: u64,
}

/// A store that several nodes share, and all that spares it calls. Clones share one.
#[derive(Clone)]
pub(crate) struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    store: RedisStore,
    clock: Clock,
    denials: Denials,
    leases: Leases,
    replicas: Replicas,
    keeper: Arc<Keeper>,
    closed: AtomicBool,
    from_denials: AtomicU64,
    from_leases: AtomicU64,
    from_replicas: AtomicU64,
    calls: AtomicU64,
}

/// Where a charge is decided.
enum Place {
    Store,
    Lease(Spelling, Terms),
    Replica(Spelling),
}

impl Shared {
    /// A store with nothing known yet.
    pub(crate) fn new(store: RedisStore, clock: Clock) -> Shared {
        let keeper = Arc::new(Keeper::default());
        Shared {
            inner: Arc::new(Inner {
                store,
                clock,
                denials: Denials::new(),
                leases: Leases::new(Arc::clone(&keeper.wake)),
                replicas: Replicas::new(Arc::clone(&keeper.wake)),
                keeper,
                closed: AtomicBool::new(false),
                from_denials: AtomicU64::new(0),
                from_leases: AtomicU64::new(0),
                from_replicas: AtomicU64::new(0),
                calls: AtomicU64::new(0),
            }),
        }
    }

    /// Decides charges together: takes all that fit if no vetoing charge is denied, else none. What is decided here is
    /// taken first, and goes back if the store denies the others.
    ///
    /// # Errors
    /// If the store does not answer, or the charges cannot be decided together.
    pub(crate) async fn charge(&self, charges: &[SharedCharge<'_>]) -> Result<Decisions, StoreError> {
        let places: ArrayVec<Place, CHARGES_MAX> =
            charges.iter().take(CHARGES_MAX).map(|one| self.place(one)).collect();
        if places.iter().all(|place| matches!(place, Place::Store)) {
            return self.inner.ask(charges).await;
        }
        if let ([one], [place]) = (charges, &places[..]) {
            let decision = self.one(one, place).await?;
            return Ok([(decision, one.charge.veto)].into_iter().collect());
        }
        let plain: Vec<Charge<'_>> = charges.iter().map(|one| one.charge).collect();
        check_charges(&plain)?;
        self.several(charges, &places).await
    }

    /// Looks at a key, in the store: what this node leased counts as spent, what it has not pushed is not there.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn inspect(&self, key: Key<'_>, tag: &[u8], limit: &Limit) -> Result<Snapshot, StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        self.inner.store.inspect(key, tag, limit).await
    }

    /// Does something with a permit, in the store.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn decide_permit(&self, key: Key<'_>, id: &[u8], op: PermitOp) -> Result<Permits, StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        let store = &self.inner.store;
        match op {
            PermitOp::Acquire { limit, lease } => store.acquire(key, id, lease, limit).await,
            PermitOp::Renew { lease } => store.renew(key, id, lease).await,
            PermitOp::Release => store.release(key, id).await,
        }
    }

    /// How it does.
    pub(crate) fn health(&self) -> SharedHealth {
        let inner = &self.inner;
        SharedHealth {
            store: inner.store.health(),
            from_denials: inner.from_denials.load(Relaxed),
            from_leases: inner.from_leases.load(Relaxed),
            from_replicas: inner.from_replicas.load(Relaxed),
            #[cfg(test)]
            calls: inner.calls.load(Relaxed),
        }
    }

    /// Gives back what was leased and not spent, and pushes what was admitted. Charges from then on are decided exactly.
    pub(crate) async fn close(&self) {
        self.inner.closed.store(true, Relaxed);
        keeper::finish(&self.inner).await;
    }

    fn place(&self, one: &SharedCharge<'_>) -> Place {
        let Charge { key, limit, .. } = one.charge;
        let is_long = key.as_bytes().len() > EASED_KEY_BYTES_MAX;
        if is_long || self.inner.closed.load(Relaxed) {
            return Place::Store;
        }
        let name = || Spelling::new(limit, one.tag, key);
        match one.consistency {
            Consistency::Exact => Place::Store,
            Consistency::Leased => Terms::of(limit, key).map_or(Place::Store, |terms| Place::Lease(name(), terms)),
            Consistency::Async => match limit.numbers(key) {
                Numbers::Bucket { .. } | Numbers::Window { .. } | Numbers::Counter { .. } => Place::Replica(name()),
                Numbers::Log { .. } => Place::Store,
            },
        }
    }

    async fn one(&self, one: &SharedCharge<'_>, place: &Place) -> Result<Decision, StoreError> {
        match place {
            Place::Store => self.inner.ask_one(one).await,
            Place::Lease(name, terms) => self.on_lease(name, *terms, one).await,
            Place::Replica(name) => self.inner.on_replica(name, one).await,
        }
    }
}

impl Inner {
    /// Puts charges to the store, unless they are known to be denied.
    async fn ask(&self, charges: &[SharedCharge<'_>]) -> Result<Decisions, StoreError> {
        let call = self.denials.call(charges);
        let sent = self.clock.now();
        if let Some(known) = call.and_then(|call| self.denials.answer(call, sent)) {
            self.from_denials.fetch_add(charges.len() as u64, Relaxed);
            return Ok(known);
        }
        let forget = Forget { denials: &self.denials, charges };
        let tagged: Vec<Tagged<'_>> = charges.iter().map(SharedCharge::tagged).collect();
        self.calls.fetch_add(1, Relaxed);
        // Boxed: what waits for a network may allocate, and those who decide here stay small.
        let result = Box::pin(self.store.charge(&tagged)).await;
        drop(forget);
        let decisions = result?;
        if let (Some(call), false) = (call, decisions.is_allowed()) {
            let answers: ArrayVec<(Decision, bool), CHARGES_MAX> =
                decisions.iter().zip(charges).map(|(decision, one)| (*decision, one.charge.veto)).collect();
            self.denials.learn(call, sent, self.clock.now(), &answers);
        }
        Ok(decisions)
    }

    async fn ask_one(&self, one: &SharedCharge<'_>) -> Result<Decision, StoreError> {
        let decisions = self.ask(std::slice::from_ref(one)).await?;
        decisions.iter().next().copied().ok_or_else(|| {
            let store = self.store.name().as_ref().into();
            StoreError::Reply { store, error: ReplyError::Unreadable }
        })
    }

    /// Decides a charge on the replica of its key.
    async fn on_replica(self: &Arc<Self>, name: &[u8], one: &SharedCharge<'_>) -> Result<Decision, StoreError> {
        let Charge { key, limit, op, .. } = one.charge;
        let now = self.clock.now();
        let op = match op {
            Op::Reset => {
                let decision = self.ask_one(one).await;
                self.replicas.forget(name);
                return decision;
            }
            Op::Refund(units, receipt) => match self.replicas.give_back(name, key, limit, units, receipt, now) {
                0 => {
                    self.denials.forget(one);
                    Op::Peek
                }
                rest => {
                    let charge = Charge { op: Op::Refund(rest, receipt), ..one.charge };
                    return self.ask_one(&SharedCharge { charge, ..*one }).await;
                }
            },
            op => op,
        };
        keeper::start(self);
        if let Some(decision) = self.replicas.decide(name, key, limit, op, now) {
            self.from_replicas.fetch_add(1, Relaxed);
            return Ok(decision);
        }
        self.calls.fetch_add(1, Relaxed);
        let charge = Charge { op, ..one.charge };
        let told = Box::pin(self.store.charge_and_tell(&Tagged { charge, tag: one.tag })).await?;
        self.replicas.receive(name, limit, &told, now, self.clock.now());
        Ok(told.decision)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keeper.wake.notify_one();
    }
}

impl SharedCharge<'_> {
    fn tagged(&self) -> Tagged<'_> {
        Tagged { charge: self.charge, tag: self.tag }
    }
}

/// Forgets denials when what may change them has been done, or may have been.
struct Forget<'a> {
    denials: &'a Denials,
    charges: &'a [SharedCharge<'a>],
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        for one in self.charges {
            self.denials.forget(one);
        }
    }
}

/// The time from one instant to a later one; none if it is not later.
fn since(earlier: Time, later: Time) -> Duration {
    Duration::from_nanos(later.as_nanos().saturating_sub(earlier.as_nanos()))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("store", &self.inner.store).finish_non_exhaustive()
    }
}
