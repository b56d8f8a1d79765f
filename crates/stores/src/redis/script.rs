//! The scripts, put together from the Lua files: a clock, the arithmetic, and what reads and writes the states.

use std::sync::LazyLock;

use tidegate_core::{Arithmetic, Limit, LimitExt};

use super::link::Script;

/// The scripts that decide charges.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// One for each arithmetic, for a single charge.
    one: [Script; Arithmetic::ALL.len()],
    lease_bucket: Script,
    lease_window: Script,
    pub(crate) several: Script,
    pub(crate) inspect_log: Script,
    pub(crate) permits: Script,
    pub(crate) bulletin: Script,
}

/// The scripts on the clock of the store.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::on(include_str!("lua/clock.lua")));

const INSTANT: &str = include_str!("lua/instant.lua");
const INSTANTS: &str = "local less, plus, minus, remainder = instants()";
const BUCKET: &str = include_str!("lua/bucket.lua");
const FIXED_WINDOW: &str = include_str!("lua/fixed_window.lua");
const CALENDAR_WINDOW: &str = include_str!("lua/calendar_window.lua");
const SLIDING_COUNTER: &str = include_str!("lua/sliding_counter.lua");
const LOG: &str = include_str!("lua/log.lua");
const ONE: &str = include_str!("lua/one.lua");
const ONE_LOG: &str = include_str!("lua/one_log.lua");
const SEVERAL: &str = include_str!("lua/several.lua");
const LEASE: &str = include_str!("lua/lease.lua");
const INSPECT_LOG: &str = include_str!("lua/inspect_log.lua");
const PERMITS: &str = include_str!("lua/permits.lua");
const BULLETIN: &str = include_str!("lua/bulletin.lua");

/// The file of an arithmetic. It defines a function of the same name.
fn source(arithmetic: Arithmetic) -> &'static str {
    match arithmetic {
        Arithmetic::Bucket => BUCKET,
        Arithmetic::FixedWindow => FIXED_WINDOW,
        Arithmetic::CalendarWindow => CALENDAR_WINDOW,
        Arithmetic::SlidingCounter => SLIDING_COUNTER,
        Arithmetic::Log => LOG,
    }
}

/// The Lua table of the functions whose states are words, by their names.
fn words() -> String {
    let entry = |arithmetic: Arithmetic| match arithmetic {
        Arithmetic::Bucket | Arithmetic::FixedWindow | Arithmetic::CalendarWindow | Arithmetic::SlidingCounter => {
            Some(format!("{name} = {name}", name = arithmetic.name()))
        }
        Arithmetic::Log => None,
    };
    let entries: Vec<String> = Arithmetic::ALL.into_iter().filter_map(entry).collect();
    format!("local words = {{{}}}", entries.join(", "))
}

impl Scripts {
    /// The scripts with this clock.
    pub(crate) fn on(clock: &str) -> Scripts {
        let script = |parts: &[&str]| Script::new([&[clock], parts].concat().join("\n"));
        let one = |arithmetic: Arithmetic| {
            let decide = format!("local decide = {}", arithmetic.name());
            match arithmetic {
                // It has helpers of its own, which cost less.
                Arithmetic::Bucket => script(&[BUCKET, &decide, ONE]),
                // It makes them only for windows that are no whole seconds.
                Arithmetic::FixedWindow => script(&[INSTANT, FIXED_WINDOW, &decide, ONE]),
                Arithmetic::Log => script(&[INSTANT, INSTANTS, LOG, ONE_LOG]),
                Arithmetic::CalendarWindow | Arithmetic::SlidingCounter => {
                    script(&[INSTANT, INSTANTS, source(arithmetic), &decide, ONE])
                }
            }
        };
        let words = words();
        let all: Vec<&str> =
            [INSTANT, INSTANTS].into_iter().chain(Arithmetic::ALL.map(source)).chain([&*words, SEVERAL]).collect();
        Scripts {
            one: Arithmetic::ALL.map(one),
            lease_bucket: script(&[BUCKET, "local decide, is_bucket = bucket, true", LEASE]),
            lease_window: script(&[INSTANT, FIXED_WINDOW, "local decide, is_bucket = fixed_window, false", LEASE]),
            inspect_log: script(&[INSTANT, INSTANTS, LOG, INSPECT_LOG]),
            permits: script(&[PERMITS]),
            bulletin: script(&[BULLETIN]),
            several: script(&all),
        }
    }

    /// The script that decides one charge under this limit.
    pub(crate) fn one(&self, limit: &Limit) -> &Script {
        let arithmetic = limit.arithmetic();
        let number = Arithmetic::ALL.iter().position(|other| *other == arithmetic).unwrap_or_default();
        &self.one[number]
    }

    /// The script that takes units in advance under this limit; nothing if that cannot be done without letting too much
    /// pass.
    pub(crate) fn lease(&self, limit: &Limit) -> Option<&Script> {
        match limit.arithmetic() {
            _ if !limit.can_lease() => None,
            Arithmetic::Bucket => Some(&self.lease_bucket),
            Arithmetic::FixedWindow => Some(&self.lease_window),
            Arithmetic::CalendarWindow | Arithmetic::SlidingCounter | Arithmetic::Log => None,
        }
    }
}
