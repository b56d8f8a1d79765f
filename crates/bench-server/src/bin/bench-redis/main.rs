//! Redis as the store: what it costs Redis, in CPU and in memory, and how many calls leases spare it.
//!
//! Each part has a redis-server of its own on loopback. CPU is that of the redis-server's process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_precision_loss, reason = "not shipped")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::disallowed_methods, reason = "it measures")]

mod exact;
mod links;
mod memory;
mod nodes;
mod scripts;

use std::process::Command;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_bench_server::RedisServer;

/// Measure what Tidegate's store costs Redis: CPU, memory and calls
#[derive(Parser)]
#[command(after_help = EXAMPLES)]
struct Args {
    /// Interleaved rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Decisions per subject and round, in thousands
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    thousands: u64,
    /// Seconds of the leased run and of the async run; the hottest key has used up its burst after 60
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(90..=3600))]
    seconds: u64,
    /// Requests per second in these runs, of all nodes together
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
    /// Measure only this part; can be repeated
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
}

const EXAMPLES: &str = r#"Examples:
  make bench-redis
  make bench-redis BENCH="--only scripts --only memory"
  make bench-redis BENCH="--only links --rounds 9"
  make bench-redis BENCH="--only leased --seconds 90 --rate 20000""#;

/// What can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// CPU of exact decisions, compared with a plain script and INCR
    Exact,
    /// CPU of the scripts, compared with older versions that had longer names and states
    Scripts,
    /// CPU of the same load over 8 connections and over 2
    Links,
    /// Memory per key, compared with a plain counter
    Memory,
    /// Four nodes with consistency: leased
    Leased,
    /// Four nodes with consistency: async
    Async,
}

/// A redis-server on any core.
fn start_redis() -> RedisServer {
    RedisServer::start(Command::new("redis-server"))
}

/// The URL of a store that waits for a late Redis: a machine that is busy must not make the bench fail.
fn patient(server: &RedisServer) -> String {
    format!("{}?timeout=1s", server.url())
}

/// A bar for this many steps.
fn progress(steps: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}").unwrap();
    ProgressBar::new(steps as u64).with_style(style).with_message(what)
}

fn main() {
    let args = Args::parse();
    for part in Part::value_variants().iter().filter(|part| args.only.is_empty() || args.only.contains(part)) {
        match part {
            Part::Exact => exact::run(&start_redis(), &args),
            Part::Scripts => scripts::run(&start_redis(), &args),
            Part::Links => links::run(&start_redis(), &args),
            Part::Memory => memory::run(),
            Part::Leased => nodes::run(&start_redis(), &args, "leased"),
            Part::Async => nodes::run(&start_redis(), &args, "async"),
        }
        println!();
    }
}
