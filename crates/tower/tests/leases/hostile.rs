//! Stores that hang, die and forget while many hold places, and callers that leave at any moment.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tidegate_engine::{Engine, Options, StoreView};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Server, Setup};
use tidegate_tower::bounds::WATCHED_MAX;
use tidegate_tower::{KeyBy, Mode, OnStoreFailure, Reason, Refusal, SharedConcurrencyLayer};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::redis_server::{LONG, SHORT, counts, eventually, impatient, node};
use crate::{Slow, ask, get, send, status};

async fn reason(layer: &SharedConcurrencyLayer) -> Option<Reason> {
    layer.handle().acquire().await.err().map(|why| why.reason())
}

/// Three came in by the store where two may without it. When two of them have left, there is one place here, not two.
#[tokio::test]
async fn without_redis_all_that_came_in_by_it_count() {
    let redis = Server::start(&Setup::default());
    let layer = node(&redis, 3, OnStoreFailure::Local(2), LONG).await;
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(layer.handle().acquire().await.unwrap());
    }
    places.drain(..2);
    eventually("two have left", async || counts(&layer).in_flight == 1).await;
    redis.kill();
    // What the store does not answer any more is judged here.
    let mut taken = Vec::new();
    while let Ok(place) = layer.handle().acquire().await {
        taken.push(place);
        assert!(taken.len() < 9, "nothing holds");
    }
    let told = counts(&layer);
    assert_eq!((taken.len(), told.in_flight, told.store_failures), (1, 2, 2), "{told:?}");
}

/// Who starts is told whether its store is there, and when it has come.
#[tokio::test]
async fn a_store_that_is_not_there_at_the_start_is_told_of() {
    let redis = Server::prepare(&Setup::default());
    let store = Some(format!("redis://127.0.0.1:{}?timeout=1s", redis.port).into());
    let engine = Arc::new(Engine::new(Options { store, ..Options::default() }).unwrap());
    let is_connected = || engine.shared_stores().iter().all(StoreView::is_connected);
    engine.connect(Duration::from_secs(10)).await;
    assert!(!is_connected());
    let layer = SharedConcurrencyLayer::builder(Arc::clone(&engine), "pool", 1).build().unwrap();
    assert!(layer.handle().acquire().await.is_ok(), "it starts without");
    assert_eq!(counts(&layer).store_failures, 1);
    redis.run();
    eventually("it has come", async || {
        let _ = layer.handle().acquire().await;
        is_connected()
    })
    .await;
}

/// Without a store, and with room for one key: the others are not above a limit of their own.
#[tokio::test]
async fn without_room_for_a_key_the_service_is_busy_and_not_the_client() {
    let store = Some(format!("redis://127.0.0.1:{}?timeout=1s", free_port()).into());
    let engine = Arc::new(Engine::new(Options { store, ..Options::default() }).unwrap());
    let layer = SharedConcurrencyLayer::builder(engine, "pool", 1).key(KeyBy::header("client")).keys(1);
    let layer = layer.too_many_requests().build().unwrap();
    let slow = Slow::default();
    // A table has some more room than it was made for.
    let mut held = Vec::new();
    let refused = loop {
        let answer = ask(&layer, &slow, &[("client", &format!("client {}", held.len()))]).await;
        if answer.status() != 200 {
            break answer;
        }
        held.push(answer);
        assert!(held.len() < 1000, "there is room for all");
    };
    let told = refused.extensions().get::<Refusal>().unwrap();
    assert_eq!((refused.status().as_u16(), told.reason()), (503, Reason::Busy));
    assert_eq!(status(&layer, &slow, &[("client", "client 0")]).await, 429, "it is above its own limit");
}

/// The store hangs while a lease is renewed, and the holder leaves: its place here is free at once.
#[tokio::test]
async fn who_leaves_during_a_renewal_is_not_in_progress_any_more() {
    let redis = Server::start(&Setup::default());
    let layer = impatient(&redis, 1, OnStoreFailure::Local(1), SHORT, "10s").await;
    let place = layer.handle().acquire().await.unwrap();
    eventually("it is renewed", async || counts(&layer).renewed > 0).await;
    redis.hang();
    sleep(SHORT * 2 / 3).await;
    drop(place);
    let left = async {
        while counts(&layer).in_flight > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(Duration::from_secs(4), left).await.is_ok(), "it waits for the store");
    redis.go_on();
    eventually("it was given back", async || layer.handle().acquire().await.is_ok()).await;
    assert_eq!(counts(&layer).release_failures, 0);
}

/// Shadow mode on a store that hangs: no more wait for it than may.
#[tokio::test]
async fn shadow_mode_gathers_no_requests_before_a_store_that_hangs() {
    let redis = Server::start(&Setup::default());
    let layer = impatient(&redis, 1, OnStoreFailure::Deny, LONG, "10s").await;
    layer.handle().switch().set_mode(Mode::Shadow);
    redis.hang();
    // No async closure: building this test again after a change stops at a fault of the compiler with one.
    let quick = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let before = Handle::current().metrics().num_alive_tasks();
    for _ in 0..WATCHED_MAX + 100 {
        assert_eq!(layer.layer(quick).oneshot(get(&[])).await.unwrap().status(), 200);
    }
    let more = Handle::current().metrics().num_alive_tasks() - before;
    assert_eq!(more, WATCHED_MAX, "tasks");
    redis.go_on();
    eventually("all are judged", async || Handle::current().metrics().num_alive_tasks() <= before + 10).await;
    layer.handle().switch().set_mode(Mode::Enforce);
    eventually("all is given back", async || reason(&layer).await.is_none()).await;
}

/// A store that forgets all while places are held: each is lost once, and taken anew.
#[tokio::test]
async fn what_redis_forgets_is_taken_anew() {
    let redis = Server::start(&Setup::default());
    let (one, two) = (
        impatient(&redis, 3, OnStoreFailure::Deny, SHORT, "10s").await,
        impatient(&redis, 3, OnStoreFailure::Deny, SHORT, "10s").await,
    );
    let mut places = Vec::new();
    for _ in 0..3 {
        places.push(one.handle().acquire().await.unwrap());
    }
    redis.command("FLUSHALL");
    redis.command("SCRIPT FLUSH");
    eventually("all are lost", async || counts(&one).lost == 3).await;
    eventually("they are taken anew", async || reason(&two).await == Some(Reason::Busy)).await;
    sleep(SHORT * 2).await;
    assert_eq!(reason(&two).await, Some(Reason::Busy), "they are renewed");
    drop(places);
    eventually("they are given back", async || two.handle().acquire().await.is_ok()).await;
    let told = counts(&one);
    assert_eq!((told.lost, told.in_flight, told.release_failures), (3, 0, 0), "{told:?}");
}

/// Two nodes and thousands of keys with one place each, callers that leave, and a store that hangs for a moment now and
/// then. No key ever has two, and nothing is left in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_and_callers_that_leave_leave_nothing_behind() {
    // With three requests each on two nodes, fewer calls than may wait on one connection.
    const KEYS: usize = 2500;
    let redis = Server::start(&Setup::default());
    let keyed = async || {
        let store = Some(format!("redis://127.0.0.1:{}?timeout=10s&wait=10s", redis.port).into());
        let engine = Arc::new(Engine::new(Options { store, ..Options::default() }).unwrap());
        engine.connect(Duration::from_secs(10)).await;
        let builder = SharedConcurrencyLayer::builder(engine, "pool", 1).key(KeyBy::header("client"));
        builder.lease(LONG).on_store_failure(OnStoreFailure::Deny).build().unwrap()
    };
    let nodes = [keyed().await, keyed().await];
    let inside: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    let most = Arc::new(AtomicU64::new(0));
    let (counted, highest) = (Arc::clone(&inside), Arc::clone(&most));
    let work = service_fn(move |request: Request<()>| {
        let key = request.headers()["client"].to_str().unwrap().to_owned();
        let here = Inside::new(&counted, key, &highest);
        async move {
            sleep(Duration::from_millis(5)).await;
            drop(here);
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let mut sent = Vec::new();
    for number in 0..3 * KEYS {
        let key = format!("client {}", number % KEYS);
        let task = tokio::spawn(nodes[number % 2].layer(work.clone()).oneshot(get(&[("client", &key)])));
        match number % 7 {
            0 => task.abort(),
            _ => sent.push(task),
        }
        if number % 3000 == 1500 {
            redis.hang();
            sleep(Duration::from_millis(50)).await;
            sent.iter().step_by(3).for_each(tokio::task::JoinHandle::abort);
            redis.go_on();
        }
    }
    let mut served = 0;
    for task in sent {
        served += u64::from(task.await.is_ok_and(|response| response.unwrap().status() == 200));
    }
    assert!(served > 500, "{served}");
    assert_eq!(most.load(Ordering::SeqCst), 1, "at once for one key");
    eventually("all is given back", async || redis.command("DBSIZE") == "0").await;
    for node in &nodes {
        let told = counts(node);
        assert_eq!((told.in_flight, told.lost, told.store_failures, told.release_failures), (0, 0, 0, 0), "{told:?}");
    }
}

/// One that is in with its key, until it is dropped.
struct Inside(Arc<Mutex<HashMap<String, u64>>>, String);

impl Inside {
    fn new(all: &Arc<Mutex<HashMap<String, u64>>>, key: String, most: &AtomicU64) -> Inside {
        let now = {
            let mut all = all.lock().unwrap();
            let count = all.entry(key.clone()).or_default();
            *count += 1;
            *count
        };
        most.fetch_max(now, Ordering::SeqCst);
        Inside(Arc::clone(all), key)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        *self.0.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

/// The store dies and comes back again and again under load. The service goes on, and in the end all is as at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_dies_again_and_again_is_survived() {
    let redis = Server::start(&Setup::default());
    let nodes = [
        node(&redis, 4, OnStoreFailure::Local(2), SHORT).await,
        node(&redis, 4, OnStoreFailure::Local(2), SHORT).await,
    ];
    let slow = Slow::taking(20);
    for round in 0..3 {
        for turn in 0..20 {
            let sent: Vec<_> = (0..8).map(|number| send(&nodes[number % 2], &slow, &[])).collect();
            match turn {
                5 => redis.kill(),
                12 => redis.run(),
                _ => {}
            }
            sent.iter().skip(turn % 8).step_by(3).for_each(tokio::task::JoinHandle::abort);
            for answer in sent {
                if let Ok(answer) = answer.await {
                    assert!([200, 503].contains(&answer.status().as_u16()), "round {round}: {answer:?}");
                }
            }
        }
    }
    // Those whose leases ended without a release come back by then.
    eventually("all is given back", async || {
        let mut places = Vec::new();
        while let Ok(place) = nodes[0].handle().acquire().await {
            places.push(place);
        }
        places.len() == 4
    })
    .await;
    eventually("nobody is in progress", async || nodes.iter().all(|node| counts(node).in_flight == 0)).await;
}
