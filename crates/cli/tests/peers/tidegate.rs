//! The server as it was built, on ports of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::http::{self, Response};
use crate::process::{Process, directory, root};

pub(crate) struct Tidegate {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) resp: SocketAddr,
}

/// The command with no environment of whoever runs the tests.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.env_clear();
    command
}

impl Tidegate {
    /// Starts it with further arguments, and waits until it says where it listens.
    pub(crate) fn start(arguments: &[&str]) -> Tidegate {
        Tidegate::start_by(command(), arguments)
    }

    /// Starts it with so many files that it may open, of those that it may allow itself.
    pub(crate) fn with_open_files(soft: u64, hard: u64, arguments: &[&str]) -> Tidegate {
        let mut limited = Command::new("/bin/sh");
        let script = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\"");
        limited.args(["-c", &script]).arg(command().get_program()).env_clear();
        Tidegate::start_by(limited, arguments)
    }

    /// Starts it with a variable of the environment.
    pub(crate) fn with_variable(name: &str, value: &Path, arguments: &[&str]) -> Tidegate {
        let mut command = command();
        command.env(name, value);
        Tidegate::start_by(command, arguments)
    }

    /// Starts it by another command.
    pub(crate) fn start_by(mut command: Command, arguments: &[&str]) -> Tidegate {
        command.args(["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
        command.args(arguments);
        let mut process = Process::start(directory(), &mut command, Some(Stdio::piped()));
        let mut greeting = String::new();
        let mut stdout = BufReader::new(process.child.stdout.take().unwrap());
        stdout.read_line(&mut greeting).unwrap();
        // Kept open, or its next line would be a broken pipe.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let address = |before: &str| -> SocketAddr {
            let told = greeting.split_once(before).unwrap_or_else(|| panic!("it says {greeting:?}: {}", process.log()));
            told.1.split([',', ' ']).next().unwrap().trim_end_matches('.').parse().unwrap()
        };
        let (http, grpc, resp) = (address("HTTP on "), address("Envoy on "), address("Redis clients on "));
        Tidegate { process, http, grpc, resp }
    }

    /// Starts it with rules from a file.
    pub(crate) fn with_config(config: &Path, arguments: &[&str]) -> Tidegate {
        let mut all = vec!["--config", config.to_str().unwrap()];
        all.extend(arguments);
        Tidegate::start(&all)
    }

    /// Starts it with the rules of the examples, as `make run` does.
    pub(crate) fn with_examples() -> Tidegate {
        Tidegate::with_config(&root().join("examples/tidegate.yaml"), &[])
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        http::get(self.http, path)
    }

    /// The value of a metric, of the series whose line starts so.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
        self.get("/metrics").body.lines().find_map(value)
    }
}
