//! What a domain in memory costs with and without another domain that counts in Redis.

use std::hint::black_box;
use std::time::Instant;

use clap::Parser;
use tidegate_engine::{Engine, Options as EngineOptions, check_store_url};
use tidegate_policy::{Descriptor, Entry, LoadOptions, Outside, Request, load_text};
use tokio::runtime::Builder;

use crate::harness::median;
use crate::report::Machine;

const REQUESTS: usize = 2_000;
const USERS: usize = 500;

/// Measure requests to a domain in memory, with and without another domain on Redis
#[derive(Debug, Parser)]
struct Options {
    /// Rounds over all engines; the median is reported
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,

    /// Cargo adds this when it runs a bench target.
    #[arg(long, hide = true)]
    bench: bool,
}

/// An engine whose domain `near` counts in memory, and another one in `store`. Nobody asks that one: no Redis is needed.
fn engine(store: &str) -> Engine {
    let text = format!(
        "stores: {{other: {{url: '{store}'}}}}
domains:
  near: {{rules: [{{name: user, key: {{entry: user}}, limit: 10000000/s}}]}}
  far: {{rules: [{{name: user, key: {{entry: user}}, limit: 100/s, store: other}}]}}
"
    );
    let outside = Outside { check_store: Some(check_store_url), ..Outside::default() };
    let loaded = load_text("rules.yaml", &text, &LoadOptions { outside, ..LoadOptions::default() });
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    Engine::with_policy(EngineOptions { keys: Some(10_000), ..EngineOptions::default() }, policy).unwrap()
}

/// Nanoseconds per request, as a front end sends it.
async fn measure(engine: &Engine, users: &[String]) -> f64 {
    let start = Instant::now();
    for number in 0..REQUESTS {
        let entries = [Entry { key: "user", value: &users[number % USERS] }];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        let request = Request { domain: "near", descriptors: &descriptors, http: None, cost: 1 };
        assert!(black_box(engine.check(&request).await).unwrap().is_allowed());
    }
    start.elapsed().as_nanos() as f64 / REQUESTS as f64
}

/// Measures, and prints a table.
pub(crate) fn run() {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` starts this program without `--bench`.
        eprintln!("nothing measured; run `make bench BENCH=domains`");
        return;
    }
    let rounds = usize::from(options.rounds);
    let users: Vec<String> = (0..USERS).map(|number| format!("user{number}")).collect();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let engines = [("in memory", engine("memory:")), ("in Redis", engine("redis://127.0.0.1:1"))];
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for ((_, engine), times) in engines.iter().zip(&mut times) {
            let time = runtime.block_on(measure(engine, &users));
            // The first round warms up.
            if round > 0 {
                times.push(time);
            }
        }
    }
    println!("{}; medians of {rounds} interleaved rounds of {REQUESTS} requests\n", Machine::this());
    println!("| the other domain counts | ns per request to the domain in memory | ratio |\n|---|---|---|");
    let alone = median(&times[0]);
    for ((name, _), times) in engines.iter().zip(&times) {
        println!("| {name} | {:.0} | {:.2}× |", median(times), median(times) / alone);
    }
}
