//! The clock of Redis jumps, as when a machine is set right or another one takes over; or that of the server is not set.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_testkit::http;
use tidegate_testkit::process::{Process, command, directory, printed};
use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::tidegate::{self, Tidegate};
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use crate::ask::Said;
use crate::fleet::{Fleet, PATIENT, body, check, shared, sleep_millis};

use Said::{Denied, Passed};

/// What passes in each window, and how long that is.
const LIMIT: usize = 3;
const WINDOW_MILLIS: u64 = 2_000;

/// Two windows, the longest that an algorithm with two counters remembers, and a second for a busy machine. Two penalties
/// too: the first request after one finds the bucket as full as the jump left it.
const LOCKED_OUT: Duration = Duration::from_millis(2 * WINDOW_MILLIS + 1_000);

/// A denial is remembered for one second; the rest is for a busy machine.
const REMEMBERED: Duration = Duration::from_millis(1_500);

/// Each algorithm, with the entry that chooses its rule.
const ALGORITHMS: [&str; 6] =
    ["gcra", "token_bucket", "fixed_window", "sliding_log", "sliding_counter", "sliced_window"];

/// A rule that penalises whom it denies, and its entry.
const PENALISED: &str = "penalised";

/// A rule of which units are leased, its entry, and its limit: so large that no unit is asked for alone. It is used up in
/// shares that are as large as a lease can be.
const LEASED: &str = "leased";
const LEASED_LIMIT: u64 = 60_000;
const LEASED_COST: u64 = LEASED_LIMIT / 4;

/// Builds the library that shifts the clock of a process.
pub(crate) fn library(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/clock_shift.c");
    let library = directory.join("clock_shift.so");
    let arguments = ["-shared", "-fPIC", "-O1", "-o", library.to_str().unwrap(), source.to_str().unwrap()];
    printed(&mut command("cc", &arguments));
    library
}

/// Shifts the clock of a server by whole seconds. Written aside first, so that it never reads half of it.
pub(crate) fn shift(file: &Path, seconds: &str) {
    let aside = file.with_extension("aside");
    std::fs::write(&aside, seconds).unwrap();
    std::fs::rename(&aside, file).unwrap();
}

/// Uses everything up, and has the clock jump.
fn jump(seconds: &str, after: impl Fn(&Fleet)) {
    let directory = directory();
    let library = library(directory.path());
    let file = directory.path().join("shift");
    shift(&file, "0");
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_SHIFT_FILE", file.to_str().unwrap())];
    let redis = Server::start(&Setup { variables: &variables, ..Setup::default() });
    let rate = format!("{LIMIT}/{WINDOW_MILLIS}ms");
    let rule =
        |name: &str, rest: String| format!("name: {name}, key: {{entry: {name}}}, on_store_failure: deny, {rest}");
    let limited = |name: &&str| rule(name, format!("limit: {{algorithm: {name}, rate: {rate}}}"));
    let penalised = rule(PENALISED, format!("limit: {rate}, penalty: {WINDOW_MILLIS}ms"));
    let leased = format!("{{algorithm: fixed_window, rate: {LEASED_LIMIT}/{WINDOW_MILLIS}ms}}");
    let leased = rule(LEASED, format!("limit: {leased}, consistency: leased"));
    let rules: Vec<String> = ALGORITHMS.iter().map(limited).chain([penalised, leased]).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let fleet = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &rules));
    for name in ALGORITHMS.into_iter().chain([PENALISED]) {
        assert!((0..100).any(|_| check(fleet.node(0), (name, "ann")) == Denied), "{name} denies nobody");
    }
    let cost = format!(",\"cost\":{LEASED_COST}");
    let spend = || http::ask(fleet.node(0).http, "POST", "/v1/check", &[], &body(&[(LEASED, "ann")], &cost));
    assert!((0..100).any(|_| Said::of_http(&spend()) == Denied), "{LEASED} denies nobody");
    let time = || redis.command("TIME").split(' ').next().unwrap().parse::<i64>().unwrap();
    let before = time();
    shift(&file, seconds);
    let jumped = time() - before;
    let expected: i64 = seconds.parse().unwrap();
    assert!((jumped - expected).abs() < 100, "the clock of Redis jumped by {jumped} s");
    after(&fleet);
}

/// Asks until it is denied; how many passed.
fn passed(fleet: &Fleet, name: &str) -> usize {
    (0..100).take_while(|_| check(fleet.node(0), (name, "ann")) == Passed).count()
}

#[test]
fn a_clock_that_jumps_back_locks_nobody_out() {
    jump("-3600", |fleet| {
        let (jumped, mut locked_out) = (Instant::now(), [&ALGORITHMS[..], &[PENALISED, LEASED]].concat());
        // All of them are asked all the time: a state learns of the jump when it is asked.
        while !locked_out.is_empty() {
            assert!(jumped.elapsed() <= LOCKED_OUT, "after {:?} still locked out: {locked_out:?}", jumped.elapsed());
            locked_out.retain(|name| {
                let is_free = check(fleet.node(0), (name, "ann")) == Passed;
                if is_free {
                    println!("{name} lets pass {:?} after the jump", jumped.elapsed());
                    let more = passed(fleet, name);
                    assert!(more <= LIMIT || *name == LEASED, "{name}: {more} passed");
                }
                !is_free
            });
            sleep_millis(10);
        }
    });
}

#[test]
fn a_clock_that_jumps_ahead_gives_one_limit_more() {
    jump("3600", |fleet| {
        for name in ALGORITHMS {
            let jumped = Instant::now();
            while check(fleet.node(0), (name, "ann")) != Passed {
                assert!(jumped.elapsed() <= REMEMBERED, "{name}: still denied after {:?}", jumped.elapsed());
                sleep_millis(10);
            }
            let more = 1 + passed(fleet, name);
            // A bucket gives back while we ask.
            assert!((1..=LIMIT + 2).contains(&more), "{name}: {more} passed");
        }
    });
}

/// From any day of this century to a day before 1970.
const BEFORE_1970: &str = "-4294967296";

/// The command with a clock that the file shifts.
fn shifted(library: &Path, file: &Path) -> Command {
    let mut command = tidegate::command();
    command.env("LD_PRELOAD", library).env("CLOCK_SHIFT_FILE", file);
    command
}

#[test]
fn a_server_does_not_start_before_1970() {
    let files = directory();
    let (library, file) = (library(files.path()), files.path().join("shift"));
    shift(&file, BEFORE_1970);
    let mut server = shifted(&library, &file);
    server.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    let mut server = Process::start(directory(), &mut server, None);
    assert_eq!(server.ended().code(), Some(2), "{}", server.log());
    let expected = "error: the system clock is before 1970; set it, and start again\n";
    assert_eq!(server.log(), expected);
}

/// Writes a certificate for `localhost` and its key, and returns the certificate.
fn write_certificate(directory: &Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(directory.join("server.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
    certificate.pem()
}

#[tokio::test]
async fn a_clock_that_jumps_to_before_1970_makes_nothing_panic() {
    let files = directory();
    let (library, file) = (library(files.path()), files.path().join("shift"));
    shift(&file, "0");
    let pem = write_certificate(files.path());
    let [certificate, key] = ["server.pem", "server.key"].map(|name| files.path().join(name));
    let arguments = ["--grpc-tls-cert", certificate.to_str().unwrap(), "--grpc-tls-key", key.to_str().unwrap()];
    let server = Tidegate::start_by(shifted(&library, &file), &arguments);
    shift(&file, BEFORE_1970);
    // Each connection goes to the thread that has fewest, so that both kinds meet several.
    for _ in 0..8 {
        assert_eq!(http::get(server.http, "/healthz").status, 200);
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&pem)).domain_name("localhost");
        let endpoint = Channel::from_shared(format!("https://{}", server.grpc)).unwrap().tls_config(tls).unwrap();
        let mut client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
        let entries = vec![Entry { key: "user".to_owned(), value: "ann".to_owned() }];
        let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
        let request = RateLimitRequest { domain: "unknown".to_owned(), descriptors, ..Default::default() };
        client.should_rate_limit(request).await.unwrap();
    }
    assert!(!server.process.log().contains("panic"), "{}", server.process.log());
}
