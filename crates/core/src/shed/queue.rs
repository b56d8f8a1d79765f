//! Rejection by queue length: the longer the queue, the more is refused, the lowest classes first.

use super::error::{check_below, check_range};
use super::{Criticality, ShedError, falls};

/// The configuration of a [`QueueRejection`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueRejectionConfig {
    /// The queue length at which refusals start, as a multiple of the limit, 0 to 1,000.
    pub start: f64,
    /// The queue length at which all requests are refused, as a multiple of the limit; above `start`, at most 1,000.
    pub full: f64,
}

impl Default for QueueRejectionConfig {
    fn default() -> QueueRejectionConfig {
        QueueRejectionConfig { start: 2.0, full: 3.0 }
    }
}

/// Refuses more requests as the queue of a limit grows from `start` to `full` times the limit. The ramp is divided
/// evenly among the classes: its first quarter refuses test requests, its last critical ones.
#[derive(Clone, Copy, Debug)]
pub struct QueueRejection {
    config: QueueRejectionConfig,
}

impl QueueRejection {
    /// Creates a ramp with this configuration.
    ///
    /// # Errors
    /// Fails if a number is out of range, or `start` is not below `full`.
    pub fn new(config: QueueRejectionConfig) -> Result<QueueRejection, ShedError> {
        check_range("start", config.start, 0.0, 1000.0)?;
        check_range("full", config.full, 0.0, 1000.0)?;
        check_below("start", config.start, "full", config.full)?;
        Ok(QueueRejection { config })
    }

    /// Returns the share of a class that is refused while `waiting` requests wait for a limit. A limit of 0 counts as
    /// 1.
    #[must_use]
    pub fn share(&self, class: Criticality, waiting: u64, limit: u64) -> f64 {
        let QueueRejectionConfig { start, full } = self.config;
        let ramp = ((waiting as f64 / limit.max(1) as f64 - start) / (full - start)).clamp(0.0, 1.0);
        class.share(ramp * Criticality::ALL.len() as f64)
    }

    /// Returns whether to refuse a request of this class, for a number that the caller rolled.
    #[must_use]
    pub fn sheds(&self, class: Criticality, waiting: u64, limit: u64, roll: u64) -> bool {
        falls(roll, self.share(class, waiting, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramps_by_class() {
        let queue = QueueRejection::new(QueueRejectionConfig::default()).unwrap();
        for (waiting, expected) in [
            (0, [0.0, 0.0, 0.0, 0.0]),
            (200, [0.0, 0.0, 0.0, 0.0]),
            (225, [1.0, 0.0, 0.0, 0.0]),
            (250, [1.0, 1.0, 0.0, 0.0]),
            (275, [1.0, 1.0, 1.0, 0.0]),
            (300, [1.0, 1.0, 1.0, 1.0]),
            (u64::MAX, [1.0, 1.0, 1.0, 1.0]),
        ] {
            assert_eq!(Criticality::ALL.map(|class| queue.share(class, waiting, 100)), expected, "{waiting}");
        }
        // An eighth of the ramp is half of the lowest class, seven eighths half of the highest.
        assert_eq!(queue.share(Criticality::Test, 17, 8), 0.5);
        assert_eq!(queue.share(Criticality::Critical, 23, 8), 0.5);
        assert_eq!(queue.share(Criticality::Critical, 3, 0), 1.0);
    }

    #[test]
    fn bad_numbers_are_refused() {
        for (start, full, expected) in [
            (3.0, 3.0, "start: 3 is not below full, 3; use a smaller start, or a larger full"),
            (f64::NAN, 3.0, "start: NaN is out of range; use 0 to 1000"),
            (2.0, f64::INFINITY, "full: inf is out of range; use 0 to 1000"),
        ] {
            let refused = QueueRejection::new(QueueRejectionConfig { start, full }).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }
}
