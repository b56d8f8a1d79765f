//! Nodes that share a real Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_engine::{Engine, Options};
use tidegate_testkit::servers::{Server, Setup};
use tidegate_tower::{OnStoreFailure, Reason, Refusal, SharedConcurrencyCounts, SharedConcurrencyLayer, SharedPermit};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::{Slow, ask, send, status};

/// A lease that a test can wait for.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// One that no test waits for: what comes back was given back.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A process with an engine of its own.
pub(crate) async fn node(
    redis: &Server,
    limit: u64,
    on_store_failure: OnStoreFailure,
    lease: Duration,
) -> SharedConcurrencyLayer {
    impatient(redis, limit, on_store_failure, lease, "3s").await
}

/// The same with a time that a call may take.
pub(crate) async fn impatient(
    redis: &Server,
    limit: u64,
    on_store_failure: OnStoreFailure,
    lease: Duration,
    budget: &str,
) -> SharedConcurrencyLayer {
    let store = Some(format!("redis://127.0.0.1:{}?timeout={budget}", redis.port).into());
    let engine = Arc::new(Engine::new(Options { store, ..Options::default() }).unwrap());
    engine.connect(Duration::from_secs(10)).await;
    let builder = SharedConcurrencyLayer::builder(engine, "pool", limit);
    builder.lease(lease).on_store_failure(on_store_failure).build().unwrap()
}

pub(crate) fn counts(layer: &SharedConcurrencyLayer) -> SharedConcurrencyCounts {
    layer.handle().counts()
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("still not so: {what}"));
}

/// As many places as there are.
pub(crate) async fn take_all(layer: &SharedConcurrencyLayer) -> Vec<SharedPermit> {
    let mut places = Vec::new();
    while let Ok(place) = layer.handle().acquire().await {
        places.push(place);
    }
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_never_let_in_more_than_the_limit_together() {
    const LIMIT: u64 = 3;
    let redis = Server::start(&Setup::default());
    let nodes =
        [node(&redis, LIMIT, OnStoreFailure::Deny, LONG).await, node(&redis, LIMIT, OnStoreFailure::Deny, LONG).await];
    let slow = Slow::taking(1);
    let callers: Vec<_> = (0..8)
        .map(|number| {
            let (node, slow) = (nodes[number % 2].clone(), slow.clone());
            tokio::spawn(async move {
                let mut served = 0;
                for turn in 0..200 {
                    if turn % 10 == 9 {
                        // A caller that leaves, before or after it was let in.
                        drop(timeout(Duration::from_micros(200 * (turn / 10)), ask(&node, &slow, &[])).await);
                    }
                    served += u64::from(status(&node, &slow, &[]).await == 200);
                }
                served
            })
        })
        .collect();
    let mut served = 0;
    for caller in callers {
        served += caller.await.unwrap();
    }
    let most = slow.most.load(Ordering::SeqCst);
    println!("{served} of 1600 served, {most} at once; {:?}", counts(&nodes[0]));
    assert!((2..=LIMIT).contains(&most), "{most} at once");
    assert!(served > 100, "{served}");
    // Those that were released last may still be on their way.
    eventually("all is given back", async || take_all(&nodes[0]).await.len() as u64 == LIMIT).await;
    for node in &nodes {
        let counts = counts(node);
        assert_eq!((counts.store_failures, counts.lost, counts.release_failures), (0, 0, 0), "{counts:?}");
    }
}

/// All that ran in the first process ends with its runtime, and nobody releases.
#[test]
fn a_process_that_died_frees_its_places_when_their_leases_end() {
    let redis = Server::start(&Setup::default());
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let dies = first.block_on(node(&redis, 2, OnStoreFailure::Deny, SHORT));
    let places = first.block_on(take_all(&dies));
    assert_eq!(places.len(), 2);
    first.block_on(async { sleep(SHORT * 2).await });
    assert_eq!(counts(&dies).lost, 0, "it renews while it lives");
    second.block_on(async {
        let lives = node(&redis, 2, OnStoreFailure::Deny, SHORT).await;
        assert_eq!(take_all(&lives).await.len(), 0);
        tokio::task::spawn_blocking(|| drop(first)).await.unwrap();
        drop(places);
        assert_eq!(take_all(&lives).await.len(), 0, "their leases have not ended");
        let mut taken = Vec::new();
        eventually("the leases end", async || {
            taken.extend(take_all(&lives).await);
            taken.len() == 2
        })
        .await;
    });
}

#[tokio::test]
async fn without_redis_the_local_limit_holds() {
    let (redis, slow) = (Server::start(&Setup::default()), Slow::taking(20));
    let local = node(&redis, 3, OnStoreFailure::Local(2), LONG).await;
    let (denies, allows) =
        (node(&redis, 3, OnStoreFailure::Deny, LONG).await, node(&redis, 3, OnStoreFailure::Allow, LONG).await);
    let mut places = take_all(&local).await;
    assert_eq!(places.len(), 3);
    redis.kill();
    eventually("it is noticed", async || {
        let _ = local.handle().acquire().await;
        counts(&local).store_failures > 0
    })
    .await;
    assert_eq!(status(&local, &slow, &[]).await, 503, "those that came in by the store are in progress here");
    places.clear();
    eventually("they leave", async || counts(&local).in_flight == 0).await;
    let sent: Vec<_> = (0..6).map(|_| send(&local, &slow, &[])).collect();
    let mut passed = 0;
    for sent in sent {
        let answer = sent.await.unwrap();
        passed += u64::from(answer.status() == 200);
        let reason = answer.extensions().get::<Refusal>().map(Refusal::reason);
        assert!(answer.status() == 200 || reason == Some(Reason::Busy), "{reason:?}");
    }
    assert!(passed >= 2 && slow.most.load(Ordering::SeqCst) == 2, "{passed}");
    let refused = ask(&denies, &slow, &[]).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(refused.extensions().get::<Refusal>().unwrap().reason(), Reason::NoStore);
    let (many, fast) = ((0..10).map(|_| send(&allows, &slow, &[])).collect::<Vec<_>>(), Slow::default());
    for sent in many {
        assert_eq!(sent.await.unwrap().status(), 200);
    }
    let told = [counts(&local), counts(&denies), counts(&allows)];
    assert!(told[0].release_failures >= 1 && told[1].store_failures >= 1 && told[2].store_failures == 10, "{told:?}");
    redis.run();
    eventually("it is asked again", async || status(&denies, &fast, &[]).await == 200).await;
}

/// Redis forgets all when it is killed. Who goes on meanwhile takes a place anew.
#[tokio::test]
async fn who_goes_on_without_redis_counts_again_when_it_is_back() {
    let redis = Server::start(&Setup::default());
    let (one, two) =
        (node(&redis, 1, OnStoreFailure::Local(1), SHORT).await, node(&redis, 1, OnStoreFailure::Deny, SHORT).await);
    let known = one.handle().acquire().await.unwrap();
    redis.kill();
    eventually("a renewal fails", async || counts(&one).renew_failures > 0).await;
    redis.run();
    eventually("it was lost", async || counts(&one).lost == 1).await;
    let refused = async |node: &SharedConcurrencyLayer| node.handle().acquire().await.err().map(|why| why.reason());
    eventually("it has its place again", async || refused(&two).await == Some(Reason::Busy)).await;
    drop(known);
    eventually("it gave it back", async || two.handle().acquire().await.is_ok()).await;
}

/// The store is asked and does not answer yet when the caller leaves.
#[tokio::test]
async fn who_leaves_while_redis_hangs_holds_nothing() {
    let redis = Server::start(&Setup::default());
    let (one, two) =
        (node(&redis, 1, OnStoreFailure::Deny, LONG).await, node(&redis, 1, OnStoreFailure::Deny, LONG).await);
    redis.hang();
    let slow = Slow::default();
    assert!(timeout(Duration::from_millis(100), ask(&one, &slow, &[])).await.is_err(), "it answers");
    redis.go_on();
    eventually("it was acquired", async || counts(&one).acquired == 1).await;
    eventually("it was given back", async || two.handle().acquire().await.is_ok()).await;
    let told = counts(&one);
    assert_eq!((told.in_flight, told.store_failures, told.release_failures, told.lost), (0, 0, 0, 0), "{told:?}");
    assert_eq!(slow.most.load(Ordering::SeqCst), 0, "nobody was served");
}

/// Redis hears of it after the caller was refused: what it gives to nobody is given back.
#[tokio::test]
async fn an_answer_that_is_too_late_holds_nothing() {
    let redis = Server::start(&Setup::default());
    let hurried = impatient(&redis, 1, OnStoreFailure::Deny, LONG, "1s").await;
    let patient = node(&redis, 1, OnStoreFailure::Deny, LONG).await;
    drop(hurried.handle().acquire().await.unwrap());
    eventually("it was given back", async || patient.handle().acquire().await.is_ok()).await;
    redis.hang();
    assert_eq!(hurried.handle().acquire().await.unwrap_err().reason(), Reason::NoStore);
    redis.go_on();
    // What it was asked while it hung comes first.
    sleep(Duration::from_millis(300)).await;
    eventually("it was given back", async || patient.handle().acquire().await.is_ok()).await;
}
