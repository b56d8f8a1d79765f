//! The targets of the project, relative to governor keyed by String in the same run.

use std::fmt;

use crate::memory::Probe;
use crate::report::Report;
use crate::scenario::{HOT, Scenario, TIDEGATE, TIDEGATE_BATCH, UNIFORM, ZIPF};

/// One target, and how to find its result in a report.
enum Target {
    /// The least ratio to the speed of the baseline.
    Ratio { scenario: Scenario, subject: &'static str, at_least: f64 },
    /// The most resident bytes per key with ten million keys.
    Bytes { probe: Probe, at_most: f64 },
}

const fn ratio(scenario: Scenario, subject: &'static str, at_least: f64) -> Target {
    Target::Ratio { scenario, subject, at_least }
}

const ALL: [Target; 10] = [
    ratio(HOT, TIDEGATE, 2.0),
    ratio(HOT.on_two_threads(), TIDEGATE, 2.2),
    ratio(UNIFORM, TIDEGATE, 3.0),
    ratio(UNIFORM.on_two_threads(), TIDEGATE, 3.0),
    ratio(ZIPF, TIDEGATE, 3.5),
    ratio(ZIPF.on_two_threads(), TIDEGATE, 3.5),
    ratio(UNIFORM, TIDEGATE_BATCH, 15.0),
    ratio(UNIFORM.on_two_threads(), TIDEGATE_BATCH, 15.0),
    // Eight bytes of state, and sixteen.
    Target::Bytes { probe: Probe::TidegateGcra, at_most: 32.0 },
    Target::Bytes { probe: Probe::TidegateFixedWindow, at_most: 48.0 },
];

const KEYS: u64 = 10_000_000;

/// A target and its result.
struct Judgement {
    label: String,
    wanted: String,
    measured: Option<String>,
    reached: bool,
}

impl Target {
    fn judge(&self, report: &Report) -> Judgement {
        match *self {
            Self::Ratio { scenario, subject, at_least } => {
                let ratio = report.ratio(scenario, subject);
                Judgement {
                    label: format!("{scenario}: {subject}"),
                    wanted: format!("≥ {at_least}×"),
                    measured: ratio.map(|ratio| format!("{ratio:.2}×")),
                    reached: ratio.is_some_and(|ratio| ratio >= at_least),
                }
            }
            Self::Bytes { probe, at_most } => {
                let bytes = report.bytes_a_key(&probe.to_string(), KEYS);
                Judgement {
                    label: format!("bytes per key with 10 M keys: {probe}"),
                    wanted: format!("≤ {at_most}"),
                    measured: bytes.map(|bytes| format!("{bytes:.1}")),
                    reached: bytes.is_some_and(|bytes| bytes <= at_most),
                }
            }
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (&self.measured, self.reached) {
            (None, _) => "not measured",
            (Some(_), true) => "met",
            (Some(_), false) => "**missed**",
        };
        let measured = self.measured.as_deref().unwrap_or("–");
        write!(f, "| {} | {} | {measured} | {state} |", self.label, self.wanted)
    }
}

/// Writes one row per target.
pub(crate) fn write_table(report: &Report, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "| measurement | target | measured | result |\n|---|---|---|---|")?;
    for target in &ALL {
        writeln!(f, "{}", target.judge(report))?;
    }
    Ok(())
}
