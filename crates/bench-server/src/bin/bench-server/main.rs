//! Measures Tidegate's server beside others, and with its store in Redis: CPU seconds of the server for a million
//! decisions, and the latency that clients see, in interleaved rounds.
//!
//! All servers of a scenario run during all of it and are loaded in turn, so that whatever else the machine does meets all
//! of them. Servers have one half of the cores and clients the other: where they take cores from each other, latency tells
//! of the scheduler, and CPU seconds of how often it interrupted whom. Each server has as many threads as it chooses for its
//! half. A Redis that is a store has the cores of the clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "not shipped: it should stop at the first surprise"
)]

mod load;
mod report;
mod round;
mod scenarios;
mod servers;

use std::fs;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use indicatif::{ProgressBar, ProgressStyle};

use round::Round;
use scenarios::{Scenario, scenarios};
use servers::Servers;

/// Compare Tidegate's server with others, and its stores in memory and in Redis
#[derive(Parser)]
#[command(name = "bench-server", after_help = EXAMPLES)]
struct Options {
    /// Directory of the release build
    #[arg(long, value_name = "DIR", default_value = "target/release")]
    built: PathBuf,
    /// Path of throttlecrab-server
    #[arg(long, value_name = "PATH", default_value = "target/peers/bin/throttlecrab-server")]
    throttlecrab: PathBuf,
    /// Worker threads of each Tidegate [default: one per core of the servers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Interleaved rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Requests per round and server, in thousands
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000))]
    thousands: u64,
    /// Run only scenarios whose name contains this text, ignoring case
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Requests before the measurement.
const WARM_UP: u64 = 20_000;

const EXAMPLES: &str = r#"Examples:
  make bench-server
  make bench-server BENCH="--only redis"
  make bench-server BENCH="--only 'redis, threads woken' --threads 2"
  make bench-server BENCH="--only resp --rounds 3 --thousands 100""#;

impl Options {
    /// Where configurations and logs of a run are kept.
    fn scratch(&self) -> PathBuf {
        PathBuf::from("target/bench-server")
    }

    /// The scenarios to measure; the program ends with all names if there are none.
    fn chosen(&self) -> Vec<Scenario> {
        let only = self.only.to_lowercase();
        let (chosen, others): (Vec<_>, Vec<_>) =
            scenarios().into_iter().partition(|scenario| scenario.name.to_lowercase().contains(&only));
        if chosen.is_empty() {
            let names: Vec<&str> = others.iter().map(|scenario| scenario.name).collect();
            let problem = format!(
                "--only {:?}: no scenario has this text in its name; the scenarios are:\n  {}",
                self.only,
                names.join("\n  ")
            );
            Options::command().error(ErrorKind::InvalidValue, problem).exit();
        }
        chosen
    }
}

fn main() {
    let options = Options::parse();
    let scenarios = options.chosen();
    fs::create_dir_all(options.scratch()).unwrap();
    let mut servers = Servers::new(&options);
    let mut runs = 0..;
    let steps: u64 = scenarios.iter().map(|scenario| scenario.subjects.len() as u64 * options.rounds).sum();
    let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}").unwrap();
    let progress = ProgressBar::new(steps).with_style(style);
    println!("CPU seconds of the server per million decisions; medians of {} interleaved rounds", options.rounds);
    for scenario in scenarios {
        let mut rounds: Vec<Vec<Round>> = scenario.subjects.iter().map(|_| Vec::new()).collect();
        // All of them run, and have met the load, before the first is measured.
        for subject in &scenario.subjects {
            subject.load.run(servers.get(subject.server), &options, WARM_UP, runs.next().unwrap());
        }
        for _ in 0..options.rounds {
            for (subject, rounds) in scenario.subjects.iter().zip(&mut rounds) {
                progress.set_message(format!("{}: {}", scenario.name, subject.label));
                let number = runs.next().unwrap();
                rounds.push(Round::run(scenario.table, subject, &mut servers, &options, number));
                progress.inc(1);
            }
        }
        progress.suspend(|| report::report(&scenario, &rounds));
    }
    progress.finish_and_clear();
}
