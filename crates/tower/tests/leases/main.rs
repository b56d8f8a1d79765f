//! How many at once over all processes that share a store: on paused time with a store in memory, and with a real Redis.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "in a test a panic is the answer")]

mod hostile;
mod memory;
mod redis_server;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tidegate_tower::{LayerBody, SharedConcurrencyLayer, SharedPermit};
use tokio::task::JoinHandle;
use tower::{Layer, Service, ServiceExt};

type Answer = Response<LayerBody<String, SharedPermit>>;

/// Answers after a time, and counts who is in. Its clones are not ready, and it may be called only when it is.
#[derive(Default)]
struct Slow {
    takes: Duration,
    inside: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    is_ready: bool,
}

/// Who is in, until it ends or is dropped.
struct Inside(Arc<AtomicU64>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Slow {
    fn taking(millis: u64) -> Slow {
        Slow { takes: Duration::from_millis(millis), ..Slow::default() }
    }
}

impl Clone for Slow {
    fn clone(&self) -> Slow {
        Slow { takes: self.takes, inside: Arc::clone(&self.inside), most: Arc::clone(&self.most), is_ready: false }
    }
}

impl Service<Request<()>> for Slow {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been ready");
        let slow = self.clone();
        Box::pin(async move {
            let now = slow.inside.fetch_add(1, Ordering::SeqCst) + 1;
            let _inside = Inside(Arc::clone(&slow.inside));
            slow.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(slow.takes).await;
            Ok(Response::new(String::from("done")))
        })
    }
}

fn get(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// What comes of a request to a service behind a layer.
async fn ask(layer: &SharedConcurrencyLayer, slow: &Slow, headers: &[(&str, &str)]) -> Answer {
    layer.layer(slow.clone()).oneshot(get(headers)).await.unwrap()
}

async fn status(layer: &SharedConcurrencyLayer, slow: &Slow, headers: &[(&str, &str)]) -> u16 {
    ask(layer, slow, headers).await.status().as_u16()
}

/// The same in a task of its own.
fn send(layer: &SharedConcurrencyLayer, slow: &Slow, headers: &[(&str, &str)]) -> JoinHandle<Answer> {
    let response = layer.layer(slow.clone()).oneshot(get(headers));
    tokio::spawn(async move { response.await.unwrap() })
}
