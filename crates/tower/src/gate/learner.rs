//! What finds out the limit of a gate.

use tidegate_core::Time;
use tidegate_core::adaptive::{AdaptiveLimit, Sample, Window};

/// What is learnt. It is used under one lock, so that limits are published in the order in which they were found.
pub(crate) struct Learner {
    limit: AdaptiveLimit,
    window: Option<Window>,
}

impl Learner {
    /// One that has learnt nothing yet.
    pub(crate) fn new(limit: AdaptiveLimit, window: Option<Window>) -> Learner {
        Learner { limit, window }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.limit()
    }

    /// Learns from a request that was answered now. Tells the limit if that may have moved.
    pub(crate) fn learn(&mut self, now: Time, sample: Sample) -> Option<u64> {
        let sample = match &mut self.window {
            Some(window) => window.add(now, sample)?,
            None => sample,
        };
        Some(self.limit.update(sample))
    }
}
