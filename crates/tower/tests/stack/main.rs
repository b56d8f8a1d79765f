//! The layers in one: their order, their switches, their numbers, and what holds when the shared store is gone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod fairness;
mod order;
mod store_gone;
mod switches;
mod telling;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tidegate_core::shed::Criticality;
use tidegate_testkit::tasks::settle;
use tidegate_tower::{Head, StackLayer, Tenant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

/// A service behind a stack.
type Protected = BoxCloneSyncService<Request<()>, Response<Body>, Infallible>;

/// What is behind a stack: it counts who is in, and keeps each until the test lets it go, or for a time.
#[derive(Clone)]
struct Work {
    inside: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    leave: Arc<Semaphore>,
    takes: Option<Duration>,
}

impl Work {
    /// It ends when the test says so.
    fn held() -> Work {
        Work { inside: Arc::default(), most: Arc::default(), leave: Arc::new(Semaphore::new(0)), takes: None }
    }

    fn taking(takes: Duration) -> Work {
        Work { takes: Some(takes), ..Work::held() }
    }

    fn inside(&self) -> u64 {
        self.inside.load(Ordering::SeqCst)
    }

    /// The most that were in at once.
    fn most(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }

    /// Forgets how many were in.
    fn forget(&self) {
        self.most.store(0, Ordering::SeqCst);
    }

    /// Lets so many go.
    fn release(&self, count: usize) {
        self.leave.add_permits(count);
    }

    async fn run(self) -> Result<Response<Body>, Infallible> {
        struct Inside(Arc<AtomicU64>);
        impl Drop for Inside {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        let _inside = Inside(Arc::clone(&self.inside));
        self.most.fetch_max(now, Ordering::SeqCst);
        match self.takes {
            Some(takes) => tokio::time::sleep(takes).await,
            None => self.leave.acquire().await.unwrap().forget(),
        }
        Ok(Response::new(Body::from("done")))
    }

    fn behind(&self, stack: &StackLayer) -> Protected {
        let work = self.clone();
        let service = stack.layer(service_fn(move |_: Request<()>| work.clone().run()));
        BoxCloneSyncService::new(service.map_response(|response: Response<_>| response.map(Body::new)))
    }
}

fn tenant(head: Head<'_>) -> Option<Tenant<'_>> {
    Some(Tenant::new(head.header("tenant")?))
}

fn class(head: Head<'_>) -> Criticality {
    if head.headers().contains_key("critical") { Criticality::Critical } else { Criticality::Get }
}

fn request(tenant: &str) -> Request<()> {
    Request::builder().header("tenant", tenant).body(()).unwrap()
}

fn grpc(tenant: &str) -> Request<()> {
    Request::builder().header("tenant", tenant).header("content-type", "application/grpc").body(()).unwrap()
}

fn critical(tenant: &str) -> Request<()> {
    Request::builder().header("tenant", tenant).header("critical", "1").body(()).unwrap()
}

/// Sends a request in a task of its own, which drops the body of the response, and lets all tasks run that can.
async fn send(service: &Protected, request: Request<()>) -> JoinHandle<Response<()>> {
    let response = service.clone().oneshot(request);
    let task = tokio::spawn(async move { response.await.unwrap().map(drop) });
    settle().await;
    task
}

/// The status of a response that must be there.
async fn status(task: JoinHandle<Response<()>>) -> u16 {
    settle().await;
    assert!(task.is_finished(), "it is not answered");
    task.await.unwrap().status().as_u16()
}
