//! Redis as the store: what a decision costs it, beside a plain script and a plain INCR, and how many calls leases spare.
//!
//! One redis-server of its own on loopback. CPU is that of the redis-server's process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_precision_loss, reason = "not shipped")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::disallowed_methods, reason = "it measures")]

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::ProgressBar;
use redis::aio::MultiplexedConnection;
use tidegate_core::{Charge, Key, Limit};
use tidegate_engine::{Engine, Options};
use tidegate_policy::{Descriptor, Entry, LoadOptions, Outside, Request, load_text};
use tidegate_stores::redis::RedisStore;
use tidegate_stores::{Call, Store};
use tokio::runtime::Builder;

/// Measure Redis as the store
#[derive(Parser)]
struct Args {
    /// Interleaved rounds, of which medians are told
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Decisions of each subject in a round, in thousands
    #[arg(long, default_value_t = 100)]
    thousands: usize,
    /// Seconds of the run with leases and of the one with replicas. The hottest key has spent its burst after 60
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(90..=3600))]
    seconds: u64,
    /// Requests a second in those runs, of all nodes together
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
}

const NODES: usize = 4;
const KEYS: usize = 10_000;
/// By then, in hundredths of a run, the hottest key has long spent its burst: what it gets from there on is its long-run rate.
const SETTLED: u64 = 75;
const DEPTHS: [usize; 3] = [1, 16, 64];

/// GCRA in microseconds, as people write it.
const PLAIN: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new_tat = tat + interval * cost
local allow_at = new_tat - interval * burst
if allow_at > now then
  return {0, math.floor((now - (tat - interval * burst)) / interval), allow_at - now, tat - now}
end
redis.call('SET', KEYS[1], string.format('%d', new_tat), 'PX', math.ceil((new_tat - now) / 1000))
return {1, math.floor((now - allow_at) / interval), -1, new_tat - now}
";

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]).stdout(Stdio::null());
        let child = command.spawn().expect("redis-server is missing: `make peers` installs it");
        let server = Server { child, port };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}?timeout=1s", self.port)
    }

    /// Seconds of CPU that the process took.
    fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // Kernels tell it in hundredths of a second.
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Subject {
    Tidegate,
    Plain,
    Incr,
}

const SUBJECTS: [(Subject, &str); 3] =
    [(Subject::Tidegate, "tidegate, exact"), (Subject::Plain, "plain EVALSHA GCRA"), (Subject::Incr, "INCR")];

/// A random number of 64 bits from a counter.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Decides so many random keys, so many at a time. Tells CPU seconds of Redis per million, and decisions a second.
fn measure(server: &Server, subject: Subject, depth: usize, count: usize, seed: u64) -> (f64, f64) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
        let mut connection: MultiplexedConnection = client.get_multiplexed_async_connection().await.unwrap();
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(PLAIN).query_async(&mut connection).await.unwrap();
        let store = RedisStore::open(&server.url().parse().unwrap()).unwrap();
        let limit: Limit = "1000/minute".parse().unwrap();
        let warm = Charge::take(Key::new("warm").unwrap(), &limit, 1);
        store.charge(&Call::default(), &[warm]).await.unwrap();
        let (cpu, start, next) = (server.cpu(), Instant::now(), Arc::new(AtomicU64::new(0)));
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let (mut connection, store, sha) = (connection.clone(), store.clone(), sha.clone());
                let next = Arc::clone(&next);
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= count as u64 {
                            return;
                        }
                        let key = format!("key:{}", mix(seed ^ number) % 1_000_000);
                        match subject {
                            Subject::Tidegate => {
                                let charge = Charge::take(Key::new(&key).unwrap(), &limit, 1);
                                store.charge(&Call::default(), &[charge]).await.unwrap();
                            }
                            Subject::Plain => {
                                let mut call = redis::cmd("EVALSHA");
                                call.arg(&sha).arg(1).arg(&key).arg(60_000).arg(1000).arg(1);
                                call.query_async::<redis::Value>(&mut connection).await.unwrap();
                            }
                            Subject::Incr => {
                                let key = format!("incr:{key}");
                                redis::cmd("INCR").arg(&key).query_async::<i64>(&mut connection).await.unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let wall = start.elapsed().as_secs_f64();
        let cpu = server.cpu() - cpu;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
        (cpu * 1e6 / count as f64, count as f64 / wall)
    })
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn exact(server: &Server, args: &Args) {
    let bar = ProgressBar::new((args.rounds * DEPTHS.len() * SUBJECTS.len()) as u64);
    let mut costs = vec![vec![(Vec::new(), Vec::new()); SUBJECTS.len()]; DEPTHS.len()];
    for round in 0..args.rounds {
        for (depth, of_depth) in DEPTHS.iter().zip(&mut costs) {
            // Each round begins with another one.
            for turn in 0..SUBJECTS.len() {
                let place = (turn + round) % SUBJECTS.len();
                let count = args.thousands * 1000 / if *depth == 1 { 4 } else { 1 };
                let (cpu, speed) = measure(server, SUBJECTS[place].0, *depth, count, mix(round as u64));
                of_depth[place].0.push(cpu);
                of_depth[place].1.push(speed);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    println!("Redis CPU seconds per million decisions (decisions a second), medians of {} rounds", args.rounds);
    println!("| in flight | {} | tidegate / plain |", SUBJECTS.map(|(_, name)| name).join(" | "));
    println!("|---|---|---|---|---|");
    for (depth, of_depth) in DEPTHS.iter().zip(&mut costs) {
        let medians: Vec<(f64, f64)> = of_depth.iter_mut().map(|(cpu, speed)| (median(cpu), median(speed))).collect();
        let cells: Vec<String> = medians.iter().map(|(cpu, speed)| format!("{cpu:.2} ({speed:.0})")).collect();
        println!("| {depth} | {} | {:.2} |", cells.join(" | "), medians[0].0 / medians[1].0);
    }
}

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

/// Scripts that Redis ran so far.
fn calls(server: &Server) -> u64 {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut client.get_connection().unwrap()).unwrap();
    let of = |name: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    of("evalsha") + of("eval")
}

/// Four nodes, keys by Zipf's law, a limit of half the rate of the hottest key.
fn nodes(server: &Server, args: &Args, consistency: &str) {
    let zipf = Arc::new(Zipf::new(KEYS));
    let per_minute = (zipf.share(0) * args.rate as f64 * 60.0 / 2.0) as u64;
    let rules = format!(
        "stores: {{shared: {{url: '{}&prefix={consistency}'}}}}\ndomains: {{api: {{rules: [{{name: all, key: {{entry: user}}, store: shared, \
         consistency: {consistency}, limit: {per_minute}/minute, on_store_failure: deny}}]}}}}",
        server.url()
    );
    let outside = Outside { check_store: Some(tidegate_engine::check_store_url), ..Outside::default() };
    let load = LoadOptions { outside, ..LoadOptions::default() };
    let counts: Arc<Vec<(AtomicU64, AtomicU64)>> = Arc::new((0..KEYS).map(|_| Default::default()).collect());
    let failed = Arc::new(AtomicU64::new(0));
    let (before, cpu, start) = (calls(server), server.cpu(), Instant::now());
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
        std::thread::sleep(Duration::from_millis(args.seconds * 10 * SETTLED).saturating_sub(start.elapsed()));
        settled = (start.elapsed().as_secs_f64(), counts[0].1.load(Relaxed));
    });
    let seconds = start.elapsed().as_secs_f64();
    tell(args, consistency, &counts, per_minute, seconds, (calls(server) - before, server.cpu() - cpu));
    let (from, before) = settled;
    let rate = (counts[0].1.load(Relaxed) - before) as f64 / (args.seconds as f64 - from);
    let wanted = per_minute as f64 / 60.0;
    println!(
        "  long run: the hottest key got {rate:.1} a second of {wanted:.1} ({:+.2} %); answered without the store: {}",
        (rate / wanted - 1.0) * 100.0,
        failed.load(Relaxed)
    );
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

fn tell(
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
        "{consistency}: {NODES} nodes, {KEYS} keys, {offered} requests in {seconds:.0} s, {per_minute}/minute a key ({} asked for)",
        args.rate
    );
    println!(
        "  calls to Redis: {calls}, {:.1} times fewer; Redis CPU {:.2} s per million requests",
        offered as f64 / calls.max(1) as f64,
        cpu * 1e6 / offered as f64
    );
    println!(
        "  above the limit: {over}; keys above their limit got {admitted} of {ideal} ({:.2} % less); others were denied {denied_below}",
        (1.0 - admitted as f64 / ideal.max(1) as f64) * 100.0
    );
}

fn main() {
    let args = Args::parse();
    let server = Server::start();
    exact(&server, &args);
    nodes(&server, &args, "leased");
    nodes(&server, &args, "async");
}
