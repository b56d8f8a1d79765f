//! More callers than two nodes can serve at once, with default settings: while Redis answers, no more pass than the limit,
//! and no node decides on its own.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;
use tidegate_testkit::servers::{Mode, Server, Setup};
use tidegate_testkit::tidegate::Tidegate;
use tokio::time::Instant;

use crate::ask::Said;
use crate::callers::{Answers, Protocol, Until, ask_all};
use crate::fleet::{Fleet, charged, check, proxy, shared, sleep_millis};

const LIMIT: u64 = 1_000;
const USER: (&str, &str) = ("user", "one");

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
        let redis = attentive_redis();
        let fleet = self.fleet(&redis, "");
        let answers = self.ask(&fleet, &redis);
        assert_nobody_decided_alone(&fleet);
        assert!(charged(fleet.node(0), USER) >= answers.passed);
        answers.passed
    }

    /// Starts two nodes with default settings, but for these parameters of the store.
    fn fleet(&self, redis: &Server, parameters: &str) -> Fleet {
        self.fleet_at(redis.port, parameters)
    }

    fn fleet_at(&self, port: u16, parameters: &str) -> Fleet {
        let url = format!("redis://127.0.0.1:{port}{parameters}");
        let limit = format!("{{algorithm: fixed_window, rate: {LIMIT}/30d}}");
        let consistency = self.consistency;
        Fleet::start(
            2,
            &shared(
                &url,
                &[&format!("name: per-user, key: {{entry: user}}, limit: {limit}, consistency: {consistency}")],
            ),
        )
    }

    /// Lets callers ask these nodes, each until it is denied.
    fn ask(&self, fleet: &Fleet, redis: &Server) -> Answers {
        let Run { protocol, callers, consistency, beside } = *self;
        let end = AtomicBool::new(false);
        let mut answers = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Relaxed) {
                    beside(fleet, redis);
                }
            });
            let _end = SetAtEnd(&end);
            ask_all(protocol, &addresses(fleet, protocol), callers, |_| USER.1.to_owned(), Until::Denied)
        });
        println!("{protocol:?}, {callers} clients, {consistency}: {}", answers.summary());
        assert_eq!(answers.denied, callers as u64, "each asks until it is denied");
        answers
    }
}

/// Where the nodes listen for this protocol.
fn addresses(fleet: &Fleet, protocol: Protocol) -> Vec<SocketAddr> {
    let address = |node: &Tidegate| if protocol == Protocol::Resp { node.resp } else { node.grpc };
    fleet.nodes.iter().map(address).collect()
}

/// A Redis that comes before all else on the machine, and looks often enough whether a pause is over.
fn attentive_redis() -> Server {
    let redis = Server::start(&Setup { settings: &["--hz 500"], ..Setup::default() });
    redis.prioritise();
    redis
}

fn assert_nobody_decided_alone(fleet: &Fleet) {
    for node in &fleet.nodes {
        let failures = node.metric(r#"tidegate_store_failures_total{domain="api",rule="per-user"}"#);
        assert_eq!(failures, Some(0.0), "no node may decide on its own: {}", node.process.log());
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
    let runs = [Protocol::Resp, Protocol::Grpc].map(|protocol| [(protocol, "exact"), (protocol, "leased")]);
    for (protocol, consistency) in runs.concat().repeat(repeats()) {
        let passed = Run { protocol, callers: 400, consistency, beside }.passed();
        let least = if consistency == "exact" { LIMIT } else { LIMIT * 95 / 100 };
        assert!((least..=LIMIT).contains(&passed), "{protocol:?}, {consistency}: {passed}");
    }
}

/// Takes both cores for a while.
fn neighbours(_: &Fleet, _: &Server) {
    let spin = || (0..20_000_000_u64).fold(0, |sum, number| black_box(sum ^ number));
    std::thread::scope(|scope| drop([scope.spawn(spin), scope.spawn(spin)]));
}

#[test]
fn neighbours_on_all_cores_change_nothing() {
    check_beside(&neighbours);
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

/// A Redis that gets no time for longer than its budget is away. Each node goes on from the last state that it knows, so that
/// what passes is bounded by what was counted before and by what is left to each node by that.
#[test]
fn a_redis_that_is_starved_is_away_within_the_bound() {
    const BEFORE: u64 = 500;
    let starve = |_: &Fleet, redis: &Server| {
        redis.hang();
        sleep_millis(45);
        redis.go_on();
        sleep_millis(5);
    };
    for protocol in [Protocol::Resp, Protocol::Grpc].repeat(repeats()) {
        let redis = attentive_redis();
        let run = Run { protocol, callers: 400, consistency: "exact", beside: &starve };
        let fleet = run.fleet(&redis, "?timeout=30ms");
        let mut known = [0; 2];
        for number in 0..BEFORE {
            let node = usize::from(number % 2 == 1);
            assert_eq!(check(fleet.node(node), USER), Said::Passed);
            known[node] = number + 1;
        }
        assert_eq!(charged(fleet.node(0), USER), BEFORE, "all of it was counted by Redis");
        let passed = BEFORE + run.ask(&fleet, &redis).passed;
        let most = BEFORE + known.iter().map(|known| LIMIT - known).sum::<u64>();
        println!("{protocol:?}, paused Redis: {passed} passed of at most {most}");
        assert!(passed <= most, "{protocol:?}: {passed} passed, at most {most} may");
    }
}

/// The longest time by which the machine wakes a thread too late that only sleeps, while something happens.
fn lateness_during<T>(something: impl FnOnce() -> T) -> (T, Duration) {
    const NAP: Duration = Duration::from_millis(1);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = Duration::ZERO;
            while !end.load(Relaxed) {
                let start = Instant::now();
                std::thread::sleep(NAP);
                most = most.max(start.elapsed().saturating_sub(NAP));
            }
            most
        });
        let guard = SetAtEnd(&end);
        let value = something();
        drop(guard);
        (value, watch.join().unwrap())
    })
}

/// The store is what callers wait for: it takes more than half of its budget, so that each connection has one call under way.
/// Nearly all callers wait until their turn comes or their wait is over, and for no longer. With the budget of 10 ms that is
/// the default, the bound is `wait` and 15 ms. On a machine that is busy with other things each of caller, node and proxy may
/// be woken late. Programs that are not optimised, beside other tests, get a larger budget and no bound.
#[test]
fn no_answer_takes_much_longer_than_the_wait() {
    const CALLERS: usize = 200;
    const WAIT: Duration = Duration::from_millis(100);
    let is_soak = repeats() > 1;
    let budget = Duration::from_millis(if is_soak { 30 } else { 300 });
    for protocol in [Protocol::Resp, Protocol::Grpc].repeat(repeats()) {
        let redis = attentive_redis();
        let slow = proxy(redis.port);
        let run = Run { protocol, callers: CALLERS, consistency: "exact", beside: &nothing };
        let fleet = run.fleet_at(slow.port, &format!("?links=1&timeout={}ms", budget.as_millis()));
        slow.set(Mode::Delay(budget * 17 / 30));
        let ask = |callers, time| {
            let user = |number: usize| number.to_string();
            ask_all(protocol, &addresses(&fleet, protocol), callers, user, Until::Passed(time))
        };
        // One for each connection, until it has learned how slow the store is.
        ask(fleet.nodes.len(), 10 * budget);
        let (mut answers, late) = lateness_during(|| ask(CALLERS, Duration::from_secs(3)));
        println!("{protocol:?}, slow store: {}; scheduling delays up to {late:.1?}", answers.summary());
        assert!(answers.overloaded > 0, "the nodes were not overloaded");
        let (p99, most) = (answers.p99(), WAIT + budget + Duration::from_millis(5) + 3 * late);
        assert!(!is_soak || p99 <= most, "{protocol:?}: 99 of 100 answers take {p99:?}, at most {most:?} may");
    }
}
