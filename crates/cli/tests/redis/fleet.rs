//! Servers with the same rules.

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_testkit::http::{self, Response};
use tidegate_testkit::process::directory;
use tidegate_testkit::servers::Proxy;
use tidegate_testkit::tidegate::Tidegate;
use tokio::runtime::{Builder, Runtime};

use crate::ask::Said;

/// Long enough for a machine that does other things too: a test that counts exactly must not see a failure choice.
pub(crate) const PATIENT: &str = "timeout=5s";

/// Servers with the same rules; they end with it.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Tidegate>,
    _directory: TempDir,
}

impl Fleet {
    /// Starts so many.
    pub(crate) fn start(count: usize, config: &str) -> Fleet {
        let directory = directory();
        let path = directory.path().join("rules.yaml");
        std::fs::write(&path, config).unwrap();
        let nodes = (0..count).map(|_| Tidegate::with_config(&path, &[])).collect();
        Fleet { nodes, _directory: directory }
    }

    /// One of them.
    pub(crate) fn node(&self, number: usize) -> &Tidegate {
        &self.nodes[number % self.nodes.len()]
    }
}

/// Rules of the domain `api` that are counted in one shared store.
pub(crate) fn shared(url: &str, rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("  - {{store: shared, {rule}}}\n")).collect();
    format!("stores: {{shared: {{url: \"{url}\"}}}}\ndomains:\n api:\n  rules:\n{rules}")
}

/// The body that names a key: a list of entries, with whatever else is asked.
pub(crate) fn body(entries: &[(&str, &str)], further: &str) -> String {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!(r#""{key}":"{value}""#)).collect();
    format!(r#"{{"domain":"api","descriptors":[{{{}}}]{further}}}"#, entries.join(","))
}

/// What an administrator does to a key.
pub(crate) fn admin(node: &Tidegate, call: &str, entry: (&str, &str), further: &str) -> Response {
    http::ask(node.http, "POST", &format!("/v1/{call}"), &[], &body(&[entry], further))
}

/// What is told to who asks once.
pub(crate) fn check(node: &Tidegate, entry: (&str, &str)) -> Said {
    Said::of_http(&http::ask(node.http, "POST", "/v1/check", &[], &body(&[entry], "")))
}

/// What is known of a key, under the first rule.
pub(crate) fn inspect(node: &Tidegate, entry: (&str, &str)) -> Value {
    let told = admin(node, "inspect", entry, "");
    assert_eq!(told.status, 200, "{told:?}");
    let told: Value = serde_json::from_str(&told.body).unwrap();
    told["rules"][0].clone()
}

/// Units that are charged to a key, under the first limit.
pub(crate) fn charged(node: &Tidegate, entry: (&str, &str)) -> u64 {
    let told = inspect(node, entry);
    let number = |name: &str| told["limits"][0][name].as_u64().unwrap_or_else(|| panic!("{told}"));
    number("limit") - number("remaining")
}

/// What carries proxies, as long as the tests run.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

/// A proxy in front of a server.
pub(crate) fn proxy(upstream: u16) -> Proxy {
    runtime().block_on(Proxy::start(upstream))
}

pub(crate) fn sleep_millis(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}
