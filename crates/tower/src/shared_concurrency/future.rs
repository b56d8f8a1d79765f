//! One request's way through the layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::holder::Asked;
use super::{HeldBody, Shared, SharedPermit};
use crate::grpc::is_call;
use crate::refusal::Refusal;

pin_project! {
    /// The response of a [`SharedConcurrency`](crate::SharedConcurrency) service.
    pub struct SharedConcurrencyFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S, S::Future, A>,
    }
}

pin_project! {
    #[project = StateOf]
    enum State<S, F, A> {
        // A store is asked. The service that is ready waits for that, and so does the request: apart, so that what serves
        // it stays small.
        Asking { asked: Asked, waiting: Option<Box<Waiting<S, A>>> },
        Serving { #[pin] future: F, permit: Option<SharedPermit> },
        Refused { refusal: Refusal, is_grpc: bool },
    }
}

struct Waiting<S, A> {
    ready: S,
    request: Request<A>,
    shared: Arc<Shared>,
}

impl<S, A> SharedConcurrencyFuture<S, A>
where
    S: Service<Request<A>>,
{
    pub(super) fn asking(asked: Asked, ready: S, request: Request<A>, shared: Arc<Shared>) -> Self {
        let waiting = Some(Box::new(Waiting { ready, request, shared }));
        SharedConcurrencyFuture { state: State::Asking { asked, waiting } }
    }

    pub(super) fn serving(future: S::Future, permit: Option<SharedPermit>) -> Self {
        SharedConcurrencyFuture { state: State::Serving { future, permit } }
    }

    pub(super) fn refused(refusal: Refusal, is_grpc: bool) -> Self {
        SharedConcurrencyFuture { state: State::Refused { refusal, is_grpc } }
    }
}

impl<S, A, B> Future for SharedConcurrencyFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Output = Result<Response<HeldBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateOf::Asking { asked, waiting } => {
                    let told = ready!(Pin::new(asked).poll(context));
                    // Whoever polls what is ready gets no second answer.
                    let Some(waiting) = waiting.take() else { return Poll::Pending };
                    let Waiting { mut ready, request, shared } = *waiting;
                    match told {
                        Ok(permit) => State::Serving { future: ready.call(request), permit: Some(permit) },
                        Err(reason) => {
                            State::Refused { refusal: shared.refusal(reason), is_grpc: is_call(request.headers()) }
                        }
                    }
                }
                StateOf::Serving { future, permit } => {
                    let result = ready!(future.poll(context));
                    let permit = permit.take();
                    return Poll::Ready(result.map(|response| response.map(|body| HeldBody::held(body, permit))));
                }
                StateOf::Refused { refusal, is_grpc } => {
                    return Poll::Ready(Ok(refusal.response(*is_grpc).map(HeldBody::own)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, A> fmt::Debug for SharedConcurrencyFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedConcurrencyFuture").finish_non_exhaustive()
    }
}
