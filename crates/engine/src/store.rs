//! Stores as the engine asks them: all of them by name, and the engine's knowledge about each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::Either;
use tidegate_core::{
    CapacityError, Charge, ChargeError, Clock, Decision, Decisions, Key, MemoryStore, Op, Permits, Purpose, Snapshot,
    Time,
};
use tidegate_policy::{Local, OnStoreFailure, Policy, Share, StoreFacts, StoreSpec};
use tidegate_stores::redis::{OpenError, RedisStore, Target, TargetError};
use tidegate_stores::{AnyStore, Call, Health, Memory, Nature, PermitCharge, Store};

use crate::bounds::{BLOCKED_LOOK_NANOS, CONNECT_PAUSE};
use crate::consistency::Consistent;
use crate::crowd::{self, Exchange};
use crate::failure::guarded;
use crate::failure_log::FailureLog;
use crate::keys;
use crate::penalty;

/// A store, as the engine asks it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Backend(Way);

#[derive(Clone, Debug)]
enum Way {
    /// The memory of this process, which is asked directly: nothing is awaited, nothing is in between.
    Memory(Memory),
    Asked(Arc<Asked>),
}

/// A store that may have to be waited for, and what is known of it here.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) consistent: Consistent,
    nature: Nature,
    failures: FailureLog,
    clock: Clock,
    /// What nodes tell each other by it; `None` if nothing can be told.
    pub(crate) exchange: Option<Exchange>,
    /// Until when some key may be blocked, and when to look again, in nanoseconds of this process's clock.
    blocked_until: AtomicU64,
    look_at: AtomicU64,
}

/// Why a store returned no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It failed.
    #[error("no answer")]
    Unanswered,
    /// This node is overloaded: the store could not be asked in time, and is not at fault.
    #[error("this node is overloaded and could not ask the store in time")]
    Overloaded,
}

impl StoreError {
    pub(crate) fn of(error: &tidegate_stores::StoreError) -> StoreError {
        if error.is_overload() { StoreError::Overloaded } else { StoreError::Unanswered }
    }
}

/// Why charges were not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeFailure {
    /// They cannot be, whatever the store.
    Refused(ChargeError),
    /// This node is overloaded.
    Overloaded,
    /// The store gave no answer.
    Unanswered(Applied),
}

/// What is known of a charge that the store did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It was not applied, and will not be.
    No,
    /// It may have been, once.
    Maybe,
}

impl From<ChargeFailure> for StoreError {
    fn from(failure: ChargeFailure) -> StoreError {
        match failure {
            ChargeFailure::Overloaded => StoreError::Overloaded,
            ChargeFailure::Refused(_) | ChargeFailure::Unanswered(_) => StoreError::Unanswered,
        }
    }
}

/// Decides charges at one instant in the memory of this process.
pub(crate) fn charge_in_memory(store: &MemoryStore, charges: &[Charge<'_>]) -> Result<Decisions, ChargeFailure> {
    let charged = guarded(|| store.charge(charges)).map_err(|_| ChargeFailure::Unanswered(Applied::Maybe))?;
    charged.map_err(ChargeFailure::Refused)
}

impl Backend {
    pub(crate) fn memory_of(store: Memory) -> Backend {
        Backend(Way::Memory(store))
    }

    pub(crate) fn of(name: &str, store: AnyStore, clock: &Clock) -> Backend {
        match store {
            AnyStore::Memory(store) => Backend(Way::Memory(store)),
            store => Backend(Way::Asked(Arc::new(Asked::new(name, store, clock.clone())))),
        }
    }

    /// The memory of this process, if it is that: it decides without a future.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match &self.0 {
            Way::Memory(store) => Some(store),
            Way::Asked(_) => None,
        }
    }

    /// The states in the memory of this process, if they are there.
    #[inline]
    pub(crate) fn states(&self) -> Option<&Arc<MemoryStore>> {
        self.memory().map(Memory::states)
    }

    /// What is known of a store that may have to be waited for.
    pub(crate) fn asked(&self) -> Option<&Arc<Asked>> {
        match &self.0 {
            Way::Memory(_) => None,
            Way::Asked(asked) => Some(asked),
        }
    }

    /// What its callers may rely on.
    pub(crate) fn nature(&self) -> Nature {
        match &self.0 {
            Way::Memory(store) => store.nature(),
            Way::Asked(asked) => asked.nature,
        }
    }

    /// What a rule does without its store if it does not say.
    pub(crate) fn default_failure(&self) -> OnStoreFailure {
        let nature = self.nature();
        // What survives a restart and is nobody else's is kept for its own sake, as quotas are: nothing replaces it.
        match nature.survives_restart && !nature.is_shared {
            true => OnStoreFailure::Deny,
            false => OnStoreFailure::Local(Local::Share(Share::Whole)),
        }
    }

    /// Decides charges at one instant.
    pub(crate) async fn charge(&self, call: &Call, charges: &[Charge<'_>]) -> Result<Decisions, ChargeFailure> {
        match &self.0 {
            Way::Memory(store) => charge_in_memory(store.states(), charges),
            // Boxed: what waits for a network may allocate, and what decides in memory stays small.
            Way::Asked(_) => Box::pin(self.charge_in_place(call, charges)).await,
        }
    }

    /// Decides charges at one instant, in a future that holds all that waits for the store. For callers that are boxed as a
    /// whole.
    pub(crate) fn charge_in_place<'a>(
        &'a self,
        call: &'a Call,
        charges: &'a [Charge<'a>],
    ) -> impl Future<Output = Result<Decisions, ChargeFailure>> + Send + 'a {
        match &self.0 {
            Way::Memory(store) => Either::Left(async { charge_in_memory(store.states(), charges) }),
            Way::Asked(asked) => {
                let failed = |error| asked.failure(error, charges);
                Either::Right(asked.consistent.charge(call, charges).map_err(failed))
            }
        }
    }

    /// Decides one charge.
    pub(crate) async fn decide(&self, call: &Call, charge: &Charge<'_>) -> Result<Decision, StoreError> {
        self.decide_at(call, charge).await.map(|(decision, _)| decision)
    }

    /// Decides one charge, and says when, by the clock of the store, if that tells.
    pub(crate) async fn decide_at(
        &self,
        call: &Call,
        charge: &Charge<'_>,
    ) -> Result<(Decision, Option<Time>), StoreError> {
        if let Some(states) = self.states() {
            let decided = guarded(|| states.decide_in(charge.namespace, charge.key, charge.limit, charge.op));
            return decided.map(|decision| (decision, None));
        }
        let decisions = self.charge(call, std::slice::from_ref(charge)).await?;
        let decision = decisions.first().copied().ok_or(StoreError::Unanswered)?;
        Ok((decision, decisions.report(0).map(|report| report.at)))
    }

    /// Looks at the key of a charge, with the entries of its log where the limit keeps one.
    pub(crate) async fn inspect(&self, call: &Call, charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        match &self.0 {
            Way::Memory(store) => guarded(|| store.states().inspect_in(charge.namespace, charge.key, charge.limit)),
            Way::Asked(asked) => Box::pin(asked.consistent.inspect(call, charge)).await.map_err(|error| {
                asked.failures.log(&error, "the state of the key is unknown");
                StoreError::of(&error)
            }),
        }
    }

    /// Whether a charge is to be decided here though the store answers.
    #[inline]
    pub(crate) fn holds(&self, charge: &Charge<'_>) -> bool {
        self.asked().is_some_and(|asked| asked.holds(charge))
    }

    /// Gives back what was taken in advance and not spent, and tells what was let pass.
    pub(crate) async fn settle_up(&self) {
        if let Way::Asked(asked) = &self.0 {
            Box::pin(asked.consistent.settle_up()).await;
        }
    }

    /// Settles up, and closes the store: nobody asks it any more.
    pub(crate) async fn close(&self) {
        self.settle_up().await;
        if let Way::Asked(asked) = &self.0 {
            asked.consistent.close_store().await;
        }
    }

    pub(crate) fn is_same(&self, other: &Backend) -> bool {
        match (&self.0, &other.0) {
            (Way::Memory(one), Way::Memory(other)) => Arc::ptr_eq(one.states(), other.states()),
            (Way::Asked(one), Way::Asked(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// What happens when these charges are not decided. Limits that callers bring have no rule that could choose.
fn instead_of(charges: &[Charge<'_>]) -> &'static str {
    match charges.iter().all(|charge| keys::is_of_caller(charge.namespace)) {
        true => "limits of callers are decided in memory",
        false => "rules follow on_store_failure",
    }
}

/// The turn of a caller to look for what others blocked.
pub(crate) struct Turn {
    pub(crate) now: Time,
    /// Whether what is known is too old to go by, as after a pause, or when something was just blocked here.
    pub(crate) is_late: bool,
}

impl Asked {
    fn new(name: &str, store: AnyStore, clock: Clock) -> Asked {
        let nature = store.nature();
        let exchange = (nature.is_shared && store.has_bulletin()).then(|| Exchange::new(name));
        let (failures, consistent) = (FailureLog::new(name, clock.clone()), Consistent::new(store, clock.clone()));
        // Until it is known better, any key may have been blocked before this process started.
        let unknown = if nature.outlives_process() { u64::MAX } else { 0 };
        let (blocked_until, look_at) = (AtomicU64::new(unknown), AtomicU64::new(0));
        Asked { consistent, nature, failures, clock, exchange, blocked_until, look_at }
    }

    pub(crate) fn nature(&self) -> &Nature {
        &self.nature
    }

    /// Decides a charge without the store, going on from the last state that it reported.
    pub(crate) fn go_on(&self, charge: &Charge<'_>, share: Share, applied: Applied) -> Decision {
        let parts = match share {
            Share::Auto => self.consistent.nodes(),
            Share::OneOf(parts) => parts.get(),
            _ => 1,
        };
        self.consistent.go_on(charge, parts, applied == Applied::No)
    }

    /// Looks at a penalty or block without the store: what this node has seen of it holds.
    pub(crate) fn look_away(&self, charge: &Charge<'_>) -> Option<Decision> {
        self.consistent.look_away(charge)
    }

    /// Whether any charge is to be decided here though the store answers.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.consistent.holds_any()
    }

    /// Whether a charge is to be decided here though the store answers: it does not know yet of what was admitted here.
    #[inline]
    pub(crate) fn holds(&self, charge: &Charge<'_>) -> bool {
        self.consistent.holds(charge)
    }

    /// What an error of the store means for charges. What is no fault of theirs is logged.
    fn failure(&self, error: tidegate_stores::StoreError, charges: &[Charge<'_>]) -> ChargeFailure {
        if let tidegate_stores::StoreError::Charges(error) = error {
            return ChargeFailure::Refused(error);
        }
        self.failures.log(&error, instead_of(charges));
        match (error.is_overload(), error.was_not_applied()) {
            (true, _) => ChargeFailure::Overloaded,
            (false, true) => ChargeFailure::Unanswered(Applied::No),
            (false, false) => ChargeFailure::Unanswered(Applied::Maybe),
        }
    }

    /// Does something with a permit.
    pub(crate) async fn decide_permit(
        &self,
        call: &Call,
        charge: &PermitCharge<'_>,
    ) -> Result<Permits, tidegate_stores::StoreError> {
        let decided = self.consistent.permit(call, charge).await;
        if let Err(error) = &decided {
            let instead = match charge.namespace.purpose() {
                Some(Purpose::Layer) => "layers follow on_store_failure",
                _ => "permits are held in memory",
            };
            self.failures.log(error, instead);
        }
        decided
    }

    /// Has a permit released that the store may hold for this long, as soon as it answers.
    pub(crate) fn release_later(&self, charge: &PermitCharge<'_>, left: Duration) {
        self.consistent.release_later(charge, left);
    }

    /// Has a permit not released any more. Returns whether that was possible: a release may be on its way.
    pub(crate) fn withdraw_release(&self, charge: &PermitCharge<'_>) -> bool {
        self.consistent.withdraw_release(charge)
    }

    /// Whether it is the caller's turn to look if an operator blocked any key on another node, or before this process
    /// started: one caller looks from time to time, the others go by what is known.
    pub(crate) fn turn_to_look(&self) -> Option<Turn> {
        if !self.nature.outlives_process() {
            return None;
        }
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
    pub(crate) async fn learn_of_blocks(self: &Arc<Self>, now: Time) -> Result<(), tidegate_stores::StoreError> {
        // Every node comes by here, first when it connects and then now and then.
        self.consistent.start_counting();
        crowd::start(self);
        let Ok(limit) = penalty::longest() else { return Ok(()) };
        let look = Charge::new(Key::ALL, &limit, Op::Peek).within(&keys::ANY_BLOCK).shadow();
        let decisions = self.consistent.charge(&Call::default(), &[look]).await?;
        let left = decisions.first().map_or(Duration::ZERO, Decision::reset_after);
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.blocked_until.store(now.as_nanos().saturating_add(left), Ordering::Relaxed);
        Ok(())
    }

    /// Waits for a connection that is being made, and not for one that cannot be made.
    pub(crate) async fn connect(self: &Arc<Self>) {
        while let Err(error) = self.learn_of_blocks(self.clock.now()).await
            && error.is_connecting()
        {
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    /// Whether an operator may have blocked a key.
    pub(crate) fn may_be_blocked(&self) -> bool {
        self.blocked_until.load(Ordering::Relaxed) > self.clock.now().as_nanos()
    }

    /// Notes that a key was blocked here for this long, which holds while the store is away too, and looks again at the next
    /// request.
    pub(crate) fn note_blocked(&self, length: Duration) {
        self.hold_blocked(length);
        self.look_at.store(0, Ordering::Relaxed);
    }

    /// Notes that another node blocked a key for this long, which holds while the store is away too.
    pub(crate) fn hold_blocked(&self, length: Duration) {
        self.blocked_until.fetch_max(self.clock.now().plus(length).as_nanos(), Ordering::Relaxed);
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
    /// Stores that the program made itself. They take the place of those of the same name in any policy.
    brought: HashMap<Box<str>, AnyStore>,
    by_name: Mutex<HashMap<Box<str>, Made>>,
}

/// What became of the stores of a policy.
pub(crate) struct Found {
    /// In the order of the policy.
    pub(crate) stores: Vec<Backend>,
    /// Those that would have to be made anew to be as the policy says.
    pub(crate) unchanged: Vec<Box<str>>,
}

/// A store other than the memory of this process, for operators.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreView {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// Its health.
    pub health: Health,
    /// Charges that were decided without a call because they were known to be denied.
    pub from_denials: u64,
    /// Charges that were decided without a call by leases.
    pub from_leases: u64,
    /// Charges that were decided on a replica, before they were pushed to the store.
    pub from_replicas: u64,
    /// Charges that were decided without the store, from the last states that it reported.
    pub from_last_states: u64,
    /// Charges among those whose keys had no last state, so that they started anew.
    pub unknown: u64,
    /// The number of nodes that use the store; 0 if no rule needs it.
    pub nodes: u64,
}

/// A store in the memory of this process, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryView {
    /// Its name in the configuration. `default` stands for all memory beside the named stores: also for limits that
    /// callers bring, and for decisions while a shared default store does not answer.
    pub name: Box<str>,
    /// Charges that found no room for a log entry of their own: see [`MemoryStore::log_entries_without_room`].
    pub log_entries_without_room: u64,
}

impl StoreView {
    /// Returns whether each of its known nodes has a connection now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let nodes = &self.health.nodes;
        !nodes.is_empty() && nodes.iter().all(|node| node.connections > 0)
    }
}

/// Why a store cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// There is no memory for it.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    /// Its URL is invalid.
    #[error("store {store}: {error}")]
    Url {
        /// Its name.
        store: Box<str>,
        /// The error in the URL.
        error: TargetError,
    },
    /// A file that its URL names cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A rule has a limit that its store cannot keep.
    #[error("rule {rule}: store {store} does not support {algorithm}; use another store or algorithm")]
    Algorithm {
        /// The name of the rule.
        rule: Box<str>,
        /// The name of the store.
        store: Box<str>,
        /// The algorithm of the limit.
        algorithm: tidegate_core::Algorithm,
    },
}

/// Checks the URL of a shared store, and returns the facts that a configuration needs about it.
///
/// # Errors
/// Returns the problem and its fix.
pub fn check_store_url(url: &str) -> Result<StoreFacts, (String, String)> {
    let target = url.parse::<Target>().map_err(|error| (error.problem(), error.fix().to_owned()))?;
    Ok(StoreFacts { has_slots: target.has_slots(), has_password: target.has_password() })
}

impl Stores {
    /// The first store alone, which every policy names.
    pub(crate) fn new(
        clock: Clock,
        first: &StoreSpec,
        brought: HashMap<Box<str>, AnyStore>,
    ) -> Result<(Stores, Backend), InstallError> {
        let mut stores = Stores { clock, brought, by_name: Mutex::default() };
        let store = stores.build(first)?;
        stores.by_name = Mutex::new(HashMap::from([(first.name.clone(), (first.clone(), store.clone()))]));
        Ok((stores, store))
    }

    /// The stores of a policy, those made that are not there yet; all others are let go. If one cannot be made, all stay
    /// as they were.
    pub(crate) fn install(&self, specs: &[StoreSpec], policy: &Policy) -> Result<Found, InstallError> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Found { stores: Vec::with_capacity(specs.len()), unchanged: Vec::new() };
        let mut named = HashMap::with_capacity(specs.len());
        for (place, spec) in specs.iter().enumerate() {
            let (made_as, store) = match by_name.get(&spec.name) {
                // What is kept elsewhere is not lost with the connections to it. The default store stays as it was made.
                Some((made_as, _)) if place > 0 && made_as.place != spec.place => (spec.clone(), self.build(spec)?),
                Some((made_as, store)) => (made_as.clone(), store.clone()),
                None => (spec.clone(), self.build(spec)?),
            };
            if made_as != *spec {
                found.unchanged.push(spec.name.clone());
            }
            found.stores.push(store.clone());
            named.insert(spec.name.clone(), (made_as, store));
        }
        check_algorithms(policy, specs, &found.stores)?;
        count_nodes(policy, &found.stores);
        let before = std::mem::replace(&mut *by_name, named);
        drop(by_name);
        for (name, (_, backend)) in before {
            if !found.stores.iter().any(|store| store.is_same(&backend)) {
                // A later policy may name a store of the program's own again.
                close_aside(backend, self.brought.contains_key(&name));
            }
        }
        Ok(found)
    }

    /// The stores that may have to be waited for, by name.
    pub(crate) fn views(&self) -> Vec<StoreView> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut views = Vec::new();
        for (name, (_, backend)) in by_name.iter() {
            let Some(asked) = backend.asked() else { continue };
            let health = asked.consistent.health();
            views.push(StoreView {
                name: name.clone(),
                health: health.store,
                from_denials: health.from_denials,
                from_leases: health.from_leases,
                from_replicas: health.from_replicas,
                from_last_states: health.from_last_states,
                unknown: health.unknown,
                nodes: health.nodes,
            });
        }
        views.sort_by(|left, right| left.name.cmp(&right.name));
        views
    }

    /// The stores in the memory of this process but for this one, by name.
    pub(crate) fn memory_views(&self, but: &Backend) -> Vec<MemoryView> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut views = Vec::new();
        for (name, (_, backend)) in by_name.iter() {
            let Some(states) = backend.states().filter(|_| !backend.is_same(but)) else { continue };
            let log_entries_without_room = states.log_entries_without_room();
            views.push(MemoryView { name: name.clone(), log_entries_without_room });
        }
        views.sort_by(|left, right| left.name.cmp(&right.name));
        views
    }

    fn build(&self, spec: &StoreSpec) -> Result<Backend, InstallError> {
        if let Some(store) = self.brought.get(&spec.name) {
            return Ok(Backend::of(&spec.name, store.clone(), &self.clock));
        }
        if let Some(url) = spec.url() {
            let target: Target = url.parse().map_err(|error| InstallError::Url { store: spec.name.clone(), error })?;
            return Ok(Backend::of(&spec.name, RedisStore::open(&target)?.into(), &self.clock));
        }
        Ok(Backend::memory_of(build_memory(spec, &self.clock)?))
    }
}

/// Refuses limits that their stores do not know.
fn check_algorithms(policy: &Policy, specs: &[StoreSpec], stores: &[Backend]) -> Result<(), InstallError> {
    for rule in policy.rules() {
        for limit in &rule.limits {
            let (Some(spec), Some(store)) = (specs.get(limit.store), stores.get(limit.store)) else { continue };
            let algorithm = limit.limit.algorithm();
            if !store.nature().algorithms.contains(&algorithm) {
                return Err(InstallError::Algorithm { rule: rule.name.clone(), store: spec.name.clone(), algorithm });
            }
        }
    }
    Ok(())
}

/// Has the nodes counted that use the stores of rules whose limits are shared out among them during an outage.
fn count_nodes(policy: &Policy, stores: &[Backend]) {
    for rule in policy.rules() {
        if let Some(OnStoreFailure::Local(Local::Share(Share::Auto))) = rule.on_store_failure {
            let asked = rule.limits.iter().filter_map(|limit| stores.get(limit.store)?.asked());
            asked.for_each(|asked| asked.consistent.count_nodes());
        }
    }
}

/// Closes a store that is let go, in the background: what was leased of it goes back, and it is told what was admitted.
/// Without a runtime there is nobody to do it: then leases end by themselves, and what it was not told is lost.
fn close_aside(backend: Backend, may_come_back: bool) {
    if let (Some(_), Ok(runtime)) = (backend.asked(), tokio::runtime::Handle::try_current()) {
        runtime.spawn(async move {
            match may_come_back {
                true => backend.settle_up().await,
                false => backend.close().await,
            }
        });
    }
}

pub(crate) fn build_memory(spec: &StoreSpec, clock: &Clock) -> Result<Memory, CapacityError> {
    let mut builder = MemoryStore::builder().keep_namespaces_apart().clock(clock.clone());
    if let Some(keys) = spec.keys {
        builder = builder.keys(keys);
    }
    if let Some(entries) = spec.log_entries {
        builder = builder.log_entries(entries);
    }
    Ok(Memory::new(builder.build()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;

    use tidegate_policy::StorePlace;

    fn spec(name: &str, keys: usize) -> StoreSpec {
        let place = Some(StorePlace::Memory);
        StoreSpec { name: name.into(), place, keys: Some(keys), ..StoreSpec::default() }
    }

    fn installed(stores: &Stores, specs: &[StoreSpec]) -> Found {
        stores.install(specs, &Policy::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn stores_that_are_no_longer_named_are_freed() {
        let (stores, _) = Stores::new(Clock::system(), &spec("default", 100), HashMap::new()).unwrap();
        let install = |names: &[&str]| {
            let specs: Vec<StoreSpec> = names.iter().map(|name| spec(name, 100)).collect();
            installed(&stores, &specs).stores
        };
        let first = install(&["default", "sessions"]);
        let weak = |backend: &Backend| Arc::downgrade(backend.states().unwrap());
        let [kept, dropped]: [Weak<MemoryStore>; 2] = [weak(&first[0]), weak(&first[1])];
        let second = install(&["default", "visits"]);
        assert!(dropped.strong_count() == 1, "a request of the first policy still asks it");
        drop(first);
        assert!(dropped.upgrade().is_none(), "now nobody does");
        assert!(kept.upgrade().is_some_and(|kept| Arc::ptr_eq(&kept, second[0].states().unwrap())), "its name stayed");
        let third = install(&["default", "sessions"]);
        assert!(!Weak::ptr_eq(&dropped, &weak(&third[1])), "the same name again is a new store");
    }

    #[test]
    fn a_store_that_cannot_be_made_changes_nothing() {
        let (stores, default) = Stores::new(Clock::system(), &spec("default", 100), HashMap::new()).unwrap();
        let before = installed(&stores, &[spec("default", 100), spec("sessions", 100)]).stores;
        let vast = stores.install(&[spec("default", 100), spec("vast", usize::MAX)], &Policy::default());
        assert!(vast.is_err());
        let after = installed(&stores, &[spec("default", 200), spec("sessions", 100)]);
        assert!(before.iter().zip(&after.stores).all(|(before, after)| before.is_same(after)));
        assert!(default.is_same(&after.stores[0]));
        assert_eq!(after.unchanged, vec![Box::<str>::from("default")]);
    }
}
