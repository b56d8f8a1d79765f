//! What passes under a limit allocates nothing, unless its response is to tell of the limit.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, load_text};
use tidegate_testkit::counting::{Counting, allocated};
use tidegate_tower::{ClientAddress, KeyBy, RateLimitLayer};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<http_body_util::Empty<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

fn request() -> Request<()> {
    let request = Request::get("/a/b").header("x-user", "ann").header("cookie", "a=b; s=1");
    let request = request.header("x-api-key", "abc").header("x-forwarded-for", "1.1.1.1, 192.0.2.1");
    request.extension(SocketAddr::from(([10, 0, 0, 1], 1))).body(()).unwrap()
}

/// How often three requests in turn ask for memory, each of which passes.
fn asked(layer: &RateLimitLayer) -> [u64; 3] {
    let mut service = layer.layer(Hello);
    [(); 3].map(|()| {
        let request = request();
        let before = allocated();
        let response = pin!(service.call(request)).poll(&mut Context::from_waker(Waker::noop()));
        let asked = allocated() - before;
        let Poll::Ready(Ok(response)) = response else { unreachable!("it is ready") };
        assert_eq!(response.status().as_u16(), 200);
        asked
    })
}

#[test]
fn what_passes_allocates_nothing() {
    let address = ClientAddress::new().trusted_hops(1);
    let keys = [KeyBy::header("x-user"), KeyBy::cookie("s"), KeyBy::api_key(), KeyBy::path()];
    for key in keys.into_iter().chain([KeyBy::client_address(address)]) {
        let shown = format!("{key:?}");
        let layer = RateLimitLayer::limit("100/minute".parse().unwrap(), key).headers_on_pass(false).build().unwrap();
        assert_eq!(asked(&layer), [0; 3], "{shown}");
    }
}

#[test]
fn what_one_rule_lets_pass_allocates_nothing_but_room_for_its_key() {
    for rule in ["key: address", "key: method, match: {path: /a*}", "match: {address: 10.0.0.0/8}"] {
        let text = format!("domains: {{api: {{rules: [{{name: each, limit: 100/minute, {rule}}}]}}}}");
        let policy = load_text("rules.yaml", &text, &LoadOptions::default()).policy.unwrap();
        let engine = Arc::new(Engine::with_policy(Options::default(), policy).unwrap());
        let layer = RateLimitLayer::policy(engine, "api").headers_on_pass(false).build().unwrap();
        // Each thread keeps that room.
        let [_, second, third] = asked(&layer);
        assert_eq!([second, third], [0, 0], "{rule}");
    }
}
