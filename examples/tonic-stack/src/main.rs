//! A gRPC service behind all of Tidegate's layers: it sheds, limits rates, takes turns and holds a total.

#[path = "../../support/start.rs"]
mod start;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tidegate::shed::Criticality;
use tidegate::tower::{Head, KeyBy, RateLimitLayer, StackHandle, StackLayer, Tenant};
use tokio::time::sleep;
use tokio_stream::Empty;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// What this service bears at once. Behind the stack four calls are in progress, at most, and forty wait.
const LIMIT: u64 = 4;

#[tokio::main]
async fn main() -> ExitCode {
    start::ended(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let work = start::millis("WORK_MS", 50)?;
    let stack = StackLayer::builder(LIMIT)
        .class(class)
        .rate(RateLimitLayer::limit("100/minute".parse()?, KeyBy::header("x-tenant")).build()?)
        .tenant(|head| Some(Tenant::new(head.header("x-tenant")?)))
        .deadline(Duration::from_secs(2))
        .build()?;
    let handle = stack.handle();
    let metrics = Router::new()
        .route("/metrics", get(async move || ([(CONTENT_TYPE, StackHandle::CONTENT_TYPE)], handle.render())));
    let calls = start::listen("LISTEN", "127.0.0.1:50051").await?;
    let pages = start::listen("METRICS", "127.0.0.1:9090").await?;
    println!("listening on {}, metrics on {}", calls.local_addr()?, pages.local_addr()?);
    let server = Server::builder().layer(stack).add_service(HealthServer::new(Slow(work)));
    tokio::select! {
        ended = server.serve_with_incoming(TcpListenerStream::new(calls)) => Ok(ended?),
        ended = axum::serve(pages, metrics) => Ok(ended?),
    }
}

/// Metadata of a call are the headers of its request.
fn class(head: Head<'_>) -> Criticality {
    match head.headers().get("x-priority") {
        Some(priority) if priority == "critical" => Criticality::Critical,
        _ => Criticality::Get,
    }
}

/// Work that takes its time. It is the health check of gRPC, so that the example needs no proto file of its own.
struct Slow(Duration);

#[tonic::async_trait]
impl Health for Slow {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        sleep(self.0).await;
        Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() }))
    }

    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("ask once"))
    }
}
