//! The arithmetic of leased permits: who holds a permit of a key, and until when.
//!
//! Pure, as the algorithms are: the instant is an argument. `crates/stores/src/redis/lua/permits.lua` does the same in
//! Redis; `spec/permits.md` explains it in words.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::Time;

/// An operation on the permits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitOp {
    /// Takes one of `limit` permits for the length of a lease. A holder that already has it holds it once, for longer.
    Acquire {
        /// The limit of the key.
        limit: u64,
        /// How long the permit is held, unless it is renewed.
        lease: Duration,
    },
    /// Extends a permit by a new lease from now on.
    Renew {
        /// How long the permit is held from now on.
        lease: Duration,
    },
    /// Releases a permit.
    Release,
}

impl PermitOp {
    /// Returns the name of the operation in scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PermitOp::Acquire { .. } => "acquire",
            PermitOp::Renew { .. } => "renew",
            PermitOp::Release => "release",
        }
    }

    /// Returns the limit of the key, if the operation has one.
    #[must_use]
    pub const fn limit(self) -> Option<u64> {
        match self {
            PermitOp::Acquire { limit, .. } => Some(limit),
            PermitOp::Renew { .. } | PermitOp::Release => None,
        }
    }

    /// Returns how long the permit is held from now on, or `None` for a release.
    #[must_use]
    pub const fn lease(self) -> Option<Duration> {
        match self {
            PermitOp::Acquire { lease, .. } | PermitOp::Renew { lease } => Some(lease),
            PermitOp::Release => None,
        }
    }
}

/// The permits of a key after an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permits {
    /// Whether the operation succeeded: a permit was acquired, or was there to be renewed or released.
    pub done: bool,
    /// The number of permits in use.
    pub in_use: u64,
    /// The time until the next lease ends, if nobody renews or releases.
    pub next_end: Duration,
}

impl Permits {
    /// Creates the result of an operation: whether it succeeded, the permits in use, and the time until the next lease
    /// ends.
    #[must_use]
    pub const fn new(done: bool, in_use: u64, next_end: Duration) -> Permits {
        Permits { done, in_use, next_end }
    }
}

/// The holders of one key's permits.
///
/// A lease that ends now has ended. A renewal never shortens a lease. A lease that ends later than the key's longest
/// lease from now was granted before the clock was set back: the next acquire shortens it to that length, so that a
/// dead holder blocks others for no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    ends: HashMap<u128, Time>,
    /// The holders, ordered by the end of their leases.
    order: BTreeSet<(Time, u128)>,
    /// The longest lease since a permit was first held.
    longest: Duration,
}

impl Holders {
    /// Applies an operation at an instant, for the holder of this number.
    pub fn decide(&mut self, now: Time, holder: u128, op: PermitOp) -> Permits {
        self.expire(now);
        let done = match op {
            PermitOp::Acquire { limit, lease } => {
                self.repair(now, lease);
                let fits = self.ends.contains_key(&holder) || self.in_use() < limit;
                if fits {
                    self.hold(now, holder, lease);
                }
                fits
            }
            PermitOp::Renew { lease } => {
                let is_held = self.ends.contains_key(&holder);
                if is_held {
                    self.hold(now, holder, lease);
                }
                is_held
            }
            PermitOp::Release => self.ends.remove(&holder).is_some_and(|end| self.order.remove(&(end, holder))),
        };
        if self.is_empty() {
            self.longest = Duration::ZERO;
        }
        let next_end = self.next_end().map_or(0, |end| end.as_nanos().saturating_sub(now.as_nanos()));
        Permits { done, in_use: self.in_use(), next_end: Duration::from_nanos(next_end) }
    }

    /// Removes the holders whose lease has ended, and returns their number.
    pub fn expire(&mut self, now: Time) -> usize {
        let before = self.order.len();
        while self.expire_one(now).is_some() {}
        before - self.order.len()
    }

    /// Removes one holder whose lease has ended, and returns its number.
    pub fn expire_one(&mut self, now: Time) -> Option<u128> {
        let (_, holder) = self.order.first().copied().filter(|(end, _)| *end <= now)?;
        self.order.pop_first();
        self.ends.remove(&holder);
        if self.is_empty() {
            self.longest = Duration::ZERO;
        }
        Some(holder)
    }

    /// Returns the number of permits in use, including those whose lease has ended since the last operation.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.order.len() as u64
    }

    /// Returns whether no permit is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns whether this holder has a permit, if its lease has not ended.
    #[must_use]
    pub fn has(&self, holder: u128) -> bool {
        self.ends.contains_key(&holder)
    }

    /// Returns when the lease of this holder ends, if it has a permit.
    #[must_use]
    pub fn end_of(&self, holder: u128) -> Option<Time> {
        self.ends.get(&holder).copied()
    }

    /// Returns when the next lease ends.
    #[must_use]
    pub fn next_end(&self) -> Option<Time> {
        self.order.first().map(|(end, _)| *end)
    }

    fn hold(&mut self, now: Time, holder: u128, lease: Duration) {
        let known = self.ends.get(&holder).copied();
        let end = now.plus(lease).max(known.unwrap_or_default());
        self.longest = self.longest.max(lease);
        self.put(holder, known, end);
    }

    /// Shortens leases that end later than this clock can have granted.
    fn repair(&mut self, now: Time, lease: Duration) {
        let latest = now.plus(self.longest.max(lease));
        while let Some((end, holder)) = self.order.last().copied().filter(|(end, _)| *end > latest) {
            self.put(holder, Some(end), latest);
        }
    }

    fn put(&mut self, holder: u128, known: Option<Time>, end: Time) {
        if let Some(known) = known {
            self.order.remove(&(known, holder));
        }
        self.order.insert((end, holder));
        self.ends.insert(holder, end);
    }
}
