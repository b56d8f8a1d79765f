//! Measures Tidegate beside published rate limiters, all interleaved in one run.
//!
//! A machine that is shared or throttled drifts between two runs by more than the differences looked for. So every
//! scenario runs its subjects round-robin, and the ratios to governor keyed by String are what to trust.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | the command line |
//! | `workload.rs` | the keys and the order in which requests arrive |
//! | `subjects/` | one file a limiter: how it is built, and how it decides on one request |
//! | `harness.rs` | rounds: threads, warm-up, timing |
//! | `scenario.rs` | which subjects run on which workload |
//! | `layers/` | what each layer adds to a request; a bench target of its own |
//! | `matching.rs` | from a request to its rules among ten thousand; a bench target of its own |
//! | `domains.rs` | a domain in memory with and without another one on Redis; a bench target of its own |
//! | `memory.rs` | resident bytes per key, each subject in a process of its own |
//! | `targets.rs` | the targets of the project |
//! | `report.rs` | the Markdown tables and the JSON file |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a benchmark reads the real clock and should stop at the first surprise; it is not shipped"
)]

mod domains;
mod harness;
mod layers;
mod matching;
mod memory;
mod options;
mod report;
mod scenario;
mod subjects;
mod targets;
mod workload;

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use crate::options::{Options, Part};
use crate::report::{Machine, Report};

/// Reads the command line, measures what it asks for and prints the tables on standard output.
pub fn run() -> ExitCode {
    let options = Options::parse();
    if let Some(probe) = options.memory_probe {
        println!("{}", memory::measure_here(probe, options.memory_keys));
        return ExitCode::SUCCESS;
    }
    if !options.bench {
        // `cargo test --all-targets` starts this program without `--bench`; minutes of timing are no test.
        eprintln!("nothing measured; run `make bench`");
        return ExitCode::SUCCESS;
    }
    let report = measure(&options);
    print!("{report}");
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report).expect("a report has only finite numbers");
        if let Err(error) = fs::write(path, json) {
            eprintln!("cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The same for what each layer adds to a request.
pub fn layers() {
    layers::run();
}

/// The same for the time from a request to its rules.
pub fn matching() {
    matching::run();
}

/// The same for a domain in memory beside one on Redis.
pub fn domains() {
    domains::run();
}

fn measure(options: &Options) -> Report {
    let plan = options.plan();
    let scenarios: Vec<_> = scenario::ALL.into_iter().filter(|scenario| options.wants(scenario.part)).collect();
    let probes = if options.wants(Part::Memory) { memory::ALL } else { &[] };
    let steps = scenarios.len() * (plan.rounds + 1) + probes.len();
    let progress = ProgressBar::new(steps as u64).with_style(
        ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}").expect("a fixed template"),
    );
    let mut report = Report::new(Machine::this(), plan.rounds);
    for scenario in scenarios {
        progress.set_message(scenario.to_string());
        report.timings.extend(scenario.run(plan, &progress));
    }
    for &(probe, keys) in probes {
        progress.set_message(format!("memory: {probe}, {keys} keys"));
        report.footprints.push(memory::measure_in_child(probe, keys));
        progress.inc(1);
    }
    progress.finish_and_clear();
    report
}
