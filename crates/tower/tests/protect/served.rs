//! Real servers on loopback: what clients hear, and that servers end the bodies that hold places.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tidegate_testkit::loopback::Serving;
use tidegate_tower::{ConcurrencyHandle, ConcurrencyLayer};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

/// Waits until so many are in.
async fn until_in_flight(handle: &ConcurrencyHandle, count: u64) {
    let reached = async {
        while handle.in_flight() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reached).await.expect("a place was never given back");
}

#[tokio::test]
async fn axum_gives_places_back_and_tells_why_there_is_none() {
    let layer = ConcurrencyLayer::new(1).unwrap();
    let handle = layer.handle();
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let server = Serving::axum(app).await;
    for _ in 0..3 {
        let answer = server.fetch().await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
        assert!(answer.contains("content-length: 5\r\n"), "the length passes through: {answer}");
        until_in_flight(&handle, 0).await;
    }
    let _held = handle.acquire().await.unwrap();
    let refused = server.fetch().await;
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    for header in ["content-type: application/problem+json", "cache-control: no-store", "retry-after: 1"] {
        assert!(refused.contains(&format!("{header}\r\n")), "{refused}");
    }
    assert!(refused.ends_with("\"detail\":\"the concurrency limit is reached\"}"), "{refused}");
}

/// A call that streams holds its place until it has ended, and trailers come through.
#[tokio::test]
async fn a_stream_of_tonic_holds_its_place() {
    let layer = ConcurrencyLayer::new(1).unwrap();
    let handle = layer.handle();
    let server = Serving::tonic(layer).await;
    let mut client = HealthClient::new(server.channel().await);
    let mut watched = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    assert_eq!(handle.in_flight(), 1);
    let status = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(status.message(), "the concurrency limit is reached");
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    drop(watched);
    until_in_flight(&handle, 0).await;
    assert_eq!(client.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 1);
    until_in_flight(&handle, 0).await;
}
