//! More callers than two nodes can serve at once, with default settings: while Redis answers, no more pass than the limit,
//! and no node decides on its own.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::Signal;
use tidegate_testkit::servers::{Server, Setup};

use crate::callers::{Protocol, ask_until_denied};
use crate::fleet::{Fleet, charged, shared, sleep_millis};

const LIMIT: u64 = 1_000;

/// How often each run is repeated: `make soak` says more than once.
fn repeats() -> usize {
    std::env::var("TIDEGATE_OVERLOAD_REPEATS").map_or(1, |repeats| repeats.parse().unwrap())
}

/// A run: who asks, and what else happens.
struct Run<'a> {
    protocol: Protocol,
    callers: usize,
    consistency: &'a str,
    /// Runs beside the callers, again and again until they have finished.
    beside: &'a (dyn Fn(&Fleet, &Server) + Sync),
}

impl Run<'_> {
    /// Lets callers ask two nodes, and returns how many passed.
    fn passed(&self) -> u64 {
        let Run { protocol, callers, consistency, beside } = *self;
        // Looks often enough whether a pause is over.
        let redis = Server::start(&Setup { settings: &["--hz 500"], ..Setup::default() });
        redis.prioritise();
        let url = format!("redis://127.0.0.1:{}", redis.port);
        let limit = format!("{{algorithm: fixed_window, rate: {LIMIT}/30d}}");
        let rule = format!("name: per-user, key: {{entry: user}}, limit: {limit}, consistency: {consistency}");
        let fleet = Fleet::start(2, &shared(&url, &[&rule]));
        let address = |protocol| match protocol {
            Protocol::Resp => fleet.nodes.iter().map(|node| node.resp).collect::<Vec<_>>(),
            Protocol::Grpc => fleet.nodes.iter().map(|node| node.grpc).collect(),
        };
        let end = AtomicBool::new(false);
        let mut answers = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Relaxed) {
                    beside(&fleet, &redis);
                }
            });
            let _end = SetAtEnd(&end);
            ask_until_denied(protocol, &address(protocol), callers, "one")
        });
        println!("{protocol:?}, {callers} callers, {consistency}: {}", answers.summary());
        assert_eq!(answers.denied, callers as u64, "each asks until it is denied");
        for node in &fleet.nodes {
            let failures = node.metric(r#"tidegate_store_failures_total{domain="api",rule="per-user"}"#);
            assert_eq!(failures, Some(0.0), "no node may decide on its own: {}", node.process.log());
        }
        assert!(charged(fleet.node(0), ("user", "one")) >= answers.passed);
        answers.passed
    }
}

/// Also when the callers panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn nothing(_: &Fleet, _: &Server) {
    sleep_millis(10);
}

#[test]
fn an_exact_limit_is_exact_however_many_ask() {
    for callers in [64, 400, 1_000, 4_000].repeat(repeats()) {
        for protocol in [Protocol::Resp, Protocol::Grpc] {
            let run = Run { protocol, callers, consistency: "exact", beside: &nothing };
            assert_eq!(run.passed(), LIMIT, "{protocol:?}, {callers} callers");
        }
    }
}

#[test]
fn a_leased_limit_is_never_exceeded_however_many_ask() {
    for callers in [64, 400, 1_000, 4_000].repeat(repeats()) {
        for protocol in [Protocol::Resp, Protocol::Grpc] {
            let passed = Run { protocol, callers, consistency: "leased", beside: &nothing }.passed();
            assert!((LIMIT * 95 / 100..=LIMIT).contains(&passed), "{protocol:?}, {callers} callers: {passed}");
        }
    }
}

/// Runs beside callers of both protocols, under an exact limit and a leased one.
fn check_beside(beside: &(dyn Fn(&Fleet, &Server) + Sync)) {
    let runs = [(Protocol::Resp, "exact"), (Protocol::Grpc, "exact"), (Protocol::Resp, "leased")];
    for (protocol, consistency) in runs.repeat(repeats()) {
        let passed = Run { protocol, callers: 400, consistency, beside }.passed();
        let least = if consistency == "exact" { LIMIT } else { LIMIT * 95 / 100 };
        assert!((least..=LIMIT).contains(&passed), "{protocol:?}, {consistency}: {passed}");
    }
}

#[test]
fn neighbours_on_all_cores_change_nothing() {
    check_beside(&|_, _| {
        let spin = || (0..20_000_000_u64).fold(0, |sum, number| black_box(sum ^ number));
        std::thread::scope(|scope| drop([scope.spawn(spin), scope.spawn(spin)]));
    });
}

#[test]
fn a_node_that_was_stopped_decides_nothing_on_its_own() {
    check_beside(&|fleet, _| {
        sleep_millis(20);
        fleet.node(0).process.signal(Signal::STOP);
        sleep_millis(1_000);
        fleet.node(0).process.signal(Signal::CONT);
        // The callers of this run have finished by then.
        sleep_millis(500);
    });
}

#[test]
fn a_redis_that_pauses_within_the_budget_is_not_away() {
    check_beside(&|_, redis| {
        redis.command("CLIENT PAUSE 5 ALL");
        sleep_millis(40);
    });
}
