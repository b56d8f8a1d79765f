//! A service that takes its time, and requests to it.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
pub(crate) use tidegate_testkit::tasks::settle;
use tokio::task::JoinHandle;
use tower::{Service, ServiceExt};

/// Answers 200 after a time, and counts who is in.
#[derive(Clone, Default)]
pub(crate) struct Slow {
    pub(crate) takes: Duration,
    pub(crate) counts: Arc<Counts>,
}

#[derive(Default)]
pub(crate) struct Counts {
    inside: AtomicU64,
    most: AtomicU64,
    served: AtomicU64,
}

/// Who is in, until it ends or is dropped.
struct Inside(Arc<Counts>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Slow {
    pub(crate) fn taking(millis: u64) -> Slow {
        Slow { takes: Duration::from_millis(millis), counts: Arc::default() }
    }

    pub(crate) fn inside(&self) -> u64 {
        self.counts.inside.load(Ordering::SeqCst)
    }

    /// The most that were in at once.
    pub(crate) fn most(&self) -> u64 {
        self.counts.most.load(Ordering::SeqCst)
    }

    pub(crate) fn served(&self) -> u64 {
        self.counts.served.load(Ordering::SeqCst)
    }
}

impl Service<Request<String>> for Slow {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// A header `answer` is the status it answers with.
    fn call(&mut self, request: Request<String>) -> Self::Future {
        let (takes, counts) = (self.takes, Arc::clone(&self.counts));
        let now = counts.inside.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(now, Ordering::SeqCst);
        let inside = Inside(Arc::clone(&counts));
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            drop(inside);
            counts.served.fetch_add(1, Ordering::SeqCst);
            let status =
                request.headers().get("answer").map_or(200, |status| status.to_str().unwrap().parse().unwrap());
            Ok(Response::builder().status(status).body(String::from("done")).unwrap())
        })
    }
}

/// A request with headers.
pub(crate) fn request(headers: &[(&str, &str)]) -> Request<String> {
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(String::new()).unwrap()
}

/// A response whose body is read to its end, as clients do.
pub(crate) async fn read<B>(response: Response<B>) -> Response<String>
where
    B: Body<Data = Bytes, Error: Debug>,
{
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Response::from_parts(head, String::from_utf8(bytes.to_vec()).unwrap())
}

/// Sends a request in a task of its own and reads what is answered; it has been polled once when this returns.
pub(crate) async fn send<S, B>(service: &S, request: Request<String>) -> JoinHandle<Response<String>>
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    B: Body<Data = Bytes, Error: Debug> + Send + 'static,
{
    let response = service.clone().oneshot(request);
    let task = tokio::spawn(async move { read(response.await.unwrap()).await });
    settle().await;
    task
}

/// The status of a response that is there, or nothing if it is not yet.
pub(crate) async fn status(task: &mut JoinHandle<Response<String>>) -> Option<u16> {
    settle().await;
    if task.is_finished() { Some(task.await.unwrap().status().as_u16()) } else { None }
}

pub(crate) async fn pass(millis: u64) {
    tokio::time::advance(Duration::from_millis(millis)).await;
    settle().await;
}
