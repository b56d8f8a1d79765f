//! Fixed window: units per window, windows aligned to the epoch. See `spec/fixed_window.md`.

use super::window::{Current, Windows};
use crate::{Key, Namespace, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    pub(crate) stagger: bool,
    /// Nanoseconds by which a key's windows start after the epoch's: below `window`.
    phase: u64,
}

impl FixedWindow {
    pub(crate) fn new(limit: u64, window: u64) -> FixedWindow {
        FixedWindow { limit, window, stagger: false, phase: 0 }
    }

    /// This window for one key: with `stagger`, windows of different keys end at different instants.
    #[inline]
    pub(crate) fn for_key(&self, namespace: &Namespace, key: Key<'_>) -> FixedWindow {
        if !self.stagger {
            return *self;
        }
        let scaled = u128::from(namespace.spread(key)) * u128::from(self.window);
        self.with_phase(u64::try_from(scaled >> 64).unwrap_or(0))
    }

    pub(crate) fn with_phase(&self, phase: u64) -> FixedWindow {
        FixedWindow { phase, ..*self }
    }

    pub(crate) fn phase(&self) -> u64 {
        self.phase
    }

    /// The end of the window that `now` lies in.
    pub(crate) fn end(&self, now: u64) -> u64 {
        now + self.window - (now + self.window - self.phase) % self.window
    }
}

impl Windows for FixedWindow {
    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn current(&self, [end, count]: [u64; 2], now: Time) -> Current {
        let end_now = self.end(now.as_nanos());
        let jumped = end.saturating_sub(end_now) > self.window;
        let (end, count) = match end {
            end if end <= now.as_nanos() => (end_now, 0),
            // A clock that jumped back must not lock the key out until it catches up.
            _ if jumped => (end_now, count),
            // The same window; or the caller's instant is stale: it counts as the start of the state's own window.
            end => (end.max(end_now), count),
        };
        Current { start: end.saturating_sub(self.window), end, count, jumped }
    }
}
