//! Bodies that are made as they are sent: work goes on until their end, and so does the hold on a place.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use tidegate_core::Key;
use tidegate_core::adaptive::{Aimd, AimdConfig};
use tidegate_tower::{AdaptiveLayer, ConcurrencyLayer, FairLayer, KeyedConcurrencyLayer, Queue, ShedLayer, Tenant};
use tokio::time::{Instant, Sleep, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{pass, request};

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It knows that its last frame is the last.
    Known,
    /// It is found out by asking for another frame.
    Asked,
    Trailers,
    Error,
}

/// Three bytes, each of which takes 100 ms, and an end.
struct Stream {
    timer: Pin<Box<Sleep>>,
    left: u64,
    end: End,
    has_ended: bool,
}

impl Stream {
    fn ending(end: End) -> Stream {
        Stream { timer: Box::pin(sleep(PACE)), left: 3, end, has_ended: false }
    }
}

const PACE: Duration = Duration::from_millis(100);

impl Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            let is_first = !std::mem::replace(&mut self.has_ended, true);
            return Poll::Ready(match self.end {
                End::Trailers if is_first => Some(Ok(Frame::trailers(trailers()))),
                End::Error if is_first => Some(Err(io::Error::other("broken"))),
                _ => None,
            });
        }
        ready!(self.timer.as_mut().poll(context));
        self.timer.as_mut().reset(Instant::now() + PACE);
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && (self.end == End::Known || self.has_ended)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))])
}

/// Answers after 50 ms, with a stream.
fn streaming(
    end: End,
) -> impl Service<Request<String>, Response = Response<Stream>, Error = Infallible, Future: Send> + Clone + Send {
    service_fn(move |_| async move {
        sleep(Duration::from_millis(50)).await;
        Ok(Response::new(Stream::ending(end)))
    })
}

/// Reads a stream frame by frame: its place is held after each but the last, and free after that, though the body is
/// still there.
async fn check_read<B>(name: &str, end: End, response: Response<B>, in_flight: impl Fn() -> u64)
where
    B: Body<Data = Bytes, Error = io::Error> + Unpin,
{
    let mut body = response.into_body();
    assert_eq!(in_flight(), 1, "{name}, {end:?}: the head is there, and the work goes on");
    for read in 0..3 {
        assert_eq!(body.size_hint().exact(), Some(3 - read), "{name}, {end:?}");
        assert_eq!(in_flight(), 1, "{name}, {end:?}: after {read} frames");
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
    }
    match end {
        End::Known => {}
        End::Asked => assert!(body.frame().await.is_none()),
        End::Trailers => assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers()),
        End::Error => assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "broken"),
    }
    assert!(body.is_end_stream(), "{name}, {end:?}");
    assert_eq!(in_flight(), 0, "{name}, {end:?}: it has ended");
}

/// The same for a body that is dropped half-way.
async fn check_dropped<B>(name: &str, response: Response<B>, in_flight: impl Fn() -> u64)
where
    B: Body<Data = Bytes, Error = io::Error> + Unpin,
{
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    assert_eq!(in_flight(), 1, "{name}");
    drop(body);
    assert_eq!(in_flight(), 0, "{name}");
}

/// Each way that a stream ends, behind a layer.
macro_rules! check {
    ($name:literal, $layer:expr, $in_flight:expr) => {
        let layer = $layer.build().unwrap();
        let in_flight = || $in_flight(&layer);
        for end in [End::Known, End::Asked, End::Trailers, End::Error] {
            let response = layer.layer(streaming(end)).oneshot(request(&[("client", "ann")])).await.unwrap();
            check_read($name, end, response, in_flight).await;
        }
        let response = layer.layer(streaming(End::Asked)).oneshot(request(&[("client", "ann")])).await.unwrap();
        check_dropped($name, response, in_flight).await;
    };
}

fn aimd(initial: u64) -> tidegate_tower::AdaptiveBuilder {
    let config = AimdConfig { initial, min: 1, max: 10, ..AimdConfig::default() };
    AdaptiveLayer::builder(Aimd::new(config).unwrap()).without_window()
}

#[tokio::test(start_paused = true)]
async fn a_place_is_held_until_the_body_has_ended() {
    let queue = Queue::new(1, Duration::from_secs(1));
    let keyed = || KeyedConcurrencyLayer::builder(1, |head| head.header("client"));
    let of_ann = |layer: &KeyedConcurrencyLayer| layer.handle().in_flight(Key::new("ann").unwrap());
    check!("concurrency", ConcurrencyLayer::builder(1), |layer: &ConcurrencyLayer| layer.handle().in_flight());
    check!("concurrency for each key", keyed(), of_ann);
    check!("a line for each key", keyed().queue(queue), of_ann);
    check!("adaptive", aimd(1), |layer: &AdaptiveLayer| layer.handle().in_flight());
    let divided = aimd(4).partitions([0.5], |_| Some(0));
    check!("adaptive with shares", divided, |layer: &AdaptiveLayer| layer.handle().in_flight());
    let fair = FairLayer::builder(1, |head| Some(Tenant::new(head.header("client")?)));
    check!("fair", fair, |layer: &FairLayer| layer.handle().in_flight());
    check!("fleet", ShedLayer::fleet(1, 0.0), |layer: &ShedLayer| layer.handle().in_flight());
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_let_in_when_a_body_before_has_ended() {
    let layer = ConcurrencyLayer::builder(1).queue(Queue::new(1, Duration::from_secs(1))).build().unwrap();
    let service = layer.layer(streaming(End::Asked));
    let first = service.clone().oneshot(request(&[])).await.unwrap();
    let second = tokio::spawn(service.clone().oneshot(request(&[])));
    let reads = tokio::spawn(first.into_body().collect());
    pass(100).await;
    pass(100).await;
    assert_eq!((layer.handle().waiting(), second.is_finished()), (1, false));
    assert_eq!(service.oneshot(request(&[])).await.unwrap().status(), 503);
    pass(100).await;
    assert!(reads.is_finished());
    assert_eq!((layer.handle().waiting(), second.is_finished()), (0, false));
    pass(50).await;
    assert!(second.is_finished());
    assert_eq!(layer.handle().in_flight(), 1, "the second's body is still to be read");
}

/// The time of a sample ends with the head: how long a client takes to read tells nothing of the load. With the body it
/// would be late, and the limit would fall.
#[tokio::test(start_paused = true)]
async fn an_adaptive_limit_learns_at_the_head_and_once() {
    let config = AimdConfig { initial: 2, min: 1, max: 10, timeout: 2 * PACE, ..AimdConfig::default() };
    let layer = AdaptiveLayer::builder(Aimd::new(config).unwrap()).without_window().build().unwrap();
    let service = layer.layer(streaming(End::Asked));
    let response = service.oneshot(request(&[])).await.unwrap();
    assert_eq!((layer.handle().limit(), layer.handle().in_flight()), (3, 1));
    response.into_body().collect().await.unwrap();
    assert_eq!((layer.handle().limit(), layer.handle().in_flight()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_empty_holds_nothing() {
    let layer = ConcurrencyLayer::new(1).unwrap();
    let empty = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let _response = layer.layer(empty).oneshot(request(&[])).await.unwrap();
    assert_eq!(layer.handle().in_flight(), 0);
    let failing = service_fn(async |_: Request<String>| Err::<Response<Stream>, _>("broken"));
    assert_eq!(layer.layer(failing).oneshot(request(&[])).await.err(), Some("broken"));
    assert_eq!(layer.handle().in_flight(), 0);
}
