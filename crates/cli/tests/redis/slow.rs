//! Redis is slow, or hangs.

use std::time::Duration;

use tidegate_testkit::servers::{Mode, Server, Setup};
use tidegate_testkit::tidegate::Tidegate;
use tokio::time::Instant;

use crate::ask::Said;
use crate::fleet::{Fleet, proxy, shared, sleep_millis};
use crate::load::{Answers, during};

const BUDGET: Duration = Duration::from_millis(30);
/// What the answer of a failed store may take beyond the budget.
const BEYOND: Duration = Duration::from_millis(5);
/// By then no call waits for the store any more.
const OPENED: Duration = Duration::from_secs(1);

/// Everybody asks; then Redis is `ill` for two seconds, and well again.
fn check(port: u16, ill: impl Fn(bool)) {
    let rules = [
        "name: strict, key: {entry: user}, on_store_failure: deny, limit: 1000000/30d",
        "name: open, key: {entry: guest}, on_store_failure: allow, limit: 1000000/30d",
    ];
    let url = format!("redis://127.0.0.1:{port}?timeout={}ms", BUDGET.as_millis());
    let fleet = Fleet::start(1, &shared(&url, &rules));
    let node = fleet.node(0);
    let entry = |number: u64| (if number.is_multiple_of(2) { "guest" } else { "user" }, (number % 50).to_string());
    let (answers, (times, before, after)) = during(&fleet, 4, entry, || {
        sleep_millis(700);
        let (fallen_ill, before) = (Instant::now(), taken(node));
        ill(true);
        sleep_millis(2_500);
        let after = taken(node);
        // Before it is: who asks in between may pass.
        let well = Instant::now();
        ill(false);
        sleep_millis(3_000);
        ((fallen_ill, well, Instant::now()), before, after)
    });
    let (fallen_ill, well, end) = times;
    let healthy = Answers(answers.0.iter().copied().filter(|answer| answer.asked < fallen_ill).collect());
    let during = answers.between(fallen_ill, well);
    let mut opened = answers.between(fallen_ill + OPENED, well);
    // Who was held up on its way to the server may have met a Redis that is well.
    opened.0.retain(|answer| answer.asked + answer.took < well);
    let again = answers.between(well + Duration::from_secs(2), end);
    println!("before: {}", healthy.told());
    println!("ill: {}", during.told());
    println!("breaker open: {}", opened.told());
    println!("well again: {}", again.told());
    println!("memory {:.1} MB, then {:.1} MB; files {}, then {}", before.0, after.0, before.1, after.1);
    assert_eq!(answers.of("guest").count(Said::Failed), 0, "who is let through meets no error");
    assert!(during.of("user").count(Said::Failed) > 0, "nobody noticed");
    // What this machine holds up shows before, too.
    assert!(during.took(990) <= BUDGET + BEYOND + healthy.took(990), "{}", during.told());
    assert_eq!(opened.of("user").count(Said::Passed), 0, "the breaker is open");
    assert!(opened.took(900) < BUDGET, "while the breaker is open nobody waits: {}", opened.told());
    let failed = again.of("user").count(Said::Failed) as f64 / again.of("user").0.len() as f64;
    assert!(failed < 0.1, "it does not recover: {}", again.told());
    assert!(after.0 <= before.0 + 20.0, "it grew from {} to {} MB", before.0, after.0);
    assert!(after.1 <= before.1 + 8, "open files grew from {} to {}", before.1, after.1);
}

/// Megabytes and open files of a server.
fn taken(node: &Tidegate) -> (f64, usize) {
    let id = node.process.child.id();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let megabytes = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
    (megabytes, std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count())
}

#[test]
fn a_slow_redis_keeps_nobody_waiting() {
    let redis = Server::start(&Setup::default());
    let proxy = proxy(redis.port);
    check(proxy.port, |ill| proxy.set(if ill { Mode::Delay(Duration::from_millis(200)) } else { Mode::Pass }));
}

#[test]
fn a_redis_that_hangs_keeps_nobody_waiting() {
    let redis = Server::start(&Setup::default());
    check(redis.port, |ill| if ill { redis.hang() } else { redis.go_on() });
}
