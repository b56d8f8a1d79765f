//! Work in the background: one task gives back what was not spent, pushes what was admitted, debits what the store does not
//! know of, and announces this node.
//!
//! It is started by who first needs it, on that caller's runtime, and ends with the last handle of the store. If its runtime
//! ends before, the next one who needs it starts it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::{Charge, Limit, Op, Placement, Time};
use tidegate_stores::{Call, Debit, Store};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::name::{Name, Parts, parts};
use super::purse::Remainder;
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
    /// When debits are made next, in nanoseconds; 0 if none are owed.
    debits_at_nanos: AtomicU64,
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
    let until_debits = inner.keeper.until_debits(inner.last.owes(), now);
    if until_debits.is_zero() {
        inner.keeper.debits_at_nanos.store(0, Ordering::Relaxed);
        debit_what_is_owed(inner).await;
    }
    let until_announced = inner.announce().await;
    let now = inner.clock.now();
    let until_next = next.map_or(NAP, |next| since(now, next));
    let pushed = Time::from_nanos(inner.keeper.pushed_nanos.load(Ordering::Relaxed));
    let until_push = if inner.replicas.is_ahead() { SYNC_PAUSE.saturating_sub(since(pushed, now)) } else { NAP };
    let until_debits = inner.keeper.until_debits(inner.last.owes(), now);
    until_next.min(until_push).min(until_debits).min(until_announced)
}

/// Debits what was admitted while the store was away, so many keys at a time. Once none of them reaches the store it is
/// still away.
async fn debit_what_is_owed(inner: &Arc<Inner>) {
    let mut left = inner.last.owing();
    while left > 0 {
        let debits = inner.last.debits(left.min(BACKGROUND_CALLS_MAX), inner.clock.now());
        left = left.saturating_sub(debits.len().max(1));
        let made = join_all(debits.into_iter().map(|debit| make_debit(inner, debit))).await;
        if !made.into_iter().any(|applied| applied) {
            return;
        }
    }
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
    debit_what_is_owed(inner).await;
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
