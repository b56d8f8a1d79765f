//! Limits: an algorithm with its numbers, checked once so that no arithmetic on them can fail.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::algorithm::bucket::Bucket;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::log::Log;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::bounds::{INTERVAL_NANOS_MIN, LOG_LIMIT_MAX, SLICES_DEFAULT, SLICES_MAX, SPAN_NANOS_MAX, WINDOW_NANOS_MAX};
use crate::{Key, Rate};

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Units per epoch-aligned window.
    FixedWindow,
    /// Exact trailing window, one entry a charge.
    SlidingLog,
    /// Two counters, the older one weighted.
    SlidingCounter,
    /// A trailing window of whole slices.
    SlicedWindow,
    /// A bucket of tokens that refills at a rate.
    TokenBucket,
    /// A bucket that leaks at a rate, as a meter.
    LeakyBucket,
    /// The generic cell rate algorithm.
    Gcra,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Gcra,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::SlidingCounter,
        Algorithm::SlicedWindow,
    ];

    /// The name in config, on the wire and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::SlidingCounter => "sliding_counter",
            Algorithm::SlicedWindow => "sliced_window",
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::LeakyBucket => "leaky_bucket",
            Algorithm::Gcra => "gcra",
        }
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Reads a name as [`Algorithm::name`] writes it.
    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let named = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        named.ok_or_else(|| UnknownAlgorithm { name: name.chars().take(40).collect() })
    }
}

/// No algorithm has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "algorithm: `{name}` is unknown; use gcra, token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_counter or \
     sliced_window"
)]
pub struct UnknownAlgorithm {
    /// The name, shortened.
    name: String,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    shape: Shape,
    algorithm: Algorithm,
    identity: u64,
}

/// The arithmetic of a limit: seven algorithms, four arithmetics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Bucket(Bucket),
    Window(FixedWindow),
    Counter(SlidingCounter),
    Log(Log),
}

impl Limit {
    /// Lets `burst` units pass at once from idle, and `rate` in the long run.
    ///
    /// # Errors
    /// If the burst is zero or would take more than 100 years to come back.
    pub fn gcra(rate: Rate, burst: u64) -> Result<Limit, LimitError> {
        Limit::bucket(Algorithm::Gcra, "burst", rate, burst)
    }

    /// A bucket of `capacity` tokens, full at first, refilled at `rate`.
    ///
    /// # Errors
    /// If the capacity is zero or would take more than 100 years to refill.
    pub fn token_bucket(rate: Rate, capacity: u64) -> Result<Limit, LimitError> {
        Limit::bucket(Algorithm::TokenBucket, "capacity", rate, capacity)
    }

    /// A bucket that holds `capacity` units and leaks at `rate`; what would overflow is denied.
    ///
    /// # Errors
    /// If the capacity is zero or would take more than 100 years to leak.
    pub fn leaky_bucket(rate: Rate, capacity: u64) -> Result<Limit, LimitError> {
        Limit::bucket(Algorithm::LeakyBucket, "capacity", rate, capacity)
    }

    /// `limit` units in each window; windows start at multiples of their length since the Unix epoch.
    ///
    /// # Errors
    /// If either is zero or the numbers are beyond the bounds.
    pub fn fixed_window(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        let nanos = window_nanos(limit, window)?;
        Ok(Limit::new(Algorithm::FixedWindow, Shape::Window(FixedWindow::new(limit, nanos)), nanos))
    }

    /// At most `limit` units in any trailing window, exactly. One entry is kept for each charge.
    ///
    /// # Errors
    /// If either is zero, the limit above 10,000 or the numbers beyond the bounds.
    pub fn sliding_log(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        if limit > LOG_LIMIT_MAX {
            return Err(LimitError::TooLarge { field: "limit", value: limit, max: LOG_LIMIT_MAX });
        }
        let nanos = window_nanos(limit, window)?;
        Ok(Limit::new(Algorithm::SlidingLog, Shape::Log(Log::sliding(limit, nanos)), nanos))
    }

    /// About `limit` units in a trailing window, from the counts of this window and the one before.
    ///
    /// # Errors
    /// If either is zero or the numbers are beyond the bounds.
    pub fn sliding_counter(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        let window = window_nanos(limit, window)?;
        Ok(Limit::new(Algorithm::SlidingCounter, Shape::Counter(SlidingCounter { limit, window }), window))
    }

    /// At most `limit` units in any trailing window, counted in 60 slices.
    ///
    /// # Errors
    /// If either is zero or the numbers are beyond the bounds.
    pub fn sliced_window(limit: u64, window: Duration) -> Result<Limit, LimitError> {
        Limit::sliced_window_of(limit, window, SLICES_DEFAULT)
    }

    /// At most `limit` units in any trailing window, counted in `slices` slices; units come back up to one slice late.
    ///
    /// # Errors
    /// If any is zero or the numbers are beyond the bounds.
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

    /// The same limit; if it is a fixed window, its windows start at an instant of each key's own, so that not all
    /// keys come back at once. Other algorithms have no common seam.
    #[must_use]
    pub fn staggered(mut self) -> Limit {
        if let Shape::Window(window) = &mut self.shape {
            window.stagger = true;
        }
        self
    }

    /// The limit as it counts for one key: only a staggered fixed window differs from key to key. Stores do this
    /// themselves; callers of [`decide`](crate::decide) do it first.
    #[must_use]
    pub fn for_key(&self, key: Key<'_>) -> Limit {
        match self.shape {
            Shape::Window(window) => Limit { shape: Shape::Window(window.for_key(key)), ..*self },
            _ => *self,
        }
    }

    /// The same limit with the longest burst that there can be, for units that go back to a bucket which may have other
    /// numbers by now: what they were taken under must not cut the debt that others have made since.
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

    /// How this limit counts.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units it lets pass: the burst or capacity of a bucket, the limit of a window.
    #[must_use]
    pub fn units(&self) -> u64 {
        match self.shape {
            Shape::Bucket(bucket) => bucket.burst(),
            Shape::Window(window) => window.limit,
            Shape::Counter(counter) => counter.limit,
            Shape::Log(log) => log.limit,
        }
    }

    /// The most log entries that one key can need under this limit; 0 if the algorithm keeps none.
    #[must_use]
    pub fn log_entries_max(&self) -> u64 {
        match self.shape {
            Shape::Log(log) => log.entries_max(),
            Shape::Bucket(_) | Shape::Window(_) | Shape::Counter(_) => 0,
        }
    }

    /// What, beside the key, tells states apart: the algorithm and the window length. All other numbers may change
    /// and the state is kept.
    #[inline]
    #[must_use]
    pub fn identity(&self) -> u64 {
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
        // A window takes less than 61 bits, which leaves three for the algorithm.
        const { assert!(WINDOW_NANOS_MAX < 1 << 61) };
        Limit { shape, algorithm, identity: (algorithm as u64) << 61 | window }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads a [`Rate`]: `100/minute` is gcra with a burst of 100.
    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let rate: Rate = text.parse()?;
        Limit::gcra(rate, rate.units())
    }
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

/// Why numbers are not a limit: the field, its value and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A zero where something must pass.
    #[error("{field}: 0 is too small; use at least 1")]
    Zero {
        /// The field at fault.
        field: &'static str,
    },
    /// A period or window of nothing.
    #[error("{field}: 0 is too small; use at least 1 ns")]
    NoTime {
        /// The field at fault.
        field: &'static str,
    },
    /// More units than the bound.
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge {
        /// The field at fault.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that would do.
        max: u64,
    },
    /// A period or window beyond the bound.
    #[error("{field}: {nanos} ns is too long; use at most {max} ns ({} years)", max / crate::bounds::YEAR_NANOS)]
    TooLong {
        /// The field at fault.
        field: &'static str,
        /// Its value in nanoseconds.
        nanos: u128,
        /// The longest that would do, in nanoseconds.
        max: u64,
    },
    /// More than ten million units a second.
    #[error("{field}: {units} in {nanos} ns is too fast; use at most 10000000 a second (1 in {INTERVAL_NANOS_MIN} ns)")]
    TooFast {
        /// The field at fault.
        field: &'static str,
        /// Units in the period.
        units: u64,
        /// The period in nanoseconds.
        nanos: u64,
    },
    /// Text that is not a rate.
    #[error("rate: cannot read `{text}`; write units/period, like 100/minute, 5/10s or 1/day")]
    Unreadable {
        /// The text, shortened.
        text: String,
    },
}
