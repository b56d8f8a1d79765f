//! Slots that move, and primaries that die.

use tidegate_testkit::servers::{Certificates, Cluster, Server, Setup};
use tokio::time::{Duration, Instant, sleep};

use super::super::slot;
use super::{AMPLE, add, is_not_sent, open, recover};

/// One Cluster for all of it: starting one takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn calls_find_their_slots() {
    let cluster = tokio::task::block_in_place(|| Cluster::start(1000));
    let redis = open(&format!("redis+cluster://{}", cluster.hosts()));
    assert!(redis.is_cluster());
    for number in 0..50 {
        assert_eq!(add(&redis, &format!("k{number}")).await, Ok(1));
    }
    assert_eq!(redis.health().nodes.len(), 3, "{:?}", redis.health());
    assert_eq!(redis.health().totals.redirected, 0, "{:?}", redis.health());
    crossing_keys_are_refused(&redis).await;
    a_slot_on_its_way_is_asked_at_both_ends(&cluster, &redis).await;
    a_primary_that_dies_is_replaced(&cluster, &redis).await;
}

async fn crossing_keys_are_refused(redis: &crate::redis::link::Redis) {
    let script = crate::redis::link::Script::new("return #KEYS");
    let refused = redis.call(&script, &[b"a", b"b"], &[], super::term(AMPLE)).await.unwrap_err();
    assert_eq!(refused.code(), Some("CROSSSLOT"), "{refused}");
    assert!(redis.call(&script, &[b"{t}a", b"{t}b"], &[], super::term(AMPLE)).await.is_ok());
}

async fn a_slot_on_its_way_is_asked_at_both_ends(cluster: &Cluster, redis: &crate::redis::link::Redis) {
    let number = slot(b"{moving}1");
    let (source, target) = (cluster.primary_of(number), (cluster.primary_of(number) + 1) % 3);
    let (source, target) = (&cluster.nodes[source], &cluster.nodes[target]);
    let (source_id, target_id) = (source.command("CLUSTER MYID"), target.command("CLUSTER MYID"));
    assert_eq!(add(redis, "{moving}1").await, Ok(1));
    target.command(&format!("CLUSTER SETSLOT {number} IMPORTING {source_id}"));
    source.command(&format!("CLUSTER SETSLOT {number} MIGRATING {target_id}"));
    assert_eq!(add(redis, "{moving}1").await, Ok(2), "still here");
    let before = redis.health().totals.redirected;
    assert_eq!(add(redis, "{moving}new").await, Ok(1), "new keys are made there");
    assert_eq!(redis.health().totals.redirected, before + 1);
    assert_eq!(source.command("EXISTS {moving}1"), "1");
    source.command(&format!("MIGRATE 127.0.0.1 {} {{moving}}1 0 1000", target.port));
    assert_eq!(add(redis, "{moving}1").await, Ok(3), "moved");
    // Half of these keys are here and half are there: nobody can run it before the slot has moved.
    let script = crate::redis::link::Script::new("return redis.call('INCR', KEYS[1])");
    source.command(&format!("CLUSTER SETSLOT {number} STABLE"));
    source.command("SET {moving}2 5");
    source.command(&format!("CLUSTER SETSLOT {number} MIGRATING {target_id}"));
    let split = redis.call(&script, &[b"{moving}2", b"{moving}1"], &[], super::term(Duration::from_millis(50))).await;
    assert!(is_not_sent(&split), "{split:?}");
    let split = split.unwrap_err().to_string();
    assert!(split.contains("TRYAGAIN"), "{split}");
    source.command(&format!("MIGRATE 127.0.0.1 {} {{moving}}2 0 1000", target.port));
    for node in [target, source] {
        node.command(&format!("CLUSTER SETSLOT {number} NODE {target_id}"));
    }
    let before = redis.health().totals.redirected;
    assert_eq!(add(redis, "{moving}1").await, Ok(4));
    let after = redis.health().totals.redirected;
    assert_eq!(add(redis, "{moving}1").await, Ok(5));
    assert_eq!((after, redis.health().totals.redirected), (before + 1, before + 1), "moved once, then known");
}

async fn a_primary_that_dies_is_replaced(cluster: &Cluster, redis: &crate::redis::link::Redis) {
    let budget = Duration::from_millis(20);
    let victim = cluster.primary_of(slot(b"victim"));
    assert_eq!(add(redis, "victim").await, Ok(1));
    sleep(Duration::from_millis(200)).await;
    cluster.nodes[victim].kill();
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let called = Instant::now();
        let answer = add(redis, "victim").await;
        longest = longest.max(called.elapsed());
        if answer.is_ok() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{answer:?}");
        sleep(Duration::from_millis(5)).await;
    }
    let took = start.elapsed();
    println!("a primary was replaced after {took:?}; the longest call took {longest:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(longest < budget + super::SLACK, "{longest:?}");
    let sum: i64 = cluster.nodes[victim + 3].command("GET victim").parse().unwrap();
    assert_eq!(sum, 2, "what was written before the failover is there");
    recover(redis, "k1").await;
}

#[tokio::test]
async fn a_server_alone_is_no_cluster() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis+cluster://127.0.0.1:{}", server.port));
    let failed = add(&redis, "k").await.unwrap_err();
    assert!(failed.to_string().contains("cluster support disabled"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_speaks_tls() {
    let files = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(files.path());
    let cluster = tokio::task::block_in_place(|| Cluster::start_with(5_000, Some(&certificates)));
    let ca = certificates.authority.display();
    // One node leads to all others, whose ports with TLS it tells.
    let redis = open(&format!("rediss+cluster://127.0.0.1:{}?ca={ca}", cluster.nodes[0].tls_port));
    for number in 0..50 {
        assert_eq!(add(&redis, &format!("k{number}")).await, Ok(1));
    }
    let mut nodes: Vec<String> = redis.health().nodes.into_iter().map(|node| node.name).collect();
    let mut expected: Vec<String> =
        cluster.nodes.iter().take(3).map(|node| format!("127.0.0.1:{}", node.tls_port)).collect();
    nodes.sort_unstable();
    expected.sort_unstable();
    assert_eq!(nodes, expected);
    // A redirection names ports with TLS too.
    let number = slot(b"moved");
    let owner = cluster.primary_of(number);
    let target = &cluster.nodes[(owner + 1) % 3];
    let id = target.command("CLUSTER MYID");
    for node in [target, &cluster.nodes[owner]] {
        node.command(&format!("CLUSTER SETSLOT {number} NODE {id}"));
    }
    let before = redis.health().totals.redirected;
    assert_eq!(add(&redis, "moved").await, Ok(1));
    assert_eq!(redis.health().totals.redirected, before + 1);
    assert_eq!(target.command("GET moved"), "1");
}
