//! Measures Tidegate's server beside others: CPU seconds of the server for a million decisions, and the latency that
//! clients see, in interleaved rounds.
//!
//! All servers run during the whole run and are loaded in turn, so that whatever else the machine does meets all of them.
//! Servers have one half of the cores and clients the other: where they take cores from each other, latency tells of the
//! scheduler, and CPU seconds of how often it interrupted whom. Each server has as many threads as it chooses for its half.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "not shipped: it should stop at the first surprise"
)]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Parser;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use indicatif::{ProgressBar, ProgressStyle};
use prost::Message;

/// Tidegate's server beside others, interleaved.
#[derive(Parser)]
struct Options {
    /// Where the built binaries are
    #[arg(long, default_value = "target/release")]
    built: PathBuf,
    /// Where throttlecrab-server is
    #[arg(long, default_value = "target/peers/bin/throttlecrab-server")]
    throttlecrab: PathBuf,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests a round and server, in thousands
    #[arg(long, default_value_t = 200)]
    thousands: u64,
    /// Only scenarios whose name contains this
    #[arg(long, default_value = "")]
    only: String,
}

/// A server that was started, and ends with the run.
struct Server {
    child: Child,
    ports: Ports,
}

/// Where a server listens; 0 where it does not.
#[derive(Clone, Copy, Default)]
struct Ports {
    resp: u16,
    http: u16,
    grpc: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Seconds of CPU that it has used, in user and system mode.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }
}

/// What a client saw of one server in one round.
struct Round {
    requests: f64,
    cpu_seconds: f64,
    p50_us: f64,
    p99_us: f64,
}

/// A kind of load, the servers it is put on, and what each of them is asked.
struct Scenario {
    name: &'static str,
    subjects: Vec<Subject>,
}

struct Subject {
    label: &'static str,
    server: usize,
    load: Load,
}

#[derive(Clone, Copy)]
enum Load {
    /// redis-benchmark with this pipeline depth and command.
    Redis(u32, &'static str),
    /// wrk that posts this JSON to this path; `KEY` stands for a random key.
    Http(&'static str, &'static str),
    /// h2load with this many connections and streams on each.
    Grpc(u32, u32),
}

const THROTTLE: &str = "CL.THROTTLE key:__rand_int__ 100 1000 60";
const CHECK: &str = r#"{"key":"KEY","limit":{"rate":"1000/minute","burst":100}}"#;
const CRAB_CHECK: &str = r#"{"key":"KEY","max_burst":100,"count_per_period":1000,"period":60}"#;
const TIDEGATE: usize = 0;
const CRAB: usize = 1;
const REDIS: usize = 2;
const HYPER: usize = 3;
const TONIC: usize = 4;

fn main() {
    let options = Options::parse();
    let scratch = PathBuf::from("target/bench-server");
    fs::create_dir_all(&scratch).unwrap();
    let servers = start_all(&options, &scratch);
    let scenarios: Vec<Scenario> = scenarios().into_iter().filter(|one| one.name.contains(&options.only)).collect();
    let steps: usize = scenarios.iter().map(|scenario| scenario.subjects.len() * options.rounds).sum();
    let progress = ProgressBar::new(steps as u64)
        .with_style(ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len} {msg}").unwrap());
    println!("CPU seconds of the server for a million decisions; medians of {} interleaved rounds", options.rounds);
    for scenario in scenarios {
        let mut rounds: Vec<Vec<Round>> = scenario.subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (subject, rounds) in scenario.subjects.iter().zip(&mut rounds) {
                progress.set_message(format!("{}: {}", scenario.name, subject.label));
                rounds.push(run(subject, &servers, &options, &scratch));
                progress.inc(1);
            }
        }
        progress.suspend(|| report(&scenario, &rounds));
    }
    progress.finish_and_clear();
}

fn scenarios() -> Vec<Scenario> {
    let resp = |name, depth| Scenario {
        name,
        subjects: vec![
            Subject { label: "tidegate CL.THROTTLE", server: TIDEGATE, load: Load::Redis(depth, THROTTLE) },
            Subject { label: "redis-server INCR", server: REDIS, load: Load::Redis(depth, "INCR key:__rand_int__") },
            Subject {
                label: "throttlecrab-server THROTTLE",
                server: CRAB,
                load: Load::Redis(depth, "THROTTLE key:__rand_int__ 100 1000 60"),
            },
        ],
    };
    let grpc = |name, connections, streams| Scenario {
        name,
        subjects: vec![
            Subject { label: "tidegate", server: TIDEGATE, load: Load::Grpc(connections, streams) },
            Subject { label: "empty tonic", server: TONIC, load: Load::Grpc(connections, streams) },
        ],
    };
    vec![
        resp("RESP, pipeline 1", 1),
        resp("RESP, pipeline 16", 16),
        resp("RESP, pipeline 64", 64),
        Scenario {
            name: "HTTP check, 50 connections",
            subjects: vec![
                Subject { label: "tidegate", server: TIDEGATE, load: Load::Http("/v1/check", CHECK) },
                Subject { label: "fixed hyper answer", server: HYPER, load: Load::Http("/", CHECK) },
                Subject { label: "throttlecrab-server", server: CRAB, load: Load::Http("/throttle", CRAB_CHECK) },
            ],
        },
        grpc("gRPC, 2 connections of 50 streams", 2, 50),
        grpc("gRPC, 50 connections of 1 stream", 50, 1),
    ]
}

fn start_all(options: &Options, scratch: &Path) -> Vec<Server> {
    let rules = scratch.join("rules.yaml");
    let rule = "{name: user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 1000000/second}";
    fs::write(&rules, format!("domains: {{api: {{rules: [{rule}]}}}}\n")).unwrap();
    let [resp, http, grpc, crab_resp, crab_http, redis, hyper, tonic] = free_ports();
    let address = |port: u16| format!("127.0.0.1:{port}");
    let number = |port: u16| port.to_string();
    let mut tidegate = on(Half::Servers, options.built.join("tidegate"));
    tidegate.arg("serve").arg("--config").arg(&rules).args(["--store", "memory:2000000"]);
    tidegate.args(["--resp", &address(resp), "--http", &address(http), "--grpc", &address(grpc)]);
    let mut crab = on(Half::Servers, &options.throttlecrab);
    crab.args(["--redis", "--redis-port", &number(crab_resp), "--store-capacity", "2000000"]);
    crab.args(["--http", "--http-port", &number(crab_http)]);
    let mut redis_server = on(Half::Servers, "redis-server");
    redis_server.args(["--port", &number(redis), "--save", "", "--appendonly", "no"]);
    let mut fixed_hyper = on(Half::Servers, options.built.join("fixed-hyper"));
    fixed_hyper.arg(number(hyper));
    let mut empty_tonic = on(Half::Servers, options.built.join("empty-tonic"));
    empty_tonic.arg(number(tonic));
    // In the order of their numbers.
    vec![
        start(tidegate, Ports { resp, http, grpc }),
        start(crab, Ports { resp: crab_resp, http: crab_http, grpc: 0 }),
        start(redis_server, Ports { resp: redis, ..Ports::default() }),
        start(fixed_hyper, Ports { http: hyper, ..Ports::default() }),
        start(empty_tonic, Ports { grpc: tonic, ..Ports::default() }),
    ]
}

/// A half of the cores.
enum Half {
    Servers,
    Clients,
}

/// A program that has one half of the cores; all of them where there is only one.
fn on(half: Half, program: impl AsRef<OsStr>) -> Command {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (first, last) = match half {
        Half::Servers => (0, (cores / 2).max(1) - 1),
        Half::Clients => (cores / 2, cores - 1),
    };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &format!("{first}-{last}")]).arg(program);
    command
}

fn start(mut command: Command, ports: Ports) -> Server {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let server = Server { child, ports };
    [ports.resp, ports.http, ports.grpc].into_iter().filter(|port| *port != 0).for_each(wait_for);
    server
}

fn free_ports<const N: usize>() -> [u16; N] {
    let held: Vec<TcpListener> = (0..N).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    std::array::from_fn(|number| held[number].local_addr().unwrap().port())
}

fn wait_for(port: u16) {
    for _ in 0..200 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing listens on port {port}");
}

fn run(subject: &Subject, servers: &[Server], options: &Options, scratch: &Path) -> Round {
    let server = &servers[subject.server];
    let requests = options.thousands * 1000;
    let before = server.cpu_seconds();
    let (requests, p50_us, p99_us) = match subject.load {
        Load::Redis(depth, command) => redis(server.ports.resp, depth, command, requests * u64::from(depth.min(4))),
        Load::Http(path, body) => http(server.ports.http, path, body, scratch),
        Load::Grpc(connections, streams) => grpc(server.ports.grpc, connections, streams, requests, scratch),
    };
    Round { requests, cpu_seconds: server.cpu_seconds() - before, p50_us, p99_us }
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn redis(port: u16, depth: u32, command: &str, requests: u64) -> (f64, f64, f64) {
    let text = output(
        on(Half::Clients, "redis-benchmark")
            .args(["-p", &port.to_string(), "-c", "50", "-r", "1000000", "--csv", "-P", &depth.to_string()])
            .args(["-n", &requests.to_string()])
            .args(command.split(' ')),
    );
    let line = text.lines().last().unwrap();
    let fields: Vec<f64> = line.rsplit("\",\"").map(|field| field.trim_matches('"').parse().unwrap_or(0.0)).collect();
    // From the right: max, p99, p95, p50, min, average, requests a second.
    (requests as f64, fields[3] * 1000.0, fields[1] * 1000.0)
}

fn http(port: u16, path: &str, body: &str, scratch: &Path) -> (f64, f64, f64) {
    let script = scratch.join("post.lua");
    let (before, after) = body.split_once("KEY").unwrap();
    let text = format!(
        "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nrequest = function()\n  return wrk.format(nil, '{path}', nil, '{before}key:' .. math.random(1000000) .. '{after}')\nend\n\
         done = function(summary, latency)\n  io.write(string.format('%d %d %d %d\\n', summary.requests, latency:percentile(50), latency:percentile(99), summary.errors.status))\nend\n"
    );
    fs::File::create(&script).unwrap().write_all(text.as_bytes()).unwrap();
    let text = output(
        on(Half::Clients, "wrk")
            .args(["-t", "1", "-c", "50", "-d", "4s", "-s"])
            .arg(&script)
            .arg(format!("http://127.0.0.1:{port}")),
    );
    let numbers: Vec<f64> = text.lines().last().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers[3], 0.0, "answers other than 2xx: {text}");
    (numbers[0], numbers[1], numbers[2])
}

fn grpc(port: u16, connections: u32, streams: u32, requests: u64, scratch: &Path) -> (f64, f64, f64) {
    let entry = Entry { key: "user".to_owned(), value: "user:42".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: "api".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
    let message = request.encode_to_vec();
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&message);
    let body = scratch.join("request.grpc");
    fs::write(&body, frame).unwrap();
    let log = scratch.join("h2load.log");
    let _ = fs::remove_file(&log);
    let text = output(
        on(Half::Clients, "h2load")
            .args(["-c", &connections.to_string(), "-m", &streams.to_string(), "-n", &requests.to_string(), "-t", "1"])
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers", "-d"])
            .arg(&body)
            .arg(format!("--log-file={}", log.display()))
            .arg(format!("http://127.0.0.1:{port}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")),
    );
    assert!(text.contains(&format!("{requests} succeeded")), "{text}");
    let mut micros: Vec<f64> =
        fs::read_to_string(&log).unwrap().lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
    micros.sort_by(f64::total_cmp);
    let at = |percent: usize| micros.get(micros.len() * percent / 100).copied().unwrap_or(0.0);
    (requests as f64, at(50), at(99))
}

fn report(scenario: &Scenario, rounds: &[Vec<Round>]) {
    let median = |rounds: &[Round], value: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let cost = |round: &Round| round.cpu_seconds / round.requests * 1e6;
    let own = median(&rounds[0], cost);
    println!("\n| {} | CPU s / million | against tidegate | p50 µs | p99 µs |\n|---|---|---|---|---|", scenario.name);
    for (subject, rounds) in scenario.subjects.iter().zip(rounds) {
        let seconds = median(rounds, cost);
        let (p50, p99) = (median(rounds, |round| round.p50_us), median(rounds, |round| round.p99_us));
        println!("| {} | {seconds:.2} | {:.2}× | {p50:.0} | {p99:.0} |", subject.label, seconds / own);
    }
}
