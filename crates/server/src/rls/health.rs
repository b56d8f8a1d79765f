//! The health service of gRPC: it serves while the server is ready, and says at once when it no longer is.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::drain::Drain;
use crate::service::Service;

/// The names that are known: the whole server, what the reference server calls itself, and the service itself.
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

#[derive(Debug)]
pub(super) struct HealthService {
    service: Arc<Service>,
    drain: Drain,
}

impl HealthService {
    pub(super) fn new(service: Arc<Service>, drain: Drain) -> HealthService {
        HealthService { service, drain }
    }
}

fn answer(is_known: bool, is_ready: bool) -> HealthCheckResponse {
    let status = match (is_known, is_ready) {
        (false, _) => ServingStatus::ServiceUnknown,
        (true, true) => ServingStatus::Serving,
        (true, false) => ServingStatus::NotServing,
    };
    HealthCheckResponse { status: status as i32 }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let name = request.into_inner().service;
        if !NAMES.contains(&name.as_str()) {
            return Err(Status::not_found("service: unknown; leave it empty for the whole server"));
        }
        Ok(Response::new(answer(true, self.service.is_ready())))
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    /// Tells how it is now and whenever that changes, until the client leaves or the server drains.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = NAMES.contains(&request.into_inner().service.as_str());
        let mut readiness = self.service.readiness();
        let mut drain = self.drain.clone();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let now = answer(is_known, *readiness.borrow_and_update());
                if sender.send(Ok(now)).await.is_err() {
                    return;
                }
                tokio::select! {
                    // Whoever watches hears that the server is no longer ready before it goes.
                    biased;
                    changed = readiness.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                    () = drain.started() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
