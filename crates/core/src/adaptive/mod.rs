//! Adaptive concurrency limits: how many may be in flight, learnt from how long they take and which are dropped.
//!
//! | to find | look in |
//! |---|---|
//! | up by one, down by a factor when something is dropped | `aimd.rs` |
//! | an estimate of the queue from the fastest time seen | `vegas.rs` |
//! | the recent time against the long-term one | `gradient2.rs` |
//! | many samples made into one for the above | `window.rs`, `histogram.rs` |
//! | shares of a limit that are guaranteed | `partitions.rs` |
//! | why a configuration is refused | `error.rs` |
//!
//! All of it is arithmetic: a sample goes in, the limit comes out. Time comes in as a value, chance as a seed. The
//! formulas are floating point; what goes in is checked once, so that nothing becomes infinite or NaN, and every
//! limit stays between its `min` and `max`.
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

/// What was seen of one request, or of a window of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took, from its admission to its end. Zero: not known; only a drop counts then.
    pub rtt: Duration,
    /// How many were in flight when it was admitted, itself among them.
    pub in_flight: u64,
    /// Whether it was lost to overload: its deadline passed, it was cancelled, or what stands behind refused it. An
    /// error of the handler's own is no drop.
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
    /// Learns from a sample and tells the limit from now on.
    pub fn update(&mut self, sample: Sample) -> u64 {
        match self {
            AdaptiveLimit::Aimd(limit) => limit.update(sample),
            AdaptiveLimit::Vegas(limit) => limit.update(sample),
            AdaptiveLimit::Gradient2(limit) => limit.update(sample),
        }
    }

    /// How many may be in flight.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            AdaptiveLimit::Aimd(limit) => limit.limit(),
            AdaptiveLimit::Vegas(limit) => limit.limit(),
            AdaptiveLimit::Gradient2(limit) => limit.limit(),
        }
    }

    /// The name in configurations and metrics.
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
