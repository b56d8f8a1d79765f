//! One request's way through the layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Answer, Judged, Reported, Shared, Ticket};
use crate::LayerBody;

/// The layer and the ticket of a request that passed, if something is left to do.
pub(super) type Owed = Option<(Arc<Shared>, Ticket)>;

pin_project! {
    /// The answer of a [`RateLimit`](crate::RateLimit), to be.
    pub struct RateLimitFuture<S, B, F, R> {
        // Nothing until the service is called.
        #[pin]
        calling: Option<F>,
        rest: Rest<S, B, R>,
    }
}

/// What is left to do besides the call.
pub(super) enum Rest<S, B, R> {
    Nothing,
    /// When the response is there.
    Owed((Arc<Shared>, Ticket)),
    /// Apart, so that what passes stays small.
    Rare(Box<Rare<S, B, R>>),
}

/// What is not just passed on.
pub(super) enum Rare<S, B, R> {
    /// It passes after all.
    Passing { call: Option<Call<S, B>> },
    /// A shared store decides. The service that is ready waits for that, and so does the body.
    Asking { judged: Judged, waiting: Option<(S, B)> },
    /// A shared store is told what became of the request.
    Reporting { reported: Reported, response: Option<Response<LayerBody<R>>> },
    /// The layer answers itself.
    Denied { answer: Option<Answer> },
}

/// The service that is ready, its request, and what is owed to the response.
type Call<S, B> = Box<(S, Request<B>, Owed)>;

/// What comes of it.
enum Turn<S, B, R> {
    Call(Call<S, B>),
    Answer(Box<Response<LayerBody<R>>>),
}

impl<S, B, F, R> RateLimitFuture<S, B, F, R> {
    #[inline]
    pub(super) fn calling(future: F, rest: Rest<S, B, R>) -> Self {
        RateLimitFuture { calling: Some(future), rest }
    }

    #[inline]
    pub(super) fn rare(rare: Box<Rare<S, B, R>>) -> Self {
        RateLimitFuture { calling: None, rest: Rest::Rare(rare) }
    }
}

impl<S, B, R> Rest<S, B, R> {
    #[inline]
    pub(super) fn of(owed: Owed) -> Self {
        owed.map_or(Rest::Nothing, Rest::Owed)
    }
}

/// Tells and counts what is left when the response is there. It is handed on and back, so that nothing ever points to
/// responses of which nothing is to be told.
fn finish<R: Body>(owed: (Arc<Shared>, Ticket), mut response: Response<R>) -> (Response<R>, Option<Reported>) {
    let (shared, ticket) = owed;
    let reported = shared.finish(ticket, &mut response);
    (response, reported)
}

impl<S, B, R> Rare<S, B, R> {
    /// Whoever polls what is ready gets no second answer. What was waited for must not be polled again either.
    #[cold]
    #[inline(never)]
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Turn<S, B, R>> {
        let answer = match self {
            Rare::Passing { call } => {
                return call.take().map_or(Poll::Pending, |call| Poll::Ready(Turn::Call(call)));
            }
            Rare::Asking { waiting: None, .. } | Rare::Reporting { response: None, .. } => None,
            Rare::Asking { judged, waiting } => {
                let (parts, shared, verdict) = ready!(judged.as_mut().poll(context));
                let Some((service, body)) = waiting.take() else { return Poll::Pending };
                match shared.settle_on(verdict, &parts.headers) {
                    Ok(owed) => {
                        let request = Request::from_parts(parts, body);
                        return Poll::Ready(Turn::Call(Box::new((service, request, owed))));
                    }
                    Err(answer) => Some(answer.map(LayerBody::own)),
                }
            }
            Rare::Reporting { reported, response } => {
                ready!(reported.as_mut().poll(context));
                response.take()
            }
            Rare::Denied { answer } => answer.take().map(|answer| answer.map(LayerBody::own)),
        };
        answer.map_or(Poll::Pending, |answer| Poll::Ready(Turn::Answer(Box::new(answer))))
    }
}

impl<S, B, F, R, E> Future for RateLimitFuture<S, B, F, R>
where
    S: Service<Request<B>, Response = Response<R>, Error = E, Future = F>,
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<LayerBody<R>>, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if let Rest::Rare(rare) = this.rest {
                match ready!(rare.poll_turn(context)) {
                    Turn::Answer(answer) => return Poll::Ready(Ok(*answer)),
                    Turn::Call(call) => {
                        let (mut service, request, owed) = *call;
                        this.calling.set(Some(service.call(request)));
                        *this.rest = Rest::of(owed);
                    }
                }
            }
            let Some(calling) = this.calling.as_mut().as_pin_mut() else { return Poll::Pending };
            let response = ready!(calling.poll(context))?;
            match std::mem::replace(this.rest, Rest::Nothing) {
                Rest::Owed(owed) => {
                    let (response, reported) = finish(owed, response);
                    let response = response.map(LayerBody::passed);
                    let Some(reported) = reported else { return Poll::Ready(Ok(response)) };
                    *this.rest = Rest::Rare(Box::new(Rare::Reporting { reported, response: Some(response) }));
                }
                Rest::Nothing | Rest::Rare(_) => return Poll::Ready(Ok(response.map(LayerBody::passed))),
            }
        }
    }
}

impl<S, B, F, R> std::fmt::Debug for RateLimitFuture<S, B, F, R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RateLimitFuture").finish_non_exhaustive()
    }
}
