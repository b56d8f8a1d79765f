//! What a request holds while its rate is told what became of it.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tidegate_core::FakeClock;
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, Outside, load_text};
use tidegate_testkit::servers::{Server, Setup};
use tidegate_tower::{ConcurrencyLayer, FairLayer, KeyBy, MissingKey, RateLimitLayer, StackHandle, StackLayer};
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{grpc, request, tenant};

/// Those in progress, at each part that counts them.
fn in_flight(handle: &StackHandle) -> Vec<u64> {
    handle.stats().parts().filter_map(|part| part.in_flight).collect()
}

/// A service that failed is done, whether or not somebody still holds the future that told so.
#[tokio::test(start_paused = true)]
async fn a_failure_frees_the_place_when_it_is_told() {
    let rate = RateLimitLayer::limit("3/hour".parse().unwrap(), KeyBy::header("tenant")).clock(FakeClock::new());
    let stack = StackLayer::builder(1).rate(rate.build().unwrap()).tenant(tenant).build().unwrap();
    let fails = |_: Request<()>| ready(Err::<Response<Body>, _>("failed"));
    let mut future = pin!(stack.layer(service_fn(fails)).call(request("a")));
    assert_eq!(in_flight(&stack.handle()), [1, 1]);
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err("failed"))));
    assert_eq!(in_flight(&stack.handle()), [0, 0]);
}

/// A stack whose rate tells a Redis how each request was answered. The Redis answers when it is asked, and hangs from
/// then on.
fn reporting(server: &Arc<Server>) -> StackLayer {
    let rules = "
domains:
  api:
    rules:
      - {name: answers, key: {entry: tenant}, count: response.status > 0, limit: 100/hour, on_store_failure: allow}
";
    let outside = Outside { default_is_elsewhere: Some(true), ..Outside::default() };
    let loaded = load_text("rules.yaml", rules, &LoadOptions { outside, ..LoadOptions::default() });
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let store = Some(format!("redis://127.0.0.1:{}?timeout=5s", server.port).into());
    let engine = Arc::new(Engine::with_policy(Options { store, ..Options::default() }, policy).unwrap());
    let rate = RateLimitLayer::policy(engine, "api").descriptor([("tenant", KeyBy::header("tenant"))]).build().unwrap();
    let asked = Arc::clone(server);
    let fair = FairLayer::builder(5, move |head| {
        asked.hang();
        tenant(head)
    });
    // Where those without a tenant are denied, the tenant is asked for even while there is room.
    let fair = fair.missing_key(MissingKey::Deny).build().unwrap();
    StackLayer::builder(1).rate(rate).fair(fair).concurrency(ConcurrencyLayer::new(1).unwrap()).build().unwrap()
}

/// Sends a request that is answered without a body, and waits until it holds nothing, before the store has been told.
async fn holds_nothing(asked: Request<()>, is_busy: bool) {
    let server = Arc::new(Server::start(&Setup::default()));
    let stack = reporting(&server);
    let handle = stack.handle();
    let _busy = is_busy.then(|| handle.concurrency().unwrap().try_acquire().unwrap());
    let came = || handle.stats().fair.unwrap().allowed == 1;
    let service = stack.layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Body::empty())))));
    let answer = tokio::spawn(service.oneshot(asked));
    let released = async {
        while !(came() && in_flight(&handle) == [0, u64::from(is_busy)]) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(3), released).await.unwrap_or_else(|_| panic!("{:?}", handle.stats()));
    assert!(!answer.is_finished(), "the store has not been told yet");
    server.go_on();
    answer.await.unwrap().unwrap();
}

/// A body that has ended holds nothing, however long the store takes to hear of it.
#[tokio::test]
async fn an_empty_answer_holds_no_place_while_a_store_is_told() {
    holds_nothing(request("a"), false).await;
}

/// Who is refused by one part gives back what it had of those before, and only then is the store told.
#[tokio::test]
async fn a_refusal_holds_no_place_while_a_store_is_told() {
    holds_nothing(request("a"), true).await;
    holds_nothing(grpc("a"), true).await;
}
