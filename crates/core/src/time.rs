//! Time as a value: nanoseconds since the Unix epoch.

use std::time::Duration;

/// An instant, in nanoseconds since the Unix epoch.
///
/// Decisions take a `Time` and never read a clock; [`Clock`](crate::Clock) is the source of the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The latest instant that can be represented, in the year 2262. The room above it keeps every sum within 64 bits.
    pub const MAX: Time = Time(u64::MAX >> 1);

    /// Returns the instant `nanos` nanoseconds after the Unix epoch, or [`Time::MAX`] if that is earlier.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        if nanos < Time::MAX.0 { Time(nanos) } else { Time::MAX }
    }

    /// Returns the nanoseconds since the Unix epoch.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the instant `duration` later, at most [`Time::MAX`].
    #[must_use]
    pub fn plus(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(self.0.saturating_add(nanos))
    }
}
