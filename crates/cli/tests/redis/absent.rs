//! A server starts while Redis is absent, serves as its rules say, and finds Redis when it comes.

use crate::ask::{Resp, Said};
use crate::fleet::{Fleet, PATIENT, admin, charged, check, shared};

use Said::{Denied, Failed, Passed};
use tidegate_testkit::http;
use tidegate_testkit::process::directory;
use tidegate_testkit::servers::{Certificates, Server, Setup};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

#[test]
fn rules_choose_what_happens_until_redis_comes() {
    let redis = Server::prepare(&Setup::default());
    let url = format!("redis://127.0.0.1:{}?{PATIENT}", redis.port);
    let rules = [
        "name: open, key: {entry: open}, on_store_failure: allow, limit: 1/30d",
        "name: shut, key: {entry: shut}, on_store_failure: deny, limit: 1/30d",
        "name: local, key: {entry: local}, on_store_failure: {local: 2/30d}, limit: 1/30d",
        "name: silent, key: {entry: silent}, limit: 1/30d",
    ];
    let fleet = Fleet::start(2, &shared(&url, &rules));
    for node in &fleet.nodes {
        let thrice = |entry: &'static str| [(); 3].map(|()| check(node, (entry, "ann")));
        assert_eq!(thrice("open"), [Passed; 3]);
        assert_eq!(thrice("shut"), [Failed; 3]);
        assert_eq!(thrice("local"), [Passed, Passed, Denied], "the limit of the rule's choice");
        assert_eq!(thrice("silent"), [Passed, Denied, Denied], "the same limit in each process");
        assert_eq!(node.get("/readyz").status, 200);
        let log = node.process.log();
        assert!(log.contains("cannot connect to the store") && log.contains(&redis.port.to_string()), "{log}");
    }
    redis.run();
    for node in &fleet.nodes {
        assert!(eventually(|| check(node, ("shut", "probe")) != Failed), "Redis came and nobody noticed");
    }
    let [first, second] = [0, 1].map(|number| fleet.node(number));
    // What its own limit admitted without Redis is owed to it; nothing that another choice let pass is.
    let is_charged = || [first, second].map(|node| check(node, ("silent", "ann"))) == [Denied; 2];
    assert!(
        is_charged() && eventually(|| charged(second, ("silent", "ann")) == 1),
        "what passed meanwhile was charged"
    );
    for entry in ["open", "shut", "local"] {
        assert_eq!(check(first, (entry, "ann")), Passed, "{entry}: nothing that passed meanwhile was charged");
        assert_eq!(check(second, (entry, "ann")), Denied, "{entry}: now they share their counts");
        assert_eq!(charged(second, (entry, "ann")), 1, "{entry}");
    }
}

#[test]
fn administrators_are_told_that_nothing_was_done() {
    let redis = Server::prepare(&Setup::default());
    let node = Tidegate::start(&["--store", &format!("redis://127.0.0.1:{}?{PATIENT}", redis.port)]);
    let post = |path: &str, body: &str| http::ask(node.http, "POST", path, &[], body).status;
    let key = r#"{"key":"ann","limit":"5/30d"}"#;
    assert_eq!(post("/v1/check", key), 200, "decided here");
    assert_eq!(post("/v1/reset", key), 503);
    assert_eq!(post("/v1/grant", r#"{"key":"ann","limit":"5/30d","units":1}"#), 503);
    for command in ["DEL ann", "EXISTS ann", "TTL ann"] {
        let said = Resp::open(node.resp).said(command);
        assert!(said.starts_with("-ERR") && said.contains("no answer"), "{command}: {said}");
    }
}

#[test]
fn who_asks_first_finds_redis_connected() {
    let directory = directory();
    let certificates = Certificates::make(directory.path());
    let redis = Server::start(&Setup { tls: Some(&certificates), ..Setup::default() });
    let store = format!("rediss://localhost:{}?timeout=5ms&ca={}", redis.tls_port, certificates.authority.display());
    for number in 0..5 {
        let node = Tidegate::start(&["--store", &store]);
        assert!(eventually(|| node.get("/readyz").status == 200));
        Resp::open(node.resp).passed(&format!("CL.THROTTLE key{number} 4 5 2592000"), 1);
        let failed = "not sent: no connection: still connecting";
        assert!(!node.process.log().contains(failed), "{}", node.process.log());
    }
}

#[test]
fn responses_count_where_the_limit_is_judged_meanwhile() {
    let redis = Server::prepare(&Setup::default());
    let rule = "name: guesses, key: {entry: guess}, count: response.status == 401, limit: 2/30d";
    let fleet = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &[rule]));
    let guess = || {
        let said = check(fleet.node(0), ("guess", "ann"));
        let told = admin(fleet.node(0), "report", ("guess", "ann"), r#","response":{"status":401}"#);
        assert_eq!(told.status, 200, "{told:?}");
        said
    };
    assert_eq!([(); 4].map(|()| guess()), [Passed, Passed, Denied, Denied]);
}

#[test]
fn throttled_commands_are_decided_here_until_redis_comes() {
    let redis = Server::prepare(&Setup::default());
    let nodes = [(); 2].map(|()| Tidegate::start(&["--store", &format!("redis://127.0.0.1:{}?{PATIENT}", redis.port)]));
    let passed =
        |number: usize, key: &str| Resp::open(nodes[number].resp).passed(&format!("CL.THROTTLE {key} 4 5 2592000"), 10);
    assert_eq!([passed(0, "ann"), passed(1, "ann")], [5, 5], "each by itself");
    redis.run();
    let mut tries = 0;
    let together = eventually(|| {
        tries += 1;
        let probe = format!("probe-{tries}");
        [passed(0, &probe), passed(1, &probe)] == [5, 0]
    });
    assert!(together, "Redis came and nobody noticed");
    assert_eq!([passed(0, "bob"), passed(1, "bob")], [5, 0], "and they stay together");
}

/// Answers and the decision log say where a limit of a caller was decided, if the store did not.
#[test]
fn callers_are_told_that_the_node_decided_by_itself() {
    let redis = Server::prepare(&Setup::default());
    let place = directory();
    let log = place.path().join("decisions.jsonl");
    let store = format!("redis://127.0.0.1:{}?{PATIENT}", redis.port);
    let mut node = Tidegate::start(&["--store", &store, "--decision-log", log.to_str().unwrap()]);
    let questions = [
        ("/v1/check", r#"{"key":"ann","limit":"5/30d"}"#),
        ("/v1/check", r#"[{"key":"ann","limit":"5/30d"},{"key":"ben","limit":"5/30d"}]"#),
        (
            "/v1/check",
            r#"{"key":"cat","limit":{"algorithm":"leaky_bucket","rate":"1/minute","capacity":3},"wait":"5m"}"#,
        ),
        ("/v1/permits", r#"{"key":"dan","limit":1,"lease":"1h"}"#),
    ];
    let said = |node: &Tidegate, (path, body): (&str, &str)| {
        let answer = http::ask(node.http, "POST", path, &[], body);
        let told: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert!([200, 201].contains(&answer.status), "{answer:?}");
        told["local"].as_bool()
    };
    for question in questions {
        assert_eq!(said(&node, question), Some(true), "{question:?}");
    }
    redis.run();
    let other = |key: &str| format!(r#"{{"key":"{key}","limit":"5000/30d"}}"#);
    assert!(eventually(|| said(&node, ("/v1/check", &other("eve"))).is_none()), "Redis came and nobody noticed");
    assert_eq!(said(&node, ("/v1/check", &other("fay"))), None);
    node.process.signal(rustix::process::Signal::TERM);
    assert!(node.process.ended().success());
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[..questions.len()].iter().all(|line| line["local"] == true), "{text}");
    assert!(lines.last().unwrap()["local"].is_null(), "{text}");
}
