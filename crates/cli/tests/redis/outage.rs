//! Redis is away for some seconds, under load: each node goes on from the last state it knows, and debits what it admitted
//! when Redis is back.

use std::time::Duration;

use tidegate_testkit::servers::{Server, Setup};
use tokio::time::Instant;

use crate::ask::Said;
use crate::fleet::{Fleet, charged, check, inspect, shared, sleep_millis};
use crate::load::{Answers, during};

const LIMIT: u64 = 1_000;
/// How long Redis is away.
const AWAY: u64 = 3_000;
/// By then every node has debited what it let pass.
const SETTLED: u64 = 3_000;
const USER: (&str, &str) = ("user", "one");

/// Nodes on one Redis under one rule.
struct Outage {
    redis: Server,
    fleet: Fleet,
    /// For each node, how much of the limit was used by the last state it knows.
    known: Vec<u64>,
}

impl Outage {
    /// Starts nodes, and lets one request after the other pass, on each node in turn.
    fn begin(nodes: usize, limit: &str, failure: &str, before: u64) -> Outage {
        let redis = Server::start(&Setup::default());
        redis.prioritise();
        let url = format!("redis://127.0.0.1:{}?timeout=30ms", redis.port);
        let rule = format!("name: per-user, key: {{entry: user}}, limit: {limit}{failure}");
        let fleet = Fleet::start(nodes, &shared(&url, &[&rule]));
        let mut known = vec![0; nodes];
        let mut used = charged(fleet.node(0), USER);
        for node in (0..nodes).cycle().take(before.try_into().unwrap()) {
            assert_eq!(check(fleet.node(node), USER), Said::Passed);
            used += 1;
            known[node] = used;
        }
        assert_eq!(charged(fleet.node(0), USER), before, "all of it was counted by Redis");
        known[0] = before;
        Outage { redis, fleet, known }
    }

    /// Stops Redis under load, resumes it, and returns the answers during the outage and after it.
    fn happen(&self) -> (Answers, Answers) {
        let (answers, (away, back)) = during(
            &self.fleet,
            8,
            |_| (USER.0, USER.1.to_owned()),
            || {
                let away = Instant::now();
                self.redis.hang();
                sleep_millis(AWAY);
                let back = Instant::now();
                self.redis.go_on();
                sleep_millis(SETTLED);
                (away, back)
            },
        );
        let end = Instant::now();
        println!("away: {}", answers.between(away, back).told());
        println!("afterwards: {}", answers.between(back, end).told());
        (answers.between(away, back), answers.between(back, end))
    }
}

/// Checks how much passes in an outage after Redis admitted `before`: at least `least`, and at most what `most` makes of
/// the states that the nodes know.
fn check_outage(nodes: usize, failure: &str, before: u64, most: impl Fn(&[u64]) -> u64, least: u64) {
    let outage = Outage::begin(nodes, &format!("{{algorithm: fixed_window, rate: {LIMIT}/30d}}"), failure, before);
    if failure.contains("auto") {
        wait_for_nodes(&outage.fleet, nodes);
    }
    let (away, afterwards) = outage.happen();
    let most = most(&outage.known);
    let (passed, late) = (away.count(Said::Passed), afterwards.count(Said::Passed));
    println!("{nodes} nodes{failure}: known {:?}, {passed} and {late} passed of at most {most}", outage.known);
    assert!(passed + late <= most, "{passed} and {late} passed, at most {most} may");
    assert!(passed >= least, "only {passed} passed");
    assert_eq!(away.count(Said::Failed), 0, "a local limit decides");
    // What was sent without an answer is counted by Redis when it goes on, and what was not sent is debited.
    let counted = charged(outage.fleet.node(0), USER);
    assert!(counted >= LIMIT.min(before + passed), "Redis knows of {counted} of {before} and {passed}");
    let debt = outage.redis.command(&format!("GET {}", key_of(&outage.redis)));
    assert!(units(&debt) <= before + passed + late + 8, "charged twice: {debt}, {before}, {passed}, {late}");
    let away = outage
        .fleet
        .nodes
        .iter()
        .filter_map(|node| node.metric(r#"tidegate_store_away_charges_total{store="shared",last_state="known"}"#));
    assert!(away.sum::<f64>() > 0.0);
}

/// The name of the state of the user in Redis.
fn key_of(redis: &Server) -> String {
    let names = redis.command("KEYS *one*");
    names.lines().next().unwrap_or_default().to_owned()
}

/// The units of the state of a window, whose end has eleven digits behind them.
fn units(state: &str) -> u64 {
    let digits = state.trim();
    digits[..digits.len() - 11].parse().unwrap()
}

/// Waits until every node has counted all of them.
fn wait_for_nodes(fleet: &Fleet, nodes: usize) {
    for node in &fleet.nodes {
        let start = Instant::now();
        while node.metric(r#"tidegate_store_nodes{store="shared"}"#) != Some(nodes as f64) {
            assert!(start.elapsed() < Duration::from_secs(10), "a node does not count the others");
            sleep_millis(50);
        }
    }
}

/// What is left of a limit to each node, all together.
fn left_to_each(limit: u64, known: &[u64]) -> u64 {
    known.iter().map(|known| limit - known).sum()
}

#[test]
fn two_nodes_go_on_from_the_last_state_they_know() {
    check_outage(2, "", 400, |known| left_to_each(LIMIT, known), LIMIT - 400);
}

#[test]
fn four_nodes_go_on_from_the_last_state_they_know() {
    check_outage(4, "", 600, |known| left_to_each(LIMIT, known), LIMIT - 600);
}

#[test]
fn with_shares_two_nodes_let_about_the_limit_pass() {
    // Each a half of what is left, by what it knows.
    let most = |known: &[u64]| known.iter().map(|known| LIMIT / 2 - known.div_ceil(2)).sum();
    check_outage(2, ", on_store_failure: {local: {share: auto}}", 400, most, 590);
}

#[test]
fn with_shares_four_nodes_let_about_the_limit_pass() {
    let most = |known: &[u64]| known.iter().map(|known| LIMIT / 4 - known.div_ceil(4)).sum();
    check_outage(4, ", on_store_failure: {local: {share: auto}}", 600, most, 390);
}

#[test]
fn a_share_by_hand_holds_too() {
    let most = |known: &[u64]| known.iter().map(|known| LIMIT / 4 - known.div_ceil(4)).sum();
    check_outage(2, ", on_store_failure: {local: {share: 1/4}}", 400, most, 290);
}

#[test]
fn each_window_that_begins_in_an_outage_adds_the_limit_for_each_node() {
    const WINDOW: u64 = 5;
    let limit = format!("{{algorithm: fixed_window, rate: {LIMIT}/{WINDOW}s}}");
    let outage = Outage::begin(2, &limit, "", 0);
    // Redis goes away two seconds before a window ends, and comes back in the next.
    let seconds = || outage.redis.command("TIME").split(' ').next().unwrap().parse::<u64>().unwrap();
    while seconds() % WINDOW != 3 {
        sleep_millis(20);
    }
    let (away, _) = outage.happen();
    // Nothing was known of the first window, and nothing of the next.
    let (passed, most) = (away.count(Said::Passed), 2 * 2 * LIMIT);
    println!("{passed} passed of at most {most}");
    assert!(passed <= most && passed > 0, "{passed}");
}

#[test]
fn penalties_that_a_node_has_seen_hold() {
    let redis = Server::start(&Setup::default());
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let fleet = Fleet::start(1, &shared(&url, &["name: strict, key: {entry: user}, limit: 1/hour, for: 10m"]));
    let node = fleet.node(0);
    while check(node, USER) != Said::Denied {}
    assert!(!inspect(node, USER)["penalty"].is_null(), "{}", inspect(node, USER));
    sleep_millis(1_200);
    assert_eq!(check(node, USER), Said::Denied);
    redis.hang();
    for _ in 0..3 {
        let answer = tidegate_testkit::http::ask(node.http, "POST", "/v1/check", &[], &crate::fleet::body(&[USER], ""));
        assert!(answer.body.contains("penalised"), "{answer:?}");
    }
    redis.go_on();
}
