//! How closely nodes that share a store agree, and how calls to it are saved: the one wrapper between the engine and an
//! awaited store. It chooses by charge.
//!
//! | to find | look in |
//! |---|---|
//! | which charges the store is asked about | this file, `several.rs` |
//! | denials that are still valid | `denials.rs` |
//! | slices of a budget, spent locally: their size and length | `spend.rs`, `slice.rs` |
//! | the leases of one key, of all keys | `purse.rs`, `leases.rs` |
//! | copies of states, corrected from time to time | `replica.rs`, `replicas.rs` |
//! | decisions while the store is away | `away.rs` |
//! | releases of permits that did not reach the store | `releases.rs` |
//! | the number of nodes that use the store | `nodes.rs` |
//! | background work | `keeper.rs` |
//!
//! **Exact**: the store is asked, unless the same call is known to be denied.
//!
//! **Leased**: never over-admits. Leased units count as spent at the end of their lease, and are never spent later. A
//! burst after idle times is short by up to a lease's length. The remaining units are those left here plus those that
//! the store last reported; other nodes may hold more, or have taken some.
//!
//! **Async**: a node learns of the units of others when it pushes its own. So it over-admits at most the units that the
//! other nodes admit in a [`SYNC_PAUSE`](crate::bounds::SYNC_PAUSE) and the time of a call; all of them are counted, as
//! far as debits reach: one further limit beyond the limit. A node that was idle for a while uses its last state, for
//! one such pause. While the store does not answer, each node continues by itself.
//!
//! **Away**: the rule decides about failed charges, mostly locally, from the last states that the store reported. Units
//! of calls that did not reach the store are debited when it is back.

mod away;
mod denials;
mod keeper;
mod leases;
mod name;
mod nodes;
mod purse;
mod releases;
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

use futures_util::future::Either;
use tidegate_core::bounds::CHARGES_MAX;
use tidegate_core::{
    Charge, Clock, Consistency, Decision, Decisions, DecisionsExt, LimitExt, Op, Permits, Snapshot, Time, check_charges,
};
use tidegate_stores::{
    AnyStore, Call, Cause, Certainty, Health, LastStates, Nature, Notice, PermitCharge, Posted, Posting, Store,
    StoreError,
};

use crate::bounds::EASED_KEY_BYTES_MAX;
use crate::few::Few;
use crate::permits::new_permit_id;
use denials::Denials;
use keeper::Keeper;
use leases::Leases;
use name::Spelling;
use releases::Releases;
use replica::Told;
use replicas::Replicas;
use slice::Terms;

/// The health of a store, and what it was spared.
#[derive(Clone, Debug)]
pub(crate) struct ConsistentHealth {
    /// Its connections.
    pub(crate) store: Health,
    /// Charges that were known to be denied.
    pub(crate) from_denials: u64,
    /// Charges that were decided by what was leased, or by what the store said when it leased nothing.
    pub(crate) from_leases: u64,
    /// Charges that were decided on a replica.
    pub(crate) from_replicas: u64,
    /// Charges that were decided without the store, going on from its last states.
    pub(crate) from_last_states: u64,
    /// Those of keys of which no last state was known.
    pub(crate) unknown: u64,
    /// The nodes that use it, as far as they are counted.
    pub(crate) nodes: u64,
    /// Calls to the store, those in the background among them.
    #[cfg(test)]
    pub(crate) calls: u64,
}

/// A store that has to be asked, and all that spares it calls. Clones share one.
#[derive(Clone)]
pub(crate) struct Consistent {
    inner: Arc<Inner>,
}

struct Inner {
    store: AnyStore,
    nature: Nature,
    clock: Clock,
    denials: Denials,
    leases: Leases,
    replicas: Replicas,
    last: Arc<LastStates>,
    releases: Arc<Releases>,
    keeper: Arc<Keeper>,
    closed: AtomicBool,
    /// Whether this node announces itself to the others.
    counts_nodes: AtomicBool,
    /// Nodes that were counted last; 0 if none were.
    nodes: AtomicU64,
    /// When this node announces itself next, in nanoseconds.
    announce_at: AtomicU64,
    node_name: Option<Box<str>>,
    from_denials: AtomicU64,
    from_leases: AtomicU64,
    from_replicas: AtomicU64,
    decided_away: AtomicU64,
    calls: AtomicU64,
}

/// Where a charge is decided.
enum Place {
    Store,
    Lease(Spelling, Terms),
    Replica(Spelling),
}

impl Consistent {
    /// A store with nothing known yet.
    pub(crate) fn new(store: AnyStore, clock: Clock) -> Consistent {
        let keeper = Arc::new(Keeper::default());
        Consistent {
            inner: Arc::new(Inner {
                nature: store.nature(),
                store,
                clock,
                denials: Denials::new(),
                leases: Leases::new(Arc::clone(&keeper.wake)),
                replicas: Replicas::new(Arc::clone(&keeper.wake)),
                keeper,
                last: Arc::default(),
                releases: Arc::default(),
                closed: AtomicBool::new(false),
                counts_nodes: AtomicBool::new(false),
                nodes: AtomicU64::new(0),
                announce_at: AtomicU64::new(0),
                node_name: new_permit_id().ok(),
                from_denials: AtomicU64::new(0),
                from_leases: AtomicU64::new(0),
                from_replicas: AtomicU64::new(0),
                decided_away: AtomicU64::new(0),
                calls: AtomicU64::new(0),
            }),
        }
    }

    /// Decides charges together: takes all that fit if no vetoing charge is denied, else none. What is decided here is
    /// taken first, and goes back if the store denies the others.
    ///
    /// # Errors
    /// If the store does not answer, or the charges cannot be decided together.
    pub(crate) fn charge<'a>(
        &'a self,
        call: &'a Call,
        charges: &'a [Charge<'a>],
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send + 'a {
        match self.places(charges) {
            None => Either::Left(self.inner.ask(call, charges)),
            // Boxed: those who only ask the store hold little.
            Some(places) => Either::Right(Box::pin(self.charge_at(call, charges, places))),
        }
    }

    /// Decides charges of which some are decided here.
    async fn charge_at(
        &self,
        call: &Call,
        charges: &[Charge<'_>],
        places: Few<Place>,
    ) -> Result<Decisions, StoreError> {
        if let ([charge], [place]) = (charges, &places[..]) {
            let decision = self.one(call, charge, place).await?;
            self.inner.denials.admitted_here(charge, &decision);
            return Ok([(decision, charge.veto)].into_iter().collect());
        }
        check_charges(charges)?;
        Box::pin(self.several(call, charges, &places)).await
    }

    /// Looks at the key of a charge, in the store: what this node leased counts as spent, what it has not pushed is not
    /// there.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn inspect(&self, call: &Call, charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        self.inner.store.inspect(call, charge).await
    }

    /// Does something with a permit, in the store.
    ///
    /// # Errors
    /// If the store does not answer, or keeps no permits.
    pub(crate) async fn permit(&self, call: &Call, charge: &PermitCharge<'_>) -> Result<Permits, StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        self.inner.store.permit(call, charge).await
    }

    /// Publishes a notice to the other nodes.
    ///
    /// # Errors
    /// If the store does not answer, or keeps no notices.
    pub(crate) async fn publish(&self, notice: &Notice<'_>) -> Result<(), StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        self.inner.store.publish(&Call::default(), notice).await
    }

    /// Returns which nodes have a notice under a topic.
    ///
    /// # Errors
    /// If the store does not answer, or keeps no notices.
    pub(crate) async fn posted(&self, topic: &str) -> Result<Vec<Posted>, StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        self.inner.store.posted(&Call::default(), topic).await
    }

    /// Reads the notice of a node.
    ///
    /// # Errors
    /// If the store does not answer, or keeps no notices.
    pub(crate) async fn read(&self, topic: &str, node: &str) -> Result<Option<Posting>, StoreError> {
        self.inner.calls.fetch_add(1, Relaxed);
        self.inner.store.read(&Call::default(), topic, node).await
    }

    /// Whether it was closed: nothing is told to the store any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.closed.load(Relaxed)
    }

    /// How it does.
    pub(crate) fn health(&self) -> ConsistentHealth {
        let inner = &self.inner;
        ConsistentHealth {
            store: inner.store.health(),
            from_denials: inner.from_denials.load(Relaxed),
            from_leases: inner.from_leases.load(Relaxed),
            from_replicas: inner.from_replicas.load(Relaxed),
            from_last_states: inner.decided_away.load(Relaxed),
            unknown: inner.last.unknown(),
            nodes: inner.nodes.load(Relaxed),
            #[cfg(test)]
            calls: inner.calls.load(Relaxed),
        }
    }

    /// Gives back what was leased and not spent, and pushes what was admitted. Charges from then on are decided exactly.
    pub(crate) async fn settle_up(&self) {
        self.inner.closed.store(true, Relaxed);
        keeper::finish(&self.inner).await;
    }

    /// Closes the store itself.
    pub(crate) async fn close_store(&self) {
        self.inner.store.close().await;
    }

    /// Where charges are decided; nothing if the store decides all of them.
    fn places(&self, charges: &[Charge<'_>]) -> Option<Few<Place>> {
        let places: Few<Place> = charges.iter().take(CHARGES_MAX).map(|charge| self.place(charge)).collect();
        places.iter().any(|place| !matches!(place, Place::Store)).then_some(places)
    }

    fn place(&self, charge: &Charge<'_>) -> Place {
        let length = charge.namespace.as_bytes().len() + charge.key.as_bytes().len();
        if length > EASED_KEY_BYTES_MAX || !self.inner.nature.is_shared || self.inner.closed.load(Relaxed) {
            return Place::Store;
        }
        let name = || Spelling::new(charge);
        match charge.placement.consistency {
            Consistency::Leased if self.inner.store.can_lease() => {
                Terms::of(charge.limit).map_or(Place::Store, |terms| Place::Lease(name(), terms))
            }
            Consistency::Async if charge.limit.can_be_copied() => Place::Replica(name()),
            _ => Place::Store,
        }
    }

    async fn one(&self, call: &Call, charge: &Charge<'_>, place: &Place) -> Result<Decision, StoreError> {
        match place {
            Place::Store => self.inner.ask_one(call, charge).await,
            Place::Lease(name, terms) => self.on_lease(call, name, *terms, charge).await,
            Place::Replica(name) => self.inner.on_replica(call, name, charge).await,
        }
    }
}

impl Inner {
    /// Puts charges to the store, unless they are known to be denied.
    async fn ask(&self, call: &Call, charges: &[Charge<'_>]) -> Result<Decisions, StoreError> {
        let question = self.denials.question(charges);
        let sent = self.clock.now();
        if let Some(known) = question.and_then(|question| self.denials.answer(question, sent)) {
            self.from_denials.fetch_add(charges.len() as u64, Relaxed);
            return Ok(known);
        }
        let forget = Forget { denials: &self.denials, charges };
        self.calls.fetch_add(1, Relaxed);
        let result = self.store.charge(call, charges).await;
        let (decisions, learned) = (forget.after(result)?, self.clock.now());
        self.last.learn(charges, &decisions, sent, learned);
        if let (Some(question), false) = (question, decisions.is_allowed()) {
            self.denials.learn(question, sent, learned, decisions.with_vetoes());
        }
        Ok(decisions)
    }

    async fn ask_one(&self, call: &Call, charge: &Charge<'_>) -> Result<Decision, StoreError> {
        // Boxed: what waits for a network may allocate, and those who decide here stay small.
        let decisions = Box::pin(self.ask(call, std::slice::from_ref(charge))).await?;
        decisions.first().copied().ok_or_else(|| self.failed(Certainty::Unknown, Failure::Incomplete))
    }

    /// Decides a charge on the replica of its key.
    async fn on_replica(
        self: &Arc<Self>,
        call: &Call,
        name: &[u8],
        charge: &Charge<'_>,
    ) -> Result<Decision, StoreError> {
        let now = self.clock.now();
        let op = match charge.op {
            Op::Reset => {
                let decision = self.ask_one(call, charge).await;
                self.replicas.forget(name);
                return decision;
            }
            Op::Refund(units, receipt) => match self.replicas.give_back(name, charge, units, receipt, now) {
                0 => {
                    self.denials.forget(charge);
                    Op::Peek
                }
                rest => {
                    return self.ask_one(call, &Charge { op: Op::Refund(rest, receipt), ..*charge }).await;
                }
            },
            op => op,
        };
        keeper::start(self);
        let charge = Charge { op, ..*charge };
        if let Some(decision) = self.replicas.decide(name, &charge, now) {
            self.from_replicas.fetch_add(1, Relaxed);
            return Ok(decision);
        }
        let decisions = self.charge_for_replica(call, &charge).await?;
        // Without a state the answer is as exact as any.
        if let Some(told) = Told::of(&decisions) {
            self.replicas.receive(name, &charge, &told, now, self.clock.now());
        }
        decisions.first().copied().ok_or_else(|| self.failed(Certainty::Unknown, Failure::Incomplete))
    }

    /// Decides a charge in the store, past the known denials, for a replica that goes on from the state it reports.
    async fn charge_for_replica(&self, call: &Call, charge: &Charge<'_>) -> Result<Decisions, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        let sent = self.clock.now();
        let charges = std::slice::from_ref(charge);
        let decisions = Box::pin(self.store.charge(call, charges)).await?;
        self.last.learn(charges, &decisions, sent, self.clock.now());
        Ok(decisions)
    }

    fn failed(&self, certainty: Certainty, failure: Failure) -> StoreError {
        let store = self.store.health().store;
        StoreError::Failed { certainty, cause: Cause::new(Unanswered { store, failure }) }
    }
}

/// A store that did not answer as it has to.
#[derive(Debug, thiserror::Error)]
#[error("{store}: {failure}")]
struct Unanswered {
    store: Arc<str>,
    failure: Failure,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it answered fewer charges than requested")]
    Incomplete,
    #[error("timed out after {0:?} waiting for another call for this key")]
    TimedOut(Duration),
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keeper.wake.notify_one();
    }
}

/// Forgets denials when what may change them has been done, or may have been.
struct Forget<'a> {
    denials: &'a Denials,
    charges: &'a [Charge<'a>],
}

impl Forget<'_> {
    /// Forgets what the answer says was changed; all that may have been, if there is none.
    fn after(mut self, result: Result<Decisions, StoreError>) -> Result<Decisions, StoreError> {
        match &result {
            Ok(decisions) => self.denials.answered(std::mem::take(&mut self.charges), decisions),
            Err(error) if error.was_not_applied() => self.charges = &[],
            Err(_) => {}
        }
        result
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        for charge in self.charges {
            self.denials.forget(charge);
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

impl fmt::Debug for Consistent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Consistent").field("store", &self.inner.store).finish_non_exhaustive()
    }
}
