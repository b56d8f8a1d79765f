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

    /// Lets a request in, or has it wait, or refuses it.
    fn enter(&self, head: Head<'_>) -> Entered<Self::Permit, Self::Wait>;

    /// What comes of having waited: a permit, or nothing if the request goes on without being counted.
    ///
    /// # Errors
    /// If it was told that it is not let in, or nothing in time.
    fn waited(&self, told: <Self::Wait as Future>::Output) -> Result<Option<Self::Permit>, Refusal>;

    /// Whether it is told how requests end. Where nothing ever points to a response, it is not copied first.
    const LEARNS: bool = false;

    /// A request that was let in has been answered, or has failed. Its permit is dropped when the body of the response
    /// has ended; that of one whose caller has left, without a call of this. Only called if [`Doorkeeper::LEARNS`].
    fn answered(permit: &Self::Permit, end: Ended<'_>) {
        let _ = (permit, end);
    }
}

/// A doorkeeper to whom all requests are alike.
pub trait Blind: Doorkeeper {
    /// Lets a request in, or has it wait, or refuses it, whoever sent it.
    fn enter_unseen(&self) -> Entered<Self::Permit, Self::Wait>;
}

/// What comes of asking to be let in.
pub enum Entered<P, W> {
    /// It is served.
    In(P),
    /// It is served and not counted.
    Uncounted,
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
    /// It is served, and counted if it has a permit.
    pub(crate) fn with(permit: Option<P>) -> Entered<P, W> {
        permit.map_or(Entered::Uncounted, Entered::In)
    }

    /// It waits.
    pub(crate) fn wait(wait: W) -> Entered<P, W> {
        Entered::Out(Out::Wait(Box::pin(wait)))
    }

    /// It is refused.
    pub(crate) fn refused(refusal: Refusal) -> Entered<P, W> {
        Entered::Out(Out::Refused(Box::new(refusal)))
    }
}

/// A service behind a layer that looks at requests.
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
        let pass = match self.doorkeeper.enter(Head::of(&request)) {
            Entered::In(permit) => Pass::Permit(permit),
            Entered::Uncounted => Pass::Nothing,
            Entered::Out(out) => return GuardedFuture::kept_out(&mut self.inner, &self.doorkeeper, request, out),
        };
        GuardedFuture { serving: Some(self.inner.call(request)), pass }
    }
}

/// A service behind a layer that looks at no request. It is a type of its own for speed: where nothing ever points to a
/// request, it is handed on where it lies and not copied first.
#[derive(Clone, Debug)]
pub struct GuardedUnseen<S, D> {
    inner: S,
    doorkeeper: D,
}

impl<S, D> GuardedUnseen<S, D> {
    pub(crate) fn new(inner: S, doorkeeper: D) -> GuardedUnseen<S, D> {
        GuardedUnseen { inner, doorkeeper }
    }
}

impl<S, D, A, B> Service<Request<A>> for GuardedUnseen<S, D>
where
    S: Service<Request<A>, Response = Response<B>, Error: 'static> + Clone,
    D: Blind,
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
        let pass = match self.doorkeeper.enter_unseen() {
            Entered::In(permit) => Pass::Permit(permit),
            Entered::Uncounted => Pass::Nothing,
            Entered::Out(out) => return GuardedFuture::kept_out(&mut self.inner, &self.doorkeeper, request, out),
        };
        GuardedFuture { serving: Some(self.inner.call(request)), pass }
    }
}

pin_project! {
    /// The response of a [`Guarded`] service.
    ///
    /// Not one enum of those who are served and those who are not: the compiler would write each future in one place and
    /// copy it to another.
    pub struct GuardedFuture<S, D, A>
    where
        S: Service<Request<A>>,
        D: Doorkeeper,
    {
        // Nothing until it is let in.
        #[pin]
        serving: Option<S::Future>,
        // After what is served, so that this has ended before somebody else is let in.
        pass: Pass<S, D, A>,
    }
}

/// What a request has to be served.
enum Pass<S, D: Doorkeeper, A> {
    Permit(D::Permit),
    /// It is not counted, or the response has the permit.
    Nothing,
    /// Apart, so that those who are served stay small.
    KeptOut(Box<KeptOut<S, D, A>>),
}

impl<S, D: Doorkeeper, A> Pass<S, D, A> {
    /// The response, with the permit until its body has ended.
    #[inline]
    fn hold<B: Body, E>(&mut self, result: Result<Response<B>, E>) -> Result<Response<LayerBody<B, D::Permit>>, E> {
        let permit = match std::mem::replace(self, Pass::Nothing) {
            Pass::Permit(permit) => Some(permit),
            Pass::Nothing | Pass::KeptOut(_) => None,
        };
        let response = result?;
        // A body that has ended already, as an empty one has, holds nothing.
        let permit = permit.filter(|_| !response.body().is_end_stream());
        Ok(response.map(|body| LayerBody::holding(body, permit)))
    }

    #[inline]
    fn learn_and_hold<B, E>(&mut self, result: Result<Response<B>, E>) -> Result<Response<LayerBody<B, D::Permit>>, E>
    where
        B: Body,
        E: 'static,
    {
        if let Pass::Permit(permit) = self {
            D::answered(permit, Ended::of(&result));
        }
        self.hold(result)
    }
}

impl<S, D, A> GuardedFuture<S, D, A>
where
    S: Service<Request<A>> + Clone,
    D: Doorkeeper,
{
    /// Has a request wait or refuses it.
    #[inline]
    fn kept_out(inner: &mut S, doorkeeper: &D, request: Request<A>, out: Out<D::Wait>) -> GuardedFuture<S, D, A> {
        GuardedFuture { serving: None, pass: Pass::KeptOut(KeptOut::new(inner, doorkeeper, request, out)) }
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

impl<S: Clone, D: Doorkeeper, A> KeptOut<S, D, A> {
    /// Out of the way of those that are let in at once.
    #[cold]
    #[inline(never)]
    fn new(inner: &mut S, doorkeeper: &D, request: Request<A>, out: Out<D::Wait>) -> Box<KeptOut<S, D, A>> {
        Box::new(match out {
            Out::Wait(wait) => {
                // The one that is ready waits along; who calls next must find its clone ready first.
                let clone = inner.clone();
                let ready = std::mem::replace(inner, clone);
                KeptOut::Waiting { wait, held: Some((ready, request, doorkeeper.clone())) }
            }
            Out::Refused(refusal) => KeptOut::Refused { refusal, is_grpc: is_call(request.headers()) },
        })
    }
}

/// What has come of one who was not let in at once.
enum Turn<S, A, P> {
    In(Box<(S, Request<A>, Option<P>)>),
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
        let mut this = self.project();
        // The service is called here and not in `poll_turn`: so its future is made where it stays.
        if this.serving.is_none() {
            let Pass::KeptOut(kept_out) = this.pass else { return Poll::Pending };
            match ready!(kept_out.poll_turn(context)) {
                Turn::Refused(answer) => return Poll::Ready(Ok(answer.map(LayerBody::own))),
                Turn::In(turn) => {
                    let (mut ready, request, permit) = *turn;
                    this.serving.set(Some(ready.call(request)));
                    *this.pass = permit.map_or(Pass::Nothing, Pass::Permit);
                }
            }
        }
        let Some(serving) = this.serving.as_pin_mut() else { return Poll::Pending };
        let result = ready!(serving.poll(context));
        Poll::Ready(if D::LEARNS { this.pass.learn_and_hold(result) } else { this.pass.hold(result) })
    }
}
