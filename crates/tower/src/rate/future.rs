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

type Left = Option<(Arc<Shared>, Ticket)>;

/// All that is not just passed on.
pub(super) type RareBox<S, B, F, R> = Pin<Box<Rare<S, B, F, R>>>;

pin_project! {
    #[project = StateOf]
    enum State<S, B, F, R> {
        // The service is called.
        Calling { #[pin] future: F, later: Left },
        // All else is kept apart, so that what passes stays small.
        Rare { rare: RareBox<S, B, F, R> },
    }
}

pin_project! {
    #[project = RareOf]
    pub(super) enum Rare<S, B, F, R> {
        // A shared store decides. The service that is ready waits for that, and so does the body.
        Asking { judged: Judged, waiting: Option<(S, B)> },
        // The service is called.
        Calling { #[pin] future: F, later: Left },
        // A shared store is told what became of the request.
        Reporting { reported: Reported, response: Option<Response<LayerBody<R>>> },
        // The layer answers itself.
        Denied { answer: Option<Answer> },
    }
}

impl<S, B, F, R> RateLimitFuture<S, B, F, R> {
    #[inline]
    pub(super) fn calling(future: F, later: Left) -> Self {
        RateLimitFuture { state: State::Calling { future, later } }
    }

    #[inline]
    pub(super) fn rare(rare: RareBox<S, B, F, R>) -> Self {
        RateLimitFuture { state: State::Rare { rare } }
    }
}

impl<S, B, F, R> Rare<S, B, F, R> {
    pub(super) fn denied(answer: Answer) -> Self {
        Rare::Denied { answer: Some(answer) }
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
        let mut state = self.project().state;
        match state.as_mut().project() {
            StateOf::Calling { future, later } => {
                let mut response = ready!(future.poll(context))?;
                let reported = later.take().and_then(|(shared, ticket)| shared.finish(ticket, &mut response));
                let (parts, body) = response.into_parts();
                let response = Response::from_parts(parts, LayerBody::passed(body));
                match reported {
                    None => Poll::Ready(Ok(response)),
                    Some(reported) => {
                        let mut rare = Box::pin(Rare::Reporting { reported, response: Some(response) });
                        let polled = rare.as_mut().poll(context);
                        state.set(State::Rare { rare });
                        polled
                    }
                }
            }
            StateOf::Rare { rare } => rare.as_mut().poll(context),
        }
    }
}

impl<S, B, F, R, E> Future for Rare<S, B, F, R>
where
    S: Service<Request<B>, Response = Response<R>, Error = E, Future = F>,
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<LayerBody<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project() {
                RareOf::Asking { judged, waiting } => {
                    let (parts, shared, verdict) = ready!(judged.as_mut().poll(context));
                    // Whoever polls what is ready gets no second answer.
                    let Some((mut service, body)) = waiting.take() else { return Poll::Pending };
                    match shared.settle_on(verdict, &parts.headers) {
                        Ok(ticket) => {
                            let future = service.call(Request::from_parts(parts, body));
                            Rare::Calling { future, later: ticket.map(|ticket| (shared, ticket)) }
                        }
                        Err(answer) => Rare::denied(answer),
                    }
                }
                RareOf::Calling { future, later } => {
                    let mut response = ready!(future.poll(context))?;
                    let reported = later.take().and_then(|(shared, ticket)| shared.finish(ticket, &mut response));
                    let response = response.map(LayerBody::passed);
                    match reported {
                        None => return Poll::Ready(Ok(response)),
                        Some(reported) => Rare::Reporting { reported, response: Some(response) },
                    }
                }
                RareOf::Reporting { reported, response } => {
                    ready!(reported.as_mut().poll(context));
                    return response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                }
                RareOf::Denied { answer } => {
                    let Some(answer) = answer.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(answer.map(LayerBody::own)));
                }
            };
            self.set(next);
        }
    }
}

impl<S, B, F, R> std::fmt::Debug for RateLimitFuture<S, B, F, R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RateLimitFuture").finish_non_exhaustive()
    }
}
