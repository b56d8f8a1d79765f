//! The servers that are measured: each is started when a scenario first needs it, and runs until the end.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use tidegate_bench_server::{Half, Process, RedisServer, free_ports, on, wait_for};

use crate::Options;

/// A server that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    /// Tidegate with a gcra in memory, on all its protocols.
    Tidegate,
    Throttlecrab,
    Redis,
    Hyper,
    Tonic,
    /// Tidegate with a window of a day in memory, on Redis, and with leases of what is in Redis.
    InMemory,
    Exact,
    Leased,
}

/// A server, and where it listens: 0 where it does not.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) resp: u16,
    pub(crate) http: u16,
    pub(crate) grpc: u16,
}

/// The servers that were started.
pub(crate) struct Servers<'a> {
    options: &'a Options,
    running: BTreeMap<Which, Server>,
    store: Option<RedisServer>,
}

const RULE: &str = "domains: {api: {rules: [{name: user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 1000000/second}]}}\n";

/// A rule that what `store` adds puts on Redis. What Redis does not decide in time is denied, so that it shows.
fn rule_of_a_day(stores: &str, store: &str) -> String {
    format!(
        "{stores}domains: {{perf: {{rules: [{{name: user_id, match: {{entries: {{user_id: '*'}}}}, key: {{entry: user_id}}, \
         limit: {{algorithm: fixed_window, rate: 1000000/day}}{store}}}]}}}}\n"
    )
}

impl<'a> Servers<'a> {
    pub(crate) fn new(options: &'a Options) -> Servers<'a> {
        Servers { options, running: BTreeMap::new(), store: None }
    }

    /// A server; it is started if it does not run.
    pub(crate) fn get(&mut self, which: Which) -> &Server {
        if !self.running.contains_key(&which) {
            let server = self.start(which);
            self.running.insert(which, server);
        }
        &self.running[&which]
    }

    /// The Redis that Tidegates have as their store. It takes no core from them.
    pub(crate) fn store(&mut self) -> &RedisServer {
        self.store.get_or_insert_with(|| RedisServer::start(on(Half::Clients, "redis-server")))
    }

    fn start(&mut self, which: Which) -> Server {
        let [resp, http, grpc] = free_ports();
        let built = &self.options.built;
        match which {
            Which::Tidegate => self.tidegate("api", RULE),
            Which::InMemory => self.tidegate("memory", &rule_of_a_day("", "")),
            Which::Exact | Which::Leased => {
                let consistency = if which == Which::Exact { "exact" } else { "leased" };
                let url = format!("{}?prefix={consistency}", self.store().url());
                let store = format!(", store: shared, consistency: {consistency}, on_store_failure: deny");
                self.tidegate(consistency, &rule_of_a_day(&format!("stores: {{shared: {{url: '{url}'}}}}\n"), &store))
            }
            Which::Throttlecrab => {
                let mut command = on(Half::Servers, &self.options.throttlecrab);
                command.args(["--redis", "--redis-port", &resp.to_string(), "--store-capacity", "2000000"]);
                command.args(["--http", "--http-port", &http.to_string()]);
                Server::start(command, [resp, http, 0])
            }
            Which::Redis => {
                let mut command = on(Half::Servers, "redis-server");
                command.args(["--port", &resp.to_string(), "--save", "", "--appendonly", "no"]);
                Server::start(command, [resp, 0, 0])
            }
            Which::Hyper => {
                let mut command = on(Half::Servers, built.join("fixed-hyper"));
                command.arg(http.to_string());
                Server::start(command, [0, http, 0])
            }
            Which::Tonic => {
                let mut command = on(Half::Servers, built.join("empty-tonic"));
                command.arg(grpc.to_string());
                Server::start(command, [0, 0, grpc])
            }
        }
    }

    /// A Tidegate with these rules, which are kept in a file of this name.
    fn tidegate(&self, name: &str, rules: &str) -> Server {
        let path = self.options.scratch().join(format!("{name}.yaml"));
        fs::write(&path, rules).unwrap();
        let [resp, http, grpc] = free_ports();
        let address = |port: u16| format!("127.0.0.1:{port}");
        let mut command = on(Half::Servers, self.options.built.join("tidegate"));
        command.arg("serve").arg("--config").arg(path).args(["--store", "memory:2000000"]);
        command.args(["--resp", &address(resp), "--http", &address(http), "--grpc", &address(grpc)]);
        if let Some(threads) = self.options.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        Server::start(command, [resp, http, grpc])
    }
}

impl Server {
    fn start(mut command: Command, [resp, http, grpc]: [u16; 3]) -> Server {
        let process = Process::start(&mut command);
        [resp, http, grpc].into_iter().filter(|port| *port != 0).for_each(wait_for);
        Server { process, resp, http, grpc }
    }
}
