//! One redis-server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use rustix::process::{Signal, setpriority_process};
use tempfile::TempDir;

use super::{Certificates, RedisProcess, admin, command, program};
use crate::ports::free_port;
use crate::wait::wait_until;

/// How a server is configured. The default has no password and no TLS.
#[derive(Default)]
pub struct Setup<'a> {
    /// The password of the default user.
    pub password: Option<&'a str>,
    /// A further ACL user, as in `name on >password ~* +@all`.
    pub user: Option<&'a str>,
    /// Certificates to listen with TLS on a second port.
    pub tls: Option<&'a Certificates>,
    /// Further settings, as in `--name value`.
    pub settings: &'a [&'a str],
    /// Environment variables.
    pub variables: &'a [(&'a str, &'a str)],
    /// The program to run, instead of the one of `REDIS_SERVER`.
    pub program: Option<PathBuf>,
}

/// One redis-server on free ports. It is killed when the value is dropped.
pub struct Server {
    /// The port without TLS.
    pub port: u16,
    /// The port with TLS, if the setup has certificates.
    pub tls_port: u16,
    speaks_tls: bool,
    password: Option<String>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    program: PathBuf,
    directory: TempDir,
    process: Mutex<Option<RedisProcess>>,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub fn start(setup: &Setup<'_>) -> Server {
        let server = Server::prepare(setup);
        server.run();
        server
    }

    /// Chooses ports and settings without starting the server: see [`Server::run`].
    pub fn prepare(setup: &Setup<'_>) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let (port, tls_port) = (free_port(), free_port());
        let socket = directory.path().join("socket");
        let mut arguments: Vec<String> =
            format!("--port {port} --bind 127.0.0.1 --save  --appendonly no --unixsocket {}", socket.display())
                .split(' ')
                .map(str::to_owned)
                .collect();
        arguments.extend(setup.settings.iter().flat_map(|line| line.split(' ')).map(str::to_owned));
        if let Some(password) = setup.password {
            arguments.extend(["--requirepass".to_owned(), password.to_owned()]);
        }
        if let Some(user) = setup.user {
            arguments.push("--user".to_owned());
            arguments.extend(user.split(' ').map(str::to_owned));
        }
        if let Some(tls) = setup.tls {
            let lines = tls.settings(tls_port);
            arguments.extend(lines.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]));
        }
        let password = setup.password.map(str::to_owned);
        let variables = setup.variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Server {
            port,
            tls_port,
            speaks_tls: setup.tls.is_some(),
            password,
            arguments,
            variables,
            program: setup.program.clone().unwrap_or_else(program),
            directory,
            process: Mutex::new(None),
        }
    }

    /// Starts the process, also again after [`Server::kill`], and waits until it answers.
    pub fn run(&self) {
        let process = RedisProcess::start(&self.program, self.directory.path(), &self.arguments, &self.variables);
        *self.process.lock().unwrap() = Some(process);
        wait_until("redis-server answers", || {
            if self.process.lock().unwrap().as_mut().is_some_and(RedisProcess::has_ended) {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
                panic!("redis-server ended:\n{log}");
            }
            self.admin().is_some()
        });
    }

    /// Connects to the server; nothing if it does not accept the connection.
    pub fn admin(&self) -> Option<redis::Connection> {
        admin(self.port, self.password.as_deref())
    }

    /// Sends a command and returns its reply as text.
    pub fn command(&self, words: &str) -> String {
        command(self.port, words).unwrap()
    }

    /// Returns the port for peers: the one with TLS if there is one.
    pub fn peer_port(&self) -> u16 {
        if self.speaks_tls { self.tls_port } else { self.port }
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&self) {
        *self.process.lock().unwrap() = None;
    }

    /// Lets the process run before everything else on the machine, so that a busy machine does not slow it down. Only root
    /// may do that; for other users the calling process and those that it starts from now on step back.
    pub fn prioritise(&self) {
        let process = self.process.lock().unwrap().as_ref().unwrap().child.id().to_string();
        let done = Command::new("chrt").args(["--fifo", "--pid", "1", &process]).output();
        if !done.is_ok_and(|done| done.status.success()) {
            setpriority_process(None, 15).unwrap();
        }
    }

    /// Stops the process with SIGSTOP: the system still accepts connections, which get no reply.
    pub fn hang(&self) {
        self.process.lock().unwrap().as_ref().unwrap().signal(Signal::STOP);
    }

    /// Continues a process that [`Server::hang`] stopped.
    pub fn go_on(&self) {
        self.process.lock().unwrap().as_ref().unwrap().signal(Signal::CONT);
    }
}
