//! What happens on one node is seen on the others.

use crate::ask::Said;
use crate::fleet::{Fleet, PATIENT, admin, check, inspect, shared, sleep_millis};

use Said::{Denied, Passed};
use tidegate_testkit::servers::{Server, Setup};

/// By then every node knows.
const KNOWN_MILLIS: u64 = 1_000;

fn fleet(redis: &Server, rules: &[&str]) -> Fleet {
    Fleet::start(2, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), rules))
}

#[test]
fn administrators_reach_all_nodes_through_one() {
    let redis = Server::start(&Setup::default());
    let fleet = fleet(&redis, &["name: per-user, key: {entry: user}, limit: 3/30d"]);
    let [here, there] = [0, 1].map(|number| fleet.node(number));
    let ann = ("user", "ann");
    assert_eq!([(); 2].map(|()| check(there, ann)), [Passed; 2]);
    let done = |call: &str, further: &str| {
        let told = admin(here, call, ann, further);
        assert_eq!((told.status, told.body.trim()), (200, r#"{"limits":1}"#), "{call}");
    };
    done("block", r#","duration":"1h""#);
    sleep_millis(KNOWN_MILLIS);
    assert_eq!(check(there, ann), Denied, "it is blocked");
    assert_eq!(check(there, ("user", "bob")), Passed, "others are not");
    let left = inspect(there, ann)["penalised_ns"].as_u64().unwrap();
    assert!((3_500_000_000_000..=3_600_000_000_000).contains(&left), "{left}");
    done("reset", "");
    sleep_millis(KNOWN_MILLIS);
    assert_eq!([(); 4].map(|()| check(there, ann)), [Passed, Passed, Passed, Denied], "all is forgotten");
    done("grant", r#","units":2"#);
    sleep_millis(KNOWN_MILLIS);
    assert_eq!([(); 3].map(|()| check(there, ann)), [Passed, Passed, Denied], "two came back");
    done("grant", r#","units":1"#);
    done("block", r#","duration":"1h""#);
    sleep_millis(KNOWN_MILLIS);
    assert_eq!(check(there, ann), Denied, "it is blocked again");
    let told = admin(here, "unblock", ann, "");
    assert_eq!((told.status, told.body.trim()), (200, r#"{"limits":1,"lifted":1}"#));
    sleep_millis(KNOWN_MILLIS);
    assert_eq!([(); 2].map(|()| check(there, ann)), [Passed, Denied], "the block is lifted, the count is not");
}

#[test]
fn a_short_block_ends_no_long_one() {
    let redis = Server::start(&Setup::default());
    let fleet = fleet(&redis, &["name: per-user, key: {entry: user}, limit: 100/30d"]);
    let block = |number: usize, user: &str, length: &str| {
        let told = admin(fleet.node(number), "block", ("user", user), &format!(r#","duration":"{length}""#));
        assert_eq!(told.status, 200, "{told:?}");
    };
    // Both look before either of them writes, now and then.
    for round in 0..20 {
        let (long, short) = (format!("long{round}"), format!("short{round}"));
        std::thread::scope(|scope| {
            scope.spawn(|| block(0, &long, "1h"));
            scope.spawn(|| block(1, &short, "1s"));
        });
        let left: i64 = redis.command("TTL tidegate{}/any_block:b").parse().unwrap();
        assert!(left > 3_000, "round {round}: nodes look for blocks for {left} s only");
        redis.command("FLUSHALL");
    }
}

#[test]
fn penalties_hold_on_all_nodes() {
    let redis = Server::start(&Setup::default());
    let rule = "name: strict, key: {entry: user}, penalty: 1h, limit: {algorithm: fixed_window, rate: 3/1s}";
    let fleet = fleet(&redis, &[rule]);
    let ann = ("user", "ann");
    let denied = (0..100).any(|number| check(fleet.node(number), ann) == Denied);
    assert!(denied, "more than three in a second");
    sleep_millis(1_100);
    for node in &fleet.nodes {
        assert_eq!(check(node, ann), Denied, "its window is over, its penalty is not");
        let left = inspect(node, ann)["penalised_ns"].as_u64().unwrap();
        assert!((3_500_000_000_000..=3_600_000_000_000).contains(&left), "{left}");
    }
}

#[test]
fn the_entries_of_a_log_are_seen_on_all_nodes() {
    let redis = Server::start(&Setup::default());
    let fleet = fleet(&redis, &["name: logged, key: {entry: user}, limit: {algorithm: sliding_log, rate: 5/30d}"]);
    let ann = ("user", "ann");
    for number in 0..3 {
        assert_eq!(check(fleet.node(number), ann), Passed);
    }
    let [here, there] = [0, 1].map(|number| inspect(fleet.node(number), ann)["limits"][0].clone());
    assert_eq!(here["entries"], there["entries"]);
    assert_eq!(there["entries"].as_array().unwrap().len(), 3, "{there}");
    assert_eq!(there["remaining"], 2);
}
