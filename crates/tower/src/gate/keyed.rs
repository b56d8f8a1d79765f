//! A gate with a queue for each key. Only keys with requests in progress take room.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::Key;
use tidegate_core::bounds::KEYS_MAX;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Leaves, Line, Queue, Wait, Waiter};
use crate::bounds::KEY_SHARDS;
use crate::error::{ConfigError, check_count, check_limit};
use crate::refusal::Reason;
use crate::runtime_clock::RuntimeClock;

/// Permits of each key, and the requests that wait for one.
pub(crate) struct KeyedGate {
    shards: Vec<Mutex<Shard>>,
    random: RandomState,
    limit: u64,
    queue: Queue,
    keys: AtomicUsize,
    keys_max: usize,
    clock: RuntimeClock,
}

type Shard = HashMap<Arc<[u8]>, Crowd>;

/// The requests of one key, in progress and waiting. A request waits only while all slots of its key are taken, so a
/// crowd without requests in progress has none waiting and is removed.
struct Crowd {
    name: Arc<[u8]>,
    in_use: u64,
    line: Line<KeyedPermit>,
}

/// The result of asking for a permit of a key.
pub(crate) enum KeyedEntry {
    In(KeyedPermit),
    Wait(Wait<KeyedPermit, KeyedPlace>),
    Refused(Reason),
}

impl KeyedGate {
    pub(crate) fn new(limit: u64, queue: Queue, keys_max: usize) -> Result<Arc<KeyedGate>, ConfigError> {
        check_limit(limit)?;
        check_count("keys", keys_max as u64, KEYS_MAX as u64)?;
        // Checked here, so that making the line of a key cannot fail.
        Line::<KeyedPermit>::new(queue)?;
        let shards = (0..KEY_SHARDS).map(|_| Mutex::default()).collect();
        let (random, clock) = (RandomState::new(), RuntimeClock::start());
        Ok(Arc::new(KeyedGate { shards, random, limit, queue, keys: AtomicUsize::new(0), keys_max, clock }))
    }

    /// Lets in, queues or refuses a request of a key.
    pub(crate) fn enter(self: &Arc<KeyedGate>, key: Key<'_>) -> KeyedEntry {
        let Some(mut shard) = self.lock(key.as_bytes()) else { return KeyedEntry::Refused(Reason::Busy) };
        match self.take(&mut shard, key) {
            Ok(permit) => return KeyedEntry::In(permit),
            Err(Reason::ClientBusy) => {}
            Err(reason) => return KeyedEntry::Refused(reason),
        }
        let Some(crowd) = shard.get_mut(key.as_bytes()) else { return KeyedEntry::Refused(Reason::Busy) };
        // Before anything is changed: outside of a runtime there are no timers, and this panics.
        let (tell, told) = oneshot::channel();
        let told = timeout(self.queue.deadline(), told);
        match crowd.line.push(Waiter { since: self.clock.now(), tell }) {
            Some(place) => {
                let place = KeyedPlace { gate: Arc::clone(self), key: Arc::clone(&crowd.name), place: Some(place) };
                KeyedEntry::Wait(Wait::new(told, place))
            }
            None => KeyedEntry::Refused(Reason::QueueFull),
        }
    }

    /// Takes a permit of a key if one is free. Requests wait only while none is, so none is overtaken.
    pub(crate) fn try_enter(self: &Arc<KeyedGate>, key: Key<'_>) -> Result<KeyedPermit, Reason> {
        let mut shard = self.lock(key.as_bytes()).ok_or(Reason::Busy)?;
        self.take(&mut shard, key)
    }

    fn take(self: &Arc<KeyedGate>, shard: &mut Shard, key: Key<'_>) -> Result<KeyedPermit, Reason> {
        if let Some(crowd) = shard.get_mut(key.as_bytes()) {
            if crowd.in_use >= self.limit {
                return Err(Reason::ClientBusy);
            }
            crowd.in_use += 1;
            return Ok(KeyedPermit::new(self, Arc::clone(&crowd.name)));
        }
        let line = Line::new(self.queue).map_err(|_| Reason::Busy)?;
        let one_more = |keys: usize| (keys < self.keys_max).then_some(keys + 1);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).map_err(|_| Reason::Busy)?;
        let name: Arc<[u8]> = Arc::from(key.as_bytes());
        shard.insert(Arc::clone(&name), Crowd { name: Arc::clone(&name), in_use: 1, line });
        Ok(KeyedPermit::new(self, name))
    }

    pub(crate) fn in_flight(&self, key: Key<'_>) -> u64 {
        self.lock(key.as_bytes()).and_then(|shard| shard.get(key.as_bytes()).map(|crowd| crowd.in_use)).unwrap_or(0)
    }

    /// The number of waiting requests, of all keys.
    pub(crate) fn waiting(&self) -> usize {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().map(|crowd| crowd.line.len()).sum::<usize>()
        };
        self.shards.iter().map(of_shard).sum()
    }

    /// Releases a slot, which goes to the next waiting request of the key.
    fn release(self: &Arc<KeyedGate>, key: &Arc<[u8]>) {
        loop {
            let mut shed = Vec::new();
            let next = self.next(key, &mut shed);
            for waiter in shed {
                // If nobody listens any more, nobody is to be told.
                let _ = waiter.tell.send(Err(Reason::QueueStands));
            }
            let Some(waiter) = next else { return };
            match waiter.tell.send(Ok(KeyedPermit::new(self, Arc::clone(key)))) {
                // Its caller has left: the place is still to be given.
                Err(Ok(permit)) => permit.forget(),
                Ok(()) | Err(Err(_)) => return,
            }
        }
    }

    /// The next request to get a free slot. If there is none, the number in progress falls by one.
    fn next(&self, key: &Arc<[u8]>, shed: &mut Vec<Waiter<KeyedPermit>>) -> Option<Waiter<KeyedPermit>> {
        let mut shard = self.lock(key)?;
        let crowd = shard.get_mut(key)?;
        let next = crowd.line.pop(self.clock.now(), shed);
        if next.is_none() {
            crowd.in_use = crowd.in_use.saturating_sub(1);
            if crowd.in_use == 0 {
                shard.remove(key);
                self.keys.fetch_sub(1, Ordering::Relaxed);
            }
        }
        next
    }

    /// Locks the shard of a key, also after a panic: what may panic comes before what changes anything.
    fn lock(&self, key: &[u8]) -> Option<MutexGuard<'_, Shard>> {
        let place = self.random.hash_one(key) % KEY_SHARDS as u64;
        let shard = self.shards.get(usize::try_from(place).ok()?)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A permit of a key. Dropping it frees the slot, which goes to the next waiting request.
pub struct KeyedPermit {
    /// `None` once the slot has been passed on.
    gate: Option<Arc<KeyedGate>>,
    key: Arc<[u8]>,
}

impl KeyedPermit {
    fn new(gate: &Arc<KeyedGate>, key: Arc<[u8]>) -> KeyedPermit {
        KeyedPermit { gate: Some(Arc::clone(gate)), key }
    }

    /// Drops the permit without freeing the slot.
    fn forget(mut self) {
        self.gate = None;
    }
}

impl Drop for KeyedPermit {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.release(&self.key);
        }
    }
}

impl fmt::Debug for KeyedPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedPermit").finish_non_exhaustive()
    }
}

/// A place in the queue of a key. Dropping it leaves the queue.
pub struct KeyedPlace {
    gate: Arc<KeyedGate>,
    /// The key of its crowd: the same allocation, not only equal bytes.
    key: Arc<[u8]>,
    /// `None` once the request has its result.
    place: Option<u64>,
}

impl Leaves for KeyedPlace {
    fn told(&mut self) {
        self.place = None;
    }
}

impl Drop for KeyedPlace {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let Some(mut shard) = self.gate.lock(&self.key) else { return };
        // Who was told and did not listen may leave when its crowd has gone: the places of the next one are others'.
        let crowd = shard.get_mut(&self.key).filter(|crowd| Arc::ptr_eq(&crowd.name, &self.key));
        let left = crowd.and_then(|crowd| crowd.line.remove(place, self.gate.clock.now()));
        drop(shard);
        drop(left);
    }
}
