//! Envoy's door over real connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod answers;
mod connections;
mod encrypted;
mod health;
mod refunds;

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
use tidegate_server::{Accepted, Door, Drain, Drainer, Listener, RlsDoor, RlsOptions, Service, Tls};
use tokio::net::TcpListener;
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

    /// The address of a listener in front of the same service, whose clients seem to come from another machine.
    async fn afar(&self, options: RlsOptions, tls: Option<Arc<Tls>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Arc::new(RlsDoor::new(Arc::clone(&self.service), options));
        tokio::spawn(async move {
            let (_drainer, drain) = Drainer::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (peer, door, drain, tls) =
                    ("192.0.2.7:4711".parse().unwrap(), Arc::clone(&door), drain.clone(), tls.clone());
                tokio::spawn(async move {
                    let accepted = match tls {
                        Some(tls) => Accepted::greeted(stream, peer, &tls).await.unwrap().unwrap(),
                        None => Accepted::in_the_clear(stream, peer),
                    };
                    door.serve(accepted, drain).await;
                });
            }
        });
        address
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
