//! The algorithms by name and by number.

use std::fmt;
use std::str::FromStr;

/// An algorithm of limits.
///
/// The numbers are part of a state's identity, and stores keep states for years: they never change, and those of
/// removed algorithms are never reused (`spec/README.md` lists them).
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
    /// All algorithms.
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

    /// Returns the name in the configuration, on the wire and in metrics.
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

    /// Returns the letters for it in the names of states in shared stores. They never change.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "w",
            Algorithm::SlidingLog => "l",
            Algorithm::SlidingCounter => "c",
            Algorithm::SlicedWindow => "s",
            Algorithm::TokenBucket => "bt",
            Algorithm::LeakyBucket => "bl",
            Algorithm::Gcra => "b",
            Algorithm::CalendarWindow => "cal",
        }
    }

    /// Returns the number for it in the identity of states.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns whether units come back one by one, at a rate.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        matches!(self, Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket)
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Parses a name as returned by [`Algorithm::name`].
    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let named = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        named.ok_or_else(|| UnknownAlgorithm { name: name.chars().take(40).collect() })
    }
}

/// The error for a name that no algorithm has.
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
