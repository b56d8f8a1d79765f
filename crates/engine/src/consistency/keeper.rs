//! Background work: one task gives back units that were not spent, pushes admitted units, announces this node, and
//! starts another task that reports missed events to the store: units to debit, and permits to release.
//!
//! The first caller that needs it starts it, on its own runtime, and it ends with the last handle of the store. If its
//! runtime ends before, the next caller starts it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::{Charge, Limit, Op, Placement, Time};
use tidegate_stores::{Call, Debit, Store, StoreError};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::name::{Name, Parts, parts};
use super::purse::Remainder;
use super::releases::Release;
use super::replica::Told;
use super::{Forget, Inner, since};
use crate::bounds::{BACKGROUND_CALLS_MAX, SYNC_PAUSE};

/// How long it sleeps if there is nothing to do and nobody wakes it.
const NAP: Duration = Duration::from_secs(3_600);

/// How often everything is looked at when the store is closed.
const FINISH_ROUNDS: usize = 2;

/// The task.
#[derive(Default)]
pub(super) struct Keeper {
    running: AtomicBool,
    /// When replicas were last pushed, in nanoseconds.
    pushed_nanos: AtomicU64,
    /// When debits and releases are made next, in nanoseconds; 0 if none are owed.
    debits_at_nanos: AtomicU64,
    /// Held by the one who makes them.
    debiting: Arc<Mutex<()>>,
    pub(super) wake: Arc<Notify>,
}

impl Keeper {
    /// How long it is until debits are tried, which is once in a while as long as the store is away.
    fn until_debits(&self, owes: bool, now: Time) -> Duration {
        let at = match self.debits_at_nanos.load(Ordering::Relaxed) {
            _ if !owes => 0,
            0 => now.plus(SYNC_PAUSE).as_nanos(),
            at => at,
        };
        self.debits_at_nanos.store(at, Ordering::Relaxed);
        if owes { since(now, Time::from_nanos(at)) } else { NAP }
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }
}

/// Says that the task has ended, however it ended.
struct Running(Arc<Keeper>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

/// Starts the task if it does not run.
pub(super) fn start(inner: &Arc<Inner>) {
    let keeper = &inner.keeper;
    if keeper.running.load(Ordering::Relaxed) || keeper.running.swap(true, Ordering::Acquire) {
        return;
    }
    let running = Running(Arc::clone(keeper));
    tokio::spawn(run(Arc::downgrade(inner), running));
}

async fn run(inner: Weak<Inner>, running: Running) {
    while let Some(inner) = inner.upgrade() {
        let pause = tend(&inner).await;
        drop(inner);
        tokio::select! {
            () = running.0.wake.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// Does what is due, and tells how long there is nothing more to do.
async fn tend(inner: &Arc<Inner>) -> Duration {
    let now = inner.clock.now();
    let (back, next) = inner.leases.tidy(now);
    let mut calls = Calls::new(inner);
    for (name, remainder) in back {
        calls.add(Work::Return(name, remainder)).await;
    }
    let pushed = Time::from_nanos(inner.keeper.pushed_nanos.load(Ordering::Relaxed));
    if inner.replicas.is_ahead() && since(pushed, now) >= SYNC_PAUSE {
        inner.keeper.pushed_nanos.store(now.as_nanos(), Ordering::Relaxed);
        for push in pushes(inner, now, false) {
            calls.add(Work::Push(push)).await;
        }
    }
    calls.finish().await;
    let until_debits = inner.keeper.until_debits(inner.owes(), now);
    if until_debits.is_zero() {
        inner.keeper.debits_at_nanos.store(0, Ordering::Relaxed);
        start_debits(inner);
    }
    let until_announced = inner.announce().await;
    let now = inner.clock.now();
    let until_next = next.map_or(NAP, |next| since(now, next));
    let pushed = Time::from_nanos(inner.keeper.pushed_nanos.load(Ordering::Relaxed));
    let until_push = if inner.replicas.is_ahead() { SYNC_PAUSE.saturating_sub(since(pushed, now)) } else { NAP };
    let until_debits = inner.keeper.until_debits(inner.owes(), now);
    until_next.min(until_push).min(until_debits).min(until_announced)
}

impl Inner {
    /// Whether there is anything that the store was not told.
    fn owes(&self) -> bool {
        self.last.owes() || self.releases.count() > 0
    }
}

/// Starts to debit what was admitted while the store was away, and to release what was released, unless that is under way. It
/// is a task of its own: of many keys it takes seconds, in which this node would be taken for gone. It ends when the store is
/// closed, or let go.
fn start_debits(inner: &Arc<Inner>) {
    let Ok(turn) = Arc::clone(&inner.keeper.debiting).try_lock_owned() else { return };
    let (mut debits, mut releases) = (inner.last.owing(), inner.releases.count());
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        while debits > 0 || releases > 0 {
            let Some(inner) = inner.upgrade().filter(|inner| !inner.closed.load(Ordering::Relaxed)) else { break };
            (debits, releases) = tell_some(&inner, debits, releases).await;
        }
        drop(turn);
    });
}

/// Tells the store all that it was not told, after what another one tells it now.
async fn tell_the_rest(inner: &Arc<Inner>) {
    let _turn = inner.keeper.debiting.lock().await;
    let (mut debits, mut releases) = (inner.last.owing(), inner.releases.count());
    while debits > 0 || releases > 0 {
        (debits, releases) = tell_some(inner, debits, releases).await;
    }
}

/// Makes some of the debits and some of the releases that are left. Returns how many are left then.
async fn tell_some(inner: &Arc<Inner>, debits: usize, releases: usize) -> (usize, usize) {
    let debits = if debits > 0 { debit_some(inner, debits).await } else { 0 };
    let releases = if releases > 0 { release_some(inner, releases).await } else { 0 };
    (debits, releases)
}

/// Releases some of the permits that are left. Returns how many are left then: none once a release has no answer, as the store
/// is still away.
async fn release_some(inner: &Arc<Inner>, left: usize) -> usize {
    let begun = inner.releases.begin(left.min(BACKGROUND_CALLS_MAX), inner.clock.now());
    let left = left.saturating_sub(begun.len().max(1));
    let made = join_all(begun.into_iter().map(|release| make_release(inner, release))).await;
    if made.into_iter().all(|answered| answered) { left } else { 0 }
}

/// Asks the store for a release. Returns whether it answered.
async fn make_release(inner: &Arc<Inner>, release: Release) -> bool {
    let Some(charge) = release.charge() else { return true };
    inner.calls.fetch_add(1, Ordering::Relaxed);
    let answer = inner.store.permit(&Call::default(), &charge).await;
    // What the store refuses to do it will refuse again.
    let is_answered = !matches!(answer, Err(StoreError::Failed { .. }));
    if is_answered {
        release.answered();
    }
    is_answered
}

/// Debits some of the keys that are left. Returns how many are left then: none once no debit reaches the store, which is still
/// away.
async fn debit_some(inner: &Arc<Inner>, left: usize) -> usize {
    let debits = inner.last.debits(left.min(BACKGROUND_CALLS_MAX), inner.clock.now());
    let left = left.saturating_sub(debits.len().max(1));
    let made = join_all(debits.into_iter().map(|debit| make_debit(inner, debit))).await;
    if made.into_iter().any(|applied| applied) { left } else { 0 }
}

/// Puts a debit to the store. Returns whether it was applied, or may have been.
async fn make_debit(inner: &Arc<Inner>, mut debit: Debit) -> bool {
    inner.calls.fetch_add(1, Ordering::Relaxed);
    let sent = inner.clock.now();
    let forget = Forget { denials: &inner.denials, charges: &[debit.charge()] };
    let answer = inner.store.charge(&Call::default(), forget.charges).await;
    drop(forget);
    debit.end(&answer, sent, inner.clock.now())
}

/// Gives everything back, and pushes everything.
pub(super) async fn finish(inner: &Arc<Inner>) {
    // What is under way when it is first looked at may leave something behind.
    for _ in 0..FINISH_ROUNDS {
        let now = inner.clock.now();
        let mut calls = Calls::new(inner);
        for (name, remainder) in inner.leases.empty(now) {
            calls.add(Work::Return(name, remainder)).await;
        }
        for push in pushes(inner, now, true) {
            calls.add(Work::Push(push)).await;
        }
        calls.finish().await;
    }
    tell_the_rest(inner).await;
    inner.leave().await;
}

enum Work {
    Return(Name, Remainder),
    Push(Push),
}

/// Calls under way, so many at a time.
struct Calls<'a> {
    inner: &'a Arc<Inner>,
    tasks: JoinSet<()>,
}

impl<'a> Calls<'a> {
    fn new(inner: &'a Arc<Inner>) -> Calls<'a> {
        Calls { inner, tasks: JoinSet::new() }
    }

    async fn add(&mut self, work: Work) {
        if self.tasks.len() >= BACKGROUND_CALLS_MAX {
            self.tasks.join_next().await;
        }
        let inner = Arc::clone(self.inner);
        self.tasks.spawn(async move {
            match work {
                Work::Return(name, remainder) => give_back(&inner, &name, &remainder).await,
                Work::Push(push) => push.make().await,
            }
        });
    }

    async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Gives units back. If that fails, they come back by themselves, later.
pub(super) async fn give_back(inner: &Inner, name: &[u8], remainder: &Remainder) {
    let Some(parts) = parts(name) else { return };
    let limit = remainder.limit.widest();
    let _ = inner.ask(&Call::default(), &[charge(&parts, &limit, remainder.op())]).await;
}

/// A charge to the key of a name. Nothing depends on its answer.
fn charge<'a>(parts: &'a Parts<'a>, limit: &'a Limit, op: Op) -> Charge<'a> {
    let placement = Placement { tag: parts.tag, ..Placement::default() };
    Charge::new(parts.key, limit, op).within(&parts.namespace).placed(placement).shadow()
}

/// What is to be pushed now.
fn pushes(inner: &Arc<Inner>, now: Time, last: bool) -> Vec<Push> {
    let each = inner.replicas.pushes(now, last).into_iter();
    let push = |(name, limit, units)| Push { inner: Arc::clone(inner), name, limit, units, was_sent: false };
    each.map(push).collect()
}

/// A push of one key. However it ends, also if its task does not get to it or goes away, the replica learns of it: while it
/// waits for one, it makes no other.
struct Push {
    inner: Arc<Inner>,
    name: Name,
    limit: Limit,
    units: u64,
    /// Whether it may have been counted.
    was_sent: bool,
}

impl Push {
    /// Tells the store what was admitted here, and this node what was admitted everywhere.
    async fn make(mut self) {
        let (inner, name) = (Arc::clone(&self.inner), self.name.clone());
        let Some(parts) = name.parts() else { return };
        let limit = self.limit;
        let charge = charge(&parts, &limit, Op::Debit(self.units));
        let sent = inner.clock.now();
        self.was_sent = true;
        let result = inner.charge_for_replica(&Call::default(), &charge).await;
        // What may have been counted is not told again.
        self.was_sent = !result.as_ref().is_err_and(|error| error.was_not_sent());
        drop(self);
        if let Some(told) = result.ok().as_ref().and_then(Told::of) {
            inner.replicas.receive(&name, &charge, &told, sent, inner.clock.now());
        }
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.inner.replicas.pushed(&self.name, self.was_sent);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use tidegate_core::{Decision, Decisions, FakeClock, Key, Permits, Snapshot};
    use tidegate_stores::{Health, Nature, Other, PermitCharge, PermitStore, StoreError};
    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::super::Consistent;
    use super::*;

    /// More than two rounds of debits.
    const OWING: usize = 2 * BACKGROUND_CALLS_MAX + 100;

    /// A store that answers charges when it is let to.
    struct Gate {
        open: Semaphore,
        under_way: AtomicUsize,
        most_under_way: AtomicUsize,
        charged: AtomicUsize,
        announced: AtomicUsize,
    }

    impl Gate {
        fn allow(&self, charges: usize) {
            self.open.add_permits(charges);
        }
    }

    impl Store for Gate {
        async fn charge(&self, _call: &Call, charges: &[Charge<'_>]) -> Result<Decisions, StoreError> {
            let under_way = self.under_way.fetch_add(1, Relaxed) + 1;
            self.most_under_way.fetch_max(under_way, Relaxed);
            self.open.acquire().await.unwrap().forget();
            self.under_way.fetch_sub(1, Relaxed);
            self.charged.fetch_add(1, Relaxed);
            Ok(charges.iter().map(|charge| (Decision::untaken(charge.limit), charge.veto)).collect())
        }

        async fn inspect(&self, _call: &Call, _charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
            Err(StoreError::Unsupported { store: "gate".into(), what: "nobody looks" })
        }

        fn nature(&self) -> Nature {
            Nature::shared(Duration::from_millis(10))
        }

        fn health(&self) -> Health {
            Health::of("gate")
        }

        async fn close(&self) {}
    }

    impl PermitStore for Gate {
        async fn permit(&self, _call: &Call, _charge: &PermitCharge<'_>) -> Result<Permits, StoreError> {
            self.announced.fetch_add(1, Relaxed);
            Err(StoreError::Unsupported { store: "gate".into(), what: "nobody counts" })
        }
    }

    /// A node that owes its store units of many keys.
    struct Owing {
        node: Consistent,
        store: Arc<Gate>,
        clock: FakeClock,
    }

    impl Owing {
        /// A node whose debits are under way, as many as can be.
        async fn new() -> Owing {
            let zero = AtomicUsize::default;
            let store = Arc::new(Gate {
                open: Semaphore::new(0),
                under_way: zero(),
                most_under_way: zero(),
                charged: zero(),
                announced: zero(),
            });
            let clock = FakeClock::at(Time::from_nanos(1_700_000_000_000_000_000));
            let other = Other::new(Arc::clone(&store)).with_permits(Arc::clone(&store));
            let node = Consistent::new(other.into(), clock.clone().into());
            node.count_nodes();
            let limit: Limit = "10/hour".parse().unwrap();
            for number in 0..OWING {
                let name = format!("user-{number}");
                node.go_on(&Charge::take(Key::new(&name).unwrap(), &limit, 1), 1, true);
            }
            let owing = Owing { node, store, clock };
            owing.work().await;
            owing.second().await;
            assert_eq!(owing.store.under_way.load(Relaxed), BACKGROUND_CALLS_MAX);
            owing
        }

        /// Lets a second pass, and everybody do what there is to do.
        async fn second(&self) {
            self.clock.advance(Duration::from_secs(1));
            self.node.inner.keeper.wake.notify_one();
            self.work().await;
        }

        async fn work(&self) {
            for _ in 0..10 * OWING {
                yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn debits_hold_nothing_else_up() {
        let owing = Owing::new().await;
        let before = owing.store.announced.load(Relaxed);
        for _ in 0..5 {
            owing.second().await;
        }
        assert_eq!(owing.store.under_way.load(Relaxed), BACKGROUND_CALLS_MAX, "one run of debits is under way");
        assert_eq!(owing.store.announced.load(Relaxed) - before, 5, "announced each second");
        owing.store.allow(OWING);
        owing.work().await;
        assert_eq!(owing.store.charged.load(Relaxed), OWING);
        assert!(!owing.node.inner.last.owes());
    }

    #[tokio::test]
    async fn a_store_that_is_closed_gets_the_rest_of_the_debits_after_those_under_way() {
        let owing = Owing::new().await;
        owing.store.allow(OWING);
        owing.node.settle_up().await;
        assert_eq!(owing.store.charged.load(Relaxed), OWING);
        assert_eq!(owing.store.most_under_way.load(Relaxed), BACKGROUND_CALLS_MAX);
    }

    #[tokio::test]
    async fn debits_end_with_the_last_handle() {
        let owing = Owing::new().await;
        owing.store.allow(OWING);
        let inner = Arc::downgrade(&owing.node.inner);
        let Owing { node, store, .. } = owing;
        drop(node);
        while inner.upgrade().is_some() {
            yield_now().await;
        }
        assert_eq!(store.charged.load(Relaxed), BACKGROUND_CALLS_MAX, "those that were under way");
    }
}
