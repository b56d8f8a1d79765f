//! Real servers on loopback: axum, and tonic with a tonic client.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::Request;
use http_body_util::{BodyExt, Full};
use tidegate_core::FakeClock;
use tidegate_testkit::loopback::Serving;
use tidegate_tower::{ClientAddress, KeyBy, MissingKey, RateLimitLayer, RetryPolicy};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::retry::RetryLayer;
use tower::{Layer, ServiceExt, service_fn};

#[tokio::test]
async fn axum_denies_what_is_over_the_limit() {
    let address = ClientAddress::new().peer_from(|peer: &ConnectInfo<SocketAddr>| Some(peer.0.ip()));
    let layer = RateLimitLayer::limit("2/hour".parse().unwrap(), KeyBy::client_address(address))
        .missing_key(MissingKey::Deny)
        .clock(FakeClock::new())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let server = Serving::axum(app).await;
    for left in [1, 0] {
        let answer = server.fetch().await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
        assert!(answer.contains("ratelimit-policy: \"default\";q=2;w=3600\r\n"), "{answer}");
        assert!(answer.contains(&format!("ratelimit: \"default\";r={left};t=")), "{answer}");
    }
    let denied = server.fetch().await;
    assert!(denied.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{denied}");
    for header in ["content-type: application/problem+json", "cache-control: no-store", "retry-after: 1800"] {
        assert!(denied.contains(&format!("{header}\r\n")), "{denied}");
    }
    assert!(denied.ends_with("\"violated-policies\":[\"default\"]}"), "{denied}");
}

#[tokio::test]
async fn tonic_denies_with_a_status_that_tells_the_wait() {
    let address = ClientAddress::new().peer_from(|peer: &TcpConnectInfo| peer.remote_addr().map(|peer| peer.ip()));
    let layer = RateLimitLayer::limit("1/hour".parse().unwrap(), KeyBy::client_address(address))
        .missing_key(MissingKey::Deny)
        .clock(FakeClock::new())
        .build()
        .unwrap();
    let server = Serving::tonic(layer).await;
    let mut client = HealthClient::new(server.channel().await);
    assert_eq!(client.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 1);
    let status = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, "the quota is used up"));
    let delay = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(Duration::from_secs(3600)));
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "3600000");
}

/// A client of tonic that comes back when it was told to. Its messages are short: they are kept to be sent again.
#[tokio::test]
async fn tonic_clients_come_back_when_they_were_told_to() {
    let layer = RateLimitLayer::limit("1/second".parse().unwrap(), KeyBy::everyone()).build().unwrap();
    let switch = layer.switch().clone();
    let server = Serving::tonic(layer).await;
    let channel = server.channel().await;
    let sent = service_fn(move |request: Request<Full<bytes::Bytes>>| channel.clone().oneshot(request.map(Body::new)));
    let retrying = RetryLayer::new(RetryPolicy::default()).layer(sent);
    let mut client = HealthClient::new(service_fn(move |request: Request<Body>| {
        let retrying = retrying.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = Full::new(body.collect().await.unwrap().to_bytes());
            retrying.oneshot(Request::from_parts(parts, body)).await
        }
    }));
    let started = Instant::now();
    for _ in 0..2 {
        assert_eq!(client.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 1);
    }
    let took = started.elapsed();
    assert!(took > Duration::from_millis(800), "it came back after {took:?}");
    assert_eq!(switch.refused(), 1);
}
