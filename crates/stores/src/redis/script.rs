//! The scripts, put together from the Lua files: a clock, the arithmetic, and what reads and writes the states.

use std::sync::LazyLock;

use tidegate_core::Algorithm;

/// A script as Redis gets it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: String,
}

/// The scripts that decide charges.
#[derive(Debug)]
pub(crate) struct Scripts {
    bucket: Script,
    fixed_window: Script,
    sliding_counter: Script,
    log: Script,
    pub(crate) several: Script,
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

impl Scripts {
    /// The scripts with this clock.
    pub(crate) fn on(clock: &str) -> Scripts {
        let script = |parts: &[&str]| Script { text: [&[clock], parts].concat().join("\n") };
        Scripts {
            bucket: script(&[BUCKET, "local decide = bucket", ONE]),
            fixed_window: script(&[INSTANT, FIXED_WINDOW, "local decide = fixed_window", ONE]),
            sliding_counter: script(&[INSTANT, SLIDING_COUNTER, "local decide = sliding_counter", ONE]),
            log: script(&[INSTANT, LOG, ONE_LOG]),
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
}
