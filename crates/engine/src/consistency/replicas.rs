//! The replicas of all keys, and which of them are to be pushed.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_core::{Charge, Decision, Limit, Receipt, State, Time};
use tidegate_stores::ClockOffset;
use tokio::sync::Notify;

use super::leases::lock;
use super::name::Name;
use super::replica::{Replica, Told};
use super::since;
use crate::bounds::{REPLICA_IDLE_MAX, REPLICAS_MAX};

/// Locks that keys are divided among.
const SHARDS: usize = 64;

type Shard = HashMap<Name, Replica>;

/// All replicas.
pub(super) struct Replicas {
    shards: Box<[Mutex<Shard>]>,
    seed: RandomState,
    /// Keys that were asked for since they were last in step with the store.
    ahead: Mutex<Vec<Name>>,
    /// The shard whose idle replicas go next.
    sweep: AtomicUsize,
    /// Told when there is something to push.
    wake: Arc<Notify>,
}

impl Replicas {
    pub(super) fn new(wake: Arc<Notify>) -> Replicas {
        Replicas {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            seed: RandomState::new(),
            ahead: Mutex::default(),
            sweep: AtomicUsize::new(0),
            wake,
        }
    }

    /// Decides on the replica of a key, if there is one that the store has confirmed of late.
    pub(super) fn decide(&self, name: &[u8], charge: &Charge<'_>, now: Time) -> Option<Decision> {
        let mut shard = self.shard(name);
        let replica = shard.get_mut(name).filter(|replica| !replica.is_alone(now))?;
        let decision = replica.decide(charge, now);
        self.list(&mut shard, name);
        Some(decision)
    }

    /// Takes units back. Tells how many of them the store must be told about; all if there is no replica.
    pub(super) fn give_back(
        &self,
        name: &[u8],
        charge: &Charge<'_>,
        units: u64,
        receipt: Option<Receipt>,
        now: Time,
    ) -> u64 {
        let mut shard = self.shard(name);
        shard.get_mut(name).map_or(units, |replica| replica.give_back(charge, now, units, receipt))
    }

    /// Takes in what the store said of a key.
    pub(super) fn receive(&self, name: &[u8], charge: &Charge<'_>, told: &Told, sent: Time, learned: Time) {
        let mut shard = self.shard(name);
        let full = shard.len() >= REPLICAS_MAX / SHARDS;
        match shard.get_mut(name) {
            Some(replica) => replica.receive(charge, told, sent, learned),
            None if full => {}
            None => {
                shard.insert(Name::of(name), Replica::new(*charge.limit, told, sent, learned));
            }
        }
    }

    /// A copy of the state of a key, with the clock that it goes by.
    pub(super) fn copy(&self, name: &[u8]) -> Option<(State, ClockOffset)> {
        self.shard(name).get(name).map(Replica::copy)
    }

    /// A push has ended.
    pub(super) fn pushed(&self, name: &[u8], was_sent: bool) {
        let mut shard = self.shard(name);
        if let Some(replica) = shard.get_mut(name) {
            replica.pushed(was_sent);
            self.list(&mut shard, name);
        }
    }

    pub(super) fn forget(&self, name: &[u8]) {
        self.shard(name).remove(name);
    }

    /// Whether something is to be pushed or looked at again.
    pub(super) fn is_ahead(&self) -> bool {
        !lock(&self.ahead).is_empty()
    }

    /// What is to be pushed now; at last everything. Some replicas that nobody asks go.
    pub(super) fn pushes(&self, now: Time, last: bool) -> Vec<(Name, Limit, u64)> {
        let listed = std::mem::take(&mut *lock(&self.ahead));
        let mut pushes = Vec::new();
        for name in listed {
            let mut shard = self.shard(&name);
            let Some(replica) = shard.get_mut(&name[..]) else { continue };
            replica.listed = false;
            match replica.push(now, last) {
                Some((limit, units)) => pushes.push((name.clone(), limit, units)),
                // Nothing is pending, but it was asked: soon it is to be looked at.
                None => self.list(&mut shard, &name),
            }
        }
        let next = self.sweep.fetch_add(1, Relaxed) % SHARDS;
        if let Some(shard) = self.shards.get(next) {
            lock(shard).retain(|_, replica| !replica.is_idle() || since(replica.used, now) < REPLICA_IDLE_MAX);
        }
        pushes
    }

    /// Puts a key on the list, if it is to be there and is not.
    fn list(&self, shard: &mut Shard, name: &[u8]) {
        let is_new = |replica: &mut Replica| replica.is_ahead() && !std::mem::replace(&mut replica.listed, true);
        if !shard.get_mut(name).is_some_and(is_new) {
            return;
        }
        // Long names are there once.
        let Some((own, _)) = shard.get_key_value(name) else { return };
        let mut ahead = lock(&self.ahead);
        if ahead.is_empty() {
            self.wake.notify_one();
        }
        ahead.push(own.clone());
    }

    fn shard(&self, name: &[u8]) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(self.seed.hash_one(name) % SHARDS as u64).unwrap_or(0);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
        lock(&self.shards[number])
    }
}
