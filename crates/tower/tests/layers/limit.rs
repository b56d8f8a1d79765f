//! One limit, in memory.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tidegate_core::{FakeClock, Limit, MemoryStore};
use tidegate_tower::{
    AddressHeader, ClientAddress, ConfigError, KeyBy, MissingKey, Mode, RateLimitBuilder, RateLimitLayer, Settle,
    Speaks,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Body, ask, get, shown, status};

type Builder = RateLimitBuilder<tidegate_tower::ByLimit>;

fn limit(text: &str, key: KeyBy) -> (FakeClock, Builder) {
    let clock = FakeClock::new();
    (clock.clone(), RateLimitLayer::limit(text.parse::<Limit>().unwrap(), key).clock(clock))
}

fn from(user: &str) -> Request<()> {
    get("/", &[("x-user", user)])
}

#[tokio::test]
async fn what_clients_see() {
    let (clock, builder) = limit("2/minute", KeyBy::header("x-user"));
    let layer = builder.name("per \"user\"").build().unwrap();
    insta::assert_snapshot!("passed", shown(ask(&layer, from("ann")).await).await);
    clock.advance(Duration::from_millis(500));
    assert_eq!(status(&layer, from("ann")).await, 200);
    insta::assert_snapshot!("denied", shown(ask(&layer, from("ann")).await).await);
    let call = get("/", &[("x-user", "ann"), ("content-type", "application/grpc+proto")]);
    insta::assert_snapshot!("denied_grpc", shown(ask(&layer, call).await).await);
    assert_eq!(status(&layer, from("bob")).await, 200, "another user");
    clock.advance(Duration::from_secs(30));
    assert_eq!(status(&layer, from("ann")).await, 200);
    assert_eq!(layer.switch().refused(), 2);
}

#[tokio::test]
async fn headers_on_what_passes_are_an_option() {
    let (_, builder) = limit("2/minute", KeyBy::header("x-user"));
    let layer = builder.headers_on_pass(false).build().unwrap();
    assert!(ask(&layer, from("ann")).await.headers().is_empty());
    assert_eq!(status(&layer, from("ann")).await, 200);
    assert!(ask(&layer, from("ann")).await.headers().contains_key("ratelimit"), "a denial tells");
}

#[tokio::test]
async fn what_never_fits_is_told_no_wait() {
    let (_, builder) = limit("2/minute", KeyBy::everyone());
    let layer = builder.cost(|head| head.headers().get("x-cost").map_or(3, |_| 1)).build().unwrap();
    insta::assert_snapshot!("never_fits", shown(ask(&layer, from("ann")).await).await);
    let call = get("/", &[("content-type", "application/grpc")]);
    insta::assert_snapshot!("never_fits_grpc", shown(ask(&layer, call).await).await);
    assert_eq!(status(&layer, get("/", &[("x-cost", "1")])).await, 200);
    let denied = ask(&layer, from("ann")).await;
    assert_eq!(denied.headers()["ratelimit"], "\"default\";r=1", "nor when some of it is used");
}

#[tokio::test]
async fn the_answer_can_be_chosen() {
    let (_, builder) = limit("1/minute", KeyBy::everyone());
    let layer = builder.speaks(Speaks::Grpc).build().unwrap();
    assert_eq!(status(&layer, from("ann")).await, 200);
    assert_eq!(ask(&layer, from("ann")).await.headers()["grpc-status"], "8");
    let (_, builder) = limit("1/minute", KeyBy::everyone());
    let layer = builder.speaks(Speaks::Http).build().unwrap();
    let call = || get("/", &[("content-type", "application/grpc")]);
    assert_eq!(status(&layer, call()).await, 200);
    assert_eq!(status(&layer, call()).await, 429);
}

#[tokio::test]
async fn requests_without_a_key() {
    let long = "x".repeat(tidegate_core::bounds::KEY_BYTES_MAX + 1);
    let without: [&[(&str, &str)]; 3] = [&[], &[("x-user", "")], &[("x-user", &long)]];
    for (missing, expected) in [
        (MissingKey::Share, [200, 429, 429]),
        // Who sends too long a key chose it.
        (MissingKey::Skip, [200, 200, 400]),
        (MissingKey::Deny, [400, 400, 400]),
    ] {
        let (_, builder) = limit("1/minute", KeyBy::header("x-user"));
        let layer = builder.missing_key(missing).build().unwrap();
        let mut answers = Vec::new();
        for headers in without {
            answers.push(status(&layer, get("/", headers)).await);
        }
        assert_eq!(answers, expected, "{missing:?}");
        assert_eq!(status(&layer, from("ann")).await, 200, "who has one counts apart");
    }
    // Of several parts the whole is too long.
    let half = "x".repeat(tidegate_core::bounds::KEY_BYTES_MAX / 2);
    let halves = || get("/", &[("x-user", &half), ("x-org", &half)]);
    for (missing, expected) in [(MissingKey::Share, [200, 429]), (MissingKey::Skip, [400, 400])] {
        let (_, builder) = limit("1/minute", KeyBy::header("x-user").and(KeyBy::header("x-org")));
        let layer = builder.missing_key(missing).build().unwrap();
        assert_eq!([status(&layer, halves()).await, status(&layer, halves()).await], expected, "{missing:?}");
    }
    let (_, builder) = limit("1/minute", KeyBy::header("x-user"));
    let layer = builder.missing_key(MissingKey::Deny).build().unwrap();
    insta::assert_snapshot!("without_key", shown(ask(&layer, get("/", &[])).await).await);
    let long = [half.as_str(); 3].concat();
    insta::assert_snapshot!("key_too_long", shown(ask(&layer, get("/", &[("x-user", &long)])).await).await);
    let call = get("/", &[("content-type", "application/grpc")]);
    assert_eq!(ask(&layer, call).await.headers()["grpc-status"], "3");
}

/// Whether two requests count together under a key.
async fn together(key: KeyBy, one: Request<()>, other: Request<()>) -> bool {
    let (_, builder) = limit("1/minute", key);
    let layer = builder.missing_key(MissingKey::Deny).build().unwrap();
    assert_eq!(status(&layer, one).await, 200);
    match status(&layer, other).await {
        200 => false,
        429 => true,
        status => panic!("{status}"),
    }
}

#[tokio::test]
async fn whom_requests_count_on() {
    let cookie = |line| get("/", &[("cookie", line)]);
    assert!(together(KeyBy::cookie("s"), cookie("a=b; s=1"), cookie("s=\"1\"")).await);
    assert!(!together(KeyBy::cookie("s"), cookie("s=1"), cookie("s=2")).await);
    let bearer = |token| get("/", &[("authorization", token)]);
    assert!(together(KeyBy::api_key(), bearer("Bearer abc"), get("/", &[("x-api-key", "abc")])).await);
    assert!(!together(KeyBy::api_key(), bearer("Bearer abc"), bearer("bearer abd")).await);
    assert!(together(KeyBy::path(), get("/a/../b?x", &[]), get("//%62", &[])).await);
    assert!(together(KeyBy::path(), get("/a%2Fb", &[]), get("/x/..%2fa/b", &[])).await);
    assert!(!together(KeyBy::path(), get("/a", &[]), get("/b", &[])).await);
    let user_and_path = || KeyBy::header("x-user").and(KeyBy::path());
    assert!(!together(user_and_path(), from("ann"), get("/x", &[("x-user", "ann")])).await);
    assert!(together(user_and_path(), from("ann"), from("ann")).await);
    // Parts are kept apart.
    let two = || KeyBy::header("x-user").and(KeyBy::header("x-org"));
    let named = |user, org| get("/", &[("x-user", user), ("x-org", org)]);
    assert!(!together(two(), named("ab", "c"), named("a", "bc")).await);
    let tenant = KeyBy::from_fn(|head| head.uri().path().split('/').nth(1).map(|part| part.as_bytes().into()));
    assert!(together(tenant, get("/t1/a", &[]), get("/t1/b", &[])).await);
}

fn at(peer: &str, forwarded: &[&str]) -> Request<()> {
    let mut request = Request::get("/");
    for line in forwarded {
        request = request.header("x-forwarded-for", *line);
    }
    request.extension(SocketAddr::new(peer.parse().unwrap(), 1)).body(()).unwrap()
}

#[tokio::test]
async fn clients_by_address() {
    let peer = || KeyBy::client_address(ClientAddress::new());
    assert!(together(peer(), at("192.0.2.1", &["1.1.1.1"]), at("192.0.2.1", &["2.2.2.2"])).await);
    assert!(!together(peer(), at("192.0.2.1", &[]), at("192.0.2.2", &[])).await);
    assert!(together(peer(), at("2001:db8::1", &[]), at("2001:db8::2", &[])).await, "one network of 64 bits");
    assert!(together(peer(), at("::ffff:192.0.2.1", &[]), at("192.0.2.1", &[])).await);
    let proxied = || KeyBy::client_address(ClientAddress::new().trusted_hops(1));
    // What stands on the left is for the client to say.
    assert!(together(proxied(), at("10.0.0.1", &["6.6.6.6, 1.1.1.1"]), at("10.0.0.2", &["7.7.7.7", "1.1.1.1"])).await);
    assert!(!together(proxied(), at("10.0.0.1", &["1.1.1.1"]), at("10.0.0.1", &["2.2.2.2"])).await);
    let networks = || KeyBy::client_address(ClientAddress::new().trusted_networks(["10.0.0.0/8"]));
    assert!(together(networks(), at("10.0.0.1", &["1.1.1.1, 10.0.0.9"]), at("10.0.0.2", &["1.1.1.1"])).await);
    assert!(together(networks(), at("192.0.2.1", &["1.1.1.1"]), at("192.0.2.1", &["2.2.2.2"])).await);
    let forwarded = ClientAddress::new().trusted_hops(1).header(AddressHeader::Forwarded);
    let asked = |peer: &str, line| {
        let mut request = at(peer, &[]);
        request.headers_mut().insert("forwarded", http::HeaderValue::from_static(line));
        request
    };
    let key = KeyBy::client_address(forwarded);
    assert!(together(key, asked("10.0.0.1", "for=1.1.1.1"), asked("10.0.0.2", "for=\"1.1.1.1:80\";proto=https")).await);
}

#[tokio::test]
async fn the_peer_stands_where_the_user_says() {
    #[derive(Clone)]
    struct Peer(IpAddr);
    let key = KeyBy::client_address(ClientAddress::new().peer_from(|peer: &Peer| Some(peer.0)));
    let (_, builder) = limit("1/minute", key);
    let layer = builder.missing_key(MissingKey::Deny).build().unwrap();
    let named = |peer: &str| Request::get("/").extension(Peer(peer.parse().unwrap())).body(()).unwrap();
    assert_eq!(status(&layer, named("192.0.2.1")).await, 200);
    assert_eq!(status(&layer, named("192.0.2.1")).await, 429);
    assert_eq!(status(&layer, at("192.0.2.3", &[])).await, 400, "another extension");
}

#[tokio::test]
async fn costs_before_and_after() {
    let (_, builder) = limit("10/minute", KeyBy::everyone());
    let layer = builder
        .cost(|head| if head.uri().path() == "/big" { 4 } else { 1 })
        .settle(|response| match response.status() {
            StatusCode::NOT_FOUND => Settle::Refund(u64::MAX),
            _ => Settle::Charge(response.bytes().unwrap_or(0) / 5),
        })
        .build()
        .unwrap();
    let service = |status: u16, body: &'static str| {
        let answer = move |_: Request<()>| async move {
            Ok::<_, std::convert::Infallible>(Response::builder().status(status).body(Body::from(body)).unwrap())
        };
        layer.layer(service_fn(answer))
    };
    let left = async || {
        let response = service(200, "").oneshot(get("/", &[])).await.unwrap();
        response.headers()["ratelimit"].to_str().unwrap().split(';').nth(1).unwrap().to_owned()
    };
    assert_eq!(service(404, "").oneshot(get("/big", &[])).await.unwrap().status(), 404);
    assert_eq!(left().await, "r=9", "what failed was given back");
    assert_eq!(service(200, "hello").oneshot(get("/big", &[])).await.unwrap().status(), 200);
    assert_eq!(left().await, "r=3", "four before and one after");
    // Beyond the limit too: it was used.
    assert_eq!(service(200, "a body of 35 bytes, nothing else. ").oneshot(get("/", &[])).await.unwrap().status(), 200);
    assert_eq!(service(200, "").oneshot(get("/", &[])).await.unwrap().status(), 429);
}

#[tokio::test]
async fn on_trial_nobody_feels_it_and_off_nothing_counts() {
    let (_, builder) = limit("1/minute", KeyBy::everyone());
    let layer = builder.mode(Mode::Shadow).build().unwrap();
    for _ in 0..3 {
        let response = ask(&layer, from("ann")).await;
        assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0));
    }
    assert_eq!((layer.switch().refused(), layer.switch().would_refuse()), (0, 2));
    layer.switch().set_mode(Mode::Off);
    assert_eq!(status(&layer, from("ann")).await, 200);
    assert_eq!(layer.switch().would_refuse(), 2);
    layer.switch().set_mode(Mode::Enforce);
    assert_eq!(status(&layer, from("ann")).await, 429);
}

#[tokio::test]
async fn layers_in_each_other_each_tell() {
    let (_, per_user) = limit("2/minute", KeyBy::header("x-user"));
    let (_, in_all) = limit("9/minute", KeyBy::everyone());
    let inner = per_user.name("user").build().unwrap().layer(service_fn(super::hello));
    let response = in_all.name("all").build().unwrap().layer(inner).oneshot(from("ann")).await.unwrap();
    let told: Vec<_> = response.headers().get_all("ratelimit").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(told, ["\"user\";r=1;t=30", "\"all\";r=8;t=7"]);
}

#[tokio::test]
async fn what_the_service_says_of_itself_is_heard() {
    let (_, builder) = limit("1/minute", KeyBy::everyone());
    let mut service = builder
        .build()
        .unwrap()
        .layer(tower::service_fn(|_: Request<()>| async { Err::<Response<Body>, _>("broken") }));
    assert_eq!(service.ready().await.unwrap().call(get("/", &[])).await.unwrap_err(), "broken");
    assert_eq!(service.ready().await.unwrap().call(get("/", &[])).await.unwrap().status(), 429, "it counted");
}

#[test]
fn mistakes_are_named() {
    let build = |key: KeyBy| limit("1/minute", key).1.build().unwrap_err().to_string();
    assert_eq!(
        build(KeyBy::header("x user")),
        "header: `x user` is not the name of a header; use letters, digits and dashes"
    );
    for name in ["", "a;b", "a=b", " a"] {
        let expected = format!("cookie: `{name}` is not the name of a cookie; leave out `;`, `=` and spaces around it");
        assert_eq!(build(KeyBy::cookie(name)), expected);
    }
    let address = |address| build(KeyBy::client_address(address));
    assert_eq!(
        address(ClientAddress::new().trusted_hops(65)),
        "client address: trusted_hops: 65 is too large; use at most 64"
    );
    assert!(
        address(ClientAddress::new().trusted_networks(["here"])).starts_with("client address: `here` is not a network")
    );
    let nine = (0..8).fold(KeyBy::path(), |key, _| key.and(KeyBy::path()));
    assert_eq!(build(nine), "key: 9 parts; use 1 to 8");
    let (_, builder) = limit("1/minute", KeyBy::path());
    assert_eq!(builder.name("").build().unwrap_err().to_string(), "name: 0 bytes; use 1 to 128");
    let (_, builder) = limit("1/minute", KeyBy::path());
    let error = builder.keys(0).build().unwrap_err();
    assert!(matches!(&error, ConfigError::Capacity(_)));
    assert_eq!(error.to_string(), "keys: 0 is too small; use at least 1");
    let on_store = || {
        let store = Arc::new(MemoryStore::builder().keys(10).build().unwrap());
        RateLimitLayer::limit("1/minute".parse().unwrap(), KeyBy::path()).store(store)
    };
    for (builder, expected) in [
        (on_store().keys(10), "keys: it has no effect on a store that is given; leave one of both out"),
        (on_store().clock(FakeClock::new()), "clock: it has no effect on a store that is given; leave one of both out"),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), expected);
    }
}
