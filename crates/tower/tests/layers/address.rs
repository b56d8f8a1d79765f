//! Layers whose rules go by address, for requests that have none.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, Outside, load_text};
use tidegate_tower::RateLimitLayer;

use super::servers::free_port;
use super::{get, status};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How often the log tells of a domain.
fn told(domain: &str) -> usize {
    let log = String::from_utf8(LOG.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap();
    let name = format!("domain=\"{domain}\"");
    log.lines().filter(|line| line.contains(" WARN ") && line.contains("peer_from") && line.contains(&name)).count()
}

#[tokio::test]
async fn a_layer_that_finds_no_address_says_so_once() {
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).finish();
    // For all threads: tracing remembers for each place in the code whether anybody listens, and a test beside this one may
    // come there first.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let rules = "domains:
  by-address: {rules: [{name: each, key: address, limit: 1/minute}]}
  by-network: {rules: [{name: near, match: {address: 10.0.0.0/8}, limit: 1/minute}]}
  by-header: {rules: [{name: each, key: {header: x-user}, limit: 1/minute}]}
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
    let outside = Outside { default_is_shared: Some(true), ..Outside::default() };
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
}
