//! The clients: what each of them asks, and what it saw.

use std::fs;
use std::path::Path;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message;
use tidegate_bench_server::{Half, on, output};

use crate::Options;
use crate::servers::Server;

/// How a server is loaded.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// redis-benchmark with this pipeline depth and command.
    Redis(u32, &'static str),
    /// wrk that posts this JSON to this path; `KEY` stands for a random key.
    Http(&'static str, &'static str),
    /// h2load with this many connections and streams on each.
    Grpc(u32, u32),
    /// rls-load with this many connections and streams on each, and requests a user.
    Users(u32, u32, Users),
}

/// How the requests of a round spread over users.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    /// One asks for all.
    One,
    /// Each asks a hundred times.
    Hundredth,
}

/// Most users of a run: those of the most requests.
const USERS_MAX: u64 = 10_000;

/// What a client saw of one server in one round.
pub(crate) struct Seen {
    pub(crate) requests: u64,
    /// Requests that were denied, or not answered.
    pub(crate) not_allowed: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Load {
    /// Loads a server with this many requests. Runs of other numbers are for other users, if there are several.
    pub(crate) fn run(self, server: &Server, options: &Options, requests: u64, number: u64) -> Seen {
        let scratch = options.scratch();
        match self {
            Load::Redis(depth, command) => redis(server.resp, depth, command, requests * u64::from(depth.min(4))),
            Load::Http(path, body) => http(server.http, path, body, &scratch),
            Load::Grpc(connections, streams) => grpc(server.grpc, connections, streams, requests, &scratch),
            Load::Users(connections, streams, spread) => {
                let users = if spread == Users::One { 1 } else { (requests / 100).clamp(1, USERS_MAX) };
                let mut command = on(Half::Clients, options.built.join("rls-load"));
                command.arg(server.grpc.to_string());
                command.args(["--connections", &connections.to_string(), "--streams", &streams.to_string()]);
                command.args(["--requests", &requests.to_string(), "--users", &users.to_string()]);
                command.args(["--first", &(number * USERS_MAX).to_string()]);
                let [requests, allowed, p50, p99] = last_numbers(&output(&mut command));
                Seen { requests, not_allowed: requests - allowed, p50_us: p50 as f64, p99_us: p99 as f64 }
            }
        }
    }
}

fn redis(port: u16, depth: u32, command: &str, requests: u64) -> Seen {
    let text = output(
        on(Half::Clients, "redis-benchmark")
            .args(["-p", &port.to_string(), "-c", "50", "-r", "1000000", "--csv", "-P", &depth.to_string()])
            .args(["-n", &requests.to_string()])
            .args(command.split(' ')),
    );
    let line = text.lines().last().unwrap();
    let fields: Vec<f64> = line.rsplit("\",\"").map(|field| field.trim_matches('"').parse().unwrap_or(0.0)).collect();
    // From the right: max, p99, p95, p50, min, average, requests a second.
    Seen { requests, not_allowed: 0, p50_us: fields[3] * 1000.0, p99_us: fields[1] * 1000.0 }
}

fn http(port: u16, path: &str, body: &str, scratch: &Path) -> Seen {
    let script = scratch.join("post.lua");
    let (before, after) = body.split_once("KEY").unwrap();
    let text = format!(
        "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nrequest = function()\n  return wrk.format(nil, '{path}', nil, '{before}key:' .. math.random(1000000) .. '{after}')\nend\n\
         done = function(summary, latency)\n  io.write(string.format('%d %d %d %d\\n', summary.requests, latency:percentile(50), latency:percentile(99), summary.errors.status))\nend\n"
    );
    fs::write(&script, text).unwrap();
    let text = output(
        on(Half::Clients, "wrk")
            .args(["-t", "1", "-c", "50", "-d", "4s", "-s"])
            .arg(&script)
            .arg(format!("http://127.0.0.1:{port}")),
    );
    let [requests, p50, p99, errors] = last_numbers(&text);
    assert_eq!(errors, 0, "answers other than 2xx: {text}");
    Seen { requests, not_allowed: 0, p50_us: p50 as f64, p99_us: p99 as f64 }
}

fn grpc(port: u16, connections: u32, streams: u32, requests: u64, scratch: &Path) -> Seen {
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
    Seen { requests, not_allowed: 0, p50_us: at(50), p99_us: at(99) }
}

/// The numbers in the last line of a text.
fn last_numbers<const N: usize>(text: &str) -> [u64; N] {
    let numbers: Vec<u64> = text.lines().last().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}
