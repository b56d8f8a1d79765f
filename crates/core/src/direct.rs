//! A limiter without keys.

use std::fmt;

use crate::algorithm::Words;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::calendar_window::CalendarLimit;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::log::Log;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::limit::Shape;
use crate::memory::{CapacityError, Cell, Pool, PooledLog};
use crate::{Clock, Decision, Limit, Op, Receipt, Time};

/// One limit without keys: for a whole process, a connection, a job.
///
/// ```
/// use tidegate::{DirectLimiter, Limit, Rate};
///
/// let limiter = DirectLimiter::new(Limit::token_bucket(Rate::per_second(10)?, 2)?)?;
/// assert!(limiter.check().is_allowed());
/// assert!(limiter.check().is_allowed());
/// assert!(!limiter.check().is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DirectLimiter {
    limit: Limit,
    clock: Clock,
    state: Kept,
}

enum Kept {
    Bucket(Bucket, Cell<1>),
    Window(FixedWindow, Cell<2>),
    Calendar(CalendarLimit, Cell<2>),
    Counter(SlidingCounter, Cell<3>),
    Log(Log, Cell<3>, Pool),
}

impl fmt::Debug for DirectLimiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DirectLimiter").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl DirectLimiter {
    /// Creates a limiter on the machine's clock.
    ///
    /// # Errors
    /// Fails if there is no memory for the entries of a log.
    pub fn new(limit: Limit) -> Result<DirectLimiter, CapacityError> {
        DirectLimiter::with_clock(limit, Clock::system())
    }

    /// Creates a limiter on this clock.
    ///
    /// # Errors
    /// Fails if there is no memory for the entries of a log.
    pub fn with_clock(limit: Limit, clock: impl Into<Clock>) -> Result<DirectLimiter, CapacityError> {
        let state = match limit.shape() {
            Shape::Bucket(bucket) => Kept::Bucket(*bucket, Cell::fresh()),
            Shape::Window(window) => Kept::Window(*window, Cell::fresh()),
            Shape::Calendar(window) => Kept::Calendar(*window, Cell::fresh()),
            Shape::Counter(counter) => Kept::Counter(*counter, Cell::fresh()),
            Shape::Log(log) => Kept::Log(*log, Cell::fresh(), Pool::for_one_log(log.entries_max())?),
        };
        Ok(DirectLimiter { limit, clock: clock.into(), state })
    }

    /// Takes one unit if it fits.
    #[inline]
    pub fn check(&self) -> Decision {
        self.decide(Op::Take(1))
    }

    /// Takes `units` if they all fit; 0 only looks.
    #[inline]
    pub fn check_n(&self, units: u64) -> Decision {
        self.decide(Op::Take(units))
    }

    /// Counts units that are already used, whether they fit or not.
    pub fn debit(&self, units: u64) -> Decision {
        self.decide(Op::Debit(units))
    }

    /// Returns the state and changes nothing.
    pub fn peek(&self) -> Decision {
        self.decide(Op::Peek)
    }

    /// Gives back units that were taken and not used. It has no effect once they would have come back by themselves.
    /// Without a receipt it gives back the oldest units of a log, or those of the current window.
    pub fn refund(&self, units: u64, receipt: Option<Receipt>) -> Decision {
        self.decide(Op::Refund(units, receipt))
    }

    /// Forgets all used units.
    pub fn reset(&self) -> Decision {
        self.decide(Op::Reset)
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Applies any operation.
    #[inline]
    pub fn decide(&self, op: Op) -> Decision {
        let now = self.clock.now();
        match &self.state {
            Kept::Bucket(bucket, cell) => self.run(cell, bucket, now, op),
            Kept::Window(window, cell) => self.run(cell, window, now, op),
            Kept::Calendar(window, cell) => self.run(cell, window, now, op),
            Kept::Counter(counter, cell) => self.run(cell, counter, now, op),
            Kept::Log(log, cell, pool) => self.run(cell, &PooledLog { log, pool }, now, op),
        }
    }

    #[inline]
    fn run<const WORDS: usize>(
        &self,
        cell: &Cell<WORDS>,
        algorithm: &impl Words<WORDS>,
        now: Time,
        op: Op,
    ) -> Decision {
        let mut decision = Decision::BLANK;
        if WORDS == 1 {
            let only_look = |state: &[u64; WORDS]| algorithm.only_looks(state, now, op);
            let decide = |state: &mut [u64; WORDS]| {
                let now = self.clock.again_if(algorithm.is_ahead(state, now), now);
                decision = algorithm.decide(state, now, op);
            };
            if cell.change(only_look, || true, || Some(cell.lock()), decide) {
                return decision;
            }
        }
        let mut held = cell.lock();
        let state = held.state_mut();
        let now = self.clock.again_if(algorithm.is_ahead(state, now), now);
        decision = algorithm.decide(state, now, op);
        algorithm.settle(state);
        decision
    }
}
