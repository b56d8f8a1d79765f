//! Concurrency limits for each key, with permits as guards.

use std::fmt;
use std::sync::Arc;

use crate::bounds::{KEYS_DEFAULT, KEYS_MAX, PERMITS_MAX};
use crate::memory::{CapacityError, Fingerprint, Seeds, Table};
use crate::{Key, LimitError, Time};

/// Limits how many permits of each key are held at the same time: connections of a pool, jobs of a tenant, uploads of a
/// user.
///
/// A permit is a guard: dropping it frees the slot. Keys without permits in use take no room.
///
/// ```
/// use tidegate::{Key, Semaphore};
///
/// let uploads = Semaphore::new(2)?;
/// let ann = Key::new("ann")?;
/// let first = uploads.try_acquire(ann)?;
/// let second = uploads.try_acquire(ann)?;
/// assert!(uploads.try_acquire(ann).is_err());
/// drop(first);
/// assert!(uploads.try_acquire(ann).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Semaphore(Arc<Shared>);

struct Shared {
    permits: u64,
    keys: usize,
    seeds: Seeds,
    table: Table<1>,
}

/// A word in the table is 0, or this plus the permits in use: later than any instant, so the slot is never reclaimed.
const OUT: u64 = Time::MAX.as_nanos() + 1;

impl Semaphore {
    /// Creates a semaphore of `permits` for each key, with room for 100,000 keys in use at the same time.
    ///
    /// # Errors
    /// Fails if `permits` is zero or above 4,294,967,295, or there is no memory for the table.
    pub fn new(permits: u64) -> Result<Semaphore, SemaphoreError> {
        Semaphore::with_capacity(permits, KEYS_DEFAULT)
    }

    /// Creates a semaphore of `permits` for each key, with room for `keys` keys in use at the same time.
    ///
    /// # Errors
    /// Fails if a number is zero or too large, or there is no memory for the table.
    pub fn with_capacity(permits: u64, keys: usize) -> Result<Semaphore, SemaphoreError> {
        if permits == 0 {
            return Err(LimitError::Zero { field: "permits" }.into());
        }
        if permits > PERMITS_MAX {
            return Err(LimitError::TooLarge { field: "permits", value: permits, max: PERMITS_MAX }.into());
        }
        if keys == 0 {
            return Err(CapacityError::Zero { field: "keys" }.into());
        }
        if keys > KEYS_MAX {
            return Err(CapacityError::TooLarge { field: "keys", value: keys, max: KEYS_MAX }.into());
        }
        let table = Table::with_room_for(keys).map_err(CapacityError::NoMemory)?;
        Ok(Semaphore(Arc::new(Shared { permits, keys, seeds: Seeds::random(), table })))
    }

    /// Takes one permit if one is free.
    ///
    /// # Errors
    /// Fails if all permits are in use, or there is no room for another key.
    pub fn try_acquire(&self, key: Key<'_>) -> Result<Permit, Busy> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `permits` together if that many are free.
    ///
    /// # Errors
    /// Fails if fewer are free, or there is no room for another key.
    pub fn try_acquire_n(&self, key: Key<'_>, permits: u64) -> Result<Permit, Busy> {
        self.acquire_within(key, permits, self.0.permits)
    }

    /// Takes one permit if fewer than `most` are in use: for holders that leave the rest to more important ones.
    ///
    /// ```
    /// use tidegate::{Key, Semaphore};
    ///
    /// let (jobs, all) = (Semaphore::new(3)?, Key::new("all")?);
    /// let first = jobs.try_acquire_within(all, 2)?;
    /// let urgent = [jobs.try_acquire(all)?, jobs.try_acquire(all)?];
    /// drop(first);
    /// assert!(jobs.try_acquire_within(all, 2).is_err(), "two are out");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `most` or all permits are in use, or there is no room for another key.
    pub fn try_acquire_within(&self, key: Key<'_>, most: u64) -> Result<Permit, Busy> {
        self.acquire_within(key, 1, most.min(self.0.permits))
    }

    fn acquire_within(&self, key: Key<'_>, permits: u64, most: u64) -> Result<Permit, Busy> {
        let shared = &*self.0;
        let print = shared.seeds.print(0, key);
        let held = match shared.table.lock(print) {
            Some(held) => held,
            None => {
                let _gate = shared.table.gate(shared.table.home(print));
                // Places that nobody holds are 0, so they are free at any instant.
                let held = shared.table.insert(print, Time::from_nanos(0), |_| ());
                held.ok_or(Busy::NoRoom { keys: shared.keys })?
            }
        };
        let in_use = out(held.state());
        if permits > most.saturating_sub(in_use) {
            return Err(Busy::InUse { asked: permits, permits: most, in_use });
        }
        held.release(word(in_use + permits));
        Ok(Permit { shared: Arc::clone(&self.0), print, permits })
    }

    /// Returns the number of a key's permits in use.
    #[must_use]
    pub fn in_use(&self, key: Key<'_>) -> u64 {
        let print = self.0.seeds.print(0, key);
        self.0.table.lock(print).map_or(0, |held| out(held.state()))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Semaphore").field("permits", &self.0.permits).finish_non_exhaustive()
    }
}

fn out([word]: [u64; 1]) -> u64 {
    word.saturating_sub(OUT)
}

fn word(out: u64) -> [u64; 1] {
    [if out == 0 { 0 } else { OUT + out }]
}

/// A permit. Dropping it frees the slot.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct Permit {
    shared: Arc<Shared>,
    print: Fingerprint,
    permits: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(held) = self.shared.table.lock(self.print) {
            let left = out(held.state()).saturating_sub(self.permits);
            held.release(word(left));
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Permit").field("permits", &self.permits).finish_non_exhaustive()
    }
}

/// Why there is no permit.
///
/// Exhaustive on purpose: the key has no free permit, or the semaphore has no room for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// Too few permits are free.
    #[error("permits: {asked} requested, but {in_use} of {permits} are in use")]
    InUse {
        /// The number of permits requested.
        asked: u64,
        /// The permits of the key, or the most that may be in use for this request.
        permits: u64,
        /// The number of permits in use.
        in_use: u64,
    },
    /// There is no room for another key in use.
    #[error("keys: no room for another one; this semaphore has room for {keys} keys in use")]
    NoRoom {
        /// The number of keys that it has room for.
        keys: usize,
    },
}

/// Why a semaphore cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SemaphoreError {
    /// The number of permits is out of bounds.
    #[error(transparent)]
    Permits(#[from] LimitError),
    /// The number of keys is out of bounds, or there is no memory for them.
    #[error(transparent)]
    Keys(#[from] CapacityError),
}
