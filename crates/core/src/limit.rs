//! Limits: an algorithm with its numbers, checked once so that no arithmetic on them can fail.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::algorithm::bucket::Bucket;
use crate::algorithm::calendar_window::CalendarLimit;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::log::Log;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::bounds::{INTERVAL_NANOS_MIN, LOG_LIMIT_MAX, SLICES_DEFAULT, SLICES_MAX, SPAN_NANOS_MAX, WINDOW_NANOS_MAX};
use crate::{Calendar, Key, Namespace, Rate, Receipt, Time};

/// How a limit counts.
///
/// The numbers are part of what tells states apart, and stores keep states for years: they never change, and those of
/// algorithms that are gone are never used again (`spec/README.md` lists them).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Algorithm {
    /// Units per epoch-aligned window.
    FixedWindow = 1,
    /// Exact trailing window, one entry a charge.
    SlidingLog = 2,
    /// Two counters, the older one weighted.
    SlidingCounter = 3,
    /// A trailing window of whole slices.
    SlicedWindow = 4,
    /// A bucket of tokens that refills at a rate.
    TokenBucket = 5,
    /// A bucket that leaks at a rate, as a meter.
    LeakyBucket = 6,
    /// The generic cell rate algorithm.
    Gcra = 7,
    /// Units per day, week, month or year of a time zone.
    CalendarWindow = 8,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 8] = [
        Algorithm::Gcra,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::SlidingCounter,
        Algorithm::SlicedWindow,
        Algorithm::CalendarWindow,
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
            Algorithm::CalendarWindow => "calendar_window",
        }
    }

    /// The number that stores know it by.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether units come back one by one, at a rate.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        matches!(self, Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket)
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
    "algorithm: `{name}` is unknown; use gcra, token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_counter, \
     sliced_window or calendar_window"
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    shape: Shape,
    algorithm: Algorithm,
    identity: Identity,
}

/// What a limit adds to namespace and key to tell states apart: the algorithm and the length of its window, or its calendar.
/// All other numbers may change and the state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    algorithm: u8,
    window: u64,
}

impl Identity {
    /// The number of the algorithm, then that of [`Identity::window`].
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u128 {
        (self.algorithm as u128) << 64 | self.window as u128
    }

    /// The length of the window in nanoseconds, the number of its calendar ([`Calendar::identity`]), or 0 if it has neither.
    #[must_use]
    pub const fn window(self) -> u64 {
        self.window
    }
}

/// By how much the windows of a key start after those of the epoch. Only a staggered fixed window differs from key to key.
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

/// The numbers of a limit, whatever its algorithm is: each takes those that it knows.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LimitNumbers {
    /// The rate of a bucket, or the units and the length of a window.
    pub rate: Rate,
    /// The burst or capacity of a bucket: the units of the rate if there is none.
    pub burst: Option<u64>,
    /// The slices of a sliced window: 60 if nothing is said.
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
    /// The limit of an algorithm with these numbers.
    ///
    /// # Errors
    /// If the numbers that the algorithm takes are out of bounds.
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

    /// `limit` units in each window of a calendar.
    ///
    /// # Errors
    /// If the limit is zero or above 10 million a second.
    pub fn calendar_window(limit: u64, calendar: Calendar) -> Result<Limit, LimitError> {
        let window = CalendarLimit::new(limit, calendar)?;
        Ok(Limit::new(Algorithm::CalendarWindow, Shape::Calendar(window), calendar.identity()))
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
    pub fn for_key(&self, namespace: &Namespace, key: Key<'_>) -> Limit {
        match self.shape {
            Shape::Window(window) => Limit { shape: Shape::Window(window.for_key(namespace, key)), ..*self },
            _ => *self,
        }
    }

    /// By how much the windows of this key start after those of the epoch.
    #[must_use]
    pub fn phase(&self, namespace: &Namespace, key: Key<'_>) -> Phase {
        match self.shape {
            Shape::Window(window) => Phase(window.for_key(namespace, key).phase()),
            _ => Phase::default(),
        }
    }

    /// When all units come back at once, used or not; nothing if they come back one by one, or each at a time of its own.
    #[must_use]
    pub fn resets_at(&self, phase: Phase, now: Time) -> Option<Time> {
        match self.shape {
            Shape::Window(window) => Some(Time::from_nanos(window.with_phase(phase.0).end(now.as_nanos()))),
            Shape::Calendar(window) => Some(Time::from_nanos(window.calendar.window_at(now).end())),
            Shape::Bucket(_) | Shape::Counter(_) | Shape::Log(_) => None,
        }
    }

    /// Whether all units come back at once, at an instant that [`Limit::resets_at`] knows.
    #[must_use]
    pub fn resets_at_once(&self) -> bool {
        matches!(self.shape, Shape::Window(_) | Shape::Calendar(_))
    }

    /// The time in which all units come back: that of the whole burst of a bucket, the length of a window, the longest that a
    /// window of a calendar can be.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_nanos(match self.shape {
            Shape::Calendar(window) => return window.calendar.period().longest(),
            Shape::Bucket(bucket) => bucket.span(),
            Shape::Window(FixedWindow { window, .. })
            | Shape::Counter(SlidingCounter { window, .. })
            | Shape::Log(Log { window, .. }) => window,
        })
    }

    /// How long one unit takes to come back; nothing if units come back together.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        match self.shape {
            Shape::Bucket(bucket) => Some(Duration::from_nanos(bucket.interval())),
            Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) | Shape::Log(_) => None,
        }
    }

    /// How long units count at most: the time of a bucket's burst, one window, or for a sliced window a slice more.
    #[must_use]
    pub fn memory(&self) -> Duration {
        match self.shape {
            Shape::Log(log) => Duration::from_nanos(log.lifetime()),
            Shape::Bucket(_) | Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) => self.period(),
        }
    }

    /// The most units that pass in any span of time: never less than it really is.
    #[must_use]
    pub fn most_in(&self, span: Duration) -> u128 {
        let (units, span) = (u128::from(self.units()), span.as_nanos());
        let windows = |length: u64| span.div_ceil(u128::from(length));
        match self.shape {
            Shape::Bucket(bucket) => units + span.div_ceil(u128::from(bucket.interval())),
            // A span meets one window more than fit into it.
            Shape::Window(FixedWindow { window, .. }) | Shape::Counter(SlidingCounter { window, .. }) => {
                (windows(window) + 1) * units
            }
            // No window is half as short as usual, whatever the clocks of its zone do.
            Shape::Calendar(window) => (windows(nanos(window.calendar.period().usual()) / 2) + 1) * units,
            Shape::Log(log) => windows(log.window) * units,
        }
    }

    /// Whether a unit can be denied though fewer than the limit passed: the estimate of a sliding counter may be above
    /// what passed.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        matches!(self.shape, Shape::Counter(_))
    }

    /// Whether slices of it can be taken in advance, to be spent later, without letting too much pass.
    #[must_use]
    pub fn can_lease(&self) -> bool {
        matches!(self.shape, Shape::Bucket(_) | Shape::Window(_))
    }

    /// Whether its state is a few words, so that a store reports it and somebody else can go on from it.
    #[must_use]
    pub fn can_be_copied(&self) -> bool {
        !matches!(self.shape, Shape::Log(_))
    }

    /// The receipt to give units back with while others may hold leases of at most this length. A lease of a bucket that
    /// was taken later stands on the debt that these units made: it may only fall so far that no lease ends after it.
    #[must_use]
    pub fn receipt_before_leases(&self, receipt: Receipt, longest: Duration) -> Receipt {
        match self.shape {
            Shape::Bucket(_) => receipt.earlier(longest),
            Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) | Shape::Log(_) => receipt,
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
            Shape::Calendar(window) => window.limit,
            Shape::Counter(counter) => counter.limit,
            Shape::Log(log) => log.limit,
        }
    }

    /// The most log entries that one key can need under this limit; 0 if the algorithm keeps none.
    #[must_use]
    pub fn log_entries_max(&self) -> u64 {
        match self.shape {
            Shape::Log(log) => log.entries_max(),
            Shape::Bucket(_) | Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) => 0,
        }
    }

    /// What it adds to namespace and key to tell states apart.
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

    /// Reads a [`Rate`]: `100/minute` is gcra with a burst of 100.
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

/// Why numbers are not a limit: the field, its value and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
    /// A calendar window without a calendar.
    #[error("{field}: missing; use one, such as months of Europe/Berlin")]
    NoCalendar {
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

impl LimitError {
    /// The field at fault, as the functions that make limits call it.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            LimitError::Zero { field } | LimitError::NoTime { field } | LimitError::NoCalendar { field } => field,
            LimitError::TooLarge { field, .. } => field,
            LimitError::TooLong { field, .. } | LimitError::TooFast { field, .. } => field,
            LimitError::Unreadable { .. } => "rate",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores keep these numbers for years.
    #[test]
    fn numbers_of_algorithms_never_change() {
        let numbers = Algorithm::ALL.map(|algorithm| (algorithm.number(), algorithm.name()));
        let pinned = [
            (7, "gcra"),
            (5, "token_bucket"),
            (6, "leaky_bucket"),
            (1, "fixed_window"),
            (2, "sliding_log"),
            (3, "sliding_counter"),
            (4, "sliced_window"),
            (8, "calendar_window"),
        ];
        assert_eq!(numbers, pinned);
        let window = Limit::fixed_window(5, Duration::from_secs(60)).unwrap();
        assert_eq!(window.identity().to_bits(), 1 << 64 | 60_000_000_000);
        assert_eq!("5/minute".parse::<Limit>().unwrap().identity().to_bits(), 7 << 64);
    }
}
