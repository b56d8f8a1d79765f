//! Layers that go by what no request has say so in the log.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, Outside, load_text};
use tidegate_testkit::logs::{self, Captured};
use tidegate_testkit::ports::free_port;
use tidegate_tower::{ClientAddress, KeyBy, RateLimitLayer};
use tracing::Instrument;

use super::{get, status};

static LOG: LazyLock<Captured> = LazyLock::new(logs::capture);

/// How often the log warns with all of these words.
fn warned(words: &[&str]) -> usize {
    LOG.lines_with(words).iter().filter(|line| line.starts_with("WARN ")).count()
}

/// How often it tells that requests to a domain have no address.
fn told(domain: &str) -> usize {
    warned(&["peer_from", &format!("domain=\"{domain}\"")])
}

#[tokio::test]
async fn a_layer_that_goes_by_what_no_request_has_says_so_once() {
    // Before the first warning.
    LazyLock::force(&LOG);
    let rules = "domains:
  by-address: {rules: [{name: each, key: address, limit: 1/minute}]}
  by-network: {rules: [{name: near, match: {address: 10.0.0.0/8}, limit: 1/minute}]}
  by-header: {rules: [{name: each, key: {header: x-user}, limit: 1/minute}]}
  by-entry: {rules: [{name: each, key: {entry: user}, limit: 1/minute}]}
  by-matched-entry: {rules: [{name: one, match: {entries: {user: x}}, limit: 1/minute}]}
  by-expression: {rules: [{name: one, match: {when: entries.user == 'x'}, limit: 1/minute}]}
  by-entry-at: {rules: [{name: each, key: {entry_at: 0}, limit: 1/minute}]}
  by-key-expression: {rules: [{name: each, key: {expression: entries.user}, limit: 1/minute}]}
  by-cost: {rules: [{name: one, cost: int(entries.user), limit: 1/minute}]}
  by-count: {rules: [{name: one, count: entries.user == 'x', limit: 1/minute}]}
  without-entries: {rules: [{name: one, match: {entries: []}, limit: 1/minute}]}
  by-entry-off: {rules: [{name: each, key: {entry: user}, limit: 1/minute, mode: \"off\"}]}
";
    let policy = load_text("rules.yaml", rules, &LoadOptions::default()).policy.unwrap();
    let engine = Arc::new(Engine::with_policy(Options::default(), policy).unwrap());
    let layer = |domain: &str| RateLimitLayer::policy(Arc::clone(&engine), domain).build().unwrap();
    for (domain, expected) in [("by-address", 1), ("by-network", 1), ("by-header", 0)] {
        let layer = layer(domain);
        for _ in 0..3 {
            assert_eq!(status(&layer, get("/", &[])).await, 200, "{domain}");
        }
        assert_eq!(told(domain), expected, "{domain}");
    }
    let rules = "domains: {far: {rules: [{name: each, key: address, limit: 1/minute}]}}";
    let outside = Outside { default_is_elsewhere: Some(true), ..Outside::default() };
    let policy = load_text("rules.yaml", rules, &LoadOptions { outside, ..LoadOptions::default() }).policy.unwrap();
    let store = Some(format!("redis://127.0.0.1:{}?timeout=50ms", free_port()).into());
    let far = Arc::new(Engine::with_policy(Options { store, ..Options::default() }, policy).unwrap());
    let layer_of_shared = RateLimitLayer::policy(far, "far").build().unwrap();
    for _ in 0..2 {
        assert_eq!(status(&layer_of_shared, get("/", &[])).await, 200);
    }
    assert_eq!(told("far"), 1, "where a shared store is asked");
    let found = layer("by-address");
    let with_address = || {
        let mut request = get("/", &[]);
        request.extensions_mut().insert::<SocketAddr>("10.0.0.1:1".parse().unwrap());
        request
    };
    assert_eq!([status(&found, with_address()).await, status(&found, with_address()).await], [200, 429]);
    assert_eq!(told("by-address"), 1, "there was one each time");
    by_one_limit().await;
    by_entries(&engine);
}

/// Without rules all that have no address count together.
async fn by_one_limit() {
    let addresses = [("by-peer", ClientAddress::new()), ("by-header", ClientAddress::new().trusted_hops(1))];
    for (case, address) in addresses {
        let layer = RateLimitLayer::limit("2/minute".parse().unwrap(), KeyBy::client_address(address)).build().unwrap();
        for expected in [200, 200, 429] {
            let asked = status(&layer, get("/", &[])).instrument(tracing::info_span!("one", case));
            assert_eq!(asked.await, expected);
        }
        // Tests beside this one may warn of the same, outside of the span.
        assert_eq!(warned(&["peer_from", &format!("case=\"{case}\"")]), 1, "{case}");
    }
}

/// Rules by entries meet nobody if the layer has none.
fn by_entries(engine: &Arc<Engine>) {
    for (domain, expected) in [
        ("by-entry", 1),
        ("by-entry-at", 1),
        ("by-matched-entry", 1),
        ("by-expression", 1),
        ("by-key-expression", 1),
        ("by-cost", 1),
        ("by-count", 1),
        ("without-entries", 0),
        ("by-entry-off", 0),
        ("by-header", 0),
    ] {
        let layer = || RateLimitLayer::policy(Arc::clone(engine), domain);
        layer().descriptor([("user", KeyBy::header("x-user"))]).build().unwrap();
        let words = ["rules use entries", &format!("domain=\"{domain}\"")];
        assert_eq!(warned(&words), 0, "{domain}");
        layer().build().unwrap();
        assert_eq!(warned(&words), expected, "{domain}");
    }
}
