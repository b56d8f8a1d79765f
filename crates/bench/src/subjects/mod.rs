//! The limiters under test, one file each: how a user would build it, and how it decides on one request.
//!
//! Each keeps its default hasher and clock. What every request would share is built before; what belongs to a request
//! is built in the timed loop. The verdict goes through `black_box`: a caller acts on
//! it, and what else an answer could tell is worked out by those who ask.

pub(crate) mod governor;
pub(crate) mod leaky_bucket;
pub(crate) mod limitador;
pub(crate) mod pingora;
pub(crate) mod throttlecrab;
pub(crate) mod tidegate;

use std::time::Duration;

use crate::harness::Subject;
use crate::workload::Request;

/// The limit that all subjects of a scenario enforce: `burst` units at once, and `units` more in each period.
/// A limiter that counts in windows takes `burst` as its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) burst: u32,
    pub(crate) units: u32,
    pub(crate) period_secs: u32,
}

impl Terms {
    /// Never denies one hot key: the deepest bucket that governor can hold, ten times what a long run takes. It drains
    /// faster than it fills, as that of a busy key does.
    pub(crate) const HOT: Self = Self { burst: 4_000_000_000, units: 1_000, period_secs: 1 };

    /// Never denies a million keys, and keeps each alive for at least a minute after a request: a limiter that forgets
    /// idle keys shall not have fewer to hold than the others. This burst takes 95 years to come back.
    pub(crate) const SPREAD: Self = Self { burst: 50_000_000, units: 1, period_secs: 60 };

    /// Denies all but the first two requests. With a burst of one, throttlecrab's entries would expire at once.
    pub(crate) const DENIED: Self = Self { burst: 2, units: 1, period_secs: 3_600 };

    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(u64::from(self.period_secs))
    }
}

/// Lets a limiter see every key once, so that the timed requests find them present.
fn populated<S: Subject>(subject: S, population: u32) -> S {
    for id in 0..population {
        subject.decide(&Request::of(id));
    }
    subject
}
