//! The Markdown tables and the JSON file.

use std::fmt;
use std::fs;
use std::thread;

use serde::Serialize;

use crate::harness::{Lane, median};
use crate::scenario::{self, BASELINE, SUBJECTS, Scenario};
use crate::targets;

/// Where the figures come from.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    /// The load average of the last minute before the run. Two threads need both cores: with other work on the machine,
    /// their results measure the scheduler.
    load: f64,
}

/// One subject in one scenario.
#[derive(Debug, Serialize)]
pub(crate) struct Timing {
    #[serde(serialize_with = "as_text")]
    scenario: Scenario,
    subject: &'static str,
    /// Nanoseconds per decision and thread.
    median_ns: f64,
    rounds_ns: Vec<f64>,
    /// How many times faster than the baseline.
    ratio: f64,
}

/// Resident memory of one subject with a number of keys.
#[derive(Debug, Serialize)]
pub(crate) struct Footprint {
    pub(crate) subject: String,
    pub(crate) keys: u64,
    pub(crate) bytes_a_key: f64,
}

/// All results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    rounds: usize,
    pub(crate) timings: Vec<Timing>,
    pub(crate) footprints: Vec<Footprint>,
}

fn as_text<S: serde::Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Machine {
    pub(crate) fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map_or("unknown CPU", |rest| rest.trim_start_matches([':', '\t', ' ']));
        Self {
            cpu: cpu.to_owned(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            load: load_average().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} cores, load average {:.1} at the start", self.cpu, self.cores, self.load)
    }
}

fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

impl Timing {
    pub(crate) fn of_lanes(scenario: Scenario, lanes: Vec<Lane>) -> Vec<Self> {
        let baseline = lanes.iter().find(|lane| lane.name == BASELINE).map_or(f64::NAN, |lane| median(&lane.rounds_ns));
        lanes
            .into_iter()
            .map(|lane| {
                let median_ns = median(&lane.rounds_ns);
                Self { scenario, subject: lane.name, median_ns, rounds_ns: lane.rounds_ns, ratio: baseline / median_ns }
            })
            .collect()
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, rounds: usize) -> Self {
        Self { machine, rounds, timings: Vec::new(), footprints: Vec::new() }
    }

    fn timing(&self, scenario: Scenario, subject: &str) -> Option<&Timing> {
        self.timings.iter().find(|timing| timing.scenario == scenario && timing.subject == subject)
    }

    pub(crate) fn ratio(&self, scenario: Scenario, subject: &str) -> Option<f64> {
        self.timing(scenario, subject).map(|timing| timing.ratio)
    }

    pub(crate) fn bytes_a_key(&self, subject: &str, keys: u64) -> Option<f64> {
        self.footprints
            .iter()
            .find(|footprint| footprint.subject == subject && footprint.keys == keys)
            .map(|footprint| footprint.bytes_a_key)
    }

    fn write_timings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured: Vec<_> =
            scenario::ALL.into_iter().filter(|scenario| self.timing(*scenario, BASELINE).is_some()).collect();
        write!(f, "| |")?;
        for scenario in &measured {
            write!(f, " {scenario} |")?;
        }
        writeln!(f, "\n|---|{}", "---|".repeat(measured.len()))?;
        for subject in SUBJECTS {
            write!(f, "| {subject} |")?;
            for scenario in &measured {
                match self.timing(*scenario, subject) {
                    Some(timing) => write!(f, " {} |", Cell(timing))?,
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn write_footprints(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | 1 M keys | 10 M keys |\n|---|---|---|")?;
        let mut subjects: Vec<_> = self.footprints.iter().map(|each| &each.subject).collect();
        subjects.dedup();
        for subject in subjects {
            write!(f, "| {subject} |")?;
            for keys in [1_000_000, 10_000_000] {
                match self.bytes_a_key(subject, keys) {
                    // Memory that does not grow with the keys.
                    Some(bytes) if bytes < 1.0 => write!(f, " fixed |")?,
                    Some(bytes) => write!(f, " {bytes:.1} |")?,
                    None => write!(f, " – |")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A median with its ratio, short enough for a table.
struct Cell<'a>(&'a Timing);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0.median_ns < 100.0 { 1 } else { 0 };
        write!(f, "{:.decimals$} ({:.2}×)", self.0.median_ns, self.0.ratio)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; medians of {} interleaved rounds", self.machine, self.rounds)?;
        if !self.timings.is_empty() {
            writeln!(f, "\n## Nanoseconds per decision and thread (times faster than {BASELINE})\n")?;
            self.write_timings(f)?;
        }
        if !self.footprints.is_empty() {
            writeln!(f, "\n## Resident bytes per key\n")?;
            self.write_footprints(f)?;
        }
        writeln!(f, "\n## Targets\n")?;
        targets::write_table(self, f)
    }
}
