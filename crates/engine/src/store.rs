//! Where counts live: in the memory of this process, or in a store that several processes share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{
    CapacityError, Charge, ChargeError, Clock, Decision, Decisions, Key, Limit, MemoryStore, Op, PermitOp, Permits,
    Snapshot, Time,
};
use tidegate_policy::{Consistency, StoreSpec};
use tidegate_stores::redis::{self, CallError, Health, OpenError, RedisStore, Target, TargetError, Why};

use crate::bounds::{BLOCKED_LOOK_NANOS, CONNECT_PAUSE, FAILURE_MESSAGE_NANOS};
use crate::failure::guarded;
use crate::keys::Purpose;
use crate::pace::MessagePace;
use crate::penalty;
use crate::shared::{Shared, SharedCharge, SharedHealth};

/// A store that charges are put to.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Memory(Arc<MemoryStore>),
    Shared(Arc<SharedBackend>),
    /// Stands for a store that does not answer.
    #[cfg(test)]
    Unreachable,
    /// Stands for a store that is still to answer.
    #[cfg(test)]
    Silent,
}

/// A shared store, and what is known of it here.
#[derive(Debug)]
pub(crate) struct SharedBackend {
    pub(crate) shared: Shared,
    /// Its name in the configuration.
    name: Box<str>,
    /// Keeps a store that fails each request from filling the log.
    failures: MessagePace,
    clock: Clock,
    /// Until when some key may be blocked, and when to look again, in nanoseconds of this process's clock.
    blocked_until: AtomicU64,
    look_at: AtomicU64,
}

/// How a charge is put to a shared store. It makes no difference to one in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placing<'a> {
    /// The hash tag that chooses its slot on a Cluster; none if empty.
    pub(crate) tag: &'a [u8],
    pub(crate) consistency: Consistency,
}

/// A store did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store does not answer")]
pub struct StoreError;

/// Why charges were not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeFailure {
    /// They cannot be, whatever the store.
    Refused(ChargeError),
    /// The store did not answer.
    Store(StoreError),
}

/// Decides charges at one instant in the memory of this process.
pub(crate) fn charge_in_memory(store: &MemoryStore, charges: &[Charge<'_>]) -> Result<Decisions, ChargeFailure> {
    guarded(|| store.charge(charges)).map_err(ChargeFailure::Store)?.map_err(ChargeFailure::Refused)
}

impl Backend {
    /// Decides charges at one instant. There is a placing for each of them.
    pub(crate) async fn charge(
        &self,
        charges: &[Charge<'_>],
        placings: &[Placing<'_>],
    ) -> Result<Decisions, ChargeFailure> {
        match self {
            Backend::Memory(store) => charge_in_memory(store, charges),
            // Boxed: what waits for a network may allocate, and what decides in memory stays small.
            Backend::Shared(backend) => Box::pin(backend.charge(charges, placings)).await,
            #[cfg(test)]
            Backend::Unreachable => Err(ChargeFailure::Store(StoreError)),
            #[cfg(test)]
            Backend::Silent => std::future::pending().await,
        }
    }

    /// Whether a question to it goes over a network.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Backend::Memory(_))
    }

    /// Decides one op.
    pub(crate) async fn decide(
        &self,
        key: Key<'_>,
        limit: &Limit,
        op: Op,
        placing: Placing<'_>,
    ) -> Result<Decision, StoreError> {
        if let Backend::Memory(store) = self {
            return guarded(|| store.decide(key, limit, op));
        }
        let decisions = self.charge(&[Charge { key, limit, op, veto: true }], &[placing]).await;
        decisions.ok().and_then(|decisions| decisions.iter().next().copied()).ok_or(StoreError)
    }

    /// Looks at a key, with the entries of its log where the limit keeps one.
    pub(crate) async fn inspect(&self, key: Key<'_>, limit: &Limit, tag: &[u8]) -> Result<Snapshot, StoreError> {
        match self {
            Backend::Memory(store) => guarded(|| store.inspect(key, limit)),
            Backend::Shared(backend) => Box::pin(backend.shared.inspect(key, tag, limit)).await.map_err(|error| {
                backend.tell_failure(&error, "what was asked of a key stays unknown");
                StoreError
            }),
            #[cfg(test)]
            Backend::Unreachable => Err(StoreError),
            #[cfg(test)]
            Backend::Silent => std::future::pending().await,
        }
    }
}

/// What happens when these charges are not decided. Limits that callers bring have no rule that could choose.
fn instead_of(charges: &[Charge<'_>]) -> &'static str {
    let is_of_caller = |charge: &Charge<'_>| Purpose::is_of_caller(charge.key.as_bytes());
    match charges.iter().all(is_of_caller) {
        true => "limits of callers are held in memory",
        false => "rules go by on_store_failure",
    }
}

/// The turn of a caller to look for what others blocked.
pub(crate) struct Turn {
    pub(crate) now: Time,
    /// Whether what is known is too old to go by, as after a pause, or when something was just blocked here.
    pub(crate) is_late: bool,
}

impl SharedBackend {
    fn new(name: &str, store: RedisStore, clock: Clock) -> SharedBackend {
        let shared = Shared::new(store, clock.clone());
        let (failures, blocked_until, look_at) = (MessagePace::default(), AtomicU64::new(0), AtomicU64::new(0));
        SharedBackend { shared, name: name.into(), failures, clock, blocked_until, look_at }
    }

    /// Tells an operator that the store failed, and what happens `instead`: the first time, and then from time to time.
    fn tell_failure(&self, error: &redis::StoreError, instead: &str) {
        let Some(left_out) = self.failures.turn(self.clock.now(), FAILURE_MESSAGE_NANOS) else { return };
        let store = &*self.name;
        // The error names the store by its URL, without the password. What heals by itself is a warning.
        if matches!(error, redis::StoreError::Call(error) if error.is_access_denied()) {
            tracing::error!(store, left_out, %error, "a shared store did not decide: {instead}");
        } else {
            tracing::warn!(store, left_out, %error, "a shared store did not decide: {instead}");
        }
    }

    async fn charge(&self, charges: &[Charge<'_>], placings: &[Placing<'_>]) -> Result<Decisions, ChargeFailure> {
        let mut shared: Vec<SharedCharge<'_>> = Vec::with_capacity(charges.len());
        for (charge, placing) in charges.iter().zip(placings) {
            shared.push(SharedCharge { charge: *charge, tag: placing.tag, consistency: placing.consistency });
        }
        self.shared.charge(&shared).await.map_err(|error| match error {
            redis::StoreError::Charges(error) => ChargeFailure::Refused(error),
            error => {
                self.tell_failure(&error, instead_of(charges));
                ChargeFailure::Store(StoreError)
            }
        })
    }

    /// Does something with a permit.
    pub(crate) async fn decide_permit(&self, key: Key<'_>, id: &[u8], op: PermitOp) -> Result<Permits, StoreError> {
        self.shared.decide_permit(key, id, op).await.map_err(|error| {
            let instead = match Purpose::is_of_layer(key.as_bytes()) {
                true => "layers go by on_store_failure",
                false => "permits are held in memory",
            };
            self.tell_failure(&error, instead);
            StoreError
        })
    }

    /// Whether it is the caller's turn to look if an operator blocked any key on another node: one caller looks from time
    /// to time, the others go by what is known.
    pub(crate) fn turn_to_look(&self) -> Option<Turn> {
        let now = self.clock.now();
        let due = self.look_at.load(Ordering::Relaxed);
        let next = now.as_nanos().saturating_add(BLOCKED_LOOK_NANOS);
        let is_due = due <= now.as_nanos();
        let is_ours = || self.look_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let is_late = now.as_nanos().saturating_sub(due) > BLOCKED_LOOK_NANOS;
        (is_due && is_ours()).then_some(Turn { now, is_late })
    }

    /// Looks whether an operator blocked any key: only then every key has to be looked up among the blocked ones. No rule
    /// failed if that fails.
    pub(crate) async fn learn_of_blocks(&self, now: Time) -> Result<(), redis::StoreError> {
        let (Ok(limit), Ok(key)) = (penalty::longest(), Key::new(&penalty::ANY_KEY)) else { return Ok(()) };
        let charge = Charge { key, limit: &limit, op: Op::Peek, veto: false };
        let look = SharedCharge { charge, tag: &[], consistency: Consistency::Exact };
        let decisions = self.shared.charge(&[look]).await?;
        let left = decisions.iter().next().map_or(Duration::ZERO, Decision::reset_after);
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.blocked_until.store(now.as_nanos().saturating_add(left), Ordering::Relaxed);
        Ok(())
    }

    /// Waits for a connection that is being made, and not for one that cannot be made.
    pub(crate) async fn connect(&self) {
        let is_connecting = |error| matches!(error, CallError::NotSent { why: Why::Connecting, .. });
        while let Err(redis::StoreError::Call(error)) = self.learn_of_blocks(self.clock.now()).await
            && is_connecting(error)
        {
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    /// Whether an operator may have blocked a key.
    pub(crate) fn may_be_blocked(&self) -> bool {
        self.blocked_until.load(Ordering::Relaxed) > self.clock.now().as_nanos()
    }

    /// Looks again at the next request.
    pub(crate) fn note_blocked(&self) {
        self.look_at.store(0, Ordering::Relaxed);
    }
}

/// A store, and what it was made by.
type Made = (StoreSpec, Backend);

/// The stores of the policy in force, by name. A store outlives the policies that name it, so that what was counted stays
/// counted; one that the next policy does not name is let go, and its memory with the last request that still asks it. A
/// shared one is closed.
#[derive(Debug)]
pub(crate) struct Stores {
    clock: Clock,
    by_name: Mutex<HashMap<Box<str>, Made>>,
}

/// What became of the stores of a policy.
pub(crate) struct Found {
    /// In the order of the policy.
    pub(crate) stores: Vec<Backend>,
    /// Those that would have to be made anew to be as the policy says.
    pub(crate) unchanged: Vec<Box<str>>,
}

/// A store that several processes share, for those who watch it.
#[derive(Clone, Debug)]
pub struct StoreView {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// Where it is, and how it does.
    pub health: Health,
    /// Charges that it was spared because they were known to be denied.
    pub from_denials: u64,
    /// Charges that it was spared by leases.
    pub from_leases: u64,
    /// Charges that were decided on a replica before it was told.
    pub from_replicas: u64,
}

impl StoreView {
    /// Whether each of its nodes that are known has a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let nodes = &self.health.nodes;
        !nodes.is_empty() && nodes.iter().all(|node| node.connections > 0)
    }
}

/// Why a store could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The system has no memory for it.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// Its URL is none.
    #[error("store {store}: {error}")]
    Url {
        /// Its name.
        store: Box<str>,
        /// What is wrong with the URL.
        error: TargetError,
    },
    /// A file that its URL names cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Whether this is the URL of a store that several processes share.
///
/// # Errors
/// What is wrong with it, and what would do.
pub fn check_store_url(url: &str) -> Result<(), (String, String)> {
    url.parse::<Target>().map(|_| ()).map_err(|error| (error.problem(), error.fix().to_owned()))
}

impl Stores {
    /// The first store alone, which every policy names.
    pub(crate) fn new(clock: Clock, first: &StoreSpec) -> Result<(Stores, Backend), InstallError> {
        let store = build(first, &clock)?;
        let made = (first.clone(), store.clone());
        Ok((Stores { clock, by_name: Mutex::new(HashMap::from([(first.name.clone(), made)])) }, store))
    }

    /// The stores of a policy, those made that are not there yet; all others are let go. If one cannot be made, all stay
    /// as they were.
    pub(crate) fn install(&self, specs: &[StoreSpec]) -> Result<Found, InstallError> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Found { stores: Vec::with_capacity(specs.len()), unchanged: Vec::new() };
        let mut named = HashMap::with_capacity(specs.len());
        for (place, spec) in specs.iter().enumerate() {
            let (made_as, store) = match by_name.get(&spec.name) {
                // What is kept elsewhere is not lost with the connections to it. The default store stays as it was made.
                Some((made_as, _)) if place > 0 && made_as.place != spec.place => {
                    (spec.clone(), build(spec, &self.clock)?)
                }
                Some((made_as, store)) => (made_as.clone(), store.clone()),
                None => (spec.clone(), build(spec, &self.clock)?),
            };
            if made_as != *spec {
                found.unchanged.push(spec.name.clone());
            }
            found.stores.push(store.clone());
            named.insert(spec.name.clone(), (made_as, store));
        }
        let before = std::mem::replace(&mut *by_name, named);
        drop(by_name);
        let kept = |one: &Arc<SharedBackend>| {
            found.stores.iter().any(|store| matches!(store, Backend::Shared(other) if Arc::ptr_eq(one, other)))
        };
        for (_, (_, backend)) in before {
            if let Backend::Shared(backend) = backend
                && !kept(&backend)
            {
                close_aside(backend);
            }
        }
        Ok(found)
    }

    /// The shared stores, by name.
    pub(crate) fn shared(&self) -> Vec<StoreView> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut views = Vec::new();
        for (name, (_, backend)) in by_name.iter() {
            let Backend::Shared(backend) = backend else { continue };
            let SharedHealth { store: health, from_denials, from_leases, from_replicas, .. } = backend.shared.health();
            views.push(StoreView { name: name.clone(), health, from_denials, from_leases, from_replicas });
        }
        views.sort_by(|left, right| left.name.cmp(&right.name));
        views
    }
}

/// Closes a store that is let go, in the background: what was leased of it goes back, and it is told what was admitted.
/// Without a runtime there is nobody to do it: then leases end by themselves, and what it was not told is lost.
fn close_aside(backend: Arc<SharedBackend>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { backend.shared.close().await });
    }
}

fn build(spec: &StoreSpec, clock: &Clock) -> Result<Backend, InstallError> {
    if let Some(url) = spec.url() {
        let target: Target = url.parse().map_err(|error| InstallError::Url { store: spec.name.clone(), error })?;
        return Ok(Backend::Shared(Arc::new(SharedBackend::new(
            &spec.name,
            RedisStore::open(&target)?,
            clock.clone(),
        ))));
    }
    Ok(Backend::Memory(Arc::new(build_memory(spec, clock)?)))
}

pub(crate) fn build_memory(spec: &StoreSpec, clock: &Clock) -> Result<MemoryStore, CapacityError> {
    let mut builder = MemoryStore::builder().clock(clock.clone());
    if let Some(keys) = spec.keys {
        builder = builder.keys(keys);
    }
    if let Some(entries) = spec.log_entries {
        builder = builder.log_entries(entries);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;

    use tidegate_policy::StorePlace;

    fn spec(name: &str, keys: usize) -> StoreSpec {
        StoreSpec { name: name.into(), place: Some(StorePlace::Memory), keys: Some(keys), log_entries: None }
    }

    fn memory(backend: &Backend) -> &Arc<MemoryStore> {
        match backend {
            Backend::Memory(store) => store,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stores_that_are_no_longer_named_are_freed() {
        let (stores, _) = Stores::new(Clock::system(), &spec("default", 100)).unwrap();
        let install = |names: &[&str]| {
            let specs: Vec<StoreSpec> = names.iter().map(|name| spec(name, 100)).collect();
            stores.install(&specs).unwrap().stores
        };
        let first = install(&["default", "sessions"]);
        let [kept, dropped]: [Weak<MemoryStore>; 2] = [0, 1].map(|number| Arc::downgrade(memory(&first[number])));
        let second = install(&["default", "visits"]);
        assert!(dropped.strong_count() == 1, "a request of the first policy still asks it");
        drop(first);
        assert!(dropped.upgrade().is_none(), "now nobody does");
        assert!(kept.upgrade().is_some_and(|kept| Arc::ptr_eq(&kept, memory(&second[0]))), "its name stayed");
        let third = install(&["default", "sessions"]);
        assert!(!Weak::ptr_eq(&dropped, &Arc::downgrade(memory(&third[1]))), "the same name again is a new store");
    }

    #[test]
    fn a_store_that_cannot_be_made_changes_nothing() {
        let (stores, default) = Stores::new(Clock::system(), &spec("default", 100)).unwrap();
        let before = stores.install(&[spec("default", 100), spec("sessions", 100)]).unwrap().stores;
        assert!(stores.install(&[spec("default", 100), spec("vast", usize::MAX)]).is_err());
        let after = stores.install(&[spec("default", 200), spec("sessions", 100)]).unwrap();
        let same = |(before, after): (&Backend, &Backend)| Arc::ptr_eq(memory(before), memory(after));
        assert!(before.iter().zip(&after.stores).all(same));
        assert!(Arc::ptr_eq(memory(&default), memory(&after.stores[0])));
        assert_eq!(after.unchanged, vec![Box::<str>::from("default")]);
    }
}
