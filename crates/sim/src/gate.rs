//! What stands before a server: nothing, a fixed limit, or one that learns.

use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::adaptive::{AdaptiveError, AdaptiveLimit, Sample, Window, WindowConfig};

/// Decides who is let in, and learns from what came of it.
#[derive(Clone, Debug)]
pub enum Gate {
    /// Everybody is let in.
    Open,
    /// At most so many are in flight.
    Fixed(u64),
    /// At most as many as the limit says, which is fed by a window of samples.
    Adaptive {
        /// The window.
        window: Box<Window>,
        /// The limit.
        limit: AdaptiveLimit,
    },
}

impl Gate {
    /// A limit that learns from windows of these numbers.
    ///
    /// # Errors
    /// If the numbers are not a window.
    pub fn windowed(limit: impl Into<AdaptiveLimit>, window: WindowConfig) -> Result<Gate, AdaptiveError> {
        Ok(Gate::Adaptive { window: Box::new(Window::new(window)?), limit: limit.into() })
    }

    /// How many may be in flight; nothing if there is no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        match self {
            Gate::Open => None,
            Gate::Fixed(limit) => Some(*limit),
            Gate::Adaptive { limit, .. } => Some(limit.limit()),
        }
    }

    /// Whether one more may come in.
    #[must_use]
    pub fn admits(&self, in_flight: u64) -> bool {
        self.limit().is_none_or(|limit| in_flight < limit)
    }

    /// Learns what came of a request that ended at `now`.
    pub fn learn(&mut self, now: Duration, sample: Sample) {
        if let Gate::Adaptive { window, limit } = self
            && let Some(whole) = window.add(Time::default().plus(now), sample)
        {
            limit.update(whole);
        }
    }
}
