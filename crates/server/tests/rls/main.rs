//! Envoy's door over real connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod answers;
mod connections;
mod encrypted;
mod health;

use std::net::SocketAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::google::protobuf::UInt64Value;
use tidegate_core::{FakeClock, Time};
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, load_text};
use tidegate_server::{Drain, Drainer, Listener, RlsDoor, RlsOptions, Service};
use tonic::transport::Channel;

/// Twenty and a half seconds after the start of a minute.
const NOW: Time = Time::from_nanos(1_700_000_000_500_000_000);

/// A server with its rules, on a clock that stands still.
struct Server {
    address: SocketAddr,
    service: Arc<Service>,
    clock: FakeClock,
    drainer: Drainer,
}

impl Server {
    fn start(rules: &str) -> Server {
        Server::with(rules, Options::default(), RlsOptions::default())
    }

    fn with(rules: &str, options: Options, door: RlsOptions) -> Server {
        Server::behind(|listener| listener, rules, options, door)
    }

    /// One with another listener.
    fn behind(listen: impl FnOnce(Listener) -> Listener, rules: &str, options: Options, door: RlsOptions) -> Server {
        let clock = FakeClock::at(NOW);
        let engine = Engine::new(Options { clock: clock.clone().into(), ..options }).unwrap();
        let loaded = load_text("test.yaml", rules, &LoadOptions::default());
        engine.install(loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))).unwrap();
        let service = Arc::new(Service::new(engine));
        service.set_ready(true);
        let listener = listen(Listener::bind("grpc", "127.0.0.1:0".parse().unwrap()).unwrap());
        let address = listener.address().unwrap();
        let (drainer, drain): (Drainer, Drain) = Drainer::new();
        let door = Arc::new(RlsDoor::new(Arc::clone(&service), door));
        tokio::spawn(async move { listener.accept(door, drain).await });
        Server { address, service, clock, drainer }
    }

    async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::connect(format!("http://{}", self.address)).await.unwrap()
    }
}

fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
}

fn hits(value: u64, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value }), ..descriptor }
}

fn own_limit(requests_per_unit: u32, unit: i32, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..descriptor }
}
