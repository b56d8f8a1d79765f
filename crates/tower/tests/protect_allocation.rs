//! A request that is let in at once costs no allocation, but where each key has a line or a store is asked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tidegate_core::adaptive::{Gradient2, Gradient2Config};
use tidegate_core::shed::{ClientThrottleConfig, Criticality, WorkerShedderConfig};
use tidegate_testkit::counting::{Counting, allocated};
use tidegate_tower::{
    AdaptiveLayer, ConcurrencyLayer, FairLayer, KeyBy, KeyedConcurrencyLayer, Measure, RateLimitLayer, ShedLayer,
    StackLayer, Tenant, ThrottleLayer,
};
use tower::{Layer as _, Service, service_fn};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Answer = Ready<Result<Response<Full<Bytes>>, Infallible>>;

fn answer(_: Request<()>) -> Answer {
    ready(Ok(Response::new(Full::new(Bytes::from_static(b"hello")))))
}

/// Allocations of a hundred requests that pass, after some to warm up; and the size of the future.
fn check<S, B>(name: &str, service: S)
where
    S: Service<Request<()>, Response = Response<B>>,
{
    check_sized(name, service, 80);
}

/// The same, for a future that may be so many bytes larger than that of the service behind.
fn check_sized<S, B>(name: &str, mut service: S, bytes: usize)
where
    S: Service<Request<()>, Response = Response<B>>,
{
    let requests: Vec<Request<()>> =
        (0..110).map(|_| Request::builder().header("tenant", "ann").body(()).unwrap()).collect();
    let mut before = 0;
    let mut context = Context::from_waker(Waker::noop());
    let requests_left = requests.len() - 100;
    for (number, request) in requests.into_iter().enumerate() {
        if number == requests_left {
            before = allocated();
        }
        assert!(service.poll_ready(&mut context).is_ready());
        let mut response = pin!(service.call(request));
        let Poll::Ready(Ok(response)) = response.as_mut().poll(&mut context) else { panic!("{name}: it did not pass") };
        assert_eq!(response.status(), 200);
    }
    assert_eq!(allocated() - before, 0, "{name}");
    let (own, inner) = (size_of::<S::Future>(), size_of::<Answer>());
    assert!(own <= inner + bytes, "{name}: a future of {own} bytes around one of {inner}");
}

#[test]
fn who_passes_costs_no_allocation() {
    let inner = service_fn(answer);
    check("concurrency", ConcurrencyLayer::new(2).unwrap().layer(inner));
    let keyed = KeyedConcurrencyLayer::builder(2, |head| head.header("tenant")).build().unwrap();
    check("concurrency for each key", keyed.layer(inner));
    let limit = || Gradient2::new(Gradient2Config::default()).unwrap();
    check("adaptive", AdaptiveLayer::builder(limit()).build().unwrap().layer(inner));
    let divided = AdaptiveLayer::builder(limit()).partitions([0.5], |_| Some(0)).build().unwrap();
    check("adaptive with shares", divided.layer(inner));
    check("fleet", ShedLayer::fleet(2, 0.0).build().unwrap().layer(inner));
    let worker = ShedLayer::worker(WorkerShedderConfig::default(), Measure::Busy { workers: 2 }).build().unwrap();
    check("worker", worker.layer(inner));
    let fair = FairLayer::builder(2, |head| Some(Tenant::new(head.header("tenant")?))).build().unwrap();
    check("fair", fair.layer(inner));
    check("throttle", ThrottleLayer::builder(ClientThrottleConfig::default()).build().unwrap().layer(inner));
    let rate = RateLimitLayer::limit("1000000/s".parse().unwrap(), KeyBy::header("tenant")).headers_on_pass(false);
    let stack = StackLayer::builder(2)
        .class(|_| Criticality::Get)
        .rate(rate.build().unwrap())
        .tenant(|head| Some(Tenant::new(head.header("tenant")?)))
        .build()
        .unwrap();
    check_sized("stack", stack.layer(inner), 4 * 80);
}
