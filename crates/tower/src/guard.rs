//! The services behind the layers that let requests in, queue them or refuse them, and the one future of all these
//! layers.
//!
//! A permit is released when the body of the response has ended (`body.rs`): until then there is work.
//!
//! Most of a layer's cost is copying what was written just before: a request is 224 bytes, a response 136. So a served
//! future is a field beside its permit, not a variant of an enum with it; the inner service is called in one place; and
//! requests and responses are read by separate functions, so that the compiler passes them on in place. `make bench
//! BENCH=layers` measures the sum.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::LayerBody;
use crate::grpc::is_call;
use crate::head::Head;
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

/// The decisions of a layer: which requests it lets in, and what it does when they are answered.
pub trait Doorkeeper: Clone {
    /// The data that a request holds while it is served.
    type Permit;

    /// The part of the permit that is held until the body of the response has ended.
    type Held: From<Self::Permit>;

    /// The data of a waiting request.
    type Wait;

    /// Whether this layer may add to responses.
    const TELLS: bool = false;

    /// Lets a request in, queues it or refuses it. The head is borrowed: copying its four words right after they were
    /// written takes longer than following the pointer.
    fn enter(&self, head: &Head<'_>) -> Entered<Self::Permit, Self::Wait>;

    /// Waits with the head of a request. Dropped before it is ready, it leaves the queue.
    fn wait(self, wait: Self::Wait, parts: Parts) -> Waiting<Self::Permit>;

    /// Whether the response needs an addition. Called only if [`Doorkeeper::TELLS`].
    #[inline]
    fn tells(permit: &Self::Permit) -> bool {
        let _ = permit;
        true
    }

    /// Adds to a response with a body of `body_bytes`, if known. Returns what the response must wait for. Called only
    /// if [`Doorkeeper::tells`].
    fn tell<B>(permit: &mut Self::Permit, body_bytes: Option<u64>, response: &mut Response<B>) -> Option<Closing> {
        let _ = (permit, body_bytes, response);
        None
    }
}

/// A doorkeeper that may learn how requests end, before a service with these errors.
///
/// It states itself what it needs of the errors: otherwise all services behind all layers would need `'static` errors,
/// which is not provable of a `Box<dyn Error>` in a task.
pub trait Learns<E>: Doorkeeper {
    /// Whether it learns. A doorkeeper that learns adds nothing to responses.
    const LEARNS: bool = false;

    /// Called when a request that was let in has been answered or has failed; not when its caller has left. The permit
    /// is dropped when the body of the response has ended. Called only if [`Learns::LEARNS`].
    fn answered<B>(permit: &Self::Permit, result: &Result<Response<B>, E>) {
        let _ = (permit, result);
    }
}

/// A doorkeeper that treats all requests alike.
pub trait Blind: Doorkeeper {
    /// Lets a request in, queues it or refuses it, without looking at it.
    fn enter_unseen(&self) -> Entered<Self::Permit, Self::Wait>;
}

/// Waits until a request is let in: with a permit if it is counted, or with an answer if it is refused after all.
pub(crate) type Waiting<P> = Pin<Box<dyn Future<Output = Waited<P>> + Send>>;

/// The head of a request that has waited, and its permit if it is counted, or the answer if it is refused.
pub(crate) type Waited<P> = (Parts, Result<Option<P>, Answer>);

/// The result of a wait. A request that waited in vain goes on if the layer no longer enforces.
pub(crate) fn waited<P>(
    parts: Parts,
    told: Result<P, Reason>,
    switch: &Switch,
    refusal: impl FnOnce(Reason) -> Refusal,
) -> Waited<P> {
    let permit = match told {
        Ok(permit) => Ok(Some(permit)),
        Err(_) if switch.lets_late_in() => Ok(None),
        Err(reason) => Err(refusal(reason).answer(is_call(&parts.headers))),
    };
    (parts, permit)
}

/// The wait of a response.
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An answer of the layer itself.
pub(crate) type Answer = Box<Response<Bytes>>;

/// The result of asking to be let in.
pub enum Entered<P, W> {
    /// The request is served.
    In(P),
    /// The request is served and not counted.
    Uncounted,
    /// The request waits or is refused.
    Out(Out<W>),
}

/// The result for requests that are not let in at once. It is boxed, so that the common result stays small.
pub enum Out<W> {
    /// The request waits.
    Wait(Box<W>),
    /// The request is refused.
    Refused(Box<Refusal>),
    /// The request is refused with an answer that the layer has made.
    Answered(Answer),
}

impl<W> Out<W> {
    /// Returns the wait, or the answer to a request with these headers.
    pub(crate) fn wait_or_answer(self, headers: &HeaderMap) -> Result<Box<W>, Answer> {
        match self {
            Out::Wait(wait) => Ok(wait),
            Out::Refused(refusal) => Err(refusal.answer(is_call(headers))),
            Out::Answered(answer) => Err(answer),
        }
    }
}

impl<P, W> Entered<P, W> {
    /// The request is served, and counted if there is a permit.
    pub(crate) fn with(permit: Option<P>) -> Entered<P, W> {
        permit.map_or(Entered::Uncounted, Entered::In)
    }

    /// The request waits.
    pub(crate) fn wait(wait: W) -> Entered<P, W> {
        Entered::Out(Out::Wait(Box::new(wait)))
    }

    /// The request is refused.
    pub(crate) fn refused(refusal: Refusal) -> Entered<P, W> {
        Entered::Out(Out::Refused(Box::new(refusal)))
    }
}

/// A service behind a layer that reads requests.
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
    S: Service<Request<A>, Response = Response<B>> + Clone,
    D: Learns<S::Error>,
    B: Body,
{
    type Response = Response<LayerBody<B, D::Held>>;
    type Error = S::Error;
    type Future = GuardedFuture<S, D, A>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> GuardedFuture<S, D, A> {
        let pass = match self.doorkeeper.enter(&Head::of(&request)) {
            Entered::In(permit) => Pass::Permit(permit),
            Entered::Uncounted => Pass::Nothing,
            Entered::Out(out) => return GuardedFuture::kept_out(&mut self.inner, &self.doorkeeper, request, out),
        };
        GuardedFuture { serving: Some(self.inner.call(request)), pass }
    }
}

/// A service behind a layer that reads no requests; nothing points to the requests it is called with.
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
    S: Service<Request<A>, Response = Response<B>> + Clone,
    D: Blind + Learns<S::Error>,
    B: Body,
{
    type Response = Response<LayerBody<B, D::Held>>;
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
    /// The future of a [`Guarded`] or [`GuardedUnseen`] service.
    pub struct GuardedFuture<S, D, A>
    where
        S: Service<Request<A>>,
        D: Doorkeeper,
    {
        // `None` until the request is let in.
        #[pin]
        serving: Option<S::Future>,
        // Declared after the served future, which must end before the next request is let in.
        pass: Pass<S, D, A>,
    }
}

/// The data that a request holds to be served.
enum Pass<S: Service<Request<A>>, D: Doorkeeper, A> {
    Permit(D::Permit),
    /// The request is not counted, or its response holds the permit.
    Nothing,
    /// Boxed, so that the other variants stay small.
    Rare(Box<Rare<S, D, A>>),
}

/// The cases beside a request that is just passed on.
enum Rare<S: Service<Request<A>>, D: Doorkeeper, A> {
    /// The request waits to be let in. `held` is `None` once the service has been called.
    Waiting { waiting: Waiting<D::Permit>, held: Option<(S, A)> },
    /// The request is refused. `answer` is `None` once it has been returned.
    Refused { answer: Option<Answer> },
    /// The response waits until a store has the report. `response` is `None` once it has been returned.
    Closing { closing: Closing, response: Option<(S::Response, Pass<S, D, A>)> },
}

/// The result of a rare case.
enum Turn<S, A, B, D: Doorkeeper> {
    In(Box<(S, Request<A>, Option<D::Permit>)>),
    Answer(Box<Response<LayerBody<B, D::Held>>>),
}

impl<S, D, A> GuardedFuture<S, D, A>
where
    S: Service<Request<A>> + Clone,
    D: Doorkeeper,
{
    /// Queues a request or refuses it.
    #[inline]
    fn kept_out(inner: &mut S, doorkeeper: &D, request: Request<A>, out: Out<D::Wait>) -> GuardedFuture<S, D, A> {
        GuardedFuture { serving: None, pass: Pass::Rare(Rare::new(inner, doorkeeper, request, out)) }
    }
}

impl<S, D, A> Rare<S, D, A>
where
    S: Service<Request<A>> + Clone,
    D: Doorkeeper,
{
    /// Apart from the path of requests that are let in at once.
    #[cold]
    #[inline(never)]
    fn new(inner: &mut S, doorkeeper: &D, request: Request<A>, out: Out<D::Wait>) -> Box<Rare<S, D, A>> {
        Box::new(match out.wait_or_answer(request.headers()) {
            Ok(wait) => {
                // The instance that is ready waits along; the next caller must first find the clone ready.
                let clone = inner.clone();
                let ready = std::mem::replace(inner, clone);
                let (parts, body) = request.into_parts();
                Rare::Waiting { waiting: doorkeeper.clone().wait(*wait, parts), held: Some((ready, body)) }
            }
            Err(answer) => Rare::Refused { answer: Some(answer) },
        })
    }
}

impl<S, D, A, B> Rare<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    D: Learns<S::Error>,
    B: Body,
{
    /// Must not be polled again once it is ready: neither the answer nor the wait can be repeated.
    #[cold]
    #[inline(never)]
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Turn<S, A, B, D>> {
        let answer = match self {
            Rare::Waiting { held: None, .. } | Rare::Closing { response: None, .. } => None,
            Rare::Waiting { waiting, held } => {
                let (parts, told) = ready!(waiting.as_mut().poll(context));
                let Some((ready, body)) = held.take() else { return Poll::Pending };
                match told {
                    Ok(permit) => {
                        let request = Request::from_parts(parts, body);
                        return Poll::Ready(Turn::In(Box::new((ready, request, permit))));
                    }
                    Err(answer) => Some(answer.map(LayerBody::own)),
                }
            }
            Rare::Refused { answer } => answer.take().map(|answer| answer.map(LayerBody::own)),
            Rare::Closing { closing, response } => {
                ready!(closing.as_mut().poll(context));
                response.take().and_then(|(response, mut pass)| pass.hold(Ok(response)).ok())
            }
        };
        answer.map_or(Poll::Pending, |answer| Poll::Ready(Turn::Answer(Box::new(answer))))
    }
}

impl<S, D, A, B> Future for GuardedFuture<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    D: Learns<S::Error>,
    B: Body,
{
    type Output = HeldResponse<S, D, A, B>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if D::TELLS {
            return self.poll_telling(context);
        }
        let mut this = self.project();
        // The service is called here and not in `poll_turn`, so that its future is built where it stays.
        if this.serving.is_none() {
            let Pass::Rare(rare) = this.pass else { return Poll::Pending };
            match ready!(rare.poll_turn(context)) {
                Turn::Answer(answer) => return Poll::Ready(Ok(*answer)),
                Turn::In(turn) => {
                    let (mut ready, request, permit) = *turn;
                    this.serving.set(Some(ready.call(request)));
                    *this.pass = permit.map_or(Pass::Nothing, Pass::Permit);
                }
            }
        }
        let Some(serving) = this.serving.as_pin_mut() else { return Poll::Pending };
        let polled = serving.poll(context);
        // Learnt from where the service left it: taken out of the `Poll` first, the response would be copied once more.
        if D::LEARNS
            && let (Poll::Ready(result), Pass::Permit(permit)) = (&polled, &*this.pass)
        {
            D::answered(permit, result);
        }
        Poll::Ready(this.pass.hold(ready!(polled)))
    }
}

impl<S, D, A, B> GuardedFuture<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    D: Learns<S::Error>,
    B: Body,
{
    /// Polls a request whose response may get additions, and may have to wait for them. Apart from `poll`, because the
    /// loop and the inspection of the response would slow down the layers without additions.
    #[inline]
    fn poll_telling(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<HeldResponse<S, D, A, B>> {
        let mut this = self.project();
        loop {
            if this.serving.is_none() {
                let Pass::Rare(rare) = this.pass else { return Poll::Pending };
                match ready!(rare.poll_turn(context)) {
                    Turn::Answer(answer) => return Poll::Ready(Ok(*answer)),
                    Turn::In(turn) => {
                        let (mut ready, request, permit) = *turn;
                        this.serving.set(Some(ready.call(request)));
                        *this.pass = permit.map_or(Pass::Nothing, Pass::Permit);
                    }
                }
            }
            let Some(serving) = this.serving.as_mut().as_pin_mut() else { return Poll::Pending };
            let polled = serving.poll(context);
            // Held right here if nothing is added: by way of `tell` the response would be copied once more.
            if !matches!(this.pass, Pass::Permit(permit) if D::tells(permit)) {
                return Poll::Ready(this.pass.hold(ready!(polled)));
            }
            match ready!(polled) {
                Ok(response) => match this.pass.tell(response) {
                    Some(held) => return Poll::Ready(held),
                    None => this.serving.set(None),
                },
                Err(error) => return Poll::Ready(this.pass.hold(Err(error))),
            }
        }
    }
}

/// The result of a service behind a layer.
type HeldResponse<S, D, A, B> =
    Result<Response<LayerBody<B, <D as Doorkeeper>::Held>>, <S as Service<Request<A>>>::Error>;

impl<S, D, A, B> Pass<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    D: Learns<S::Error>,
    B: Body,
{
    /// The response, with the permit until its body has ended. Always inlined: a call would need a pointer to the
    /// future, which would then stay in memory and be copied.
    #[inline(always)]
    fn hold(&mut self, result: Result<Response<B>, S::Error>) -> HeldResponse<S, D, A, B> {
        let permit = match std::mem::replace(self, Pass::Nothing) {
            Pass::Permit(permit) => Some(permit),
            Pass::Nothing | Pass::Rare(_) => None,
        };
        let response = result?;
        // A body that has already ended, such as an empty one, holds nothing.
        let held = match permit {
            Some(permit) if !response.body().is_end_stream() => Some(D::Held::from(permit)),
            _ => None,
        };
        Ok(response.map(|body| LayerBody::holding(body, held)))
    }

    /// Adds to the response. Returns nothing if the response has to wait.
    #[inline]
    fn tell(&mut self, mut response: Response<B>) -> Option<HeldResponse<S, D, A, B>> {
        let Pass::Permit(permit) = self else { return None };
        let body_bytes = response.body().size_hint().exact();
        let Some(closing) = D::tell(permit, body_bytes, &mut response) else { return Some(self.hold(Ok(response))) };
        let mut pass = std::mem::replace(self, Pass::Nothing);
        if response.body().is_end_stream() {
            // Released before the additions, however long they take.
            pass = Pass::Nothing;
        }
        *self = Pass::Rare(Box::new(Rare::Closing { closing, response: Some((response, pass)) }));
        None
    }
}
