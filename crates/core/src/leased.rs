//! Permits for holders outside of this process: each has a lease, so that the permit of a dead holder is freed.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::bounds::{LEASED_PERMITS_DEFAULT, LEASED_SHARDS};
use crate::memory::{Fingerprint, Seeds};
use crate::permits::{Holders, PermitOp, Permits};
use crate::{Clock, Key, Namespace, Time};

/// Limits how many holders each key has at the same time, each for the length of a lease that it may renew. Clones
/// share one state.
///
/// Unlike a [`Semaphore`](crate::Semaphore) it identifies holders by name, not by a guard: they may be other processes,
/// which may die. The limit is passed with each call, as with a [`MemoryStore`](crate::MemoryStore).
///
/// Ended leases are removed by the next call that needs the room: there is no background task. Memory is bounded by the
/// permits held at the same time, however many keys there are.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{FakeClock, Key, LeasedSemaphore};
///
/// let clock = FakeClock::new();
/// let jobs = LeasedSemaphore::new(clock.clone().into());
/// let (tenant, lease) = (Key::new("tenant:7")?, Duration::from_secs(30));
/// assert!(jobs.acquire(tenant, Key::new("first")?, 1, lease)?.done);
/// let second = jobs.acquire(tenant, Key::new("second")?, 1, lease)?;
/// assert!(!second.done && second.next_end == lease);
/// clock.advance(lease);
/// assert!(jobs.acquire(tenant, Key::new("second")?, 1, lease)?.done, "the first holder died");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LeasedSemaphore(Arc<Shared>);

struct Shared {
    clock: Clock,
    seeds: Seeds,
    /// Most permits held at the same time, over all keys.
    room: usize,
    /// Permits that are held, or whose end has not been noticed yet.
    held: AtomicUsize,
    shards: Box<[Mutex<Shard>]>,
    /// Permits of each owner, counted likewise. Locked after a shard, if both are.
    owned: Mutex<HashMap<u64, usize>>,
}

/// The keys that share a lock.
#[derive(Default)]
struct Shard {
    keys: HashMap<Fingerprint, Holders>,
    /// The next end of a lease of each key.
    due: BTreeSet<(Time, Fingerprint)>,
    /// The owner of each permit, if owners are counted.
    owners: HashMap<(Fingerprint, u128), u64>,
}

/// An owner of permits, and how many it may hold at the same time over all keys, so that no owner takes all the room.
/// Holders are names that callers choose for permits; an owner is the caller itself, such as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitOwner {
    /// A number that identifies the owner.
    pub number: u64,
    /// The most permits that it may hold at the same time.
    pub permits: usize,
}

/// Why there is no room for another permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoom {
    /// All room is taken.
    #[error("no room for another permit: this process holds at most {permits} at once, over all keys")]
    Full {
        /// The number of permits that there is room for.
        permits: usize,
    },
    /// Its owner holds the most permits that it may.
    #[error("no room for another permit of this owner: it may hold at most {permits} at once, over all keys")]
    OfOwner {
        /// The most permits of one owner.
        permits: usize,
    },
}

impl LeasedSemaphore {
    /// Creates a semaphore with room for 262,144 permits held at the same time, over all keys.
    #[must_use]
    pub fn new(clock: Clock) -> LeasedSemaphore {
        LeasedSemaphore::with_room(clock, LEASED_PERMITS_DEFAULT)
    }

    /// Creates a semaphore with room for `permits` permits held at the same time, over all keys.
    #[must_use]
    pub fn with_room(clock: Clock, permits: usize) -> LeasedSemaphore {
        let shards = (0..LEASED_SHARDS).map(|_| Mutex::default()).collect();
        let (seeds, held) = (Seeds::random(), AtomicUsize::new(0));
        let owned = Mutex::default();
        LeasedSemaphore(Arc::new(Shared { clock, seeds, room: permits, held, shards, owned }))
    }

    /// Returns how many permits there is room for at the same time, over all keys.
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.room
    }

    /// Takes one of `limit` permits of a key for the length of a lease. A holder that asks again with the same permit
    /// holds it once, for longer.
    ///
    /// # Errors
    /// Fails if there is no room for another permit.
    pub fn acquire(&self, key: Key<'_>, permit: Key<'_>, limit: u64, lease: Duration) -> Result<Permits, NoRoom> {
        self.decide(Namespace::root(), key, permit, PermitOp::Acquire { limit, lease })
    }

    /// Extends a permit by a new lease from now on.
    #[must_use]
    pub fn renew(&self, key: Key<'_>, permit: Key<'_>, lease: Duration) -> Permits {
        // What adds nothing finds room.
        self.decide(Namespace::root(), key, permit, PermitOp::Renew { lease }).unwrap_or_default()
    }

    /// Releases a permit.
    #[must_use]
    pub fn release(&self, key: Key<'_>, permit: Key<'_>) -> Permits {
        self.decide(Namespace::root(), key, permit, PermitOp::Release).unwrap_or_default()
    }

    /// Returns the number of permits held, over all keys.
    #[must_use]
    pub fn held(&self) -> usize {
        self.reclaim();
        self.0.held.load(Ordering::Relaxed)
    }

    /// Applies an operation to a permit of a key in a namespace.
    ///
    /// # Errors
    /// Fails if there is no room for another permit.
    pub fn decide(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        permit: Key<'_>,
        op: PermitOp,
    ) -> Result<Permits, NoRoom> {
        self.decide_for(None, namespace, key, permit, op)
    }

    /// Applies an operation to a permit on behalf of an owner whose permits are counted. A permit belongs to the owner
    /// that acquired it, even if another one renews or releases it.
    ///
    /// # Errors
    /// Fails if there is no room for another permit, or the owner holds the most permits that it may.
    pub fn decide_for(
        &self,
        owner: Option<PermitOwner>,
        namespace: &Namespace,
        key: Key<'_>,
        permit: Key<'_>,
        op: PermitOp,
    ) -> Result<Permits, NoRoom> {
        let print = self.0.seeds.print(namespace.hash(), key);
        let holder = self.holder(permit);
        self.try_decide(print, holder, op, owner).or_else(|_| {
            // What has ended under keys of other locks makes room.
            self.reclaim();
            self.try_decide(print, holder, op, owner)
        })
    }

    /// Returns the permits of a key without changing them; `done` is whether this one is held.
    #[must_use]
    pub fn look(&self, namespace: &Namespace, key: Key<'_>, permit: Key<'_>) -> Permits {
        let holder = self.holder(permit);
        self.in_shard(self.0.seeds.print(namespace.hash(), key), |shard, print, now| {
            let Some(holders) = shard.keys.get(&print) else { return Permits::default() };
            let next_end = holders.next_end().map_or(Duration::ZERO, |end| until(end, now));
            Permits::new(holders.has(holder), holders.in_use(), next_end)
        })
    }

    /// Returns how long a permit is still held, or `None` if it is not.
    #[must_use]
    pub fn lease_left(&self, namespace: &Namespace, key: Key<'_>, permit: Key<'_>) -> Option<Duration> {
        let holder = self.holder(permit);
        self.in_shard(self.0.seeds.print(namespace.hash(), key), |shard, print, now| {
            Some(until(shard.keys.get(&print)?.end_of(holder)?, now))
        })
    }

    fn holder(&self, permit: Key<'_>) -> u128 {
        let print = self.0.seeds.print(0, permit);
        u128::from(print.high) << 64 | u128::from(print.low)
    }

    fn try_decide(
        &self,
        print: Fingerprint,
        holder: u128,
        op: PermitOp,
        owner: Option<PermitOwner>,
    ) -> Result<Permits, NoRoom> {
        let shared = &*self.0;
        self.in_shard(print, |shard, print, now| {
            let holders = shard.keys.entry(print).or_default();
            let (before, was_due) = (holders.in_use(), holders.next_end());
            let adds = matches!(op, PermitOp::Acquire { limit, .. } if before < limit && !holders.has(holder));
            let reserved = if adds { shared.reserve(owner) } else { Ok(()) };
            let answer = reserved.map(|()| holders.decide(now, holder, op));
            let (after, is_due) = (holders.in_use(), holders.next_end());
            if after < before {
                shared.held.fetch_sub(1, Ordering::Relaxed);
                shared.disown(shard.owners.remove(&(print, holder)));
            } else if let (true, Some(owner)) = (after > before, owner) {
                shard.owners.insert((print, holder), owner.number);
            }
            if was_due != is_due {
                if let Some(end) = was_due {
                    shard.due.remove(&(end, print));
                }
                if let Some(end) = is_due {
                    shard.due.insert((end, print));
                }
            }
            if is_due.is_none() {
                shard.keys.remove(&print);
            }
            answer
        })
    }

    /// Works on the keys of one lock, after ended leases are removed from it.
    fn in_shard<T>(&self, print: Fingerprint, work: impl FnOnce(&mut Shard, Fingerprint, Time) -> T) -> T {
        // The remainder keeps it in bounds.
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let shard = &self.0.shards[print.high as usize % self.0.shards.len()];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Read behind the lock, so that no two callers see time go back.
        let now = self.0.clock.now();
        self.0.expire(&mut shard, now);
        work(&mut shard, print, now)
    }

    /// Removes all ended leases.
    fn reclaim(&self) {
        for shard in &self.0.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.expire(&mut shard, self.0.clock.now());
        }
    }
}

impl Shared {
    /// Reserves room for one more permit, if there is some and its owner may have it.
    fn reserve(&self, owner: Option<PermitOwner>) -> Result<(), NoRoom> {
        let one_more = |held: usize| (held < self.room).then_some(held + 1);
        let reserved = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        reserved.map_err(|_| NoRoom::Full { permits: self.room })?;
        let Some(PermitOwner { number, permits }) = owner else { return Ok(()) };
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        match owned.get(&number).copied().unwrap_or_default() {
            held if held < permits => {
                owned.insert(number, held + 1);
                Ok(())
            }
            _ => {
                self.held.fetch_sub(1, Ordering::Relaxed);
                Err(NoRoom::OfOwner { permits })
            }
        }
    }

    /// Counts one permit less for an owner.
    fn disown(&self, owner: Option<u64>) {
        let Some(owner) = owner else { return };
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = owned.get_mut(&owner) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                owned.remove(&owner);
            }
        }
    }

    /// Removes the ended leases of a lock. Each is visited once, so this costs what acquiring them did.
    fn expire(&self, shard: &mut Shard, now: Time) {
        let mut freed = 0;
        while let Some((_, print)) = shard.due.first().copied().filter(|(end, _)| *end <= now) {
            shard.due.pop_first();
            let Some(holders) = shard.keys.get_mut(&print) else { continue };
            while let Some(holder) = holders.expire_one(now) {
                freed += 1;
                self.disown(shard.owners.remove(&(print, holder)));
            }
            if let Some(end) = holders.next_end() {
                shard.due.insert((end, print));
            } else {
                shard.keys.remove(&print);
            }
        }
        self.held.fetch_sub(freed, Ordering::Relaxed);
    }
}

/// The time from now to an instant; zero if that is over.
fn until(end: Time, now: Time) -> Duration {
    Duration::from_nanos(end.as_nanos().saturating_sub(now.as_nanos()))
}

impl fmt::Debug for LeasedSemaphore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeasedSemaphore").field("room", &self.0.room).finish_non_exhaustive()
    }
}
