//! Four nodes on one Redis: how many calls leases and replicas spare it, and how exact they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tidegate_bench_server::{RedisServer, mix};
use tidegate_engine::{Engine, Options};
use tidegate_policy::{Descriptor, Entry, LoadOptions, Outside, Request, load_text};
use tokio::runtime::Builder;

use crate::{Args, patient, progress};

const NODES: usize = 4;
const KEYS: usize = 10_000;
/// By then, in hundredths of a run, the hottest key has long spent its burst: what it gets from there on is its long-run rate.
const SETTLED: u64 = 75;

/// Where Zipf's law with exponent 1 puts a random number in [0, 1).
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize) -> Zipf {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        Zipf(sums.into_iter().map(|part| part / sum).collect())
    }

    fn key(&self, random: u64) -> usize {
        let at = (random >> 11) as f64 / (1_u64 << 53) as f64;
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1)
    }

    fn share(&self, key: usize) -> f64 {
        self.0[key] - if key == 0 { 0.0 } else { self.0[key - 1] }
    }
}

/// Four nodes, keys by Zipf's law, a limit of half the rate of the hottest key.
pub(crate) fn run(server: &RedisServer, args: &Args, consistency: &'static str) {
    let zipf = Arc::new(Zipf::new(KEYS));
    let per_minute = (zipf.share(0) * args.rate as f64 * 60.0 / 2.0) as u64;
    let rules = format!(
        "stores: {{shared: {{url: '{}&prefix={consistency}'}}}}\ndomains: {{api: {{rules: [{{name: all, key: {{entry: user}}, store: shared, \
         consistency: {consistency}, limit: {per_minute}/minute, on_store_failure: deny}}]}}}}",
        patient(server)
    );
    let outside = Outside { check_store: Some(tidegate_engine::check_store_url), ..Outside::default() };
    let load = LoadOptions { outside, ..LoadOptions::default() };
    let counts: Arc<Vec<(AtomicU64, AtomicU64)>> = Arc::new((0..KEYS).map(|_| Default::default()).collect());
    let failed = Arc::new(AtomicU64::new(0));
    let (before, cpu, start) = (server.script_calls(), server.cpu_seconds(), Instant::now());
    let bar = progress(args.seconds as usize, consistency);
    let mut settled = (0.0, 0);
    std::thread::scope(|scope| {
        for node in 0..NODES as u64 {
            let policy = load_text("bench.yaml", &rules, &load).policy.unwrap();
            let (zipf, counts, failed) = (Arc::clone(&zipf), Arc::clone(&counts), Arc::clone(&failed));
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, async move {
                    let engine = std::rc::Rc::new(Engine::with_policy(Options::default(), policy).unwrap());
                    let rate = args.rate / NODES as u64;
                    let mut sent = 0;
                    let mut tick = tokio::time::interval(Duration::from_millis(1));
                    while start.elapsed() < Duration::from_secs(args.seconds) {
                        tick.tick().await;
                        let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
                        while sent < due {
                            sent += 1;
                            let key = zipf.key(mix(node << 48 | sent));
                            let (engine, counts, failed) = (engine.clone(), counts.clone(), failed.clone());
                            tokio::task::spawn_local(async move { ask(&engine, key, &counts, &failed).await });
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                });
            });
        }
        show_until(&bar, start, Duration::from_millis(args.seconds * 10 * SETTLED));
        settled = (start.elapsed().as_secs_f64(), counts[0].1.load(Relaxed));
        show_until(&bar, start, Duration::from_secs(args.seconds));
    });
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    report(
        args,
        consistency,
        &counts,
        per_minute,
        seconds,
        (server.script_calls() - before, server.cpu_seconds() - cpu),
    );
    let (from, before) = settled;
    let rate = (counts[0].1.load(Relaxed) - before) as f64 / (args.seconds as f64 - from);
    let limit = per_minute as f64 / 60.0;
    println!(
        "  long run: the hottest key got {rate:.1} of {limit:.1} units per second ({:+.2} %); answered without the store: {}",
        (rate / limit - 1.0) * 100.0,
        failed.load(Relaxed)
    );
}

/// Sleeps until so long after the start, and shows the seconds meanwhile.
fn show_until(bar: &ProgressBar, start: Instant, end: Duration) {
    while start.elapsed() < end {
        std::thread::sleep(Duration::from_millis(200).min(end.saturating_sub(start.elapsed())));
        bar.set_position(start.elapsed().as_secs());
    }
}

async fn ask(engine: &Engine, key: usize, counts: &[(AtomicU64, AtomicU64)], failed: &AtomicU64) {
    let name = format!("user:{key}");
    let entries = [Entry { key: "user", value: &name }];
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let outcome = engine.check(&request).await.unwrap();
    counts[key].0.fetch_add(1, Relaxed);
    counts[key].1.fetch_add(u64::from(outcome.is_allowed()), Relaxed);
    let by_store = outcome.judgements().all(|one| one.answer.decision().is_some());
    failed.fetch_add(u64::from(!by_store), Relaxed);
}

fn report(
    args: &Args,
    consistency: &str,
    counts: &[(AtomicU64, AtomicU64)],
    per_minute: u64,
    seconds: f64,
    (calls, cpu): (u64, f64),
) {
    let offered: u64 = counts.iter().map(|(offered, _)| offered.load(Relaxed)).sum();
    let most = per_minute + (per_minute as f64 * seconds / 60.0) as u64;
    let (mut over, mut ideal, mut admitted, mut denied_below) = (0, 0, 0, 0);
    for (of_key, allowed) in counts.iter().map(|(offered, allowed)| (offered.load(Relaxed), allowed.load(Relaxed))) {
        over += allowed.saturating_sub(most);
        if of_key > most {
            ideal += most;
            admitted += allowed;
        } else {
            denied_below += of_key - allowed;
        }
    }
    println!(
        "{consistency}: {NODES} nodes, {KEYS} keys, {offered} requests in {seconds:.0} s ({} per second requested), limit {per_minute}/minute per key",
        args.rate
    );
    println!(
        "  calls to Redis: {calls}, {:.1} times fewer than requests; Redis CPU {:.2} s per million requests",
        offered as f64 / calls.max(1) as f64,
        cpu * 1e6 / offered as f64
    );
    println!(
        "  admitted above the limit: {over}; keys above their limit got {admitted} of {ideal} ({:.2} % less); denials of other keys: {denied_below}",
        (1.0 - admitted as f64 / ideal.max(1) as f64) * 100.0
    );
}
