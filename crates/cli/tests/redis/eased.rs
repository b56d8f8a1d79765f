//! Rules that ask Redis less often than they are asked: on a slice of the limit, or after the answer.

use crate::ask::{Resp, Said};
use crate::exact::passed;
use crate::fleet::{Fleet, PATIENT, admin, charged, check, shared};
use crate::layouts::scripts;

use Said::{Denied, Failed, Passed};
use tidegate_testkit::servers::{Cluster, Sentinels, Server, Setup};
use tidegate_testkit::wait::eventually;

/// Units of a limit of which none comes back meanwhile.
const LIMIT: u64 = 20_000;
const TRIES: usize = 5_000;

/// Eight clients of two servers want twice as much as there is.
fn spend_leased(url: &str, calls: impl Fn() -> u64) {
    for algorithm in ["gcra", "fixed_window"] {
        let limit = format!("{{algorithm: {algorithm}, rate: {LIMIT}/30d}}");
        let rule = format!(
            "name: {algorithm}, key: {{entry: user}}, limit: {limit}, consistency: leased, on_store_failure: deny"
        );
        let fleet = Fleet::start(2, &shared(&format!("{url}?{PATIENT}"), &[&rule]));
        let before = calls();
        let passed = passed(|number| {
            Resp::open(fleet.node(number).resp).passed(&format!("TIDEGATE.CHECK api user {algorithm}"), TRIES)
        });
        let calls = calls() - before;
        println!("{algorithm}: {passed} of {LIMIT} passed, {calls} calls");
        assert!(passed <= LIMIT, "{algorithm}: {passed} of {LIMIT} passed");
        assert!(passed >= LIMIT * 99 / 100, "{algorithm}: {passed} of {LIMIT} passed");
        assert!(calls * 20 < LIMIT, "{algorithm}: {calls} calls for {LIMIT} units");
    }
}

#[test]
fn nodes_spend_slices_of_a_limit_and_no_more() {
    let redis = Server::start(&Setup::default());
    spend_leased(&format!("redis://127.0.0.1:{}", redis.port), || scripts(&redis));
}

#[test]
fn nodes_spend_slices_of_a_limit_on_a_cluster_too() {
    let cluster = Cluster::start(5_000);
    let calls = || cluster.nodes.iter().map(scripts).sum();
    spend_leased(&format!("redis+cluster://{}", cluster.hosts()), calls);
}

#[test]
fn nodes_spend_slices_of_a_limit_behind_sentinels_too() {
    let trio = Sentinels::start();
    let calls = || [&trio.first, &trio.second].into_iter().map(scripts).sum();
    spend_leased(&format!("redis+sentinel://{}/tide", trio.hosts()), calls);
}

#[test]
fn what_is_granted_comes_not_on_top_of_what_is_held() {
    let redis = Server::start(&Setup::default());
    let rule = "name: sliced, key: {entry: user}, limit: 1000/30d, consistency: leased, on_store_failure: deny";
    let fleet = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &[rule]));
    let passed = |times| Resp::open(fleet.node(0).resp).passed("TIDEGATE.CHECK api user ann", times);
    assert_eq!(passed(300), 300);
    let told = admin(fleet.node(0), "grant", ("user", "ann"), r#","units":100000"#);
    assert_eq!(told.status, 200, "{told:?}");
    let after = passed(2_000);
    assert!((990..=1_000).contains(&after), "{after} pass of a limit that is whole again");
}

#[test]
fn nodes_that_count_by_themselves_hear_of_each_other() {
    let redis = Server::start(&Setup::default());
    let rule = "name: edge, key: {entry: user}, limit: 100/30d, consistency: async, on_store_failure: deny";
    let fleet = Fleet::start(2, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &[rule]));
    let passed = |number: usize| Resp::open(fleet.node(number).resp).passed("TIDEGATE.CHECK api user ann", 150);
    assert_eq!(passed(0), 100, "nobody else asks");
    assert!(eventually(|| check(fleet.node(1), ("user", "ann")) == Denied), "the other node never hears of it");
    assert!(passed(1) == 0 && passed(0) == 0);
    assert_eq!(charged(fleet.node(1), ("user", "ann")), 100);
    let calls = scripts(&redis);
    assert!(calls < 100, "{calls} calls for 450 questions");
}

#[test]
fn who_counts_alone_for_too_long_does_as_its_rule_chose() {
    let redis = Server::start(&Setup::default());
    let rules = [
        "name: shut, key: {entry: shut}, limit: 1000/30d, consistency: async, on_store_failure: deny",
        "name: open, key: {entry: open}, limit: 1/30d, consistency: async, on_store_failure: allow",
    ];
    let fleet = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &rules));
    let ask = |entry| check(fleet.node(0), (entry, "ann"));
    assert_eq!([ask("shut"), ask("open"), ask("open")], [Passed, Passed, Denied]);
    redis.kill();
    assert_eq!([ask("shut"), ask("open")], [Passed, Denied], "for a while it goes on as if nothing had happened");
    assert!(eventually(|| ask("shut") == Failed), "it never notices");
    assert!(eventually(|| ask("open") == Passed), "it never notices");
    redis.run();
    assert!(eventually(|| ask("shut") == Passed), "it does not recover");
}
