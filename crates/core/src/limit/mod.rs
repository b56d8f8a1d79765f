//! Limits: an algorithm with its numbers, checked once so that no arithmetic on them can fail.

mod algorithm;
mod error;
mod ext;
mod facts;

use std::str::FromStr;
use std::time::Duration;

use crate::algorithm::bucket::Bucket;
use crate::algorithm::calendar_window::CalendarLimit;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::log::Log;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::bounds::{INTERVAL_NANOS_MIN, LOG_LIMIT_MAX, SLICES_DEFAULT, SLICES_MAX, SPAN_NANOS_MAX, WINDOW_NANOS_MAX};
use crate::{Calendar, Key, Namespace, Rate};

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use error::LimitError;

/// An algorithm with its numbers.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limit, Rate};
///
/// let api = Limit::gcra(Rate::per_second(10)?, 20)?;
/// let login = Limit::sliding_log(5, Duration::from_secs(60))?;
/// let simple: Limit = "100/minute".parse()?;      // gcra with a burst of 100
/// # Ok::<(), tidegate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    shape: Shape,
    algorithm: Algorithm,
    identity: Identity,
}

/// The part of a state's identity beside namespace and key: the algorithm and the length of its window, or its
/// calendar. All other numbers may change while the state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    algorithm: u8,
    window: u64,
}

impl Identity {
    /// Returns the number of the algorithm, followed by that of [`Identity::window`].
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        (self.algorithm as u128) << 64 | self.window as u128
    }

    /// Returns the length of the window in nanoseconds, the number of its calendar ([`Calendar::identity`]), or 0 if it
    /// has neither.
    #[must_use]
    pub const fn window(self) -> u64 {
        self.window
    }
}

/// The offset of a key's windows from those aligned to the epoch. Only a staggered fixed window differs from key to
/// key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase(pub(crate) u64);

/// The arithmetic of a limit: eight algorithms, five arithmetics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    Bucket(Bucket),
    Window(FixedWindow),
    Calendar(CalendarLimit),
    Counter(SlidingCounter),
    Log(Log),
}

/// The numbers of a limit of any algorithm, which uses those that it needs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LimitNumbers {
    /// The rate of a bucket, or the units and the length of a window.
    pub rate: Rate,
    /// The burst or capacity of a bucket. Default: the units of the rate.
    pub burst: Option<u64>,
    /// The slices of a sliced window. Default: 60.
    pub slices: Option<u64>,
    /// Whether the windows of each key start at an instant of its own.
    pub stagger: bool,
    /// The calendar of a calendar window.
    pub calendar: Option<Calendar>,
}

impl From<Rate> for LimitNumbers {
    fn from(rate: Rate) -> LimitNumbers {
        LimitNumbers { rate, burst: None, slices: None, stagger: false, calendar: None }
    }
}

impl Limit {
    /// Creates a limit of an algorithm with these numbers.
    ///
    /// # Errors
    /// Fails if a number that the algorithm uses is out of bounds.
    pub fn of(algorithm: Algorithm, numbers: &LimitNumbers) -> Result<Limit, LimitError> {
        let (rate, units, window) = (numbers.rate, numbers.rate.units(), numbers.rate.period());
        let burst = numbers.burst.unwrap_or(units);
        match algorithm {
            Algorithm::Gcra => Limit::gcra(rate, burst),
            Algorithm::TokenBucket => Limit::token_bucket(rate, burst),
            Algorithm::LeakyBucket => Limit::leaky_bucket(rate, burst),
            Algorithm::FixedWindow if numbers.stagger => Limit::fixed_window(units, window).map(Limit::staggered),
            Algorithm::FixedWindow => Limit::fixed_window(units, window),
            Algorithm::SlidingLog => Limit::sliding_log(units, window),
            Algorithm::SlidingCounter => Limit::sliding_counter(units, window),
            Algorithm::SlicedWindow => Limit::sliced_window_of(units, window, numbers.slices.unwrap_or(SLICES_DEFAULT)),
            Algorithm::CalendarWindow => {
                let calendar = numbers.calendar.ok_or(LimitError::NoCalendar { field: "calendar" })?;
                Limit::calendar_window(units, calendar)
            }
        }
    }

    /// Creates a limit that allows `burst` units at once after idle time, and `rate` in the long run.
    ///
    /// # Errors
    /// Fails if the burst is zero or would take more than 100 years to come back.
    pub fn gcra(rate: Rate, burst: u64) -> Result<Limit, LimitError> {
        Limit::bucket(Algorithm::Gcra, "burst", rate, burst)
    }

    /// Creates a bucket of `capacity` tokens, full at first, refilled at `rate`.
    ///
    /// # Errors
    /// Fails if the capacity is zero or would take more than 100 years to refill.
    pub fn token_bucket(rate: Rate, capacity: u64) -> Result<Limit, LimitError> {
        Limit::bucket(Algorithm::TokenBucket, "capacity", rate, capacity)
    }

    /// Creates a bucket that holds `capacity` units and leaks at `rate`; a request that would overflow it is denied.
    ///
    /// # Errors
    /// Fails if the capacity is zero or would take more than 100 years to leak.
    pub fn leaky_bucket(rate: Rate, capacity: u64) -> Result<Limit, LimitError> {
        Limit::bucket(Algorithm::LeakyBucket, "capacity", rate, capacity)
    }

    /// Creates a limit of `limit` units in each window; windows start at multiples of their length since the Unix
    /// epoch.
    ///
    /// # Errors
    /// Fails if either is zero or out of bounds.
    pub fn fixed_window(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        let nanos = window_nanos(limit, window)?;
        Ok(Limit::new(Algorithm::FixedWindow, Shape::Window(FixedWindow::new(limit, nanos)), nanos))
    }

    /// Creates a limit of exactly `limit` units in any trailing window. One entry is kept for each charge.
    ///
    /// # Errors
    /// Fails if either is zero or out of bounds; the limit is at most 10,000.
    pub fn sliding_log(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        if limit > LOG_LIMIT_MAX {
            return Err(LimitError::TooLarge { field: "limit", value: limit, max: LOG_LIMIT_MAX });
        }
        let nanos = window_nanos(limit, window)?;
        Ok(Limit::new(Algorithm::SlidingLog, Shape::Log(Log::sliding(limit, nanos)), nanos))
    }

    /// Creates a limit of about `limit` units in any trailing window, from the counts of this window and the one
    /// before.
    ///
    /// # Errors
    /// Fails if either is zero or out of bounds.
    pub fn sliding_counter(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        let window = window_nanos(limit, window)?;
        Ok(Limit::new(Algorithm::SlidingCounter, Shape::Counter(SlidingCounter { limit, window }), window))
    }

    /// Creates a limit of `limit` units in any trailing window, counted in 60 slices; units come back up to one slice
    /// late.
    ///
    /// # Errors
    /// Fails if either is zero or out of bounds.
    pub fn sliced_window(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        Limit::sliced_window_of(limit, window, SLICES_DEFAULT)
    }

    /// Creates a limit of `limit` units in any trailing window, counted in `slices` slices; units come back up to one
    /// slice late.
    ///
    /// # Errors
    /// Fails if any is zero or out of bounds.
    pub fn sliced_window_of(limit: u64, window: Duration, slices: u64) -> Result<Limit, LimitError> {
        let nanos = window_nanos(limit, window)?;
        if slices == 0 {
            return Err(LimitError::Zero { field: "slices" });
        }
        let max = SLICES_MAX.min(nanos);
        if slices > max {
            return Err(LimitError::TooLarge { field: "slices", value: slices, max });
        }
        Ok(Limit::new(Algorithm::SlicedWindow, Shape::Log(Log::sliced(limit, nanos, slices)), nanos))
    }

    /// Creates a limit of `limit` units in each window of a calendar.
    ///
    /// # Errors
    /// Fails if the limit is zero or above 10 million per second.
    pub fn calendar_window(limit: u64, calendar: Calendar) -> Result<Limit, LimitError> {
        let window = CalendarLimit::new(limit, calendar)?;
        Ok(Limit::new(Algorithm::CalendarWindow, Shape::Calendar(window), calendar.identity()))
    }

    /// Returns this limit with staggered windows: those of each key start at an instant of its own, so that not all
    /// keys come back at once. Only a fixed window changes.
    #[must_use]
    pub fn staggered(mut self) -> Limit {
        if let Shape::Window(window) = &mut self.shape {
            window.stagger = true;
        }
        self
    }

    /// Returns this limit for one key: only a staggered fixed window differs from key to key. Stores do this
    /// themselves; callers of [`decide`](crate::decide) must call it first.
    #[must_use]
    pub fn for_key(&self, namespace: &Namespace, key: Key<'_>) -> Limit {
        match self.shape {
            Shape::Window(window) => Limit { shape: Shape::Window(window.for_key(namespace, key)), ..*self },
            _ => *self,
        }
    }

    /// Returns this limit with the longest burst possible, for refunds to a bucket that may have other numbers by now:
    /// they must not reduce the debt that others have made since.
    #[doc(hidden)]
    #[must_use]
    pub fn widest(&self) -> Limit {
        match self.shape {
            Shape::Bucket(bucket) => {
                let interval = bucket.interval();
                Limit { shape: Shape::Bucket(Bucket::every(interval, SPAN_NANOS_MAX / interval)), ..*self }
            }
            _ => *self,
        }
    }

    /// Returns the algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the limit in units: the burst or capacity of a bucket, the limit of a window.
    #[must_use]
    pub fn units(&self) -> u64 {
        match self.shape {
            Shape::Bucket(bucket) => bucket.burst(),
            Shape::Window(window) => window.limit,
            Shape::Calendar(window) => window.limit,
            Shape::Counter(counter) => counter.limit,
            Shape::Log(log) => log.limit,
        }
    }

    /// Returns the most log entries that one key can need, or 0 if the algorithm keeps none.
    #[must_use]
    pub fn log_entries_max(&self) -> u64 {
        match self.shape {
            Shape::Log(log) => log.entries_max(),
            Shape::Bucket(_) | Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) => 0,
        }
    }

    /// Returns the part of a state's identity beside namespace and key.
    #[inline]
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// A bucket that never lets more pass than this limit's own worst case, for when only an instant a key can be kept.
    pub(crate) fn as_bucket(&self) -> Bucket {
        // In a window that excludes its first instant, a bucket lets pass its burst and one unit for each whole
        // interval below the window: for a log that must not be more than the limit, for the others than twice that.
        match self.shape {
            Shape::Bucket(bucket) => bucket,
            Shape::Window(FixedWindow { limit, window, .. }) | Shape::Counter(SlidingCounter { limit, window }) => {
                Bucket::every(window.div_ceil(limit), limit)
            }
            Shape::Calendar(CalendarLimit { limit, .. }) => Bucket::every(nanos(self.period()).div_ceil(limit), limit),
            Shape::Log(log) => {
                let burst = log.limit.div_ceil(2);
                Bucket::every(log.lifetime().div_ceil(log.limit - burst + 1), burst)
            }
        }
    }

    /// How much longer units count under this limit than they are out of [`Limit::as_bucket`].
    pub(crate) fn outlives_bucket(&self) -> u64 {
        match self.shape {
            Shape::Bucket(_) => 0,
            Shape::Window(FixedWindow { window, .. }) | Shape::Counter(SlidingCounter { window, .. }) => window,
            Shape::Calendar(_) => nanos(self.period()),
            Shape::Log(log) => log.lifetime(),
        }
    }

    fn bucket(algorithm: Algorithm, field: &'static str, rate: Rate, burst: u64) -> Result<Limit, LimitError> {
        if burst == 0 {
            return Err(LimitError::Zero { field });
        }
        let max = SPAN_NANOS_MAX / rate.interval();
        if burst > max {
            return Err(LimitError::TooLarge { field, value: burst, max });
        }
        Ok(Limit::new(algorithm, Shape::Bucket(Bucket::new(rate, burst)), 0))
    }

    fn new(algorithm: Algorithm, shape: Shape, window: u64) -> Limit {
        Limit { shape, algorithm, identity: Identity { algorithm: algorithm.number(), window } }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Parses a [`Rate`]: `100/minute` is gcra with a burst of 100.
    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let rate: Rate = text.parse()?;
        Limit::gcra(rate, rate.units())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn window_nanos(limit: u64, window: Duration) -> Result<u64, LimitError> {
    if limit == 0 {
        return Err(LimitError::Zero { field: "limit" });
    }
    if window.is_zero() {
        return Err(LimitError::NoTime { field: "window" });
    }
    let nanos = match u64::try_from(window.as_nanos()) {
        Ok(nanos) if nanos <= WINDOW_NANOS_MAX => nanos,
        _ => {
            return Err(LimitError::TooLong { field: "window", nanos: window.as_nanos(), max: WINDOW_NANOS_MAX });
        }
    };
    if u128::from(limit) * u128::from(INTERVAL_NANOS_MIN) > u128::from(nanos) {
        return Err(LimitError::TooFast { field: "limit", units: limit, nanos });
    }
    Ok(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores keep these numbers for years.
    #[test]
    fn numbers_and_codes_of_algorithms_never_change() {
        let numbers = Algorithm::ALL.map(|algorithm| (algorithm.number(), algorithm.code(), algorithm.name()));
        let pinned = [
            (7, "b", "gcra"),
            (5, "bt", "token_bucket"),
            (6, "bl", "leaky_bucket"),
            (1, "w", "fixed_window"),
            (2, "l", "sliding_log"),
            (3, "c", "sliding_counter"),
            (4, "s", "sliced_window"),
            (8, "cal", "calendar_window"),
        ];
        assert_eq!(numbers, pinned);
        let window = Limit::fixed_window(5, Duration::from_secs(60)).unwrap();
        assert_eq!(window.identity().to_bits(), 1 << 64 | 60_000_000_000);
        assert_eq!("5/minute".parse::<Limit>().unwrap().identity().to_bits(), 7 << 64);
    }
}
