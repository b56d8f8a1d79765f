//! Envoy's rate limit service on tonic, which decodes every request and says OK.

use std::sync::Arc;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

#[derive(Debug)]
struct AlwaysOk;

#[tonic::async_trait]
impl RateLimitService for AlwaysOk {
    async fn should_rate_limit(&self, _: Request<RateLimitRequest>) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse { overall_code: Code::Ok.into(), ..RateLimitResponse::default() }))
    }
}

fn main() {
    let routes = Routes::new(RateLimitServiceServer::new(AlwaysOk)).prepare();
    tidegate_bench_server::serve(Arc::new(move |stream| {
        let service = TowerToHyperService::new(routes.clone());
        Box::pin(async move {
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        })
    }));
}
