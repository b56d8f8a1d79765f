//! Adaptive concurrency limits: limits on requests in flight, learnt from response times and drops.
//!
//! | to find | look in |
//! |---|---|
//! | up by one, down by a factor on a drop | `aimd.rs` |
//! | an estimate of the queue from the fastest time seen | `vegas.rs` |
//! | the recent time against the long-term one | `gradient2.rs` |
//! | many samples combined into one | `window.rs`, `histogram.rs` |
//! | guaranteed shares of a limit | `partitions.rs` |
//! | errors in a configuration | `error.rs` |
//!
//! All of it is arithmetic: a sample goes in, the limit comes out. Time is an argument, and chance follows from a seed.
//! The formulas use floating point; the configuration is checked once, so that nothing becomes infinite or NaN, and
//! every limit stays between its `min` and `max`.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::adaptive::{AdaptiveLimit, Sample, Vegas, VegasConfig};
//!
//! let mut limit = AdaptiveLimit::from(Vegas::new(VegasConfig::default())?);
//! assert_eq!(limit.limit(), 20);
//! let sample = Sample { rtt: Duration::from_millis(80), in_flight: 20, dropped: false };
//! limit.update(sample); // The first sample is the time without load.
//! assert_eq!(limit.update(sample), 26); // No queue: six more.
//! # Ok::<(), tidegate::adaptive::AdaptiveError>(())
//! ```

mod aimd;
mod error;
mod gradient2;
mod histogram;
mod partitions;
mod vegas;
mod window;

use std::time::Duration;

pub use aimd::{Aimd, AimdConfig};
pub use error::AdaptiveError;
pub use gradient2::{Gradient2, Gradient2Config};
pub use partitions::Partitions;
pub use vegas::{Vegas, VegasConfig};
pub use window::{Sparse, Summary, Window, WindowConfig};

/// A measurement of one request, or of a window of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The response time, from admission to end. Zero: not known; then only a drop counts.
    pub rtt: Duration,
    /// The number of requests in flight when it was admitted, including itself.
    pub in_flight: u64,
    /// Whether it was lost to overload: its deadline passed, it was cancelled, or a service behind refused it. An error
    /// of the handler's own is no drop.
    pub dropped: bool,
}

/// Any of the adaptive limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AdaptiveLimit {
    /// Up by one, down by a factor.
    Aimd(Aimd),
    /// By the estimated queue.
    Vegas(Vegas),
    /// By the recent time against the long-term one.
    Gradient2(Gradient2),
}

impl AdaptiveLimit {
    /// Learns from a sample and returns the new limit.
    pub fn update(&mut self, sample: Sample) -> u64 {
        match self {
            AdaptiveLimit::Aimd(limit) => limit.update(sample),
            AdaptiveLimit::Vegas(limit) => limit.update(sample),
            AdaptiveLimit::Gradient2(limit) => limit.update(sample),
        }
    }

    /// Returns the limit on requests in flight.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            AdaptiveLimit::Aimd(limit) => limit.limit(),
            AdaptiveLimit::Vegas(limit) => limit.limit(),
            AdaptiveLimit::Gradient2(limit) => limit.limit(),
        }
    }

    /// Returns the name in configurations and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            AdaptiveLimit::Aimd(_) => "aimd",
            AdaptiveLimit::Vegas(_) => "vegas",
            AdaptiveLimit::Gradient2(_) => "gradient2",
        }
    }
}

impl From<Aimd> for AdaptiveLimit {
    fn from(limit: Aimd) -> AdaptiveLimit {
        AdaptiveLimit::Aimd(limit)
    }
}

impl From<Vegas> for AdaptiveLimit {
    fn from(limit: Vegas) -> AdaptiveLimit {
        AdaptiveLimit::Vegas(limit)
    }
}

impl From<Gradient2> for AdaptiveLimit {
    fn from(limit: Gradient2) -> AdaptiveLimit {
        AdaptiveLimit::Gradient2(limit)
    }
}

/// The whole part of a limit that was computed as a float: below 0 and NaN give 0, which no checked number reaches.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(crate) fn whole(value: f64) -> u64 {
    value.floor() as u64
}

/// A time as a float of nanoseconds; any duration is a finite one.
fn nanos(rtt: Duration) -> f64 {
    rtt.as_nanos() as f64
}
