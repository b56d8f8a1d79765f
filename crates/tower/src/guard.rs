//! The one service behind the layers that let requests in, have them wait or refuse them, and its future.
//!
//! A permit is given back when the body of the response has ended, which `body.rs` sees to: until then there is work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
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

    /// Lets a request in of which nothing need be known, if that can be done at once.
    #[inline]
    fn enter_unseen(&self) -> Option<Self::Permit> {
        None
    }

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
    /// It is not, or not yet.
    Out(Out<W>),
}

/// What comes of those who are not let in at once. It is boxed, so that being let in is passed on in a few words.
pub enum Out<W> {
    /// It waits.
    Wait(Pin<Box<W>>),
    /// It is refused.
    Refused(Box<Refusal>),
}

impl<P, W> Entered<P, W> {
    /// It waits.
    pub(crate) fn wait(wait: W) -> Entered<P, W> {
        Entered::Out(Out::Wait(Box::pin(wait)))
    }

    /// It is refused.
    pub(crate) fn refused(refusal: Refusal) -> Entered<P, W> {
        Entered::Out(Out::Refused(Box::new(refusal)))
    }
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

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> GuardedFuture<S, D, A> {
        // A request that nobody looks at is handed on where it lies.
        if let Some(permit) = self.doorkeeper.enter_unseen() {
            return GuardedFuture { state: State::Serving { future: self.inner.call(request), permit: Some(permit) } };
        }
        // What is rare comes back as a pointer: so the future is made where it stays.
        match self.doorkeeper.enter(Head::of(&request)) {
            Entered::In(permit) => {
                GuardedFuture { state: State::Serving { future: self.inner.call(request), permit: Some(permit) } }
            }
            Entered::Out(out) => GuardedFuture { state: State::Out { out: self.keep_out(request, out) } },
        }
    }
}

impl<S, D> Guarded<S, D> {
    /// Has a request wait or refuses it, out of the way of those that are let in at once.
    #[cold]
    #[inline(never)]
    fn keep_out<A>(&mut self, request: Request<A>, out: Out<D::Wait>) -> Box<KeptOut<S, D, A>>
    where
        S: Clone,
        D: Doorkeeper,
    {
        Box::new(match out {
            Out::Wait(wait) => {
                // The one that is ready waits along; who calls next must find its clone ready first.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                KeptOut::Waiting { wait, held: Some((ready, request, self.doorkeeper.clone())) }
            }
            Out::Refused(refusal) => KeptOut::Refused { refusal, is_grpc: is_call(request.headers()) },
        })
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
        // The permit is there until there is a response.
        Serving { #[pin] future: S::Future, permit: Option<D::Permit> },
        // Apart, so that those who are served stay small.
        Out { out: Box<KeptOut<S, D, A>> },
    }
}

/// One who was not let in at once.
#[allow(clippy::large_enum_variant, reason = "it is in a box of its own")]
enum KeptOut<S, D: Doorkeeper, A> {
    /// Nothing is held once it has been called.
    Waiting {
        wait: Pin<Box<D::Wait>>,
        held: Option<(S, Request<A>, D)>,
    },
    Refused {
        refusal: Box<Refusal>,
        is_grpc: bool,
    },
}

/// What has come of one who was not let in at once.
enum Turn<S, A, P> {
    In(Box<(S, Request<A>, P)>),
    Refused(Box<Response<Bytes>>),
}

impl<S, D: Doorkeeper, A> KeptOut<S, D, A> {
    #[cold]
    #[inline(never)]
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Turn<S, A, D::Permit>> {
        let (refusal, is_grpc) = match self {
            // Whoever polls what is ready gets no second answer. What was waited for must not be polled again either.
            KeptOut::Waiting { held: None, .. } => return Poll::Pending,
            KeptOut::Waiting { wait, held } => {
                let told = ready!(wait.as_mut().poll(context));
                let Some((ready, request, doorkeeper)) = held.take() else { return Poll::Pending };
                match doorkeeper.waited(told) {
                    Ok(permit) => return Poll::Ready(Turn::In(Box::new((ready, request, permit)))),
                    Err(refusal) => (refusal, is_call(request.headers())),
                }
            }
            KeptOut::Refused { refusal, is_grpc } => (**refusal, *is_grpc),
        };
        Poll::Ready(Turn::Refused(Box::new(refusal.response(is_grpc))))
    }
}

impl<S, D, A, B> Future for GuardedFuture<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>, Error: 'static>,
    D: Doorkeeper,
    B: Body,
{
    type Output = Result<Response<LayerBody<B, D::Permit>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        // The service is called here and not in `poll_turn`: so its future is made where it stays.
        if let StateProjection::Out { out } = state.as_mut().project() {
            match ready!(out.poll_turn(context)) {
                Turn::Refused(answer) => return Poll::Ready(Ok(answer.map(LayerBody::own))),
                Turn::In(turn) => {
                    let (mut ready, request, permit) = *turn;
                    state.set(State::Serving { future: ready.call(request), permit: Some(permit) });
                }
            }
        }
        let StateProjection::Serving { future, permit } = state.project() else { return Poll::Pending };
        let result = ready!(future.poll(context));
        let mut permit = permit.take();
        if let Some(permit) = &mut permit {
            D::answered(permit, Ended::of(&result));
        }
        // A body that has ended already, as an empty one has, holds nothing.
        let response = result?;
        let permit = permit.filter(|_| !response.body().is_end_stream());
        Poll::Ready(Ok(response.map(|body| LayerBody::holding(body, permit))))
    }
}
