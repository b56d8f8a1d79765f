//! The scripts, put together from the Lua files: a clock, the arithmetic, and what reads and writes the states.

use std::sync::LazyLock;

use tidegate_core::Algorithm;

use super::link::Script;

/// The scripts that decide charges.
#[derive(Debug)]
pub(crate) struct Scripts {
    bucket: Script,
    fixed_window: Script,
    sliding_counter: Script,
    log: Script,
    lease_bucket: Script,
    lease_window: Script,
    pub(crate) several: Script,
    pub(crate) inspect_log: Script,
    pub(crate) permits: Script,
}

/// The scripts on the clock of the store.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::on(include_str!("lua/clock.lua")));

const INSTANT: &str = include_str!("lua/instant.lua");
const BUCKET: &str = include_str!("lua/bucket.lua");
const FIXED_WINDOW: &str = include_str!("lua/fixed_window.lua");
const SLIDING_COUNTER: &str = include_str!("lua/sliding_counter.lua");
const LOG: &str = include_str!("lua/log.lua");
const ONE: &str = include_str!("lua/one.lua");
const ONE_LOG: &str = include_str!("lua/one_log.lua");
const SEVERAL: &str = include_str!("lua/several.lua");
const LEASE: &str = include_str!("lua/lease.lua");
const INSPECT_LOG: &str = include_str!("lua/inspect_log.lua");
const PERMITS: &str = include_str!("lua/permits.lua");

impl Scripts {
    /// The scripts with this clock.
    pub(crate) fn on(clock: &str) -> Scripts {
        let script = |parts: &[&str]| Script::new([&[clock], parts].concat().join("\n"));
        Scripts {
            bucket: script(&[BUCKET, "local decide = bucket", ONE]),
            fixed_window: script(&[INSTANT, FIXED_WINDOW, "local decide = fixed_window", ONE]),
            sliding_counter: script(&[INSTANT, SLIDING_COUNTER, "local decide = sliding_counter", ONE]),
            log: script(&[INSTANT, LOG, ONE_LOG]),
            lease_bucket: script(&[BUCKET, "local decide, is_bucket = bucket, true", LEASE]),
            lease_window: script(&[INSTANT, FIXED_WINDOW, "local decide, is_bucket = fixed_window, false", LEASE]),
            inspect_log: script(&[INSTANT, LOG, INSPECT_LOG]),
            permits: script(&[PERMITS]),
            several: script(&[INSTANT, BUCKET, FIXED_WINDOW, SLIDING_COUNTER, LOG, SEVERAL]),
        }
    }

    /// The script that decides one charge under this algorithm.
    pub(crate) fn one(&self, algorithm: Algorithm) -> &Script {
        match algorithm {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => &self.bucket,
            Algorithm::FixedWindow => &self.fixed_window,
            Algorithm::SlidingCounter => &self.sliding_counter,
            Algorithm::SlidingLog | Algorithm::SlicedWindow => &self.log,
        }
    }

    /// The script that takes units in advance under this algorithm; nothing if that cannot be done without letting too
    /// much pass.
    pub(crate) fn lease(&self, algorithm: Algorithm) -> Option<&Script> {
        match algorithm {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => Some(&self.lease_bucket),
            Algorithm::FixedWindow => Some(&self.lease_window),
            Algorithm::SlidingCounter | Algorithm::SlidingLog | Algorithm::SlicedWindow => None,
        }
    }
}
