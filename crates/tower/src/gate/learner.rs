//! The adaptive limit of a gate.

use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::adaptive::{AdaptiveError, AdaptiveLimit, Sample, Window, WindowConfig};

/// An adaptive limit and its window. It is used under one lock, so that limits are published in the order in which they
/// were computed.
pub(crate) struct Learner {
    limit: AdaptiveLimit,
    window: Option<Window>,
    /// Samples below this teach nothing, unless they were dropped.
    ignored_below_ns: u64,
}

impl Learner {
    /// A learner without samples.
    pub(crate) fn new(limit: AdaptiveLimit, window: Option<WindowConfig>) -> Result<Learner, AdaptiveError> {
        let rtt_min = window.map_or(Duration::ZERO, |window| window.rtt_min);
        let ignored_below_ns = u64::try_from(rtt_min.as_nanos()).unwrap_or(u64::MAX);
        Ok(Learner { limit, window: window.map(Window::new).transpose()?, ignored_below_ns })
    }

    pub(crate) fn ignored_below_ns(&self) -> u64 {
        self.ignored_below_ns
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.limit()
    }

    /// Learns from a request that has just been answered. Returns the limit if it may have changed.
    pub(crate) fn learn(&mut self, now: Time, sample: Sample) -> Option<u64> {
        let sample = match &mut self.window {
            Some(window) => window.add(now, sample)?,
            None => sample,
        };
        Some(self.limit.update(sample))
    }
}
