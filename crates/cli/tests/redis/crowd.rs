//! The heaviest keys and the blocks in force over all nodes of a shared store, as any of them shows it.

use serde_json::{Value, json};
use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::tidegate::Tidegate;

use crate::ask::Said::{Denied, Passed};
use crate::fleet::{Fleet, admin, check, shared, sleep_millis};

const RULE: &str = "name: per-user, key: {entry: user}, limit: 5/30d, on_store_failure: allow";

fn fleet(redis: &Server) -> Fleet {
    Fleet::start(2, &shared(&format!("redis://127.0.0.1:{}", redis.port), &[RULE]))
}

/// Returns the answer of a node as soon as it is right, within the time that the exchange between nodes takes.
fn ask_until(node: &Tidegate, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let mut answer = Value::Null;
    for _ in 0..200 {
        let response = node.get(path);
        assert_eq!(response.status, 200, "{response:?}");
        answer = serde_json::from_str(&response.body).unwrap();
        if is_right(&answer) {
            return answer;
        }
        sleep_millis(100);
    }
    panic!("{path}: {answer:#}");
}

fn key(user: &str) -> Value {
    json!([{"part": "entry:user", "value": user}])
}

#[test]
fn every_node_shows_the_heaviest_keys_of_all() {
    let redis = Server::start(&Setup::default());
    let fleet = fleet(&redis);
    for (user, times) in [("ann", 6), ("bob", 3), ("eve", 1)] {
        for number in 0..times {
            check(fleet.node(number), ("user", user));
        }
    }
    for node in &fleet.nodes {
        let is_whole =
            |answer: &Value| answer["rules"][0]["requests"] == 10 && answer["nodes"].as_array().unwrap().len() == 2;
        let answer = ask_until(node, "/v1/top?window=hour", is_whole);
        let rule = &answer["rules"][0];
        assert_eq!((&rule["domain"], &rule["rule"], &rule["denials"]), (&json!("api"), &json!("per-user"), &json!(1)));
        let keys: Vec<(&Value, u64, u64)> = rule["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|answer| (&answer["key"], answer["requests"].as_u64().unwrap(), answer["denials"].as_u64().unwrap()))
            .collect();
        assert_eq!(keys, [(&key("ann"), 6, 1), (&key("bob"), 3, 0), (&key("eve"), 1, 0)]);
        assert_eq!(rule["keys"][0]["share"], 0.6);
        assert_eq!(answer["partial"], false);
        let ages: Vec<u64> =
            answer["nodes"].as_array().unwrap().iter().map(|node| node["age_ms"].as_u64().unwrap()).collect();
        assert_eq!((ages[0], answer["as_of_ms"].as_u64()), (0, ages.iter().max().copied()), "{answer}");
        assert!(ages[1] <= 16_000, "{answer}");
    }
}

#[test]
fn a_block_is_seen_on_every_node_and_holds_while_redis_is_away() {
    let redis = Server::start(&Setup::default());
    let fleet = fleet(&redis);
    let [here, there] = [0, 1].map(|number| fleet.node(number));
    assert_eq!(check(there, ("user", "bob")), Passed);
    let done = admin(here, "block", ("user", "ann"), r#","duration":"1h""#);
    assert_eq!(done.status, 200, "{done:?}");
    let blocks = |node| {
        ask_until(node, "/v1/blocks", |answer| answer["blocks"].as_array().unwrap().len() == 1)["blocks"][0].clone()
    };
    let [seen_here, seen_there] = [here, there].map(blocks);
    for seen in [&seen_here, &seen_there] {
        assert_eq!(
            (&seen["rule"], &seen["key"], &seen["set_by"]),
            (&json!("per-user"), &key("ann"), &json!("operator"))
        );
        assert_eq!(seen["operator"], json!({"via": "http", "address": "127.0.0.1"}));
        let left = seen["left_ns"].as_u64().unwrap();
        assert!((3_500_000_000_000..=3_600_000_000_000).contains(&left), "{seen}");
    }
    assert_eq!(seen_here["node"], seen_there["node"]);
    redis.kill();
    for node in [here, there] {
        assert_eq!(check(node, ("user", "ann")), Denied, "it holds");
        assert_eq!(check(node, ("user", "bob")), Passed, "others pass, as the rule says");
    }
    let still = ask_until(there, "/v1/blocks", |_| true);
    assert_eq!(still["blocks"][0]["key"], key("ann"));
    let partial = ask_until(there, "/v1/top", |answer| answer["partial"] == true);
    assert_eq!(partial["rules"][0]["rule"], "per-user");
}

#[test]
fn what_is_lifted_on_one_node_is_listed_on_none() {
    let redis = Server::start(&Setup::default());
    let rule = RULE.replace("limit: 5/30d", "limit: 5/30d, penalty: 1h");
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let fleet = Fleet::start(2, &shared(&url, &[&rule]));
    for number in 0..6 {
        check(fleet.node(number), ("user", "ann"));
    }
    let listed = |count: usize| {
        for node in &fleet.nodes {
            ask_until(node, "/v1/blocks?rule=per-user", |answer| answer["blocks"].as_array().unwrap().len() == count);
        }
    };
    listed(1);
    let seen = ask_until(fleet.node(0), "/v1/blocks", |_| true);
    assert_eq!(seen["blocks"][0]["set_by"], "penalty", "{seen}");
    for number in [0, 1] {
        // The sixth request was on the second node: once it is lifted there, once on the other one.
        assert_eq!(admin(fleet.node(number), "reset", ("user", "ann"), "").status, 200);
        listed(0);
        while check(fleet.node(1), ("user", "ann")) == Passed {}
        listed(1);
    }
}
