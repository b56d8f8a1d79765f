//! The one service behind the layers that let requests in, have them wait or refuse them, and its future.
//!
//! A permit is given back when the body of the response has ended, which `body.rs` sees to: until then there is work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::LayerBody;
use crate::ended::Ended;
use crate::grpc::is_call;
use crate::head::Head;
use crate::refusal::Refusal;

/// What a layer knows: whom to let in, and what to do when a request has been answered.
pub trait Doorkeeper: Clone {
    /// What a request holds until it has been served: until the body of its response has ended.
    type Permit;

    /// What tells a request that waits what has come of it.
    type Wait: Future;

    /// Lets a request in, or has it wait, or refuses it.
    fn enter(&self, head: Head<'_>) -> Entered<Self::Permit, Self::Wait>;

    /// What comes of having waited.
    ///
    /// # Errors
    /// If it was told that it is not let in, or nothing in time.
    fn waited(&self, told: <Self::Wait as Future>::Output) -> Result<Self::Permit, Refusal>;

    /// A request that was let in has been answered, or has failed. Its permit is dropped when the body of the response
    /// has ended; that of one whose caller has left, without a call of this.
    fn answered(permit: &mut Self::Permit, end: Ended<'_>) {
        let _ = (permit, end);
    }
}

/// What comes of asking to be let in.
pub enum Entered<P, W> {
    /// It is served.
    In(P),
    /// It waits.
    Wait(W),
    /// It is refused.
    Refused(Refusal),
}

/// A service behind one of the layers.
#[derive(Clone, Debug)]
pub struct Guarded<S, D> {
    inner: S,
    doorkeeper: D,
}

impl<S, D> Guarded<S, D> {
    pub(crate) fn new(inner: S, doorkeeper: D) -> Guarded<S, D> {
        Guarded { inner, doorkeeper }
    }
}

impl<S, D, A, B> Service<Request<A>> for Guarded<S, D>
where
    S: Service<Request<A>, Response = Response<B>, Error: 'static> + Clone,
    D: Doorkeeper,
    B: Body,
{
    type Response = Response<LayerBody<B, D::Permit>>;
    type Error = S::Error;
    type Future = GuardedFuture<S, D, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> GuardedFuture<S, D, A> {
        let state = match self.doorkeeper.enter(Head::of(&request)) {
            Entered::In(permit) => State::Serving { future: self.inner.call(request), permit: Some(permit) },
            Entered::Wait(wait) => {
                // The one that is ready waits along; who calls next must find its clone ready first.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                let doorkeeper = self.doorkeeper.clone();
                State::Queued { queued: Box::pin(Queued { wait, held: Some((ready, request, doorkeeper)) }) }
            }
            Entered::Refused(refusal) => State::Refused { refusal, is_grpc: is_call(request.headers()) },
        };
        GuardedFuture { state }
    }
}

pin_project! {
    /// The response of a [`Guarded`] service.
    pub struct GuardedFuture<S, D, A>
    where
        S: Service<Request<A>>,
        D: Doorkeeper,
    {
        #[pin]
        state: State<S, D, A>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, D, A>
    where
        S: Service<Request<A>>,
        D: Doorkeeper,
    {
        Serving { #[pin] future: S::Future, permit: Option<D::Permit> },
        // What waits is kept apart, so that those who need not stay small.
        Queued { queued: Pin<Box<Queued<S, D, A, D::Wait>>> },
        Refused { refusal: Refusal, is_grpc: bool },
    }
}

pin_project! {
    struct Queued<S, D, A, W> {
        #[pin]
        wait: W,
        // Nothing once it has been called.
        held: Option<(S, Request<A>, D)>,
    }
}

impl<S, D, A, B> Future for GuardedFuture<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>, Error: 'static>,
    D: Doorkeeper,
    B: Body,
{
    type Output = Result<Response<LayerBody<B, D::Permit>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Serving { future, permit } => {
                    let result = ready!(future.poll(context));
                    let mut permit = permit.take();
                    if let Some(permit) = &mut permit {
                        D::answered(permit, Ended::of(&result));
                    }
                    return Poll::Ready(result.map(|response| response.map(|body| LayerBody::holding(body, permit))));
                }
                StateProjection::Queued { queued } => {
                    let queued = queued.as_mut().project();
                    let told = ready!(queued.wait.poll(context));
                    let Some((mut ready, request, doorkeeper)) = queued.held.take() else { return Poll::Pending };
                    match doorkeeper.waited(told) {
                        Ok(permit) => State::Serving { future: ready.call(request), permit: Some(permit) },
                        Err(refusal) => State::Refused { refusal, is_grpc: is_call(request.headers()) },
                    }
                }
                StateProjection::Refused { refusal, is_grpc } => {
                    return Poll::Ready(Ok(refusal.response(*is_grpc).map(LayerBody::own)));
                }
            };
            state.set(next);
        }
    }
}
