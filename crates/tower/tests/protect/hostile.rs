//! What breaks in the middle: closures, services and bodies that panic, callers who leave at the worst moment, and
//! switches that are turned while somebody waits. Every place comes back, and the layers go on.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tidegate_core::Key;
use tidegate_core::adaptive::{Aimd, AimdConfig};
use tidegate_core::shed::{CoDelConfig, Criticality, WorkerShedderConfig};
use tidegate_tower::{
    AdaptiveBuilder, AdaptiveLayer, ConcurrencyLayer, FairLayer, Head, KeyedConcurrencyLayer, Lesson, Measure,
    MissingKey, Mode, Queue, ShapeLayer, Shaper, ShaperConfig, ShedLayer, StackLayer, Switch, Tenant, ThrottleLayer,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Slow, pass, request, send, settle, status};

/// Where a request breaks, as its header `break` says.
fn breaks(head: Head<'_>, place: &str) {
    assert!(head.headers().get("break").is_none_or(|told| told != place), "broken: {place}");
}

/// Panics when it is called, when it is polled, or in its body.
#[derive(Clone)]
struct Fragile;

struct FragileBody {
    breaks: bool,
    left: u8,
}

impl Body for FragileBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        assert!(!self.breaks, "broken: body");
        self.left = self.left.saturating_sub(1);
        Poll::Ready((self.left > 0).then(|| Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

impl Service<Request<String>> for Fragile {
    type Response = Response<FragileBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FragileBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        breaks(Head::of(&request), "call");
        Box::pin(async move {
            tokio::task::yield_now().await;
            breaks(Head::of(&request), "poll");
            let in_body = request.headers().get("break").is_some_and(|told| told == "body");
            let mut response = Response::new(FragileBody { breaks: in_body, left: 3 });
            if let Some(told) = request.headers().get("break") {
                response.headers_mut().insert("break", told.clone());
            }
            Ok(response)
        })
    }
}

fn judge(end: tidegate_tower::Ended<'_>) -> Lesson {
    if let tidegate_tower::Ended::Response { headers, .. } = end {
        assert!(headers.get("break").is_none_or(|told| told != "judge"), "broken: judge");
    }
    Lesson::Success
}

fn aimd(initial: u64) -> AdaptiveBuilder {
    let config = AimdConfig { initial, min: 1, max: initial.max(10), ..AimdConfig::default() };
    AdaptiveLayer::builder(Aimd::new(config).unwrap()).without_window()
}

/// One place, which each request that breaks must give back; then two more pass.
async fn check_breaks<S, B>(name: &str, service: S, in_flight: impl Fn() -> u64, places: &[&str])
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
{
    for place in places.iter().copied().chain(["call", "poll", "body"]) {
        for round in 0..3 {
            let service = AssertUnwindSafe(service.clone());
            let request = request(&[("break", place), ("client", "ann")]);
            let task = tokio::spawn(async move {
                let AssertUnwindSafe(service) = { service };
                let response = service.oneshot(request).await.unwrap();
                assert_eq!(response.status(), 200);
                response.into_body().collect().await.map(drop).map_err(drop).unwrap();
            });
            assert!(task.await.is_err_and(|error| error.is_panic()), "{name}: {place} did not break");
            assert_eq!(in_flight(), 0, "{name}: after {place}, {round}");
        }
        let response = service.clone().oneshot(request(&[("client", "ann")])).await.unwrap();
        assert_eq!(response.status(), 200, "{name}: after {place}");
        assert!(response.into_body().collect().await.is_ok());
        assert_eq!(in_flight(), 0, "{name}: after {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_panics_gives_its_place_back() {
    let queue = Queue::new(1, Duration::from_secs(1));
    let key = |head: Head<'_>| {
        breaks(head, "key");
        head.header("client").map(|name| name.into_owned().into())
    };
    let layer = ConcurrencyLayer::new(1).unwrap();
    let handle = layer.handle();
    check_breaks("concurrency", layer.layer(Fragile), || handle.in_flight(), &[]).await;
    for queued in [false, true] {
        let builder = KeyedConcurrencyLayer::builder(1, move |head| key(head));
        let layer = if queued { builder.queue(queue) } else { builder }.build().unwrap();
        let handle = layer.handle();
        let in_flight = || handle.in_flight(Key::new("ann").unwrap());
        check_breaks("keyed", layer.layer(Fragile), in_flight, &["key"]).await;
    }
    let layer = aimd(1).judge(judge).build().unwrap();
    let handle = layer.handle();
    check_breaks("adaptive", layer.layer(Fragile), || handle.in_flight(), &["judge"]).await;
    let part = |head: Head<'_>| {
        breaks(head, "key");
        Some(0)
    };
    let layer = aimd(1).judge(judge).partitions([1.0], part).build().unwrap();
    let handle = layer.handle();
    check_breaks("shares", layer.layer(Fragile), || handle.in_flight(), &["key", "judge"]).await;
    let tenant = |head: Head<'_>| {
        breaks(head, "key");
        head.header("client").map(|name| Tenant::new(name.into_owned()))
    };
    // Where those without a tenant share, nobody is asked for it while there is room.
    let layer = FairLayer::builder(1, move |head| tenant(head)).missing_key(MissingKey::Deny).build().unwrap();
    let handle = layer.handle();
    check_breaks("fair", layer.layer(Fragile), || handle.in_flight(), &["key"]).await;
    let class = |head: Head<'_>| {
        breaks(head, "key");
        Criticality::Get
    };
    let layer = ShedLayer::fleet(1, 0.0).class(class).build().unwrap();
    let handle = layer.handle();
    check_breaks("fleet", layer.layer(Fragile), || handle.in_flight(), &["key"]).await;
    let stack = StackLayer::builder(1).class(class).tenant(move |head| tenant(head)).build().unwrap();
    let handle = stack.handle();
    let in_flight = || handle.stats().parts().filter_map(|part| part.in_flight).sum();
    check_breaks("stack", stack.layer(Fragile), in_flight, &["key"]).await;
}

#[tokio::test(start_paused = true)]
async fn measures_costs_and_judges_of_clients_may_panic() {
    let measure = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let told = std::sync::Arc::clone(&measure);
    let told = move || if told.load(std::sync::atomic::Ordering::SeqCst) { panic!("broken") } else { 0.5 };
    let layer = ShedLayer::worker(WorkerShedderConfig::default(), Measure::utilisation(told)).build().unwrap();
    let service = layer.layer(Slow::default());
    assert!(tokio::spawn(service.clone().oneshot(request(&[]))).await.unwrap_err().is_panic());
    measure.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(service.oneshot(request(&[])).await.unwrap().status(), 200);
    assert_eq!((layer.handle().in_flight(), layer.handle().level()), (0, Some(0.0)));

    let cost = |head: Head<'_>| {
        breaks(head, "cost");
        1
    };
    let shaper = Shaper::new("10/s".parse().unwrap(), ShaperConfig::default()).unwrap();
    let client = ShapeLayer::new(shaper.clone()).cost(cost).layer(Fragile);
    for place in ["cost", "call", "poll"] {
        // The second waits for its turn, and breaks after it.
        let tasks = [0, 1].map(|_| tokio::spawn(client.clone().oneshot(request(&[("break", place)]))));
        for task in tasks {
            assert!(task.await.is_err_and(|error| error.is_panic()), "{place}");
        }
        assert_eq!(shaper.waiting(), 0, "{place}");
    }
    assert!(client.oneshot(request(&[])).await.is_ok());

    let accepted = |end: tidegate_tower::Ended<'_>| judge(end) == Lesson::Success;
    let layer = ThrottleLayer::builder(Default::default()).accepted(accepted).mode(Mode::Shadow).build().unwrap();
    let client = layer.layer(Fragile);
    for place in ["judge", "call", "poll"] {
        let task = tokio::spawn(client.clone().oneshot(request(&[("break", place)])));
        assert!(task.await.is_err_and(|error| error.is_panic()), "{place}");
    }
    assert_eq!(layer.probability(), 0.75, "three were sent and none was accepted");
}

/// Those who wait behind one that panics are served.
#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_panic_is_served() {
    let layer = ConcurrencyLayer::builder(1).queue(Queue::new(9, Duration::from_secs(9))).build().unwrap();
    let service = layer.layer(Fragile);
    let held = layer.handle().acquire().await.unwrap();
    let mut tasks = Vec::new();
    for place in ["call", "nowhere", "poll", "body", "nowhere"] {
        let response = service.clone().oneshot(request(&[("break", place)]));
        tasks.push(tokio::spawn(async move { drop(response.await.unwrap().into_body().collect().await) }));
        settle().await;
    }
    assert_eq!(layer.handle().waiting(), 5);
    drop(held);
    let mut ended = Vec::new();
    for task in tasks {
        ended.push(task.await.is_ok());
    }
    assert_eq!(ended, [false, true, false, false, true]);
    assert_eq!((layer.handle().in_flight(), layer.handle().waiting()), (0, 0));
}

/// A request of a key is shed, and its caller leaves before it has heard of it. Meanwhile all of the key have left, and
/// others have come: the one who leaves must not take the place in line of one of those.
#[tokio::test(start_paused = true)]
async fn who_leaves_late_takes_nobody_elses_place() {
    let codel = CoDelConfig { interval: Duration::from_millis(250), target: Duration::from_millis(10) };
    let queue = Queue::new(9, Duration::from_secs(60)).codel(codel);
    let layer = KeyedConcurrencyLayer::builder(1, |head| head.header("client")).queue(queue).build().unwrap();
    let (slow, ann) = (Slow::taking(100), Key::new("ann").unwrap());
    let (service, handle) = (layer.layer(slow.clone()), layer.handle());
    let ask = || service.clone().oneshot(request(&[("client", "ann")]));
    let held = handle.try_acquire(ann).unwrap();
    let (mut first, mut second, shed) = (begun(ask()), begun(ask()), begun(ask()));
    assert_eq!(handle.waiting(), 3);
    // The first is let in at 300 ms, the second at 600 ms, when the line is known to stand. At 700 ms the third is shed.
    pass(300).await;
    drop(held);
    assert!(poll_once(&mut first).is_pending() && slow.inside() == 1);
    pass(300).await;
    assert!(poll_once(&mut first).is_ready());
    drop(first);
    assert!(poll_once(&mut second).is_pending() && slow.inside() == 1);
    pass(100).await;
    assert!(poll_once(&mut second).is_ready());
    drop(second);
    assert_eq!((handle.in_flight(ann), handle.waiting()), (0, 0), "the third was told, and has not heard of it");
    let held = handle.try_acquire(ann).unwrap();
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(send(&service, request(&[("client", "ann")])).await);
    }
    drop(shed);
    assert_eq!(handle.waiting(), 3, "nobody else has left");
    drop(held);
    for other in others {
        assert_eq!(other.await.unwrap().status(), 200);
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that was polled once, and that nobody polls until the test does.
fn begun<T>(future: impl Future<Output = T> + Send + 'static) -> Boxed<T> {
    let mut future: Boxed<T> = Box::pin(future);
    assert!(poll_once(&mut future).is_pending());
    future
}

fn poll_once<T>(future: &mut Boxed<T>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
}

/// What a layer is asked, whichever it is.
struct Watched {
    switch: Switch,
    waiting: Box<dyn Fn() -> usize>,
    in_flight: Box<dyn Fn() -> u64>,
}

macro_rules! watched {
    ($layer:expr) => {{
        let (waiting, in_flight) = ($layer.handle(), $layer.handle());
        Watched {
            switch: $layer.handle().switch().clone(),
            waiting: Box::new(move || waiting.waiting()),
            in_flight: Box::new(move || in_flight.in_flight()),
        }
    }};
}

/// Three requests before one place; the layer is switched while two of them wait.
async fn check_switched<S, B>(name: &str, service: S, slow: Slow, layer: Watched, mode: Mode)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
{
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(send(&service, request(&[])).await);
    }
    assert_eq!(((layer.waiting)(), slow.inside()), (2, 1), "{name}, {mode:?}");
    layer.switch.set_mode(mode);
    pass(200).await;
    assert_eq!(((layer.waiting)(), slow.inside()), (0, 3), "{name}, {mode:?}");
    pass(10_000).await;
    for task in tasks {
        assert_eq!(task.await.unwrap().status(), 200, "{name}, {mode:?}");
    }
    let would = if mode == Mode::Shadow { 2 } else { 0 };
    assert_eq!((layer.switch.refused(), layer.switch.would_refuse()), (0, would), "{name}, {mode:?}");
    assert_eq!((layer.in_flight)(), 0, "{name}, {mode:?}");
    layer.switch.set_mode(Mode::Enforce);
    let _held = send(&service, request(&[])).await;
    let mut refused = send(&service, request(&[])).await;
    pass(200).await;
    assert_eq!(status(&mut refused).await, Some(503), "{name}, {mode:?}: it holds again");
}

/// Who waits when a layer is switched off, or only watches from now on, is not refused by it any more.
#[tokio::test(start_paused = true)]
async fn a_switch_that_is_turned_refuses_nobody_who_waits() {
    let (deadline, slow) = (Duration::from_millis(200), || Slow::taking(10_000));
    let queue = Queue::new(9, deadline);
    for mode in [Mode::Off, Mode::Shadow] {
        let (layer, slow_one) = (ConcurrencyLayer::builder(1).queue(queue).build().unwrap(), slow());
        let (service, watched) = (layer.layer(slow_one.clone()), watched!(layer));
        check_switched("concurrency", service, slow_one, watched, mode).await;
        let (layer, slow_one) = (aimd(1).queue(queue).build().unwrap(), slow());
        let (service, watched) = (layer.layer(slow_one.clone()), watched!(layer));
        check_switched("adaptive", service, slow_one, watched, mode).await;
        let divided = aimd(1).queue(queue).partitions([0.5], |_| Some(0));
        let (layer, slow_one) = (divided.build().unwrap(), slow());
        let (service, watched) = (layer.layer(slow_one.clone()), watched!(layer));
        check_switched("adaptive with shares", service, slow_one, watched, mode).await;
        let fair = FairLayer::builder(1, |_| Some(Tenant::new(&b"a"[..]))).deadline(deadline);
        let (layer, slow_one) = (fair.build().unwrap(), slow());
        let (service, watched) = (layer.layer(slow_one.clone()), watched!(layer));
        check_switched("fair", service, slow_one, watched, mode).await;
    }
}

/// Services that waste what they are given: ready and never called, dropped before the first poll, dropped while queued.
#[tokio::test(start_paused = true)]
async fn nothing_is_held_by_who_is_never_polled() {
    let queue = Queue::new(100, Duration::from_secs(1));
    let layer = ConcurrencyLayer::builder(2).queue(queue).build().unwrap();
    let fair = FairLayer::builder(2, |_| Some(Tenant::new(&b"a"[..]))).build().unwrap();
    let mut services: Vec<_> = (0..100).map(|_| fair.layer(layer.layer(Slow::taking(5)))).collect();
    for service in &mut services {
        service.ready().await.unwrap();
    }
    let in_flight = || (fair.handle().in_flight(), layer.handle().in_flight(), fair.handle().waiting());
    assert_eq!(in_flight(), (0, 0, 0), "who is ready holds nothing");
    let calls: Vec<_> = services.iter_mut().map(|service| service.call(request(&[]))).collect();
    assert_eq!(in_flight(), (2, 2, 98));
    drop(calls);
    assert_eq!(in_flight(), (0, 0, 0));
    // Without having been ready.
    let calls: Vec<_> = services.iter().map(|service| service.clone().call(request(&[]))).collect();
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }
    calls.reverse();
    drop(calls);
    assert_eq!(in_flight(), (0, 0, 0));
    let ok = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    assert_eq!(layer.layer(ok).oneshot(request(&[])).await.unwrap().status(), 200);
}
