//! The one place where time is read.

#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::Time;

/// The source of a store's time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Wall time at the start plus monotonic elapsed time: later steps of the wall clock do not affect it.
    System(SystemClock),
    /// Time that moves only when a test moves it.
    Fake(FakeClock),
}

impl Clock {
    /// Returns the machine's clock.
    #[must_use]
    pub fn system() -> Clock {
        Clock::System(SystemClock::start())
    }

    /// Returns whether the machine's clock shows a time before 1970, which [`Time`] cannot represent: clocks created
    /// meanwhile start at 0.
    #[must_use]
    pub fn system_is_before_1970() -> bool {
        SystemTime::now() < SystemTime::UNIX_EPOCH
    }

    /// Returns the present instant.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        match self {
            Clock::System(clock) => clock.now(),
            Clock::Fake(clock) => clock.now(),
        }
    }

    /// Reads the clock again if an earlier reading turned out to be old, else returns that reading. A thread suspended
    /// between reading the clock and reading a state would otherwise mistake the state for one of a clock that jumped.
    #[inline]
    pub(crate) fn again_if(&self, is_old: bool, earlier: Time) -> Time {
        if is_old { self.now().max(earlier) } else { earlier }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl From<FakeClock> for Clock {
    fn from(clock: FakeClock) -> Clock {
        Clock::Fake(clock)
    }
}

/// Wall time read once, then carried forward by the processor's time-stamp counter (or the monotonic clock where
/// that counter is not steady).
#[derive(Clone, Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    counter_start: u64,
    wall_start: u64,
    /// Nanoseconds in 2^40 ticks of the counter: a scale that a multiplication and a shift apply, off by less than
    /// 0.1 ms a year.
    nanos_per_tick_shifted: u64,
}

const SCALE_BITS: u32 = 40;

impl SystemClock {
    fn start() -> SystemClock {
        let counter = quanta::Clock::new();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SystemClock {
            nanos_per_tick_shifted: counter.delta_as_nanos(0, 1 << SCALE_BITS),
            counter_start: counter.raw(),
            counter,
            wall_start: u64::try_from(wall.as_nanos()).unwrap_or(Time::MAX.as_nanos()),
        }
    }

    #[inline]
    fn now(&self) -> Time {
        let ticks = self.counter.raw().saturating_sub(self.counter_start);
        let elapsed = (u128::from(ticks) * u128::from(self.nanos_per_tick_shifted)) >> SCALE_BITS;
        #[allow(clippy::cast_possible_truncation, reason = "a process does not run for five centuries")]
        Time::from_nanos(self.wall_start + elapsed as u64)
    }
}

/// A clock for tests: it stands still until it is moved, and all its clones share one time.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{FakeClock, Key, Limit, Limiter};
///
/// let clock = FakeClock::new();
/// let limiter = Limiter::builder("1/minute".parse::<Limit>()?).clock(clock.clone()).build()?;
/// let key = Key::new("user:42")?;
/// assert!(limiter.check(key).is_allowed());
/// assert!(!limiter.check(key).is_allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check(key).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Hands>);

#[derive(Debug)]
struct Hands {
    nanos: AtomicU64,
    /// The number of reads until it panics, once; 0 for never.
    #[cfg(feature = "test-hooks")]
    reads_left: AtomicU64,
}

impl FakeClock {
    /// Creates a clock at one second after the Unix epoch.
    #[must_use]
    pub fn new() -> FakeClock {
        FakeClock::at(Time::from_nanos(crate::bounds::NANOS_PER_SECOND))
    }

    /// Creates a clock at `time`.
    #[must_use]
    pub fn at(time: Time) -> FakeClock {
        FakeClock(Arc::new(Hands {
            nanos: AtomicU64::new(time.as_nanos()),
            #[cfg(feature = "test-hooks")]
            reads_left: AtomicU64::new(0),
        }))
    }

    /// Returns the present instant.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        #[cfg(feature = "test-hooks")]
        self.count_down();
        Time::from_nanos(self.0.nanos.load(Ordering::Relaxed))
    }

    /// Makes the read after this many further reads panic, once: to test what a panic in the middle of a decision
    /// leaves behind.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn break_after(&self, reads: u64) {
        self.0.reads_left.store(reads + 1, Ordering::Relaxed);
    }

    #[cfg(feature = "test-hooks")]
    #[allow(clippy::panic, reason = "that is what it is for, and only in tests")]
    fn count_down(&self) {
        let one_less = |left: u64| left.checked_sub(1);
        if self.0.reads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) == Ok(1) {
            panic!("the clock breaks as set by break_after");
        }
    }

    /// Moves the clock forward by `by`.
    pub fn advance(&self, by: Duration) {
        let now = Time::from_nanos(self.0.nanos.load(Ordering::Relaxed));
        self.set(now.plus(by));
    }

    /// Sets the clock to `time`, also backwards.
    pub fn set(&self, time: Time) {
        self.0.nanos.store(time.as_nanos(), Ordering::Relaxed);
    }
}

impl Default for FakeClock {
    fn default() -> FakeClock {
        FakeClock::new()
    }
}
