//! The layers in axum and tonic, all at once.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http_body::Body as _;
use tidegate_core::adaptive::{Gradient2, Gradient2Config};
use tidegate_core::shed::WorkerShedderConfig;
use tidegate_engine::{Engine, Options};
use tidegate_tower::{
    AdaptiveLayer, ConcurrencyLayer, FairLayer, Measure, Queue, Refusal, SharedConcurrencyLayer, ShedLayer, Tenant,
};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt};

fn adaptive() -> AdaptiveLayer {
    AdaptiveLayer::builder(Gradient2::new(Gradient2Config::default()).unwrap()).build().unwrap()
}

fn fair() -> FairLayer {
    FairLayer::builder(1, |head| Some(Tenant::new(head.header("tenant")?))).build().unwrap()
}

fn shared() -> SharedConcurrencyLayer {
    let engine = Engine::new(Options { keys: Some(100), ..Options::default() }).unwrap();
    SharedConcurrencyLayer::builder(Arc::new(engine), "all", 1).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_router_of_axum_takes_all_of_them() {
    let limit = ConcurrencyLayer::builder(1).queue(Queue::new(1, Duration::from_secs(1))).build().unwrap();
    let slow = async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        "hello"
    };
    let app: Router = Router::new()
        .route("/", get(slow))
        .layer(shared())
        .layer(limit)
        .layer(fair())
        .layer(adaptive())
        .layer(ShedLayer::worker(WorkerShedderConfig::default(), Measure::Busy { workers: 10 }).build().unwrap())
        .layer(ShedLayer::fleet(2, 0.0).build().unwrap());
    let request = || http::Request::get("/").body(Body::empty()).unwrap();
    let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(app.clone().oneshot(request()))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        let response = task.await.unwrap().unwrap();
        answers.push((response.status().as_u16(), response.extensions().get::<Refusal>().is_some()));
    }
    assert_eq!(answers, [(200, false), (200, false), (503, true)]);
}

#[tokio::test(start_paused = true)]
async fn routes_of_tonic_are_told_in_grpc() {
    let limit = ConcurrencyLayer::new(1).unwrap();
    let service = limit.layer(tonic::service::Routes::default().prepare());
    let call = || {
        let call = http::Request::post("/some.Service/Call").header("content-type", "application/grpc");
        call.body(tonic::body::Body::empty()).unwrap()
    };
    let status = |response: &http::Response<_>| response.headers()["grpc-status"].clone();
    let unknown = service.clone().oneshot(call()).await.unwrap();
    assert_eq!(status(&unknown), "12", "it passed, and there is no such service");
    let _held = limit.handle().acquire().await.unwrap();
    let refused = service.oneshot(call()).await.unwrap();
    assert_eq!((refused.status().as_u16(), status(&refused)), (200, "14".parse().unwrap()));
    let told = tonic::Status::from_header_map(refused.headers()).unwrap();
    assert_eq!((told.code(), told.message()), (tonic::Code::Unavailable, "the concurrency limit is reached"));
    assert_eq!(told.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    assert!(refused.body().is_end_stream(), "a status alone");
}

/// It compiles: what a server of tonic asks of its layers.
#[test]
fn a_server_of_tonic_takes_them() {
    let server = tonic::transport::Server::builder().layer(fair()).layer(adaptive()).layer(shared());
    let mut server = server.layer(ConcurrencyLayer::new(1).unwrap()).layer(ShedLayer::fleet(2, 0.0).build().unwrap());
    let _router = server.add_routes(tonic::service::Routes::default());
}

/// It compiles: bodies as hyper has them.
#[test]
fn a_service_of_hyper_takes_them() {
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};

    fn accepted<S, B>(_: S)
    where
        S: tower::Service<http::Request<Incoming>, Response = http::Response<B>, Future: Send>,
        B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
            + Send
            + Sync
            + 'static,
    {
    }
    let service = tower::service_fn(async |_: http::Request<Incoming>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from_static(b"hello"))))
    });
    accepted(fair().layer(adaptive().layer(ConcurrencyLayer::new(1).unwrap().layer(shared().layer(service)))));
}
