//! The `tidegate` command that Cargo built for the test, as a server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::http::{self, Response};
use crate::process::{Process, directory};
use crate::repository::root;

/// `tidegate serve` on free ports. It is ended when the value is dropped.
pub struct Tidegate {
    /// The process.
    pub process: Process,
    /// The address for HTTP.
    pub http: SocketAddr,
    /// The address for Envoy, over gRPC.
    pub grpc: SocketAddr,
    /// The address for Redis clients.
    pub resp: SocketAddr,
}

/// Returns the path of the command.
///
/// # Panics
/// If the test was not started by Cargo, which says where the command is to the integration tests of its crate.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("CARGO_BIN_EXE_tidegate");
    path.expect("CARGO_BIN_EXE_tidegate is not set: start the test with `cargo test -p tidegate-cli`").into()
}

/// Returns the command with an empty environment.
pub fn command() -> Command {
    let mut command = Command::new(binary());
    command.env_clear();
    command
}

impl Tidegate {
    /// Starts a server with further arguments and waits until it prints its addresses.
    pub fn start(arguments: &[&str]) -> Tidegate {
        Tidegate::start_by(command(), arguments)
    }

    /// Starts a server with a soft and a hard limit of open files.
    pub fn with_open_files(soft: u64, hard: u64, arguments: &[&str]) -> Tidegate {
        let mut limited = Command::new("/bin/sh");
        let script = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\"");
        limited.args(["-c", &script]).arg(command().get_program()).env_clear();
        Tidegate::start_by(limited, arguments)
    }

    /// Starts a server with an environment variable.
    pub fn with_variable(name: &str, value: &Path, arguments: &[&str]) -> Tidegate {
        let mut command = command();
        command.env(name, value);
        Tidegate::start_by(command, arguments)
    }

    /// Starts a server by another command, to which the arguments are added.
    pub fn start_by(mut command: Command, arguments: &[&str]) -> Tidegate {
        command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
        command.args(arguments);
        let mut process = Process::start(directory(), &mut command, Some(Stdio::piped()));
        let mut greeting = String::new();
        let mut stdout = BufReader::new(process.child.stdout.take().unwrap());
        stdout.read_line(&mut greeting).unwrap();
        // The pipe stays open, or the next line that the server prints would fail.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let address = |before: &str| -> SocketAddr {
            let (_, rest) = greeting.split_once(before).unwrap_or_else(|| panic!("{greeting:?}: {}", process.log()));
            rest.split([',', '\n']).next().unwrap().parse().unwrap()
        };
        let (http, grpc, resp) = (address("HTTP on "), address("Envoy on "), address("Redis clients on "));
        Tidegate { process, http, grpc, resp }
    }

    /// Starts a server with rules from a file, and further arguments.
    pub fn with_config(config: &Path, arguments: &[&str]) -> Tidegate {
        let mut all = vec!["--config", config.to_str().unwrap()];
        all.extend(arguments);
        Tidegate::start(&all)
    }

    /// Starts a server with the rules of the examples, as `make run` does.
    pub fn with_examples() -> Tidegate {
        Tidegate::with_config(&root().join("examples/tidegate.yaml"), &[])
    }

    /// Sends a GET request to the server.
    pub fn get(&self, path: &str) -> Response {
        http::get(self.http, path)
    }

    /// Returns the value of a series of `/metrics`, by its name with its labels; nothing if there is no such series.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
        self.get("/metrics").body.lines().find_map(value)
    }
}
