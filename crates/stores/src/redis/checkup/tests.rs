//! Servers that are made up, and what is said of them.

use super::facts::Facts;
use super::finding::{Notes, Severity, Topic};
use super::{Target, memory, persistence, replication, server};

use Severity::{Error, Ok as Fine, Warning};

/// What a judge says of these facts: how bad each topic is.
fn judged(info: &str, settings: &[(&str, &str)], judge: impl Fn(&Facts, &mut Notes)) -> Vec<(Topic, Severity)> {
    let mut notes = Notes::new(None);
    judge(&Facts::told(info, settings), &mut notes);
    for finding in &notes.findings {
        assert_eq!(finding.fix.is_some(), finding.severity > Fine, "{finding:?}");
    }
    notes.findings.iter().map(|finding| (finding.topic, finding.severity)).collect()
}

fn target(url: &str) -> Target {
    url.parse().unwrap()
}

#[test]
fn old_and_foreign_servers_are_reported() {
    for (info, severity) in [
        ("redis_version:6.0.0", Fine),
        ("redis_version:10.0.1", Fine),
        ("redis_version:5.0.14", Error),
        ("redis_version:7.2.4\r\nvalkey_version:9.0.0", Fine),
        ("redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0", Warning),
        ("redis_version:unstable", Warning),
    ] {
        let said = judged(info, &[], |facts, notes| assert!(server::judge(facts, &target("redis://h"), notes)));
        assert_eq!(said, [(Topic::Version, severity)], "{info}");
    }
}

#[test]
fn a_url_of_another_kind_of_server_ends_the_look() {
    for (mode, url, ends) in [
        ("standalone", "redis://h", false),
        ("sentinel", "redis://h", true),
        ("cluster", "redis://h", true),
        ("cluster", "redis+sentinel://h/n", true),
        ("cluster", "redis+cluster://h", false),
    ] {
        let info = format!("redis_version:7.0.0\r\nredis_mode:{mode}");
        let said = judged(&info, &[], |facts, notes| assert_eq!(server::judge(facts, &target(url), notes), !ends));
        assert_eq!(said.contains(&(Topic::Connection, Error)), ends, "{mode} {url}");
        // As Valkey calls it.
        let same = judged(&info.replace("redis_mode", "server_mode"), &[], |facts, notes| {
            server::judge(facts, &target(url), notes);
        });
        assert_eq!(same, said, "{mode} {url}");
    }
}

#[test]
fn connections_run_out() {
    for (connected, severity) in [(79, Fine), (80, Warning), (100, Warning)] {
        let info = format!("redis_version:7.0.0\r\nconnected_clients:{connected}\r\nmaxclients:100");
        let said = judged(&info, &[], |facts, notes| assert!(server::judge(facts, &target("redis://h"), notes)));
        assert_eq!(said[1..], [(Topic::Clients, severity)], "{connected}");
    }
}

#[test]
fn memory_fills_up_and_policies_evict() {
    for (used, limit, policy, evicted, expected) in [
        (50, 0, "noeviction", 0, (Warning, Fine)),
        (50, 0, "allkeys-lru", 0, (Warning, Warning)),
        (79, 100, "noeviction", 0, (Fine, Fine)),
        (80, 100, "volatile-ttl", 0, (Warning, Fine)),
        (80, 100, "volatile-ttl", 7, (Warning, Warning)),
        (100, 100, "noeviction", 0, (Error, Fine)),
        (10, 100, "allkeys-lru", 0, (Fine, Error)),
        (10, 100, "volatile-lru", 9, (Fine, Error)),
        // What replicas have not read yet is not counted.
        (200, 100, "noeviction", 0, (Error, Fine)),
    ] {
        let info = format!(
            "used_memory:{}\r\nmem_not_counted_for_evict:5\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\nevicted_keys:{evicted}",
            used + 5
        );
        let said = judged(&info, &[], memory::judge);
        let expected = [(Topic::Memory, expected.0), (Topic::Eviction, expected.1)];
        assert_eq!(said, expected, "{info}");
    }
    assert_eq!(judged("", &[], memory::judge), []);
}

#[test]
fn what_a_restart_forgets_and_a_disk_that_fails() {
    let rdb = ("save", "3600 1");
    for (info, settings, severities) in [
        ("aof_enabled:1", vec![], vec![Fine]),
        ("aof_enabled:1", vec![("appendfsync", "everysec")], vec![Fine]),
        ("aof_enabled:1", vec![("appendfsync", "always")], vec![Warning]),
        ("aof_enabled:1\naof_last_write_status:err", vec![], vec![Error]),
        ("aof_enabled:1\naof_last_bgrewrite_status:err", vec![], vec![Warning]),
        ("aof_enabled:0", vec![("save", "")], vec![Warning]),
        ("aof_enabled:0", vec![rdb], vec![Fine]),
        ("aof_enabled:0", vec![], vec![Warning]),
        ("aof_enabled:0\nrdb_last_bgsave_status:ok", vec![rdb], vec![Fine]),
        (
            "aof_enabled:0\nrdb_last_bgsave_status:err",
            vec![rdb, ("stop-writes-on-bgsave-error", "yes")],
            vec![Fine, Error],
        ),
        (
            "aof_enabled:0\nrdb_last_bgsave_status:err",
            vec![rdb, ("stop-writes-on-bgsave-error", "no")],
            vec![Fine, Warning],
        ),
        (
            "aof_enabled:1\nrdb_last_bgsave_status:err",
            vec![("save", ""), ("stop-writes-on-bgsave-error", "yes")],
            vec![Fine, Warning],
        ),
        ("aof_enabled:0\nrdb_last_bgsave_status:err", vec![], vec![Warning, Warning]),
        ("", vec![], vec![]),
    ] {
        let said = judged(info, &settings, persistence::judge);
        let expected: Vec<_> = severities.into_iter().map(|severity| (Topic::Persistence, severity)).collect();
        assert_eq!(said, expected, "{info} {settings:?}");
    }
}

#[test]
fn roles_and_replicas() {
    let (alone, sentinel, cluster) = ("redis://h", "redis+sentinel://h/n", "redis+cluster://h");
    let one = "role:master\nconnected_slaves:1\nslave0:ip=10.0.0.2,port=6379,state=online,offset=5,lag=0";
    let late = "role:master\nconnected_slaves:1\nslave0:ip=10.0.0.2,port=6379,state=online,offset=5,lag=11";
    let absent = "role:master\nconnected_slaves:1\nslave0:ip=10.0.0.2,port=6379,state=wait_bgsave,offset=5,lag=0";
    let (needs_one, needs_none) = (("min-replicas-to-write", "1"), ("min-replicas-to-write", "0"));
    let lag = ("min-replicas-max-lag", "1");
    for (info, url, settings, severities) in [
        ("role:slave\nmaster_host:a\nmaster_port:1", alone, vec![], vec![Error]),
        ("role:slave", sentinel, vec![], vec![Error]),
        ("role:master\nconnected_slaves:0", alone, vec![needs_none], vec![Fine]),
        ("role:master\nconnected_slaves:0", sentinel, vec![needs_none], vec![Warning]),
        ("role:master\nconnected_slaves:0", cluster, vec![], vec![Warning]),
        (one, alone, vec![needs_none, lag], vec![Fine]),
        (one, sentinel, vec![needs_none, lag], vec![Fine, Warning]),
        (one, sentinel, vec![needs_one, lag], vec![Fine]),
        (late, sentinel, vec![needs_one, lag], vec![Warning, Fine]),
        (absent, alone, vec![], vec![Warning, Fine]),
        ("role:master\nconnected_slaves:0\nmin_slaves_good_slaves:0", alone, vec![needs_one, lag], vec![Fine, Error]),
        ("", alone, vec![], vec![]),
    ] {
        let said = judged(info, &settings, |facts, notes| replication::judge(facts, &target(url), notes));
        let expected: Vec<_> = severities.into_iter().map(|severity| (Topic::Replication, severity)).collect();
        assert_eq!(said, expected, "{info} {url} {settings:?}");
    }
}

/// Words of a server end up in a terminal.
#[test]
fn control_characters_are_not_passed_on() {
    let mut notes = Notes::new(None);
    notes.ok(Topic::Version, "Redis \u{1b}[31m7\r\n");
    assert_eq!(notes.findings[0].message, "Redis  [31m7  ");
}
