//! One process, with its store in memory, on paused time: the store's clock and the timers go together.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate_core::{FakeClock, Key};
use tidegate_engine::{Engine, Options};
use tidegate_testkit::tasks::settle;
use tidegate_tower::bounds::WATCHED_MAX;
use tidegate_tower::{
    KeyBy, MissingKey, Mode, OnStoreFailure, Reason, Refusal, SharedConcurrencyBuilder, SharedConcurrencyHandle,
    SharedConcurrencyLayer,
};
use tower::{Layer, Service, ServiceExt};

use crate::{Slow, ask, get, send, status};

const LEASE: u64 = 300;

struct Store {
    engine: Arc<Engine>,
    clock: FakeClock,
}

impl Store {
    fn new() -> Store {
        let clock = FakeClock::new();
        let options = Options { clock: clock.clone().into(), keys: Some(100), ..Options::default() };
        Store { engine: Arc::new(Engine::new(options).unwrap()), clock }
    }

    fn builder(&self, limit: u64) -> SharedConcurrencyBuilder {
        SharedConcurrencyLayer::builder(Arc::clone(&self.engine), "pool", limit).lease(Duration::from_millis(LEASE))
    }

    fn node(&self, limit: u64) -> SharedConcurrencyLayer {
        self.builder(limit).build().unwrap()
    }

    /// Permits that are held.
    fn held(&self) -> u64 {
        self.engine.permit_counts().held_here
    }

    async fn pass(&self, millis: u64) {
        for _ in 0..millis / 10 {
            self.clock.advance(Duration::from_millis(10));
            tokio::time::advance(Duration::from_millis(10)).await;
            settle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_layers_of_a_name_count_together() {
    let (store, slow) = (Store::new(), Slow::taking(100));
    let (one, two) = (store.node(2), store.node(2));
    let sent = [send(&one, &slow, &[]), send(&two, &slow, &[])];
    settle().await;
    for layer in [&one, &two] {
        let refused = ask(layer, &slow, &[]).await;
        assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
        assert_eq!(refused.extensions().get::<Refusal>().unwrap().reason(), Reason::Busy);
        let call = ask(layer, &slow, &[("content-type", "application/grpc")]).await;
        assert_eq!(call.headers()["grpc-status"], "14");
        assert_eq!((layer.handle().switch().refused(), layer.handle().counts().in_flight), (2, 1));
    }
    let other = SharedConcurrencyLayer::builder(Arc::clone(&store.engine), "other", 1).build().unwrap();
    let third = send(&other, &slow, &[]);
    store.pass(100).await;
    for sent in sent.into_iter().chain([third]) {
        assert_eq!(sent.await.unwrap().status(), 200);
    }
    settle().await;
    assert_eq!((store.held(), one.handle().counts().in_flight), (0, 0));
    store.pass(100).await;
}

/// Who was refused by the store, and polls what is ready, hears nothing more.
#[tokio::test(start_paused = true)]
async fn there_is_no_second_answer() {
    let (store, slow) = (Store::new(), Slow::taking(100));
    let layer = store.node(1);
    let _held = layer.handle().acquire().await.unwrap();
    let mut call = pin!(layer.layer(slow).call(get(&[])));
    assert_eq!(call.as_mut().await.unwrap().status(), 503);
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn who_takes_longer_than_its_lease_keeps_its_place() {
    let (store, slow) = (Store::new(), Slow::taking(5 * LEASE));
    let layer = store.node(1);
    let long = send(&layer, &slow, &[]);
    for _ in 0..4 {
        store.pass(LEASE).await;
        assert_eq!(status(&layer, &slow, &[]).await, 503);
    }
    store.pass(LEASE).await;
    assert_eq!(long.await.unwrap().status(), 200);
    settle().await;
    let counts = layer.handle().counts();
    assert_eq!((counts.acquired, counts.lost, counts.renew_failures, store.held()), (1, 0, 0, 0));
    assert!((14..=15).contains(&counts.renewed), "three times a lease: {counts:?}");
}

/// The store's clock moves on while the timers of this process stand, as those of one that hangs.
#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_ends() {
    let (store, slow) = (Store::new(), Slow::taking(10 * LEASE));
    let (hangs, other) = (store.node(1), store.node(1));
    let held = send(&hangs, &slow, &[]);
    settle().await;
    store.clock.advance(Duration::from_millis(LEASE - 1));
    assert_eq!(other.handle().acquire().await.unwrap_err().reason(), Reason::Busy);
    store.clock.advance(Duration::from_millis(1));
    let place = other.handle().acquire().await.unwrap();
    assert_eq!(hangs.handle().counts().lost, 0);
    store.pass(LEASE / 3).await;
    assert_eq!(hangs.handle().counts().lost, 1, "it hears of it when it wakes up");
    assert_eq!(store.held(), 1);
    drop(place);
    store.pass(LEASE).await;
    assert_eq!(store.held(), 1, "it takes a place anew when there is one");
    assert_eq!(other.handle().acquire().await.unwrap_err().reason(), Reason::Busy);
    held.abort();
    settle().await;
    assert_eq!(store.held(), 0);
    assert_eq!(hangs.handle().counts().lost, 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_frees_its_place() {
    let (store, slow) = (Store::new(), Slow::taking(100));
    let layer = store.node(1);
    let sent = send(&layer, &slow, &[]);
    settle().await;
    assert_eq!(store.held(), 1);
    sent.abort();
    settle().await;
    assert_eq!((store.held(), layer.handle().counts().in_flight), (0, 0));
}

/// It is dropped after the store was asked, and before it answered.
#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_while_the_store_is_asked_holds_nothing() {
    let (store, slow) = (Store::new(), Slow::taking(100));
    let layer = store.node(1);
    let mut service = layer.layer(slow);
    drop(service.ready().await.unwrap().call(get(&[])));
    drop(layer.handle().acquire());
    settle().await;
    let counts = store.engine.permit_counts();
    assert_eq!((counts.acquired, counts.released, counts.held_here), (1, 1, 0));
    assert_eq!(layer.handle().counts().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_holds_the_place_until_it_has_ended_or_is_dropped() {
    let (store, slow) = (Store::new(), Slow::default());
    let layer = store.node(1);
    let response = ask(&layer, &slow, &[]).await;
    store.pass(2 * LEASE).await;
    assert_eq!((store.held(), status(&layer, &slow, &[]).await), (1, 503));
    drop(response);
    settle().await;
    assert_eq!(store.held(), 0);
    let mut body = ask(&layer, &slow, &[]).await.into_body();
    assert_eq!(store.held(), 1);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "done");
    settle().await;
    assert_eq!(store.held(), 0, "it has ended, though it is still there");
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_limit() {
    let (store, slow) = (Store::new(), Slow::taking(100));
    let keyed = |missing| store.builder(1).key(KeyBy::header("client")).missing_key(missing);
    let layer = keyed(MissingKey::Share).too_many_requests().build().unwrap();
    let long = "x".repeat(4090);
    let sent = [send(&layer, &slow, &[("client", "ann")]), send(&layer, &slow, &[])];
    settle().await;
    let refused = ask(&layer, &slow, &[("client", "ann")]).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.extensions().get::<Refusal>().unwrap().reason(), Reason::ClientBusy);
    assert_eq!(status(&layer, &slow, &[("client", &long)]).await, 429, "too long: as if it had none");
    assert_eq!(layer.handle().acquire_of(Key::new("ann").unwrap()).await.unwrap_err().status(), 429);
    drop(layer.handle().acquire_of(Key::new("bob").unwrap()).await.unwrap());
    let skips = keyed(MissingKey::Skip).build().unwrap();
    let skipped = send(&skips, &slow, &[]);
    settle().await;
    assert_eq!(store.held(), 2);
    // The name has 4 bytes, the lengths of both 2 each, and the engine one.
    let refused = ask(&skips, &slow, &[("client", &long)]).await;
    let reason = refused.extensions().get::<Refusal>().unwrap().reason();
    assert_eq!((refused.status().as_u16(), reason), (400, Reason::KeyTooLong { max: 4087 }));
    assert_eq!(status(&skips, &slow, &[("client", &long[..4087])]).await, 200);
    let over = skips.handle().acquire_of(Key::new(&long[..4088]).unwrap()).await.unwrap_err();
    let words = "the client key is too long; use at most 4087 bytes";
    assert_eq!((over.status().as_u16(), over.to_string().as_str()), (400, words));
    let denies = keyed(MissingKey::Deny).build().unwrap();
    assert_eq!(status(&denies, &slow, &[]).await, 400);
    store.pass(100).await;
    for sent in sent.into_iter().chain([skipped]) {
        assert_eq!(sent.await.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn in_shadow_and_switched_off_it_refuses_nothing() {
    let (store, slow) = (Store::new(), Slow::taking(100));
    let layer = store.builder(1).mode(Mode::Shadow).build().unwrap();
    let switch = layer.handle().switch().clone();
    let mut sent: Vec<_> = (0..3).map(|_| send(&layer, &slow, &[])).collect();
    settle().await;
    assert_eq!((switch.would_refuse(), switch.refused(), store.held()), (2, 0, 1));
    switch.set_mode(Mode::Off);
    sent.push(send(&layer, &slow, &[]));
    settle().await;
    assert_eq!((switch.would_refuse(), store.engine.permit_counts().denied), (2, 2), "nobody was asked");
    store.pass(100).await;
    for sent in sent {
        assert_eq!(sent.await.unwrap().status(), 200);
    }
    settle().await;
    assert_eq!(store.held(), 0);
}

/// In shadow mode few may ask the store at once. Who has asked and is served counts no more as one of them.
#[tokio::test(start_paused = true)]
async fn in_shadow_as_many_are_judged_as_the_service_takes() {
    let (store, most) = (Store::new(), WATCHED_MAX as u64 + 10);
    let layer = store.builder(most).mode(Mode::Shadow).build().unwrap();
    let mut held = Vec::new();
    for number in 0..=most {
        held.push(ask(&layer, &Slow::default(), &[]).await);
        if number % 1000 == 0 {
            settle().await;
        }
    }
    settle().await;
    let (counts, switch) = (layer.handle().counts(), layer.handle().switch().clone());
    assert_eq!((counts.in_flight, switch.would_refuse()), (most, 1));
}

#[tokio::test(start_paused = true)]
async fn what_became_of_places_is_told_as_prometheus_reads_it() {
    let (store, slow) = (Store::new(), Slow::taking(1000));
    let keyed = store.builder(2).key(KeyBy::header("client")).build().unwrap();
    let sent = [send(&keyed, &slow, &[("client", "ann")]), send(&keyed, &slow, &[("client", "bob")])];
    settle().await;
    let held = keyed.handle().acquire_of(Key::new("ann").unwrap()).await.unwrap();
    assert_eq!(status(&keyed, &slow, &[("client", "ann")]).await, 503);
    store.pass(LEASE / 3).await;
    drop((held, sent));
    let named = |name| SharedConcurrencyLayer::builder(Arc::clone(&store.engine), name, 1);
    let other = named("say \"hello\"").mode(Mode::Shadow).build().unwrap();
    let layers = [keyed.handle(), other.handle()];
    insta::assert_snapshot!("metrics", SharedConcurrencyHandle::render_all(&layers));
    let page = keyed.handle().render();
    assert_eq!(page.lines().filter(|line| !line.starts_with('#')).count(), 13, "however many keys there are");
    assert_eq!(keyed.handle().counts().refused, 1);
}

/// Without a runtime nobody can ask. The service behind is not called, and nothing panics.
#[test]
fn without_a_runtime_it_refuses() {
    let layer = Store::new().node(1);
    let mut context = Context::from_waker(Waker::noop());
    let response = pin!(layer.layer(Slow::default()).oneshot(get(&[])));
    let Poll::Ready(Ok(response)) = response.poll(&mut context) else { panic!("it waits") };
    assert_eq!(response.extensions().get::<Refusal>().unwrap().reason(), Reason::NoStore);
    assert_eq!((response.status().as_u16(), layer.handle().counts().store_failures), (503, 1));
}

#[test]
fn mistakes_are_named() {
    let store = Store::new();
    let error = |builder: SharedConcurrencyBuilder| builder.build().unwrap_err().to_string();
    let lease = |millis| store.builder(1).lease(Duration::from_millis(millis));
    for limit in [0, 1_000_001, u64::MAX] {
        assert_eq!(error(store.builder(limit)), format!("limit: {limit} is out of range; use 1 to 1000000"));
    }
    assert!(store.builder(1_000_000).build().is_ok());
    assert_eq!(error(lease(99)), "lease: 99ms is out of range; use 100ms to 24 hours");
    assert_eq!(error(lease(86_400_001)), "lease: 86400.001s is out of range; use 100ms to 24 hours");
    let local = |limit| store.builder(1).on_store_failure(OnStoreFailure::Local(limit));
    assert_eq!(error(local(0)), "on_store_failure: 0 is out of range; use 1 to 1000000");
    assert_eq!(error(local(1_000_001)), "on_store_failure: 1000001 is out of range; use 1 to 1000000");
    let keyless = |field| format!("{field}: it has no effect without a key; set key too, or leave it out");
    assert_eq!(error(store.builder(1).keys(10)), keyless("keys"));
    assert_eq!(error(store.builder(1).missing_key(MissingKey::Deny)), keyless("missing_key"));
    assert_eq!(error(store.builder(1).too_many_requests()), keyless("too_many_requests"));
    for choice in [OnStoreFailure::Allow, OnStoreFailure::Deny] {
        let unused = store.builder(1).key(KeyBy::api_key()).keys(10).on_store_failure(choice);
        assert_eq!(error(unused), "keys: it has no effect unless on_store_failure is Local; leave it out");
    }
    assert!(error(store.builder(1).retry_after(Duration::ZERO)).starts_with("retry_after: 0ns "));
    assert!(error(store.builder(1).key(KeyBy::header("a b"))).starts_with("header: `a b` "));
    let nameless = SharedConcurrencyLayer::builder(Arc::clone(&store.engine), "", 1);
    assert_eq!(error(nameless), "name: 0 bytes; use 1 to 128");
}

/// The switch is turned while a request waits for the store's answer: at the end of that it is judged by the mode of then.
#[tokio::test(start_paused = true)]
async fn who_waits_when_it_is_switched_off_is_let_in() {
    for (mode, would_refuse) in [(Mode::Off, 0), (Mode::Shadow, 1)] {
        let (store, slow) = (Store::new(), Slow::default());
        let layer = store.node(1);
        let switch = layer.handle().switch().clone();
        let held = layer.handle().acquire().await.unwrap();
        let waits = layer.layer(slow.clone()).ready().await.unwrap().call(get(&[]));
        switch.set_mode(mode);
        assert_eq!(waits.await.unwrap().status(), 200, "{mode:?}");
        assert_eq!((switch.refused(), switch.would_refuse()), (0, would_refuse), "{mode:?}");
        switch.set_mode(Mode::Enforce);
        assert_eq!(status(&layer, &slow, &[]).await, 503);
        drop(held);
        settle().await;
        assert_eq!((status(&layer, &slow, &[]).await, layer.handle().counts().acquired), (200, 2));
    }
}

/// Whatever panics, in the call, in the response or in its body, gives its place back.
#[tokio::test(start_paused = true)]
async fn a_service_that_panics_gives_its_place_back() {
    let store = Store::new();
    let layer = store.node(1);
    for place in ["call", "response"] {
        let broken = layer.layer(tower::service_fn(move |_: Request<()>| {
            assert!(std::hint::black_box(place) != "call", "broken in the call");
            async move {
                tokio::task::yield_now().await;
                assert!(std::hint::black_box(place) != "response", "broken in the response");
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        }));
        assert!(tokio::spawn(broken.oneshot(get(&[]))).await.unwrap_err().is_panic());
        settle().await;
        assert_eq!((store.held(), layer.handle().counts().in_flight), (0, 0), "{place}");
    }
    assert_eq!(layer.handle().counts().acquired, 2);
}

/// The switch goes through all modes while requests come, end and leave: nothing is left behind, and the limit holds again.
#[tokio::test(start_paused = true)]
async fn a_switch_turned_under_load_leaves_nothing_behind() {
    let (store, slow) = (Store::new(), Slow::taking(30));
    let layer = store.node(3);
    let switch = layer.handle().switch().clone();
    for turn in 0..200 {
        switch.set_mode([Mode::Enforce, Mode::Off, Mode::Shadow, Mode::Off][turn % 4]);
        let sent: Vec<_> = (0..5).map(|_| send(&layer, &slow, &[])).collect();
        if turn % 3 == 0 {
            settle().await;
        }
        sent.iter().skip(turn % 5).step_by(2).for_each(tokio::task::JoinHandle::abort);
        store.pass(10).await;
    }
    switch.set_mode(Mode::Enforce);
    store.pass(100).await;
    assert_eq!((store.held(), layer.handle().counts().in_flight), (0, 0));
    slow.most.store(0, Ordering::SeqCst);
    let sent: Vec<_> = (0..10).map(|_| send(&layer, &slow, &[])).collect();
    store.pass(100).await;
    let mut served = 0;
    for sent in sent {
        served += u64::from(sent.await.unwrap().status() == 200);
    }
    assert_eq!((served, slow.most.load(Ordering::SeqCst)), (3, 3));
}
