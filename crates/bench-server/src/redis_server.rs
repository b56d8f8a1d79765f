//! A redis-server of a bench's own, and what it reports about itself.

use std::process::Command;

use crate::{Process, free_ports, wait_for};

/// A redis-server that keeps nothing on the disk.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    port: u16,
}

impl RedisServer {
    /// Starts it with this command, which may choose its cores.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut command: Command) -> RedisServer {
        let [port] = free_ports();
        let process = Process::start(command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]));
        wait_for(port);
        RedisServer { process, port }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Seconds of CPU that it has used.
    pub fn cpu_seconds(&self) -> f64 {
        self.process.cpu_seconds()
    }

    /// A client of it.
    ///
    /// # Panics
    /// Never: its URL is one.
    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).unwrap()
    }

    /// A new connection to it.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn connection(&self) -> redis::Connection {
        self.client().get_connection().unwrap()
    }

    /// Forgets all keys.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn flush(&self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection()).unwrap();
    }

    /// A field of `INFO`; nothing if there is none of this name.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn info(&self, field: &str) -> Option<String> {
        let info: String = redis::cmd("INFO").arg("everything").query(&mut self.connection()).unwrap();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(|value| value.trim_end().to_owned())
    }

    /// Scripts that it ran so far.
    pub fn script_calls(&self) -> u64 {
        let calls = |name: &str| -> Option<u64> {
            self.info(&format!("cmdstat_{name}"))?.split("calls=").nth(1)?.split(',').next()?.parse().ok()
        };
        calls("evalsha").unwrap_or(0) + calls("eval").unwrap_or(0)
    }
}
