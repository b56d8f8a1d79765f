//! Permits for holders outside of this process: each has a lease, so that a dead holder frees its own.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::bounds::{LEASED_PERMITS_DEFAULT, LEASED_SHARDS};
use crate::memory::{Fingerprint, Seeds};
use crate::permits::{Holders, PermitOp, Permits};
use crate::{Clock, Key, Namespace, Time};

/// Lets so many holders in at once for each key, each for the length of a lease that it may renew. Clones share one.
///
/// Unlike a [`Semaphore`](crate::Semaphore) it knows its holders by name, not by a guard: they may be other processes, which
/// may die. The limit comes with each call, as that of a [`MemoryStore`](crate::MemoryStore) does.
///
/// What has ended makes room with the next call that needs it: there is no background task. Memory is bounded by the
/// permits that are held at once, whatever the keys.
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
    /// Permits that may be held at once, over all keys.
    room: usize,
    /// Permits that are held, or whose end nobody noticed yet.
    held: AtomicUsize,
    shards: Box<[Mutex<Shard>]>,
}

/// Keys that share a lock.
#[derive(Default)]
struct Shard {
    keys: HashMap<Fingerprint, Holders>,
    /// When the next lease of each key ends.
    due: BTreeSet<(Time, Fingerprint)>,
}

/// There is no place for another permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for another permit: this process holds at most {permits} at once, over all keys")]
pub struct NoRoom {
    /// Permits that it was made for.
    pub permits: usize,
}

impl LeasedSemaphore {
    /// With room for 262,144 permits at once, over all keys.
    #[must_use]
    pub fn new(clock: Clock) -> LeasedSemaphore {
        LeasedSemaphore::with_room(clock, LEASED_PERMITS_DEFAULT)
    }

    /// With room for so many permits at once, over all keys.
    #[must_use]
    pub fn with_room(clock: Clock, permits: usize) -> LeasedSemaphore {
        let shards = (0..LEASED_SHARDS).map(|_| Mutex::default()).collect();
        let (seeds, held) = (Seeds::random(), AtomicUsize::new(0));
        LeasedSemaphore(Arc::new(Shared { clock, seeds, room: permits, held, shards }))
    }

    /// Takes one of `limit` permits under a key for the length of a lease. Who asks again with the same permit holds it
    /// once, for longer.
    ///
    /// # Errors
    /// If there is no room for another permit.
    pub fn acquire(&self, key: Key<'_>, permit: Key<'_>, limit: u64, lease: Duration) -> Result<Permits, NoRoom> {
        self.decide(Namespace::root(), key, permit, PermitOp::Acquire { limit, lease })
    }

    /// Holds a permit for another lease from now on.
    #[must_use]
    pub fn renew(&self, key: Key<'_>, permit: Key<'_>, lease: Duration) -> Permits {
        // What adds nothing finds room.
        self.decide(Namespace::root(), key, permit, PermitOp::Renew { lease }).unwrap_or_default()
    }

    /// Gives a permit back.
    #[must_use]
    pub fn release(&self, key: Key<'_>, permit: Key<'_>) -> Permits {
        self.decide(Namespace::root(), key, permit, PermitOp::Release).unwrap_or_default()
    }

    /// Permits that are held, over all keys.
    #[must_use]
    pub fn held(&self) -> usize {
        self.reclaim();
        self.0.held.load(Ordering::Relaxed)
    }

    /// Does something with a permit under a key of a namespace.
    ///
    /// # Errors
    /// If there is no room for another permit.
    pub fn decide(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        permit: Key<'_>,
        op: PermitOp,
    ) -> Result<Permits, NoRoom> {
        let print = self.0.seeds.print(namespace.hash(), key);
        let holder = self.0.seeds.print(0, permit);
        let holder = u128::from(holder.high) << 64 | u128::from(holder.low);
        self.try_decide(print, holder, op).or_else(|_| {
            // What has ended under keys of other locks makes room.
            self.reclaim();
            self.try_decide(print, holder, op)
        })
    }

    fn try_decide(&self, print: Fingerprint, holder: u128, op: PermitOp) -> Result<Permits, NoRoom> {
        let shared = &*self.0;
        self.in_shard(print, |shard, now| {
            let holders = shard.keys.entry(print).or_default();
            let (before, was_due) = (holders.in_use(), holders.next_end());
            let adds = matches!(op, PermitOp::Acquire { limit, .. } if before < limit && !holders.has(holder));
            let answer = match adds && !shared.reserve() {
                true => Err(NoRoom { permits: shared.room }),
                false => Ok(holders.decide(now, holder, op)),
            };
            let (after, is_due) = (holders.in_use(), holders.next_end());
            if after < before {
                shared.held.fetch_sub(1, Ordering::Relaxed);
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

    /// Does something with the keys of one lock, after what has ended there is forgotten.
    fn in_shard<T>(&self, print: Fingerprint, work: impl FnOnce(&mut Shard, Time) -> T) -> T {
        // The remainder keeps it in bounds.
        #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
        let shard = &self.0.shards[print.high as usize % self.0.shards.len()];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Read behind the lock, so that no two callers see time go back.
        let now = self.0.clock.now();
        let freed = shard.expire(now);
        self.0.held.fetch_sub(freed, Ordering::Relaxed);
        work(&mut shard, now)
    }

    /// Forgets all that has ended.
    fn reclaim(&self) {
        for shard in &self.0.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let freed = shard.expire(self.0.clock.now());
            self.0.held.fetch_sub(freed, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Takes a place for one more permit, if there is one.
    fn reserve(&self) -> bool {
        let one_more = |held: usize| (held < self.room).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

impl Shard {
    /// Forgets permits whose lease has ended. Tells how many. Each is looked at once, so this costs what acquiring them did.
    fn expire(&mut self, now: Time) -> usize {
        let mut freed = 0;
        while let Some((_, print)) = self.due.first().copied().filter(|(end, _)| *end <= now) {
            self.due.pop_first();
            let Some(holders) = self.keys.get_mut(&print) else { continue };
            freed += holders.expire(now);
            if let Some(end) = holders.next_end() {
                self.due.insert((end, print));
            } else {
                self.keys.remove(&print);
            }
        }
        freed
    }
}

impl fmt::Debug for LeasedSemaphore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeasedSemaphore").field("room", &self.0.room).finish_non_exhaustive()
    }
}
