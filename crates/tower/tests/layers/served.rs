//! Real servers on loopback: axum, and tonic with a tonic client.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tidegate_core::FakeClock;
use tidegate_tower::{ClientAddress, KeyBy, MissingKey, RateLimitLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

async fn fetch(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn axum_denies_what_is_over_the_limit() {
    let address = ClientAddress::new().peer_from(|peer: &ConnectInfo<SocketAddr>| Some(peer.0.ip()));
    let layer = RateLimitLayer::limit("2/hour".parse().unwrap(), KeyBy::client_address(address))
        .missing_key(MissingKey::Deny)
        .clock(FakeClock::new())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, service).await });
    for left in [1, 0] {
        let answer = fetch(address).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
        assert!(answer.contains("ratelimit-policy: \"default\";q=2;w=3600\r\n"), "{answer}");
        assert!(answer.contains(&format!("ratelimit: \"default\";r={left};t=")), "{answer}");
    }
    let denied = fetch(address).await;
    assert!(denied.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{denied}");
    for header in ["content-type: application/problem+json", "cache-control: no-store", "retry-after: 1800"] {
        assert!(denied.contains(&format!("{header}\r\n")), "{denied}");
    }
    assert!(denied.ends_with("\"violated-policies\":[\"default\"]}"), "{denied}");
    server.abort();
}

#[tokio::test]
async fn tonic_denies_with_a_status_that_tells_the_wait() {
    let address = ClientAddress::new().peer_from(|peer: &TcpConnectInfo| peer.remote_addr().map(|peer| peer.ip()));
    let layer = RateLimitLayer::limit("1/hour".parse().unwrap(), KeyBy::client_address(address))
        .missing_key(MissingKey::Deny)
        .clock(FakeClock::new())
        .build()
        .unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Server::builder().layer(layer).add_service(health);
    let server = tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    assert_eq!(client.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 1);
    let status = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, "the quota is used up"));
    let delay = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(std::time::Duration::from_secs(3600)));
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "3600000");
    server.abort();
}
