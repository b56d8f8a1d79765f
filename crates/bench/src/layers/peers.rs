//! Peers that do the same work as our layers: by hand, as short as they can be, and limitador behind the same layer.
//!
//! tower's `ConcurrencyLimit` frees a place when the head of the response is there, knows no keys and reads no clock.
//! Its `RateLimit` cannot be cloned, so what it limits is called by one caller alone. These are what somebody would write who
//! needs more: tokio's semaphore, a map under a lock, the clock of the system.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

use super::caller::CLIENT;
use crate::subjects::limitador::{self, InMemory};

/// Gives places out.
pub(super) trait Places: Clone {
    type Held;

    fn take<A>(&self, request: &Request<A>) -> Option<Self::Held>;

    /// The response is there.
    fn answered(_: &mut Self::Held) {}
}

/// A place among all, held until the body has ended.
#[derive(Clone)]
pub(super) struct All(pub(super) Arc<Semaphore>);

impl Places for All {
    type Held = OwnedSemaphorePermit;

    fn take<A>(&self, _: &Request<A>) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// The same, and how long the response took.
#[derive(Clone)]
pub(super) struct Timed(pub(super) Arc<Semaphore>, pub(super) Arc<Mutex<Duration>>);

pub(super) struct TimedPlace {
    _permit: OwnedSemaphorePermit,
    started: Instant,
    sum: Arc<Mutex<Duration>>,
}

impl Places for Timed {
    type Held = TimedPlace;

    fn take<A>(&self, _: &Request<A>) -> Option<TimedPlace> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(TimedPlace { _permit: permit, started: Instant::now(), sum: Arc::clone(&self.1) })
    }

    fn answered(held: &mut TimedPlace) {
        let elapsed = held.started.elapsed();
        if let Ok(mut sum) = held.sum.lock() {
            *sum += elapsed;
        }
    }
}

/// A place of a client, by its header, held until the body has ended.
#[derive(Clone)]
pub(super) struct Each(pub(super) Arc<Mutex<HashMap<Arc<[u8]>, usize>>>, pub(super) usize);

pub(super) struct ClientPlace(Arc<Mutex<HashMap<Arc<[u8]>, usize>>>, Arc<[u8]>);

impl Places for Each {
    type Held = ClientPlace;

    fn take<A>(&self, request: &Request<A>) -> Option<ClientPlace> {
        let client: Arc<[u8]> = Arc::from(request.headers().get(CLIENT)?.as_bytes());
        let mut clients = self.0.lock().ok()?;
        let count = clients.entry(Arc::clone(&client)).or_default();
        if *count >= self.1 {
            return None;
        }
        *count += 1;
        drop(clients);
        Some(ClientPlace(Arc::clone(&self.0), client))
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let Ok(mut clients) = self.0.lock() else { return };
        if let Some(count) = clients.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.1);
            }
        }
    }
}

/// Requests of an address, as limitador counts them: by a limit that it finds, in a namespace, by the values of a request.
#[derive(Clone)]
pub(super) struct Limited(pub(super) Rc<InMemory>);

impl Places for Limited {
    type Held = ();

    fn take<A>(&self, request: &Request<A>) -> Option<()> {
        let ConnectInfo(address) = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
        self.0.check(&limitador::context(&address.ip().to_string())).then_some(())
    }
}

/// Requests one interval apart, whichever clone they come through. It does less than a shaper: who would have to wait is let
/// in at once, and only who would have to for longer than [`LONGEST_WAIT`] is refused.
#[derive(Clone)]
pub(super) struct Paced {
    next: Arc<Mutex<Instant>>,
    interval: Duration,
}

/// As a shaper has it if nothing is said.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl Paced {
    pub(super) fn new(per_second: u64) -> Paced {
        Paced { next: Arc::new(Mutex::new(Instant::now())), interval: Duration::from_nanos(1_000_000_000 / per_second) }
    }
}

impl Places for Paced {
    type Held = ();

    fn take<A>(&self, _: &Request<A>) -> Option<()> {
        let now = Instant::now();
        let mut next = self.next.lock().ok()?;
        let turn = now.max(*next);
        if turn - now > LONGEST_WAIT {
            return None;
        }
        *next = turn + self.interval;
        Some(())
    }
}

/// Holds a place for each request until the body of its response has ended.
#[derive(Clone)]
pub(super) struct HoldLayer<P>(pub(super) P);

#[derive(Clone)]
pub(super) struct Hold<S, P> {
    inner: S,
    places: P,
}

impl<S, P: Clone> Layer<S> for HoldLayer<P> {
    type Service = Hold<S, P>;

    fn layer(&self, inner: S) -> Hold<S, P> {
        Hold { inner, places: self.0.clone() }
    }
}

impl<S, A, P> Service<Request<A>> for Hold<S, P>
where
    S: Service<Request<A>, Response = Response<Body>>,
    P: Places,
{
    type Response = Response<Held<P::Held>>;
    type Error = S::Error;
    type Future = HoldFuture<S::Future, P>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        match self.places.take(&request) {
            Some(held) => HoldFuture::Served { future: self.inner.call(request), held: Some(held) },
            None => HoldFuture::Refused,
        }
    }
}

pin_project! {
    #[project = HoldProjection]
    pub(super) enum HoldFuture<F, P: Places> {
        Served { #[pin] future: F, held: Option<P::Held> },
        Refused,
    }
}

impl<F, P, E> Future for HoldFuture<F, P>
where
    F: Future<Output = Result<Response<Body>, E>>,
    P: Places,
{
    type Output = Result<Response<Held<P::Held>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            HoldProjection::Served { future, held } => {
                let response = ready!(future.poll(context))?;
                if let Some(held) = held {
                    P::answered(held);
                }
                let held = held.take().filter(|_| !response.body().is_end_stream());
                Poll::Ready(Ok(response.map(|body| Held { body, held })))
            }
            HoldProjection::Refused => {
                let mut response = Response::new(Held { body: Body::from("busy"), held: None });
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                Poll::Ready(Ok(response))
            }
        }
    }
}

pin_project! {
    /// A body, and a place until its end.
    pub(super) struct Held<H> {
        #[pin]
        body: Body,
        held: Option<H>,
    }
}

impl<H> HttpBody for Held<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if frame.is_none() {
            *this.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
