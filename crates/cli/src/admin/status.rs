//! `tidegate status`: whether a server is ready, and the health of its stores.

use std::collections::BTreeMap;
use std::process::ExitCode;

use http::Method;
use serde::Serialize;

use super::series::{self, Series};
use super::server::{Server, ServerArgs};
use super::text::{aligned, count, escaped};
use super::{Format, Problem, print};

/// Show whether a server is ready, its version and configuration, and the health of its stores
#[derive(clap::Args)]
#[command(after_help = "It needs no admin token. With --format json, the output is one JSON object.

Exit codes:
  0  the server is ready
  1  it is not ready, or cannot be reached
  2  invalid arguments

Examples:
  tidegate status
  tidegate status --server https://tidegate.internal --ca ca.pem")]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

const READY: &str = "tidegate_ready";
const BUILD: &str = "tidegate_build_info";
const POLICY: &str = "tidegate_policy_info";
const LOADS: &str = "tidegate_config_loads_total";
const MODES: &str = "tidegate_rule_mode";
const DECISIONS: &str = "tidegate_decisions_total";
const REQUESTS: &str = "tidegate_requests_total";
const CONNECTIONS: &str = "tidegate_connections";
const STORES: &str = "tidegate_store_info";
const BREAKERS: &str = "tidegate_store_breaker";

/// The order of the fields is their order in JSON.
#[derive(Serialize)]
struct Status<'a> {
    server: &'a str,
    ready: bool,
    version: String,
    policy: String,
    /// Configurations that were refused since the start.
    config_errors: u64,
    /// Rules by mode.
    rules: BTreeMap<String, u64>,
    /// Decisions of rules by verdict.
    decisions: BTreeMap<String, u64>,
    /// Requests by protocol.
    requests: BTreeMap<String, u64>,
    /// Open connections by listener.
    connections: BTreeMap<String, u64>,
    /// Nodes of shared stores.
    stores: Vec<StoreNode>,
}

/// A node of a shared store.
#[derive(Serialize)]
pub(super) struct StoreNode {
    pub(super) store: String,
    url: String,
    pub(super) node: String,
    /// `connected`, `probing` or `not connected`.
    pub(super) state: &'static str,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Problem> {
    let server = Server::new(&args.server)?;
    let page = metrics(&server)?;
    let names = [READY, BUILD, POLICY, LOADS, MODES, DECISIONS, REQUESTS, CONNECTIONS, STORES, BREAKERS];
    let all = series::read(&page, &names);
    let status = status(server.shown(), &all);
    match args.server.format {
        Format::Text => print(&shown(&status))?,
        Format::Json => {
            let json = serde_json::to_string_pretty(&status).map_err(std::io::Error::other)?;
            super::print_json(&json)?;
        }
    }
    Ok(if status.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns `/metrics`.
pub(super) fn metrics(server: &Server) -> Result<String, Problem> {
    let answer = server.ask(&Method::GET, "/metrics", None)?;
    // Every server of Tidegate says which version it is.
    match answer.status.is_success() && answer.body.contains(BUILD) {
        true => Ok(answer.body),
        false => Err(server.not_tidegate(answer.status)),
    }
}

/// Returns the nodes of all shared stores, from the lines of `/metrics`.
pub(super) fn stores(page: &str) -> Vec<StoreNode> {
    store_nodes(&series::read(page, &[STORES, BREAKERS]))
}

fn store_nodes(all: &[Series]) -> Vec<StoreNode> {
    let url = |store: &str| {
        let info = all.iter().find(|one| one.name == STORES && one.label("store") == store);
        info.map_or("", |info| info.label("url")).to_owned()
    };
    let nodes = all.iter().filter(|one| one.name == BREAKERS).map(|one| StoreNode {
        store: one.label("store").to_owned(),
        url: url(one.label("store")),
        node: one.label("node").to_owned(),
        state: match one.value {
            0.0 => "connected",
            1.0 => "probing",
            _ => "not connected",
        },
    });
    nodes.collect()
}

fn status<'a>(server: &'a str, all: &[Series]) -> Status<'a> {
    let of = |name: &'static str| all.iter().filter(move |one| one.name == name);
    let info = |name, label| of(name).find(|one| one.value > 0.0).map_or("", |one| one.label(label)).to_owned();
    let sums = |name, label: &str| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        of(name).for_each(|one| *sums.entry(one.label(label).to_owned()).or_default() += whole(one.value));
        sums
    };
    let errors = of(LOADS).filter(|one| one.label("result") == "error").map(|one| whole(one.value));
    Status {
        server,
        ready: of(READY).any(|one| one.value > 0.0),
        version: info(BUILD, "version"),
        policy: info(POLICY, "hash"),
        config_errors: errors.sum(),
        rules: sums(MODES, "mode"),
        decisions: sums(DECISIONS, "verdict"),
        requests: sums(REQUESTS, "protocol"),
        connections: sums(CONNECTIONS, "listener"),
        stores: store_nodes(all),
    }
}

/// Returns the value of a counter, which is a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float saturates at the bounds of a u64")]
fn whole(value: f64) -> u64 {
    value as u64
}

fn shown(status: &Status<'_>) -> String {
    let list = |all: &BTreeMap<String, u64>| {
        let all: Vec<String> = all.iter().map(|(name, number)| format!("{number} {}", escaped(name))).collect();
        all.join(", ").replace('_', " ")
    };
    let errors = match status.config_errors {
        0 => String::new(),
        errors => format!(", {} since the start; the log has the reasons", count(errors, "refused reload")),
    };
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("server", format!("{} is {}", status.server, if status.ready { "ready" } else { "not ready" }));
    row("version", escaped(&status.version).into());
    row("config", format!("{}{errors}", escaped(&status.policy)));
    row("rules", list(&status.rules));
    row("decisions", list(&status.decisions));
    row("requests", list(&status.requests));
    row("connections", list(&status.connections));
    for StoreNode { store, node, state, .. } in &status.stores {
        row("store", format!("{} {}: {state}", escaped(store), escaped(node)));
    }
    aligned(&rows, 2)
}
