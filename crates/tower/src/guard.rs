//! The services behind the layers that let requests in, have them wait or refuse them, and their one future.
//!
//! A permit is given back when the body of the response has ended, which `body.rs` sees to: until then there is work.
//!
//! Most of what a layer costs is copies of what was written just before: a request is 224 bytes, a response 136. So what
//! is served stands beside its permit instead of both being one of two kinds, the service behind is called in one place,
//! and functions of their own look at requests and responses: where nothing points to them, they are handed on where
//! they lie. `make bench BENCH=layers` tells what it comes to.

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

/// What a layer knows: whom to let in, and what to do when a request has been answered.
pub trait Doorkeeper: Clone {
    /// What a request has while it is served.
    type Permit;

    /// What of it is held until the body of the response has ended.
    type Held: From<Self::Permit>;

    /// What a request waits for.
    type Wait;

    /// Whether it may add to responses.
    const TELLS: bool = false;

    /// Lets a request in, or has it wait, or refuses it. The head is lent: four words that are copied right after they were
    /// written take longer than what they point to.
    fn enter(&self, head: &Head<'_>) -> Entered<Self::Permit, Self::Wait>;

    /// Waits with the head of a request. Dropped before it is ready, it leaves what it waits in.
    fn wait(self, wait: Self::Wait, parts: Parts) -> Waiting<Self::Permit>;

    /// Whether something is to be told in a response. Only asked if [`Doorkeeper::TELLS`].
    #[inline]
    fn tells(permit: &Self::Permit) -> bool {
        let _ = permit;
        true
    }

    /// Adds to a response, whose body is so long, if that is known. What the response has to wait for comes back. Only called
    /// if [`Doorkeeper::tells`].
    fn tell<B>(permit: &mut Self::Permit, body_bytes: Option<u64>, response: &mut Response<B>) -> Option<Closing> {
        let _ = (permit, body_bytes, response);
        None
    }
}

/// A doorkeeper that may be told how requests end, before a service with these errors.
///
/// What it asks of errors it asks for itself: `'static`, which is not proven of a `Box<dyn Error>` in a task of its own,
/// would be asked of all services behind all layers otherwise.
pub trait Learns<E>: Doorkeeper {
    /// Whether it is told. Who is told adds nothing to responses.
    const LEARNS: bool = false;

    /// A request that was let in has been answered, or has failed. Its permit is dropped when the body of the response
    /// has ended; that of one whose caller has left, without a call of this. Only called if [`Learns::LEARNS`].
    fn answered<B>(permit: &Self::Permit, result: &Result<Response<B>, E>) {
        let _ = (permit, result);
    }
}

/// A doorkeeper to whom all requests are alike.
pub trait Blind: Doorkeeper {
    /// Lets a request in, or has it wait, or refuses it, whoever sent it.
    fn enter_unseen(&self) -> Entered<Self::Permit, Self::Wait>;
}

/// Waits until a request is let in: with a permit if it is counted, or with an answer if it is not let in after all.
pub(crate) type Waiting<P> = Pin<Box<dyn Future<Output = Waited<P>> + Send>>;

/// The head of a request that has waited, and its permit if it is counted, or the answer if it is not let in.
pub(crate) type Waited<P> = (Parts, Result<Option<P>, Answer>);

/// What comes of having waited, by what was told. Who waited in vain goes on if the layer does not act any more.
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

/// What a response waits for.
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a layer answers itself.
pub(crate) type Answer = Box<Response<Bytes>>;

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
    Wait(Box<W>),
    /// It is refused.
    Refused(Box<Refusal>),
    /// The same, in the layer's own words.
    Answered(Answer),
}

impl<W> Out<W> {
    /// What is waited for, or the answer to a request with these headers.
    pub(crate) fn wait_or_answer(self, headers: &HeaderMap) -> Result<Box<W>, Answer> {
        match self {
            Out::Wait(wait) => Ok(wait),
            Out::Refused(refusal) => Err(refusal.answer(is_call(headers))),
            Out::Answered(answer) => Err(answer),
        }
    }
}

impl<P, W> Entered<P, W> {
    /// It is served, and counted if it has a permit.
    pub(crate) fn with(permit: Option<P>) -> Entered<P, W> {
        permit.map_or(Entered::Uncounted, Entered::In)
    }

    /// It waits.
    pub(crate) fn wait(wait: W) -> Entered<P, W> {
        Entered::Out(Out::Wait(Box::new(wait)))
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

/// A service behind a layer that looks at no request, whose call has nothing that points to it.
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
    /// The response of a [`Guarded`] or [`GuardedUnseen`] service.
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
enum Pass<S: Service<Request<A>>, D: Doorkeeper, A> {
    Permit(D::Permit),
    /// It is not counted, or the response has the permit.
    Nothing,
    /// Apart, so that the others stay small.
    Rare(Box<Rare<S, D, A>>),
}

/// What is not just passed on.
enum Rare<S: Service<Request<A>>, D: Doorkeeper, A> {
    /// It waits to be let in. Nothing is held once it has been called.
    Waiting { waiting: Waiting<D::Permit>, held: Option<(S, A)> },
    /// It is not let in. Nothing is left once it has been answered.
    Refused { answer: Option<Answer> },
    /// Its response waits for what is told elsewhere. Nothing is left once it has been answered.
    Closing { closing: Closing, response: Option<(S::Response, Pass<S, D, A>)> },
}

/// What comes of what is not just passed on, in the end.
enum Turn<S, A, B, D: Doorkeeper> {
    In(Box<(S, Request<A>, Option<D::Permit>)>),
    Answer(Box<Response<LayerBody<B, D::Held>>>),
}

impl<S, D, A> GuardedFuture<S, D, A>
where
    S: Service<Request<A>> + Clone,
    D: Doorkeeper,
{
    /// Has a request wait or refuses it.
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
    /// Out of the way of those that are let in at once.
    #[cold]
    #[inline(never)]
    fn new(inner: &mut S, doorkeeper: &D, request: Request<A>, out: Out<D::Wait>) -> Box<Rare<S, D, A>> {
        Box::new(match out.wait_or_answer(request.headers()) {
            Ok(wait) => {
                // The one that is ready waits along; who calls next must find its clone ready first.
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
    /// Whoever polls what is ready gets no second answer. What was waited for must not be polled again either.
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
        // The service is called here and not in `poll_turn`: so its future is made where it stays.
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
    /// The same where something may be told in the response, which then may have to wait. It is apart because the loop and
    /// the look at the response would cost those who tell nothing.
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
            // Held right here where nothing is told: by way of `tell` the response would be copied once more.
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

/// What a service behind a layer answers in the end.
type HeldResponse<S, D, A, B> =
    Result<Response<LayerBody<B, <D as Doorkeeper>::Held>>, <S as Service<Request<A>>>::Error>;

impl<S, D, A, B> Pass<S, D, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    D: Learns<S::Error>,
    B: Body,
{
    /// The response, with the permit until its body has ended. Always inlined: called, it would need a pointer to the
    /// future, which then stays in memory and is copied.
    #[inline(always)]
    fn hold(&mut self, result: Result<Response<B>, S::Error>) -> HeldResponse<S, D, A, B> {
        let permit = match std::mem::replace(self, Pass::Nothing) {
            Pass::Permit(permit) => Some(permit),
            Pass::Nothing | Pass::Rare(_) => None,
        };
        let response = result?;
        // A body that has ended already, as an empty one has, holds nothing.
        let held = match permit {
            Some(permit) if !response.body().is_end_stream() => Some(D::Held::from(permit)),
            _ => None,
        };
        Ok(response.map(|body| LayerBody::holding(body, held)))
    }

    /// The response with what is told in it; nothing if it has to wait.
    #[inline]
    fn tell(&mut self, mut response: Response<B>) -> Option<HeldResponse<S, D, A, B>> {
        let Pass::Permit(permit) = self else { return None };
        let body_bytes = response.body().size_hint().exact();
        let Some(closing) = D::tell(permit, body_bytes, &mut response) else { return Some(self.hold(Ok(response))) };
        let mut pass = std::mem::replace(self, Pass::Nothing);
        if response.body().is_end_stream() {
            // Nothing is held any more, however long it takes to tell.
            pass = Pass::Nothing;
        }
        *self = Pass::Rare(Box::new(Rare::Closing { closing, response: Some((response, pass)) }));
        None
    }
}
