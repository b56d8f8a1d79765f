//! The layer that shapes a client's requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Request;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{NotNow, ShapeError, Shaper};
use crate::head::Head;

/// Sends a client's requests at an even pace. Requests that would have to wait too long fail with [`Shaped::Refused`].
///
/// A waiting request holds a clone of the client behind that is ready.
///
/// ```
/// use tidegate_tower::{ShapeLayer, Shaper, ShaperConfig};
///
/// let shaper = Shaper::new("50/s".parse()?, ShaperConfig::default())?;
/// let layer = ShapeLayer::new(shaper).cost(|head| if head.uri().path() == "/search" { 5 } else { 1 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ShapeLayer {
    shaper: Shaper,
    cost: Option<Arc<CostOf>>,
}

type CostOf = dyn Fn(Head<'_>) -> u64 + Send + Sync;

impl ShapeLayer {
    /// Creates a layer in which each request costs one unit.
    #[must_use]
    pub fn new(shaper: Shaper) -> ShapeLayer {
        ShapeLayer { shaper, cost: None }
    }

    /// Sets the cost of a request by a closure.
    #[must_use]
    pub fn cost(self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> ShapeLayer {
        ShapeLayer { cost: Some(Arc::new(cost)), ..self }
    }
}

impl<S> Layer<S> for ShapeLayer {
    type Service = Shape<S>;

    fn layer(&self, inner: S) -> Shape<S> {
        Shape { inner, layer: self.clone() }
    }
}

/// A client behind a [`ShapeLayer`].
#[derive(Clone)]
pub struct Shape<S> {
    inner: S,
    layer: ShapeLayer,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Shaped<E> {
    /// The request would have had to wait too long. It was not sent.
    #[error(transparent)]
    Refused(ShapeError),
    /// The client behind failed.
    #[error(transparent)]
    Inner(E),
}

impl<S, A> Service<Request<A>> for Shape<S>
where
    S: Service<Request<A>> + Clone,
{
    type Response = S::Response;
    type Error = Shaped<S::Error>;
    type Future = ShapeFuture<S, A>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Shaped<S::Error>>> {
        self.inner.poll_ready(context).map_err(Shaped::Inner)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> ShapeFuture<S, A> {
        if self.layer.cost.is_some() {
            return self.look_and_call(request);
        }
        // A request that nobody looks at is handed on where it lies.
        let state = match self.layer.shaper.enter(1) {
            Ok(()) => State::Sent { future: self.inner.call(request) },
            Err(not_now) => State::Kept { kept: self.keep(request, not_now) },
        };
        ShapeFuture { state }
    }
}

impl<S> Shape<S> {
    /// Sends a request whose cost a closure returns.
    #[inline(never)]
    fn look_and_call<A>(&mut self, request: Request<A>) -> ShapeFuture<S, A>
    where
        S: Service<Request<A>> + Clone,
    {
        let cost = self.layer.cost.as_ref().map_or(1, |cost| cost(Head::of(&request)));
        let state = match self.layer.shaper.enter(cost) {
            Ok(()) => State::Sent { future: self.inner.call(request) },
            Err(not_now) => State::Kept { kept: self.keep(request, not_now) },
        };
        ShapeFuture { state }
    }

    /// Queues a request or refuses it, apart from the path of requests that go at once.
    #[cold]
    #[inline(never)]
    fn keep<A>(&mut self, request: Request<A>, not_now: NotNow) -> Box<Kept<S, A>>
    where
        S: Clone,
    {
        Box::new(match not_now {
            NotNow::Turn(turn) => {
                // The one that is ready waits along; who calls next must find its clone ready first.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                Kept::Waiting { turn: Box::pin(turn.go()), call: Some(Box::new((ready, request))) }
            }
            NotNow::Refused(error) => Kept::Refused { error },
        })
    }
}

pin_project! {
    /// The future of a [`Shape`].
    pub struct ShapeFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S, A>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, A>
    where
        S: Service<Request<A>>,
    {
        Sent { #[pin] future: S::Future },
        // Apart, so that those who go at once stay small.
        Kept { kept: Box<Kept<S, A>> },
    }
}

/// A client that is ready, and the request to send.
type Call<S, A> = Box<(S, Request<A>)>;

/// A request that does not go at once.
enum Kept<S, A> {
    /// `call` is `None` once the request has been sent.
    Waiting {
        turn: Pin<Box<dyn Future<Output = ()> + Send>>,
        call: Option<Call<S, A>>,
    },
    Refused {
        error: ShapeError,
    },
}

impl<S, A> Kept<S, A> {
    #[cold]
    #[inline(never)]
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<Call<S, A>, ShapeError>> {
        match self {
            Kept::Waiting { turn, call } => {
                ready!(turn.as_mut().poll(context));
                // It is sent once.
                call.take().map_or(Poll::Pending, |call| Poll::Ready(Ok(call)))
            }
            Kept::Refused { error } => Poll::Ready(Err(*error)),
        }
    }
}

impl<S, A> Future for ShapeFuture<S, A>
where
    S: Service<Request<A>>,
{
    type Output = Result<S::Response, Shaped<S::Error>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        if let StateProjection::Kept { kept } = state.as_mut().project() {
            match ready!(kept.poll_turn(context)) {
                Ok(call) => {
                    let (mut ready, request) = *call;
                    state.set(State::Sent { future: ready.call(request) });
                }
                Err(error) => return Poll::Ready(Err(Shaped::Refused(error))),
            }
        }
        match state.project() {
            StateProjection::Sent { future } => future.poll(context).map_err(Shaped::Inner),
            StateProjection::Kept { .. } => Poll::Pending,
        }
    }
}

impl fmt::Debug for ShapeLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ShapeLayer").field("shaper", &self.shaper).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for Shape<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shape").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}
