//! Shaping: the leaky bucket as a queue, which sends calls at an even pace.
//!
//! | to find | look in |
//! |---|---|
//! | the queue | `mod.rs` |
//! | when the next call may go | `pace.rs` |
//! | the layer for clients | `layer.rs` |

mod layer;
mod pace;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::{Rate, Time};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use crate::bounds::{QUEUE_DEPTH_MAX, SHAPE_COST_MAX, WAIT_MAX};
use crate::error::{ConfigError, check_count, check_time};
use crate::runtime_clock::{RuntimeClock, between};

pub use layer::{Shape, ShapeFuture, ShapeLayer, Shaped};
use pace::Pace;

/// The bounds of a [`Shaper`]'s queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperConfig {
    /// The most calls that wait.
    pub depth: usize,
    /// The longest wait. A call that would have to wait longer is refused at once.
    pub wait: Duration,
}

impl Default for ShaperConfig {
    fn default() -> ShaperConfig {
        ShaperConfig { depth: 1000, wait: Duration::from_secs(10) }
    }
}

/// Sends calls at an even pace, in the order of arrival: the leaky bucket as a queue. A burst becomes a series of calls
/// one interval apart. Clones are the same shaper.
///
/// No background task runs: the first call waits for its time, the others for their turn. Dropping a call's future
/// leaves the queue, and the calls behind it move up. Timers have a resolution of 1 ms: calls due in the same
/// millisecond go together, and a call that starts a few milliseconds late does not delay the next.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_tower::{Shaper, ShaperConfig};
///
/// let shaper = Shaper::new("10/s".parse()?, ShaperConfig::default())?;
/// shaper.acquire(1).await?; // At once.
/// shaper.acquire(1).await?; // A tenth of a second later.
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Shaper(Arc<Shared>);

struct Shared {
    rate: Rate,
    /// The time of one unit: nearly all calls cost that much, and a division is slow.
    unit: Duration,
    config: ShaperConfig,
    clock: RuntimeClock,
    pace: Pace,
    line: Mutex<Line>,
}

struct Line {
    waiting: BTreeMap<u64, Waiter>,
    /// The total cost of all waiting calls.
    cost: u128,
    next: u64,
}

struct Waiter {
    cost: u64,
    /// Wakes the call when it becomes the first; `None` once it has been woken.
    first: Option<oneshot::Sender<()>>,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The queue is full.
    #[error("shaper: the queue is full with {max} calls; try again later")]
    Full {
        /// The most calls that may wait.
        max: usize,
    },
    /// The call would have to wait too long.
    #[error("shaper: the call would have to wait for {wait:?}, longer than {max:?}; try again later")]
    TooLong {
        /// The time that the call would have to wait.
        wait: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// The cost is zero or too large.
    #[error("cost: {cost} is out of range; use 1 to {SHAPE_COST_MAX}")]
    Cost {
        /// The cost that was given.
        cost: u64,
    },
}

impl Shaper {
    /// Creates a shaper that lets out one unit of cost each interval of `rate`.
    ///
    /// # Errors
    /// Fails if the depth or the wait is zero or beyond its bound.
    pub fn new(rate: Rate, config: ShaperConfig) -> Result<Shaper, ConfigError> {
        check_count("depth", config.depth as u64, QUEUE_DEPTH_MAX as u64)?;
        check_time("wait", config.wait, WAIT_MAX)?;
        let line = Mutex::new(Line { waiting: BTreeMap::new(), cost: 0, next: 0 });
        let (unit, pace) = (time_at(rate, 1), Pace::new());
        Ok(Shaper(Arc::new(Shared { rate, unit, config, clock: RuntimeClock::start(), pace, line })))
    }

    /// Waits until a call of this cost may go; the calls behind it then wait for `cost` intervals.
    ///
    /// # Errors
    /// Fails at once if the queue is full, the call would have to wait too long, or the cost is out of range.
    pub async fn acquire(&self, cost: u64) -> Result<(), ShapeError> {
        match self.enter(cost) {
            Ok(()) => Ok(()),
            Err(NotNow::Turn(turn)) => {
                turn.go().await;
                Ok(())
            }
            Err(NotNow::Refused(error)) => Err(error),
        }
    }

    /// Returns the number of waiting calls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Lets a call out at once if none is before it, or queues it.
    #[inline]
    fn enter(&self, cost: u64) -> Result<(), NotNow> {
        if !(1..=SHAPE_COST_MAX).contains(&cost) {
            return Err(NotNow::Refused(ShapeError::Cost { cost }));
        }
        let shared = &*self.0;
        let (now, takes) = (shared.clock.now(), shared.time_of(u128::from(cost)));
        if shared.pace.try_go(now, takes) { Ok(()) } else { self.join(now, cost, takes) }
    }

    /// Queues a call, unless none is before it any more.
    #[cold]
    fn join(&self, now: Time, cost: u64, takes: Duration) -> Result<(), NotNow> {
        let (shared, config) = (&*self.0, &self.0.config);
        let mut line = shared.lock();
        // Those before may have left meanwhile. A timer wakes late, even for an instant that has passed.
        if shared.pace.try_go(now, takes) {
            return Ok(());
        }
        if line.waiting.len() >= config.depth {
            return Err(NotNow::Refused(ShapeError::Full { max: config.depth }));
        }
        let is_first = line.waiting.is_empty();
        shared.pace.is_waited_for();
        let wait = between(now, shared.pace.free().plus(shared.time_of(line.cost)));
        if wait > config.wait {
            if is_first {
                shared.pace.nobody_waits();
            }
            return Err(NotNow::Refused(ShapeError::TooLong { wait, max: config.wait }));
        }
        let (tell, told) = oneshot::channel();
        line.next += 1;
        let place = line.next;
        line.waiting.insert(place, Waiter { cost, first: (!is_first).then_some(tell) });
        line.cost += u128::from(cost);
        Err(NotNow::Turn(Turn { shared: Arc::clone(&self.0), place, told: (!is_first).then_some(told) }))
    }
}

fn time_at(rate: Rate, cost: u128) -> Duration {
    let nanos = cost.saturating_mul(rate.period().as_nanos()).div_ceil(u128::from(rate.units()));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Shared {
    /// The time of this many units, rounded up.
    #[inline]
    fn time_of(&self, cost: u128) -> Duration {
        if cost == 1 { self.unit } else { time_at(self.rate, cost) }
    }

    /// Locks the queue, also after a panic: nothing under the lock calls foreign code.
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call out of the queue, and wakes the new first call if that has changed.
    fn leave(&self, place: u64) {
        let mut line = self.lock();
        let tell = line.remove(place);
        if line.waiting.is_empty() {
            self.pace.nobody_waits();
        }
        drop(line);
        if let Some(tell) = tell {
            // If nobody listens any more, it is about to leave, and then tells the next.
            let _ = tell.send(());
        }
    }
}

impl Line {
    fn remove(&mut self, place: u64) -> Option<oneshot::Sender<()>> {
        let left = self.waiting.remove(&place)?;
        self.cost = self.cost.saturating_sub(u128::from(left.cost));
        self.waiting.first_entry()?.get_mut().first.take()
    }
}

/// The result for a call that does not go at once.
enum NotNow {
    Turn(Turn),
    Refused(ShapeError),
}

/// A place in the queue. Dropping it leaves the queue.
struct Turn {
    shared: Arc<Shared>,
    place: u64,
    /// `None` for a call that is the first from the start.
    told: Option<oneshot::Receiver<()>>,
}

impl Turn {
    /// Waits until it is the first, then until its time, and then leaves the queue.
    async fn go(mut self) {
        if let Some(told) = self.told.take() {
            // Who is before tells before it leaves, in any case.
            let _ = told.await;
        }
        // It is the first, so that nobody else goes meanwhile.
        sleep_until(self.shared.clock.instant(self.shared.pace.free())).await;
        let now = self.shared.clock.now();
        let line = self.shared.lock();
        let cost = line.waiting.get(&self.place).map_or(0, |waiter| u128::from(waiter.cost));
        self.shared.pace.go(now, self.shared.time_of(cost));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.leave(self.place);
    }
}

impl fmt::Debug for Shaper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Shaper");
        shown.field("rate", &self.0.rate).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// A call that saw others waiting may get the lock when none waits any more: then it goes at once, since a timer
    /// would delay it and all behind it.
    #[tokio::test(start_paused = true)]
    async fn who_finds_the_line_left_goes_at_once() {
        let shaper = Shaper::new("1000/s".parse().unwrap(), ShaperConfig::default()).unwrap();
        shaper.acquire(1).await.unwrap();
        advance(Duration::from_micros(1_100)).await;
        let now = shaper.0.clock.now();
        assert!(shaper.join(now, 1, shaper.0.unit).is_ok());
        assert!(matches!(shaper.join(now, 1, shaper.0.unit), Err(NotNow::Turn(_))), "the next waits for its time");
        assert_eq!(shaper.waiting(), 0, "and has left");
    }
}
