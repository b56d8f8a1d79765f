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
        // The service behind is called at one place, and what is rare comes back as a pointer: so the future is made where
        // it stays, and is not moved again and again.
        match self.doorkeeper.enter(Head::of(&request)) {
            Entered::In(permit) => {
                let future = self.inner.call(request);
                GuardedFuture { state: State::Serving { future, permit: Some(permit) } }
            }
            Entered::Out(out) => GuardedFuture { state: State::Rare { rare: self.go_on(request, out) } },
        }
    }
}

impl<S, D> Guarded<S, D> {
    /// Has a request wait or refuses it, out of the way of those that are let in at once.
    #[cold]
    #[inline(never)]
    fn go_on<A>(&mut self, request: Request<A>, out: Out<D::Wait>) -> Pin<Box<Rare<S, D, A>>>
    where
        S: Service<Request<A>> + Clone,
        D: Doorkeeper,
    {
        Box::pin(match out {
            Out::Wait(wait) => {
                // The one that is ready waits along; who calls next must find its clone ready first.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                Rare::Queued { wait, held: Some((ready, request, self.doorkeeper.clone())) }
            }
            Out::Refused(refusal) => Rare::Refused { refusal, is_grpc: is_call(request.headers()) },
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
        // What waits or is refused is kept apart, so that those who are served stay small.
        Rare { rare: Pin<Box<Rare<S, D, A>>> },
    }
}

pin_project! {
    #[project = RareProjection]
    enum Rare<S, D, A>
    where
        S: Service<Request<A>>,
        D: Doorkeeper,
    {
        // Nothing is held once it has been called.
        Queued { wait: Pin<Box<D::Wait>>, held: Option<(S, Request<A>, D)> },
        Serving { #[pin] future: S::Future, permit: Option<D::Permit> },
        Refused { refusal: Box<Refusal>, is_grpc: bool },
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
        match self.project().state.project() {
            StateProjection::Serving { future, permit } => answered::<D, _, _>(ready!(future.poll(context)), permit),
            StateProjection::Rare { rare } => rare.as_mut().poll(context),
        }
    }
}

impl<S, D, A, B> Future for Rare<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>, Error: 'static>,
    D: Doorkeeper,
    B: Body,
{
    type Output = Result<Response<LayerBody<B, D::Permit>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project() {
                RareProjection::Queued { wait, held } => {
                    let told = ready!(wait.as_mut().poll(context));
                    let Some((mut ready, request, doorkeeper)) = held.take() else { return Poll::Pending };
                    match doorkeeper.waited(told) {
                        Ok(permit) => Rare::Serving { future: ready.call(request), permit: Some(permit) },
                        Err(refusal) => {
                            Rare::Refused { refusal: Box::new(refusal), is_grpc: is_call(request.headers()) }
                        }
                    }
                }
                RareProjection::Serving { future, permit } => {
                    return answered::<D, _, _>(ready!(future.poll(context)), permit);
                }
                RareProjection::Refused { refusal, is_grpc } => {
                    return Poll::Ready(Ok(refusal.response(*is_grpc).map(LayerBody::own)));
                }
            };
            self.set(next);
        }
    }
}

/// What comes of a request: a response that holds its permit, or an error.
type Answered<B, P, E> = Result<Response<LayerBody<B, P>>, E>;

/// What the service behind has answered, with the permit of its request.
#[inline(always)]
fn answered<D: Doorkeeper, B: Body, E: 'static>(
    result: Result<Response<B>, E>,
    permit: &mut Option<D::Permit>,
) -> Poll<Answered<B, D::Permit, E>> {
    if let Some(permit) = permit {
        D::answered(permit, Ended::of(&result));
    }
    // Taken apart by hand: what is moved less often is there sooner.
    Poll::Ready(match result {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            Ok(Response::from_parts(parts, LayerBody::holding(body, permit)))
        }
        Err(error) => {
            *permit = None;
            Err(error)
        }
    })
}
