//! What breaks in the middle of the rate layer: closures that panic, costs beyond all numbers, shadow mode on a store
//! that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response};
use tidegate_core::FakeClock;
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, Outside, load_text};
use tidegate_testkit::servers::{Server, Setup};
use tidegate_tower::{KeyBy, Mode, RateLimitLayer, Settle, Speaks};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt, service_fn};

use super::{Body, ask, get, hello, status};

/// Panics while it is set.
#[derive(Clone, Default)]
struct Broken(Arc<AtomicBool>);

impl Broken {
    fn check(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "broken");
    }

    fn set(&self, broken: bool) {
        self.0.store(broken, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn closures_that_panic_leave_the_layer_whole() {
    for place in ["key", "cost", "settle"] {
        let broken = Broken::default();
        let at = |here: &str| if here == place { broken.clone() } else { Broken::default() };
        let (key, cost, settle) = (at("key"), at("cost"), at("settle"));
        let key = KeyBy::from_fn(move |_| {
            key.check();
            Some(b"ann"[..].into())
        });
        let layer = RateLimitLayer::limit("3/minute".parse().unwrap(), key).clock(FakeClock::new());
        let layer = layer.cost(move |_| {
            cost.check();
            1
        });
        let layer = layer.settle(move |_| {
            settle.check();
            Settle::Keep
        });
        let layer = layer.build().unwrap();
        broken.set(true);
        for _ in 0..2 {
            let service = layer.layer(service_fn(hello));
            let task = tokio::spawn(service.oneshot(get("/", &[])));
            assert!(task.await.is_err_and(|error| error.is_panic()), "{place}");
        }
        broken.set(false);
        // Only who was counted before it broke took anything.
        let left = if place == "settle" { 1 } else { 3 };
        for _ in 0..left {
            assert_eq!(status(&layer, get("/", &[])).await, 200, "{place}");
        }
        assert_eq!(status(&layer, get("/", &[])).await, 429, "{place}");
    }
}

/// What a service claims to have used, and gives back, whatever the number.
#[tokio::test]
async fn charges_beyond_all_numbers() {
    for limit in ["5/minute", "1000000/s", "1/day"] {
        for settled in [Settle::Charge(u64::MAX), Settle::Charge(0), Settle::Refund(u64::MAX), Settle::Refund(0)] {
            let clock = FakeClock::new();
            let layer = RateLimitLayer::limit(limit.parse().unwrap(), KeyBy::everyone()).clock(clock.clone());
            let layer = layer.settle(move |_| settled).build().unwrap();
            for _ in 0..3 {
                let answer = status(&layer, get("/", &[])).await;
                assert!(answer == 200 || answer == 429, "{answer}");
            }
            // Whoever owes pays it off in the end: nobody is kept out for ever.
            clock.advance(Duration::from_secs(86_400 * 365 * 90));
            assert_eq!(status(&layer, get("/", &[])).await, 200, "{limit}, {settled:?}");
        }
    }
    for cost in [0, u64::MAX] {
        let layer = RateLimitLayer::limit("5/minute".parse().unwrap(), KeyBy::everyone()).cost(move |_| cost);
        let layer = layer.clock(FakeClock::new()).build().unwrap();
        assert_eq!(status(&layer, get("/", &[])).await, if cost == 0 { 200 } else { 429 });
    }
}

/// Names are for headers: what cannot stand there breaks nothing.
#[tokio::test]
async fn names_of_any_characters() {
    for name in ["a\r\nset-cookie: x=1", "ä", "\0", "\"\\", "a;b=c, d"] {
        for speaks in [Speaks::Http, Speaks::Grpc] {
            let layer = RateLimitLayer::limit("1/minute".parse().unwrap(), KeyBy::everyone()).name(name).speaks(speaks);
            let Ok(layer) = layer.clock(FakeClock::new()).build() else { continue };
            for _ in 0..2 {
                let response = ask(&layer, get("/", &[])).await;
                assert!(!response.headers().contains_key("set-cookie"), "{name:?}");
                assert!(response.headers().contains_key("ratelimit"), "{name:?}: {:?}", response.headers());
                for value in response.headers().values() {
                    assert!(value.to_str().is_ok(), "{name:?}: {value:?}");
                }
            }
        }
    }
}

/// A layer by rules that count in a store on this port.
fn on_store(port: u16, mode: Mode) -> RateLimitLayer {
    let rules = "
domains:
  api:
    rules:
      - {name: all, key: {entry: user}, limit: 5/hour, on_store_failure: deny}
      - {name: failures, key: {entry: user}, count: response.status == 200, limit: 1/hour, on_store_failure: allow}
";
    let outside = Outside { default_is_elsewhere: Some(true), ..Outside::default() };
    let loaded = load_text("rules.yaml", rules, &LoadOptions { outside, ..LoadOptions::default() });
    let options = Options { store: Some(format!("redis://127.0.0.1:{port}?timeout=2s").into()), ..Options::default() };
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let engine = Arc::new(Engine::with_policy(options, policy).unwrap());
    let layer = RateLimitLayer::policy(engine, "api").descriptor([("user", KeyBy::header("x-user"))]);
    layer.mode(mode).build().unwrap()
}

/// A store that takes connections and never answers.
async fn store_that_hangs() -> (TcpListener, u16) {
    let store = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = store.local_addr().unwrap().port();
    (store, port)
}

/// Waits until so many would have been refused.
async fn until_would_refuse(layer: &RateLimitLayer, count: u64) {
    let counted = async {
        while layer.switch().would_refuse() != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), counted).await.is_ok(), "{:?}", layer.switch());
}

/// What only watches must not be felt: neither as a refusal nor as a delay.
#[tokio::test]
async fn a_dark_launch_waits_for_no_store() {
    let (_store, port) = store_that_hangs().await;
    let (layer, ann) = (on_store(port, Mode::Shadow), || get("/", &[("x-user", "ann")]));
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(status(&layer, ann()).await, 200);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_millis(500), "three requests were kept for {took:?}");
    assert_eq!(layer.switch().refused(), 0);
    // What would have become of them is found out meanwhile.
    until_would_refuse(&layer, 3).await;
    assert_eq!(status(&on_store(port, Mode::Enforce), ann()).await, 503);
}

/// What is found out beside a request counts as it would count before it: requests, and responses.
#[tokio::test]
async fn a_dark_launch_counts_in_the_store() {
    let server = Server::start(&Setup::default());
    let layer = on_store(server.port, Mode::Shadow);
    let ann = || get("/", &[("x-user", "ann")]);
    assert_eq!(status(&layer, ann()).await, 200);
    // The first response uses up the limit on those, as a layer that acts sees.
    let acts = on_store(server.port, Mode::Enforce);
    let seen = async {
        while status(&acts, ann()).await != 429 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), seen).await.is_ok());
    let before = layer.switch().would_refuse();
    assert_eq!(status(&layer, ann()).await, 200);
    until_would_refuse(&layer, before + 1).await;
    assert_eq!(layer.switch().refused(), 0);
}

/// A service that is not there when its answer is to be counted.
#[tokio::test]
async fn a_service_that_panics_leaves_the_layer_whole() {
    let layer = RateLimitLayer::limit("3/minute".parse().unwrap(), KeyBy::everyone()).clock(FakeClock::new());
    let layer = layer.settle(|_| Settle::Refund(1)).build().unwrap();
    let panics = |request: Request<()>| async move {
        assert!(request.uri().path() != "/break", "broken");
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    };
    for _ in 0..2 {
        let task = tokio::spawn(layer.layer(service_fn(panics)).oneshot(get("/break", &[])));
        assert!(task.await.is_err_and(|error| error.is_panic()));
    }
    for _ in 0..5 {
        assert_eq!(status(&layer, get("/", &[])).await, 200, "those are given back");
    }
}
