//! What tower asks of a service, and what many threads do to one.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tidegate_core::Dice;
use tidegate_core::adaptive::{Aimd, AimdConfig};
use tidegate_tower::{
    AdaptiveLayer, ConcurrencyLayer, FairLayer, KeyBy, KeyedConcurrencyLayer, Lesson, Queue, RateLimitLayer,
    ShapeLayer, Shaper, ShaperConfig, ShedLayer, StackLayer, Tenant,
};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::support::{Slow, read, request};

/// Panics if it is called without having been ready. Its clones are not ready.
#[derive(Default)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Strict {
        Strict { ready: false }
    }
}

impl Service<Request<String>> for Strict {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been ready");
        ready(Ok(Response::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_service_that_is_ready_is_called() {
    let layer = ConcurrencyLayer::builder(1).queue(Queue::new(1, Duration::from_secs(1))).build().unwrap();
    let mut service = layer.layer(Strict::default());
    for _ in 0..2 {
        let held = layer.handle().acquire().await.unwrap();
        let waits = service.ready().await.unwrap().call(request(&[]));
        let refused = service.ready().await.unwrap().call(request(&[]));
        assert_eq!(refused.await.unwrap().status(), 503);
        drop(held);
        assert_eq!(waits.await.unwrap().status(), 200);
        assert_eq!(service.ready().await.unwrap().call(request(&[])).await.unwrap().status(), 200);
    }
    let shaper = Shaper::new("10/s".parse().unwrap(), ShaperConfig::default()).unwrap();
    let mut client = ShapeLayer::new(shaper).layer(Strict::default());
    for _ in 0..2 {
        let first = client.ready().await.unwrap().call(request(&[]));
        let second = client.ready().await.unwrap().call(request(&[]));
        assert!(first.await.is_ok() && second.await.is_ok());
    }
}

/// Many tasks on several threads, half of which go away at random moments, before a limit that changes all the time.
/// Nobody is forgotten, no place is lost, and nobody waits in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_lose_nothing() {
    let queue = Queue::new(1000, Duration::from_secs(60));
    let config = AimdConfig { initial: 4, min: 1, max: 8, backoff: 0.5, ..AimdConfig::default() };
    let learns = || AdaptiveLayer::builder(Aimd::new(config).unwrap()).queue(queue).without_window();
    let adaptive = learns().build().unwrap();
    let divided = learns().partitions([0.5, 0.3], |head| Some(usize::from(head.uri().port_u16()? % 3)));
    let divided = divided.build().unwrap();
    let tenant = |head: tidegate_tower::Head<'_>| head.uri().port_u16().map(|port| port % 7);
    let fair = FairLayer::builder(4, move |head| Some(Tenant::new(vec![u8::try_from(tenant(head)? + 1).ok()?])));
    let fair = fair.deadline(Duration::from_secs(60)).build().unwrap();
    let limit = ConcurrencyLayer::builder(3).queue(queue).build().unwrap();
    let port = |head: tidegate_tower::Head<'_>| Some((head.uri().port_u16()? % 5).to_be_bytes().to_vec().into());
    let keyed = KeyedConcurrencyLayer::builder(1, move |head| port(head)).queue(queue).build().unwrap();
    let slow = Slow::default();
    let service = keyed.layer(fair.layer(divided.layer(adaptive.layer(limit.layer(slow.clone())))));
    let mut dice = Dice::new(3);
    let mut kept = Vec::new();
    for number in 0..4000u16 {
        let mut request = request(&[("answer", if dice.roll().is_multiple_of(9) { "503" } else { "200" })]);
        *request.uri_mut() = format!("http://host:{}/", 1 + number).parse().unwrap();
        let response = service.clone().oneshot(request);
        let task = tokio::spawn(async move { read(response.await.unwrap()).await });
        if dice.roll().is_multiple_of(2) {
            kept.push(task);
        } else {
            let spins = dice.roll() % 200;
            tokio::spawn(async move {
                for _ in 0..spins {
                    tokio::task::yield_now().await;
                }
                task.abort();
            });
        }
        if number % 50 == 0 {
            // What is held for a moment makes others wait.
            let permit = adaptive.handle().acquire().await;
            tokio::task::yield_now().await;
            permit.unwrap().end(Lesson::Success);
        }
    }
    for task in kept {
        let response = tokio::time::timeout(Duration::from_secs(50), task).await.expect("somebody was forgotten");
        assert!(response.is_ok());
    }
    // Those that were aborted last may still be leaving.
    for _ in 0..1_000_000 {
        if fair.handle().in_flight() == 0 && keyed.handle().waiting() == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!((divided.handle().in_flight(), divided.handle().waiting()), (0, 0));
    let places = [fair.handle().in_flight(), adaptive.handle().in_flight(), limit.handle().in_flight()];
    let waiting =
        [fair.handle().waiting(), adaptive.handle().waiting(), limit.handle().waiting() + keyed.handle().waiting()];
    assert_eq!((places, waiting, slow.inside()), ([0; 3], [0; 3], 0));
    assert!(slow.most() <= 3);
    for port in 0..5u16 {
        assert_eq!(keyed.handle().in_flight(tidegate_core::Key::new(&port.to_be_bytes()).unwrap()), 0);
    }
    assert_eq!(service.oneshot(request(&[])).await.unwrap().status(), 200);
}

/// Calls a service whose errors are boxed, in a task of its own. A macro, since a function would say of the service what
/// the compiler has to find out.
macro_rules! fails_in_a_task {
    ($layer:expr) => {{
        let fails = |_: Request<String>| ready(Err::<Response<String>, BoxError>("failed".into()));
        let service = $layer.layer(service_fn(fails));
        let task = tokio::spawn(async move { service.oneshot(request(&[])).await.map(drop) });
        assert_eq!(task.await.unwrap().unwrap_err().to_string(), "failed");
    }};
}

/// That this compiles is what it is about: a layer that looks at no error asks nothing of errors.
#[tokio::test]
async fn services_with_boxed_errors_are_called_in_tasks() {
    fails_in_a_task!(RateLimitLayer::limit("1/hour".parse().unwrap(), KeyBy::everyone()).build().unwrap());
    fails_in_a_task!(ConcurrencyLayer::new(1).unwrap());
    fails_in_a_task!(KeyedConcurrencyLayer::builder(1, |_| None).build().unwrap());
    fails_in_a_task!(FairLayer::builder(1, |_| None).build().unwrap());
    fails_in_a_task!(ShedLayer::fleet(10, 0.2).build().unwrap());
    fails_in_a_task!(StackLayer::builder(1).build().unwrap());
}
