//! The rules of an engine, in memory and on stores that are shared.

use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tidegate_core::FakeClock;
use tidegate_engine::bounds::{DESCRIPTORS_MAX, ENTRIES_MAX};
use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, Outside, load_text};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Server, Setup};
use tidegate_tower::{KeyBy, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Body, ask, get, shown, status};

fn engine(rules: &str, clock: &FakeClock) -> Arc<Engine> {
    engine_with(rules, Options { clock: clock.clone().into(), ..Options::default() })
}

fn engine_with(rules: &str, options: Options) -> Arc<Engine> {
    let outside = Outside { default_is_elsewhere: Some(options.store.is_some()), ..Outside::default() };
    let loaded = load_text("rules.yaml", rules, &LoadOptions { outside, ..LoadOptions::default() });
    Arc::new(Engine::with_policy(options, loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))).unwrap())
}

const RULES: &str = "
client_address: {trusted_hops: 1}
domains:
  api:
    rules:
      - {name: per-user, key: {entry: user}, limit: 2/minute}
      - {name: logins, match: {method: POST, path: /login}, key: address, limit: 1/minute}
      - {name: kept-out, match: {host: evil.test}, action: block, response: {hidden: true}}
      - {name: failures, match: {path: /count}, key: address, count: response.status == 401, limit: 1/minute}
      - {name: bytes, match: {path: /bytes}, key: address, count: response.bytes, limit: 6/minute}
";

fn api(clock: &FakeClock) -> RateLimitLayer {
    let builder = RateLimitLayer::policy(engine(RULES, clock), "api");
    builder.descriptor([("user", KeyBy::header("x-user"))]).build().unwrap()
}

fn post(path: &str, client: &str) -> Request<()> {
    let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();
    Request::post(path).header("x-forwarded-for", client).extension(peer).body(()).unwrap()
}

#[tokio::test]
async fn rules_see_the_request() {
    let clock = FakeClock::new();
    let layer = api(&clock);
    let ann = || get("/", &[("x-user", "ann")]);
    insta::assert_snapshot!("rule_passed", shown(ask(&layer, ann()).await).await);
    assert_eq!(status(&layer, ann()).await, 200);
    insta::assert_snapshot!("rule_denied", shown(ask(&layer, ann()).await).await);
    clock.advance(Duration::from_secs(30));
    assert_eq!(status(&layer, ann()).await, 200);
    assert_eq!(status(&layer, get("/", &[])).await, 200, "no rule counts those without an entry");
    // The path in another form, and the client as the proxy tells it.
    assert_eq!(status(&layer, post("//login", "6.6.6.6, 1.1.1.1")).await, 200);
    assert_eq!(status(&layer, post("/%6cogin", "7.7.7.7, 1.1.1.1")).await, 429);
    assert_eq!(status(&layer, post("/login", "2.2.2.2")).await, 200);
}

/// Rules that look at nothing but the address, and then others that look at what was not made ready for those.
#[tokio::test]
async fn rules_that_are_loaded_later_see_what_the_first_did_not_look_at() {
    let rule = |text: &str| format!("domains: {{api: {{rules: [{{name: r, limit: 1/minute, {text}}}]}}}}");
    let clock = FakeClock::new();
    let engine = engine(&rule("key: address"), &clock);
    let layer = RateLimitLayer::policy(Arc::clone(&engine), "api").build().unwrap();
    let ask = async |path: &str, user: &str| {
        let headers =
            [("host", "Api.test:80"), ("x-user", user), ("cookie", "s=1; t=2"), ("x-forwarded-for", "1.1.1.1")];
        let mut request = get(path, &headers);
        request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 1)));
        status(&layer, request).await
    };
    assert_eq!((ask("/a", "ann").await, ask("/b", "bob").await), (200, 429));
    for text in [
        "key: {header: x-user}",
        "key: address, match: {header: {x-user: ann}}",
        "key: [address, path], match: {cookie: {t: '2'}}",
        "key: path, match: {host: api.test}",
        "match: {path: /a}",
        "match: {when: 'request.headers[\"x-user\"] == \"ann\"'}",
        "key: {expression: 'request.cookies.t + request.path'}",
        "cost: 'request.host == \"api.test\" && request.path == \"/a\" ? 1 : 0'",
    ] {
        let loaded = load_text("rules.yaml", &rule(text), &LoadOptions::default());
        engine.install(loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))).unwrap();
        clock.advance(Duration::from_secs(60));
        let answers = [ask("/a", "ann").await, ask("/b", "bob").await, ask("/%61", "ann").await];
        assert_eq!(answers, [200, 200, 429], "{text}");
    }
    let trusting =
        format!("client_address: {{trusted_hops: 1}}\n{}", rule("key: address, match: {address: 1.1.1.1/32}"));
    engine.install(load_text("rules.yaml", &trusting, &LoadOptions::default()).policy.unwrap()).unwrap();
    assert_eq!((ask("/a", "ann").await, ask("/b", "bob").await), (200, 429));
}

#[tokio::test]
async fn each_descriptor_has_its_own_entries() {
    let rules = "domains: {api: {rules: [
        {name: pair, match: {entries: {a: '*', b: '*'}}, key: [{entry: a}, {entry: b}], limit: 1/minute},
        {name: c, match: {entries: {c: x}}, limit: 2/minute}]}}";
    let entry = |name: &'static str| (name, KeyBy::header(name));
    let builder = RateLimitLayer::policy(engine(rules, &FakeClock::new()), "api").descriptor([entry("a"), entry("b")]);
    let layer = builder.descriptor([entry("c")]).build().unwrap();
    let ask = async |headers: &[(&'static str, &'static str)]| status(&layer, get("/", headers)).await;
    assert_eq!(ask(&[("b", "1"), ("c", "x")]).await, 200, "one of c is left");
    assert_eq!(ask(&[("a", "1"), ("b", "2")]).await, 200);
    assert_eq!(ask(&[("a", "1"), ("b", "2")]).await, 429);
    assert_eq!(ask(&[("a", "2"), ("b", "1"), ("c", "y")]).await, 200, "c is another");
    assert_eq!(ask(&[("a", "3"), ("b", "1"), ("c", "x")]).await, 200, "the last of c");
    assert_eq!(ask(&[("a", "4"), ("b", "1"), ("c", "x")]).await, 429);
    assert_eq!(ask(&[("a", "1")]).await, 200, "half of a pair is none");
}

#[tokio::test]
async fn what_is_hidden_stays_so() {
    let layer = api(&FakeClock::new());
    insta::assert_snapshot!("rule_hidden", shown(ask(&layer, get("/", &[("host", "Evil.test:80")])).await).await);
    let call = get("/", &[("host", "evil.test"), ("content-type", "application/grpc")]);
    let denied = ask(&layer, call).await;
    assert_eq!(denied.headers()["grpc-status"], "7");
    assert_eq!(denied.headers()["grpc-message"], "denied");
}

#[tokio::test]
async fn entries_that_must_be_there() {
    let builder = RateLimitLayer::policy(engine(RULES, &FakeClock::new()), "api");
    let layer = builder.descriptor([("user", KeyBy::header("x-user"))]).deny_missing_entries().build().unwrap();
    assert_eq!(status(&layer, get("/", &[])).await, 400);
    assert_eq!(status(&layer, get("/", &[("x-user", "ann")])).await, 200);
}

/// The statuses of requests to a path whose handler answers with this status and body.
async fn answers(layer: &RateLimitLayer, path: &str, answer: u16, body: &'static str, times: usize) -> Vec<u16> {
    let mut all = Vec::new();
    for _ in 0..times {
        let service = service_fn(move |_: Request<()>| async move {
            Ok::<_, std::convert::Infallible>(Response::builder().status(answer).body(Body::from(body)).unwrap())
        });
        all.push(layer.layer(service).oneshot(post(path, "1.1.1.1")).await.unwrap().status().as_u16());
    }
    all
}

#[tokio::test]
async fn rules_that_count_responses_hear_of_them() {
    let layer = api(&FakeClock::new());
    assert_eq!(answers(&layer, "/count", 200, "", 5).await, [200; 5]);
    assert_eq!(answers(&layer, "/count", 401, "", 2).await, [401, 429]);
    assert_eq!(answers(&layer, "/bytes", 200, "abc", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn one_rule_that_counts_responses_is_enough_among_others() {
    let counting = "{name: failures, count: response.status == 401, limit: 1/minute}";
    for rules in
        [format!("{counting}, {{name: all, limit: 9/minute}}"), format!("{{name: all, limit: 9/minute}}, {counting}")]
    {
        let engine = engine(&format!("domains: {{api: {{rules: [{rules}]}}}}"), &FakeClock::new());
        let layer = RateLimitLayer::policy(engine, "api").build().unwrap();
        assert_eq!(answers(&layer, "/", 401, "", 2).await, [401, 429], "{rules}");
    }
}

fn on_store(port: u16, failure: &str) -> RateLimitLayer {
    let rules = format!(
        "
domains:
  api:
    rules:
      - {{name: per-user, key: {{entry: user}}, limit: 2/hour, on_store_failure: {failure}}}
      - {{name: failures, match: {{path: /count}}, key: address, count: response.status == 401, limit: 1/hour}}
"
    );
    let store = Some(format!("redis://127.0.0.1:{port}?timeout=5s").into());
    let builder = RateLimitLayer::policy(engine_with(&rules, Options { store, ..Options::default() }), "api");
    builder.descriptor([("user", KeyBy::header("x-user"))]).build().unwrap()
}

#[tokio::test]
async fn layers_count_together_in_a_shared_store() {
    let server = Server::start(&Setup::default());
    let (one, two) = (on_store(server.port, "deny"), on_store(server.port, "deny"));
    let ann = || get("/", &[("x-user", "ann")]);
    assert_eq!(status(&one, ann()).await, 200);
    assert_eq!(status(&two, ann()).await, 200);
    let denied = ask(&one, ann()).await;
    assert_eq!(denied.status(), 429);
    assert!(denied.headers().contains_key("retry-after"));
    assert_eq!(answers(&one, "/count", 401, "", 1).await, [401]);
    assert_eq!(answers(&two, "/count", 401, "", 1).await, [429]);
}

#[tokio::test]
async fn without_its_store_the_rule_chooses() {
    let ann = || get("/", &[("x-user", "ann")]);
    let strict = on_store(free_port(), "deny");
    let denied = ask(&strict, ann()).await;
    assert_eq!(denied.status(), 503);
    assert_eq!(denied.headers()["retry-after"], "1");
    let call = get("/", &[("x-user", "ann"), ("content-type", "application/grpc")]);
    assert_eq!(ask(&strict, call).await.headers()["grpc-status"], "14");
    let local = on_store(free_port(), "{local: 2/hour}");
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(status(&local, ann()).await);
    }
    assert_eq!(answers, [200, 200, 429]);
    let open = on_store(free_port(), "allow");
    for _ in 0..3 {
        assert_eq!(status(&open, ann()).await, 200);
    }
}

/// A service that may be called only when it was ready, which its clones are not.
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Strict {
        Strict { is_ready: false }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let was_ready = std::mem::take(&mut self.is_ready);
        ready(if was_ready { Ok(Response::default()) } else { Err("it was not ready") })
    }
}

#[tokio::test]
async fn only_what_was_ready_is_called() {
    for layer in [api(&FakeClock::new()), on_store(free_port(), "allow")] {
        let mut service = layer.layer(Strict { is_ready: false });
        // Two at a time: the second is asked for while a store is asked about the first.
        let first = service.ready().await.unwrap().call(get("/", &[("x-user", "ann")]));
        let second = service.ready().await.unwrap().call(get("/", &[("x-user", "ann")]));
        assert_eq!(first.await.unwrap().status(), 200);
        assert_eq!(second.await.unwrap().status(), 200);
    }
}

/// Who was denied by a store, and polls what is ready, hears nothing more.
#[tokio::test]
async fn there_is_no_second_answer() {
    let mut call = std::pin::pin!(
        on_store(free_port(), "deny").layer(Strict { is_ready: true }).call(get("/", &[("x-user", "ann")]))
    );
    assert_eq!(call.as_mut().await.unwrap().status(), 503);
    assert!(call.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
}

/// They are not refused: rules that look at them may be loaded later.
#[test]
fn entries_that_no_rule_looks_at_are_named() {
    let rules = "
domains:
  api:
    rules:
      - {name: keyed, key: {entry: user}, limit: 2/minute}
      - {name: matched, match: {entries: {plan: free}}, limit: 2/minute}
      - {name: when, match: {when: entries.org == 'acme'}, limit: 2/minute}
      - {name: costs, cost: 'has(entries.size) ? 2 : 1', limit: 2/minute}
      - {name: told, match: {path: /told}, metrics: {by_entries: [region]}, limit: 2/minute}
  other:
    rules:
      - {name: elsewhere, key: {entry: usr}, limit: 2/minute}
";
    let engine = engine(rules, &FakeClock::new());
    let sent = ["user", "plan", "org", "size", "region", "usr", "Plan"];
    let entries = || sent.map(|name| (name, KeyBy::header("x")));
    let layer = |domain| RateLimitLayer::policy(Arc::clone(&engine), domain).descriptor(entries()).build().unwrap();
    let api = layer("api");
    assert_eq!(api.unused_entries(), ["Plan", "usr"]);
    assert_eq!(layer("other").unused_entries(), ["Plan", "org", "plan", "region", "size", "user"]);
    let any = "domains: {api: {rules: [{name: second, key: {entry_at: 1}, limit: 2/minute}]}}";
    engine.install(load_text("rules.yaml", any, &LoadOptions::default()).policy.unwrap()).unwrap();
    assert!(api.unused_entries().is_empty(), "whichever is the second");
    let limit = RateLimitLayer::limit("1/s".parse().unwrap(), KeyBy::path()).build().unwrap();
    assert!(limit.unused_entries().is_empty());
}

#[test]
fn mistakes_are_named() {
    let engine = engine(RULES, &FakeClock::new());
    let error = RateLimitLayer::policy(Arc::clone(&engine), "apy").build().unwrap_err();
    assert_eq!(error.to_string(), "domain: there are no rules for `apy`; use one of the policy: `api`");
    let domains: String = (0..20).map(|n| format!("  d{n}: {{rules: [{{name: r, limit: 1/s}}]}}\n")).collect();
    let twenty = self::engine(&format!("domains:\n{domains}"), &FakeClock::new());
    assert_eq!(
        RateLimitLayer::policy(twenty, "x".repeat(100)).build().unwrap_err().to_string(),
        format!(
            "domain: there are no rules for `{}`; use one of the policy: `d0`, `d1`, `d10`, `d11`, `d12`, `d13`, `d14`, `d15` \
             and 12 more",
            "x".repeat(40)
        )
    );
    let none = Arc::new(Engine::new(Options::default()).unwrap());
    assert_eq!(
        RateLimitLayer::policy(none, "api").build().unwrap_err().to_string(),
        "domain: there are no rules for `api`; use a policy that has it: this one has no domains"
    );
    let many = (0..=DESCRIPTORS_MAX).fold(RateLimitLayer::policy(Arc::clone(&engine), "api"), |builder, _| {
        builder.descriptor([("user", KeyBy::header("x-user"))])
    });
    let expected = format!("descriptors: {} are too many; use at most {DESCRIPTORS_MAX}", DESCRIPTORS_MAX + 1);
    assert_eq!(many.build().unwrap_err().to_string(), expected);
    let wide = (0..=ENTRIES_MAX).map(|_| ("user", KeyBy::header("x-user")));
    let error = RateLimitLayer::policy(Arc::clone(&engine), "api").descriptor(wide).build().unwrap_err();
    let expected = format!("entries: {} are too many for one descriptor; use at most {ENTRIES_MAX}", ENTRIES_MAX + 1);
    assert_eq!(error.to_string(), expected);
    let error = RateLimitLayer::policy(Arc::clone(&engine), "api").deny_missing_entries().build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "deny_missing_entries: it has no effect without entries; add a descriptor with the required entries, or leave it \
         out"
    );
    let two = KeyBy::path().and(KeyBy::api_key());
    let error = RateLimitLayer::policy(engine, "api").descriptor([("user", two)]).build().unwrap_err();
    assert_eq!(error.to_string(), "entry `user`: its value has 2 parts; give each part an entry of its own");
}
