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

pin_project! {
    /// The answer of a [`RateLimit`](crate::RateLimit), to be.
    pub struct RateLimitFuture<S, B, F, R> {
        #[pin]
        state: State<S, B, F, R>,
    }
}

pin_project! {
    #[project = StateOf]
    enum State<S, B, F, R> {
        // A shared store decides. The service that is ready waits for that, and so does the body.
        Asking { judged: Judged, waiting: Option<(S, B)> },
        // The service is called.
        Calling { #[pin] future: F, later: Option<(Arc<Shared>, Ticket)> },
        // A shared store is told what became of the request.
        Reporting { reported: Reported, response: Option<Box<Response<LayerBody<R>>>> },
        // The layer answers itself.
        Denied { answer: Option<Answer> },
    }
}

impl<S, B, F, R> RateLimitFuture<S, B, F, R> {
    pub(super) fn asking(judged: Judged, ready: S, body: B) -> Self {
        RateLimitFuture { state: State::Asking { judged, waiting: Some((ready, body)) } }
    }

    pub(super) fn calling(future: F, later: Option<(Arc<Shared>, Ticket)>) -> Self {
        RateLimitFuture { state: State::Calling { future, later } }
    }

    pub(super) fn denied(answer: Answer) -> Self {
        RateLimitFuture { state: State::denied(answer) }
    }
}

impl<S, B, F, R> State<S, B, F, R> {
    fn denied(answer: Answer) -> Self {
        State::Denied { answer: Some(answer) }
    }
}

impl<S, B, F, R, E> Future for RateLimitFuture<S, B, F, R>
where
    S: Service<Request<B>, Response = Response<R>, Error = E, Future = F>,
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<LayerBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateOf::Asking { judged, waiting } => {
                    let (parts, shared, verdict) = ready!(judged.as_mut().poll(context));
                    // Whoever polls what is ready gets no second answer.
                    let Some((mut service, body)) = waiting.take() else { return Poll::Pending };
                    match shared.settle_on(verdict, &parts.headers) {
                        Ok(ticket) => {
                            let future = service.call(Request::from_parts(parts, body));
                            State::Calling { future, later: ticket.map(|ticket| (shared, ticket)) }
                        }
                        Err(answer) => State::denied(answer),
                    }
                }
                StateOf::Calling { future, later } => {
                    let mut response = ready!(future.poll(context))?;
                    let reported = later.take().and_then(|(shared, ticket)| shared.finish(ticket, &mut response));
                    let response = response.map(LayerBody::passed);
                    match reported {
                        None => return Poll::Ready(Ok(response)),
                        Some(reported) => State::Reporting { reported, response: Some(Box::new(response)) },
                    }
                }
                StateOf::Reporting { reported, response } => {
                    ready!(reported.as_mut().poll(context));
                    return response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(*response)));
                }
                StateOf::Denied { answer } => {
                    let Some(answer) = answer.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(answer.map(LayerBody::own)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, B, F, R> std::fmt::Debug for RateLimitFuture<S, B, F, R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RateLimitFuture").finish_non_exhaustive()
    }
}
