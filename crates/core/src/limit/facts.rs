//! Facts of a limit, so that callers need not ask for its algorithm.

use std::time::Duration;

use super::{Limit, Phase, Shape, nanos};
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::log::Log;
use crate::algorithm::sliding_counter::SlidingCounter;
use crate::{Calendar, Key, Namespace, Time};

impl Limit {
    /// Returns the offset of this key's windows from those aligned to the epoch.
    #[must_use]
    pub fn phase(&self, namespace: &Namespace, key: Key<'_>) -> Phase {
        match self.shape {
            Shape::Window(window) => Phase(window.for_key(namespace, key).phase()),
            _ => Phase::default(),
        }
    }

    /// Returns the calendar of its windows, or `None` if it has none.
    #[must_use]
    pub fn calendar(&self) -> Option<Calendar> {
        match self.shape {
            Shape::Calendar(window) => Some(window.calendar),
            Shape::Bucket(_) | Shape::Window(_) | Shape::Counter(_) | Shape::Log(_) => None,
        }
    }

    /// Returns when all units come back together, used or not, or `None` if they come back one by one or each at its
    /// own time.
    #[must_use]
    pub fn resets_at(&self, phase: Phase, now: Time) -> Option<Time> {
        match self.shape {
            Shape::Window(window) => Some(Time::from_nanos(window.with_phase(phase.0).end(now.as_nanos()))),
            Shape::Calendar(window) => Some(Time::from_nanos(window.calendar.window_at(now).end())),
            Shape::Bucket(_) | Shape::Counter(_) | Shape::Log(_) => None,
        }
    }

    /// Returns whether all units come back together, at the instant of [`Limit::resets_at`].
    #[must_use]
    pub fn resets_at_once(&self) -> bool {
        matches!(self.shape, Shape::Window(_) | Shape::Calendar(_))
    }

    /// Returns the time in which all units come back: that of the whole burst of a bucket, the length of a window, the
    /// longest that a window of a calendar can be.
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

    /// Returns how long one unit takes to come back, or `None` if units come back together.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        match self.shape {
            Shape::Bucket(bucket) => Some(Duration::from_nanos(bucket.interval())),
            Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) | Shape::Log(_) => None,
        }
    }

    /// Returns how long units count at most: the time of a bucket's burst, one window, or for a sliced window a slice
    /// more.
    #[must_use]
    pub fn memory(&self) -> Duration {
        match self.shape {
            Shape::Log(log) => Duration::from_nanos(log.lifetime()),
            Shape::Bucket(_) | Shape::Window(_) | Shape::Calendar(_) | Shape::Counter(_) => self.period(),
        }
    }

    /// Returns an upper bound on the units that pass in any span of time.
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

    /// Returns whether a unit can be denied although fewer than the limit passed: the estimate of a sliding counter may
    /// be too high.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        matches!(self.shape, Shape::Counter(_))
    }

    /// Returns whether slices of the limit can be taken in advance, to be spent later, without over-admitting.
    #[must_use]
    pub fn can_lease(&self) -> bool {
        matches!(self.shape, Shape::Bucket(_) | Shape::Window(_))
    }
}
