//! Redis is away for some seconds, under load: each node goes on from the last state it knows, and debits what it admitted
//! when Redis is back.

use std::time::Duration;

use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::wait::eventually;
use tokio::time::Instant;

use crate::ask::Said;
use crate::fleet::{Fleet, charged, check, inspect, shared, sleep_millis};
use crate::load::{Answers, during};

const LIMIT: u64 = 1_000;
const WINDOW: &str = "{algorithm: fixed_window, rate: 1000/30d}";
const BUCKET: &str = "{algorithm: gcra, rate: 1000/100s}";
/// Units of the bucket that come back in a second.
const BUCKET_RATE: u64 = 10;
/// How long Redis is away.
const AWAY: u64 = 3_000;
/// By then every node has debited what it let pass.
const SETTLED: u64 = 3_000;
/// What a call may take by default. Whoever finds Redis away is answered then.
const BUDGET: Duration = Duration::from_millis(10);
/// So much longer than from a Redis that is well one answer in a hundred may take, on a machine that does other things too.
const HELD_UP: Duration = Duration::from_millis(50);
/// So much longer than from a Redis that is well any answer may take.
const HELD_UP_MOST: Duration = Duration::from_millis(250);
const CLIENTS: usize = 8;
const USER: (&str, &str) = ("user", "one");

/// How often each outage is repeated: `make soak` says more than once.
fn repeats() -> usize {
    std::env::var("TIDEGATE_OUTAGE_REPEATS").map_or(1, |repeats| repeats.parse().unwrap())
}

/// What is taken away, and from whom.
#[derive(Clone, Copy)]
struct Case {
    nodes: usize,
    limit: &'static str,
    /// Further fields of the rule.
    fields: &'static str,
    /// Units that pass before.
    before: u64,
    /// How long Redis is away, in milliseconds.
    away: u64,
}

/// Two nodes under an exact window.
const TWO: Case = Case { nodes: 2, limit: WINDOW, fields: "", before: 400, away: AWAY };
/// Four of them.
const FOUR: Case = Case { nodes: 4, before: 600, ..TWO };

impl Case {
    fn is_exact(&self) -> bool {
        !self.fields.contains("consistency")
    }

    fn has_shares(&self) -> bool {
        self.fields.contains("share")
    }

    /// Units that Redis takes at most when it goes on, for calls whose callers were answered without it: one for each
    /// client, and a slice for each node.
    fn taken_for_nobody(&self) -> u64 {
        let slices = if self.fields.contains("leased") { self.nodes as u64 * LIMIT / 4 } else { 0 };
        CLIENTS as u64 + slices
    }

    /// Units that come back in a time: of a bucket, at most on each node.
    fn comes_back(&self, time: Duration) -> u64 {
        if self.limit == BUCKET { BUCKET_RATE * (time.as_secs() + 1) } else { 0 }
    }
}

/// Nodes on one Redis under one rule.
struct Outage {
    redis: Server,
    fleet: Fleet,
    is_bucket: bool,
    began: Instant,
    /// For each node, how much of the limit was used by the last state it knows, at least.
    known: Vec<u64>,
}

impl Outage {
    /// Starts nodes with default settings, and lets one request after the other pass, on each node in turn.
    fn begin(case: &Case) -> Outage {
        let Case { nodes, limit, fields, before, .. } = *case;
        let redis = Server::start(&Setup::default());
        redis.prioritise();
        let url = format!("redis://127.0.0.1:{}", redis.port);
        let rule = format!("name: per-user, key: {{entry: user}}, limit: {limit}{fields}");
        let fleet = Fleet::start(nodes, &shared(&url, &[&rule]));
        let mut known = vec![0; nodes];
        assert_eq!(charged(fleet.node(0), USER), 0);
        let began = Instant::now();
        for (used, node) in (1..=before).zip((0..nodes).cycle()) {
            assert_eq!(check(fleet.node(node), USER), Said::Passed);
            // Who does not ask each time knows at least of its own.
            known[node] = if case.is_exact() { used } else { known[node] + 1 };
        }
        let outage = Outage { redis, fleet, is_bucket: limit == BUCKET, began, known };
        if before > 0 {
            let least = before - case.comes_back(began.elapsed()).min(before);
            assert!(eventually(|| outage.counted() >= least), "all of it is counted by Redis: {}", outage.counted());
            assert!(!case.is_exact() || outage.counted() <= before, "no more is counted: {}", outage.counted());
        }
        outage
    }

    /// Stops Redis under load, resumes it, and returns the answers during the outage and after it.
    fn happen(&self, millis: u64) -> (Answers, Answers) {
        let (answers, (away, back)) = during(
            &self.fleet,
            CLIENTS,
            |_| (USER.0, USER.1.to_owned()),
            || {
                let away = Instant::now();
                self.redis.hang();
                sleep_millis(millis);
                let back = Instant::now();
                self.redis.go_on();
                sleep_millis(SETTLED);
                (away, back)
            },
        );
        let end = Instant::now();
        println!("during the outage: {}", answers.between(away, back).told());
        println!("after the outage: {}", answers.between(back, end).told());
        (answers.between(away, back), answers.between(back, end))
    }

    /// The units in Redis, also those beyond the limit, which no answer shows.
    fn counted(&self) -> u64 {
        let names = self.redis.command("KEYS *one*");
        let state = self.redis.command(&format!("GET {}", names.lines().next().unwrap_or_default()));
        let state = state.trim();
        if self.is_bucket {
            let time = self.redis.command("TIME");
            let mut parts = time.split_whitespace().map(|part| part.parse::<u64>().unwrap());
            let now = parts.next().unwrap() * 1_000_000_000 + parts.next().unwrap() * 1_000;
            return state.parse::<u64>().unwrap().saturating_sub(now).div_ceil(1_000_000_000 / BUCKET_RATE);
        }
        // The end of a window has eleven digits behind its units.
        state[..state.len() - 11].parse().unwrap()
    }

    /// The calls of which no node knows whether Redis made them.
    fn unknown_calls(&self) -> f64 {
        let series = r#"tidegate_store_calls_total{store="shared",result="unknown"}"#;
        self.fleet.nodes.iter().filter_map(|node| node.metric(series)).sum()
    }

    /// The charges that nodes decided without Redis.
    fn decided_away(&self) -> f64 {
        let series = r#"tidegate_store_away_charges_total{store="shared",last_state="known"}"#;
        self.fleet.nodes.iter().filter_map(|node| node.metric(series)).sum()
    }
}

/// Checks how much passes in an outage: at least `least`, and at most what `most` makes of the states that the nodes know.
fn check_outage(case: &Case, most: impl Fn(&[u64]) -> u64, least: u64) {
    for _ in 0..repeats() {
        check_one(case, &most, least);
    }
}

fn check_one(case: &Case, most: &impl Fn(&[u64]) -> u64, least: u64) {
    let outage = Outage::begin(case);
    if case.fields.contains("auto") {
        wait_for_nodes(&outage.fleet, case.nodes);
    }
    let (away, afterwards) = outage.happen(case.away);
    let came_back = case.comes_back(outage.began.elapsed());
    let most = most(&outage.known) + case.nodes as u64 * came_back;
    let (passed, late) = (away.count(Said::Passed), afterwards.count(Said::Passed));
    println!(
        "{} nodes{}: known states {:?}; {passed} passed during and {late} after the outage, of at most {most}",
        case.nodes, case.fields, outage.known
    );
    assert!(passed <= most, "{passed} passed, at most {most} may");
    // Under shares something may be left when Redis is back. Who has debited what it let pass may get that before the others
    // have debited theirs.
    let left = if case.has_shares() { LIMIT + came_back - case.before } else { most - passed };
    assert!(late <= left, "{passed} and {late} passed, at most {most} and {left} may");
    assert!(passed >= least, "only {passed} passed");
    assert_eq!(away.count(Said::Failed), 0, "a local limit decides");
    assert!(away.took(990) <= BUDGET + HELD_UP + afterwards.took(990), "{}", away.told());
    assert!(away.took(1_000) <= BUDGET + HELD_UP_MOST + afterwards.took(1_000), "{}", away.told());
    assert!(outage.decided_away() > 0.0);
    // What was sent without an answer is counted by Redis when it goes on, unless it is lost with its connection; what was
    // not sent is debited, up to twice the limit.
    let (counted, unknown) = (outage.counted(), outage.unknown_calls());
    let all = case.before + passed + late;
    println!("Redis counts {counted} of {all}; {unknown} calls with an unknown result, {came_back} units refilled");
    let least = all.min(2 * LIMIT).saturating_sub(came_back) as f64 - unknown;
    assert!(counted as f64 >= least, "Redis counts {counted} of {all}, {unknown} unknown");
    // A call without an answer may be made late, for a request that the node has denied by then.
    let most = (all + case.taken_for_nobody()) as f64 + unknown;
    assert!(counted as f64 <= most, "charged twice: {counted} of {all}, {unknown} unknown");
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
fn left_to_each(known: &[u64]) -> u64 {
    known.iter().map(|known| LIMIT - known).sum()
}

/// What is left to each node of one of so many parts of the limit.
fn left_of_parts(parts: u64) -> impl Fn(&[u64]) -> u64 {
    move |known| known.iter().map(|known| LIMIT / parts - known.div_ceil(parts)).sum()
}

#[test]
fn two_nodes_go_on_from_the_last_state_they_know() {
    check_outage(&TWO, left_to_each, LIMIT - 400);
}

#[test]
fn four_nodes_go_on_from_the_last_state_they_know() {
    check_outage(&FOUR, left_to_each, LIMIT - 600);
}

#[test]
fn a_bucket_goes_on_too_and_what_comes_back_comes_back_on_each_node() {
    check_outage(&Case { limit: BUCKET, ..TWO }, left_to_each, LIMIT - 400);
}

#[test]
fn what_is_leased_is_spent_and_then_nodes_go_on() {
    // What one node holds when Redis goes away counts as used for the other.
    let case = Case { fields: ", consistency: leased", ..TWO };
    check_outage(&case, left_to_each, LIMIT / 2);
}

#[test]
fn nodes_that_count_after_the_answer_go_on_from_their_copies() {
    // For three seconds they decide on these as before.
    let case = Case { fields: ", consistency: async", away: AWAY + 2_000, ..TWO };
    check_outage(&case, left_to_each, LIMIT - 400);
}

#[test]
fn with_shares_two_nodes_let_about_the_limit_pass() {
    // Each a half of what is left, by what it knows.
    let case = Case { fields: ", on_store_failure: {local: {share: auto}}", ..TWO };
    check_outage(&case, left_of_parts(2), 590);
}

#[test]
fn with_shares_four_nodes_let_about_the_limit_pass() {
    let case = Case { fields: ", on_store_failure: {local: {share: auto}}", ..FOUR };
    check_outage(&case, left_of_parts(4), 390);
}

#[test]
fn a_share_by_hand_holds_too() {
    let case = Case { fields: ", on_store_failure: {local: {share: 1/4}}", ..TWO };
    check_outage(&case, left_of_parts(4), 290);
}

#[test]
fn each_window_that_begins_in_an_outage_adds_the_limit_for_each_node() {
    const SECONDS: u64 = 5;
    let case = Case { limit: "{algorithm: fixed_window, rate: 1000/5s}", before: 0, ..TWO };
    let outage = Outage::begin(&case);
    // Redis goes away two seconds before a window ends, and comes back in the next.
    let seconds = || outage.redis.command("TIME").split(' ').next().unwrap().parse::<u64>().unwrap();
    while seconds() % SECONDS != 3 {
        sleep_millis(20);
    }
    let (away, _) = outage.happen(AWAY);
    // Nothing was known of the first window, and nothing of the next.
    let (passed, most) = (away.count(Said::Passed), 2 * 2 * LIMIT);
    println!("{passed} passed of at most {most}");
    assert!(passed <= most && passed > 0, "{passed}");
}

#[test]
fn penalties_that_a_node_has_seen_hold() {
    let redis = Server::start(&Setup::default());
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let fleet = Fleet::start(1, &shared(&url, &["name: strict, key: {entry: user}, limit: 1/hour, penalty: 10m"]));
    let node = fleet.node(0);
    while check(node, USER) != Said::Denied {}
    assert!(!inspect(node, USER)["penalised_ns"].is_null(), "{}", inspect(node, USER));
    sleep_millis(1_200);
    assert_eq!(check(node, USER), Said::Denied);
    redis.hang();
    for _ in 0..3 {
        let answer = tidegate_testkit::http::ask(node.http, "POST", "/v1/check", &[], &crate::fleet::body(&[USER], ""));
        assert!(answer.body.contains("penalised"), "{answer:?}");
    }
    redis.go_on();
}
