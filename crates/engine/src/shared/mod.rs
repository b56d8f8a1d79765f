//! What keeps calls away from a store that several nodes share.
//!
//! | to find | look in |
//! |---|---|
//! | charges: which of them the store is asked for | this file |
//! | denials that are still true | `denials.rs` |
//! | slices of a budget, spent here: how large, for how long | `slice.rs` |
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
//! debits go: one further limit beyond the limit. While the store does not answer, each node goes on by itself.

mod denials;
mod keeper;
mod leases;
mod name;
mod purse;
mod replica;
mod replicas;
mod slice;

#[cfg(test)]
mod live_runs;
#[cfg(test)]
#[allow(unused_imports, reason = "other tests use the rest")]
#[path = "../../../stores/tests/servers/mod.rs"]
mod live_servers;
#[cfg(test)]
mod live_tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{
    Charge, Clock, Decision, Decisions, Key, Limit, Numbers, Op, Receipt, Snapshot, Time, check_charges,
};
use tidegate_stores::redis::{Health, RedisStore, ReplyError, StoreError, Tagged};

use crate::bounds::LEASE_ROUNDS_MAX;
use denials::Denials;
use keeper::Keeper;
use leases::{Landing, Leases, Turn};
use name::Name;
use purse::{Flight, Remainder};
use replicas::Replicas;
use slice::{Ask, Terms};

/// How exactly a limit on a shared store is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// The store decides each request.
    #[default]
    Exact,
    /// Each node takes slices of the budget in advance and spends them by itself. Never lets too much pass.
    Leased,
    /// Each node decides by itself and tells the others afterwards.
    Async,
}

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
    Lease(Name, Terms),
    Replica(Name),
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

    /// How it does.
    pub(crate) fn health(&self) -> SharedHealth {
        let inner = &self.inner;
        SharedHealth {
            store: inner.store.health(),
            from_denials: inner.from_denials.load(Relaxed),
            from_leases: inner.from_leases.load(Relaxed),
            from_replicas: inner.from_replicas.load(Relaxed),
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
        if self.inner.closed.load(Relaxed) {
            return Place::Store;
        }
        let name = || Name::new(limit, one.tag, key);
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

    /// Decides charges of which some are decided here.
    async fn several(&self, charges: &[SharedCharge<'_>], places: &[Place]) -> Result<Decisions, StoreError> {
        let inner = &self.inner;
        let call = inner.denials.call(charges);
        let sent = inner.clock.now();
        if let Some(known) = call.and_then(|call| inner.denials.answer(call, sent)) {
            inner.from_denials.fetch_add(charges.len() as u64, Relaxed);
            return Ok(known);
        }
        let mut answers: ArrayVec<Option<Decision>, CHARGES_MAX> = charges.iter().map(|_| None).collect();
        let mut taken = Taken { inner, each: ArrayVec::new() };
        let mut denied = false;
        let here = |place: &Place| !matches!(place, Place::Store);
        for ((one, place), answer) in charges.iter().zip(places).zip(&mut answers).filter(|((_, place), _)| here(place))
        {
            let asked = if denied { looking(one) } else { *one };
            let decision = self.one(&asked, place).await?;
            if !denied && let (Op::Take(units @ 1..), Some(receipt)) = (one.charge.op, decision.receipt()) {
                taken.each.push((place, one.charge, units, receipt));
            }
            denied |= one.charge.veto && !decision.is_allowed();
            *answer = Some(decision);
        }
        let mut asked: ArrayVec<SharedCharge<'_>, CHARGES_MAX> = ArrayVec::new();
        for (one, _) in charges.iter().zip(places).filter(|(_, place)| !here(place)) {
            asked.push(if denied { looking(one) } else { *one });
        }
        if !asked.is_empty() {
            let decisions = inner.ask(&asked).await?;
            denied |= !decisions.is_allowed();
            answers.iter_mut().filter(|answer| answer.is_none()).zip(decisions.iter()).for_each(
                |(answer, decision)| {
                    *answer = Some(*decision);
                },
            );
        }
        if !denied {
            taken.each.clear();
        }
        let units = |charge: &Charge<'_>| if let Op::Take(units) = charge.op { units } else { 0 };
        let answers: ArrayVec<(Decision, bool), CHARGES_MAX> = charges
            .iter()
            .zip(places)
            .zip(answers)
            .filter_map(|((one, place), answer)| Some((one, place, answer?)))
            .map(|(one, place, answer)| {
                let back = denied && here(place) && answer.receipt().is_some();
                let left = answer.remaining().saturating_add(if back { units(&one.charge) } else { 0 });
                let answer = if back { answer.with_remaining(left) } else { answer };
                (if denied { answer.untaken() } else { answer }, one.charge.veto)
            })
            .collect();
        if let (true, Some(call)) = (denied, call) {
            inner.denials.learn(call, sent, inner.clock.now(), &answers);
        }
        Ok(answers.into_iter().collect())
    }

    /// Decides a charge to a key that units are leased of.
    async fn on_lease(&self, name: &Name, terms: Terms, one: &SharedCharge<'_>) -> Result<Decision, StoreError> {
        let inner = &self.inner;
        let now = inner.clock.now();
        match one.charge.op {
            Op::Take(units @ 1..) => self.take_leased(name, terms, one, units).await,
            Op::Take(0) | Op::Peek => {
                let decision = inner.ask_one(one).await?;
                let left = inner.leases.left(name, inner.clock.now());
                Ok(decision.with_remaining(decision.remaining().saturating_add(left)))
            }
            Op::Ask(units) => match inner.leases.ask(name, units, now) {
                Some(decision) => Ok(inner.count_leased(decision)),
                None => inner.ask_one(one).await,
            },
            Op::Debit(_) => inner.ask_one(one).await,
            Op::Refund(units, Some(receipt)) if inner.leases.give_back(name, units, receipt, now) => {
                match inner.leases.ask(name, 0, now) {
                    Some(decision) => Ok(inner.count_leased(decision)),
                    None => {
                        inner.ask_one(&SharedCharge { charge: Charge { op: Op::Peek, ..one.charge }, ..*one }).await
                    }
                }
            }
            Op::Refund(..) | Op::Reset => {
                if one.charge.op == Op::Reset {
                    inner.leases.forget(name);
                }
                let decision = inner.ask_one(one).await;
                inner.leases.forget_denial(name);
                decision
            }
        }
    }

    async fn take_leased(
        &self,
        name: &Name,
        terms: Terms,
        one: &SharedCharge<'_>,
        units: u64,
    ) -> Result<Decision, StoreError> {
        let inner = &self.inner;
        for _ in 0..LEASE_ROUNDS_MAX {
            match inner.leases.take(name, one, terms, units, inner.clock.now()) {
                Turn::Answer(decision) => return Ok(inner.count_leased(decision)),
                Turn::Wait(flight) => inner.wait(name, flight).await?,
                Turn::Lease(ask, landing) => {
                    let flight = landing.subscribe();
                    self.lease(name.clone(), *one.charge.limit, ask, landing);
                    inner.wait(name, flight).await?;
                }
                Turn::Alone(landing) => return inner.alone(name, one, units, landing).await,
                Turn::Exact => break,
            }
        }
        inner.ask_one(one).await
    }

    /// Asks for a lease. A task does, so that what was leased is not lost if the request goes away.
    fn lease(&self, name: Name, limit: Limit, ask: Ask, landing: Landing) {
        keeper::start(&self.inner);
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let Some((tag, key)) = name.parts() else { return };
            let sent = inner.clock.now();
            inner.calls.fetch_add(1, Relaxed);
            let result = inner.store.lease(key, tag, &limit, &ask.sizes, ask.length).await;
            inner.leases.receive(&name, &ask, result.as_ref(), sent, inner.clock.now());
            landing.send_replace(Some(result.map(|_| ())));
        });
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
        let result = self.store.charge(&tagged).await;
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
            let store = (*self.store.health().store).into();
            StoreError::Reply { store, error: ReplyError::Unreadable }
        })
    }

    /// Takes units for one request, while others wait for what that tells.
    async fn alone(
        &self,
        name: &Name,
        one: &SharedCharge<'_>,
        units: u64,
        landing: Landing,
    ) -> Result<Decision, StoreError> {
        let land = Land { inner: self, name };
        let sent = self.clock.now();
        let result = self.ask_one(one).await;
        if let Ok(decision) = &result {
            self.leases.receive_alone(name, units, decision, sent, self.clock.now());
        }
        drop(land);
        landing.send_replace(Some(result.as_ref().map(|_| ()).map_err(StoreError::clone)));
        result
    }

    /// Waits for a call of somebody else, which ends within the store's budget.
    async fn wait(&self, name: &Name, mut flight: Flight) -> Result<(), StoreError> {
        match flight.wait_for(Option::is_some).await {
            Ok(landed) => landed.clone().unwrap_or(Ok(())),
            Err(_) => {
                self.leases.land(name, self.clock.now());
                Ok(())
            }
        }
    }

    /// Decides a charge on the replica of its key.
    async fn on_replica(self: &Arc<Self>, name: &Name, one: &SharedCharge<'_>) -> Result<Decision, StoreError> {
        let Charge { key, limit, op, .. } = one.charge;
        let now = self.clock.now();
        let op = match op {
            Op::Reset => {
                let decision = self.ask_one(one).await;
                self.replicas.forget(name);
                return decision;
            }
            Op::Refund(units, receipt) => match self.replicas.give_back(name, key, limit, units, receipt, now) {
                0 => Op::Peek,
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
        let told = self.store.charge_and_tell(&one.tagged()).await?;
        self.replicas.receive(name, limit, &told, now, self.clock.now());
        Ok(told.decision)
    }

    fn count_leased(&self, decision: Decision) -> Decision {
        self.from_leases.fetch_add(1, Relaxed);
        decision
    }

    /// Puts units back that were taken here, or has them given back to the store.
    fn give_back(&self, place: &Place, charge: &Charge<'_>, units: u64, receipt: Receipt) {
        let now = self.clock.now();
        let limit = *charge.limit;
        match place {
            Place::Store => {}
            Place::Lease(name, _) => {
                if !self.leases.give_back(name, units, receipt, now) {
                    self.leases.queue(name, [Remainder { limit, units, receipt }]);
                }
            }
            Place::Replica(name) => {
                let rest = self.replicas.give_back(name, charge.key, &limit, units, Some(receipt), now);
                if rest > 0 {
                    self.leases.queue(name, [Remainder { limit, units: rest, receipt }]);
                }
            }
        }
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

/// What was taken here, and goes back if it is dropped before the whole has passed.
struct Taken<'a> {
    inner: &'a Inner,
    each: ArrayVec<(&'a Place, Charge<'a>, u64, Receipt), CHARGES_MAX>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (place, charge, units, receipt) in &self.each {
            self.inner.give_back(place, charge, *units, *receipt);
        }
    }
}

/// Forgets denials when what may end them has been done, or may have been.
struct Forget<'a> {
    denials: &'a Denials,
    charges: &'a [SharedCharge<'a>],
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        for one in self.charges.iter().filter(|one| matches!(one.charge.op, Op::Refund(..) | Op::Reset)) {
            self.denials.forget(one);
        }
    }
}

/// Lets the next one ask when a call has ended, also if nobody waited for it to end.
struct Land<'a> {
    inner: &'a Inner,
    name: &'a Name,
}

impl Drop for Land<'_> {
    fn drop(&mut self) {
        self.inner.leases.land(self.name, self.inner.clock.now());
    }
}

/// The same question without taking or giving anything, or a veto.
fn looking<'a>(one: &SharedCharge<'a>) -> SharedCharge<'a> {
    let op = match one.charge.op {
        Op::Take(units) | Op::Ask(units) => Op::Ask(units),
        Op::Debit(_) | Op::Refund(..) | Op::Peek | Op::Reset => Op::Peek,
    };
    SharedCharge { charge: Charge { op, veto: false, ..one.charge }, ..*one }
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
