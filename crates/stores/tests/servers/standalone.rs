//! One redis-server.

use std::path::PathBuf;
use std::sync::Mutex;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Certificates, Process, admin, command, free_port, program, wait_until};

/// What a server is to be like.
#[derive(Default)]
pub(crate) struct Setup<'a> {
    pub(crate) password: Option<&'a str>,
    /// An ACL user: `name on >password ~* +@all`.
    pub(crate) user: Option<&'a str>,
    /// With these it listens with TLS on a port of its own too.
    pub(crate) tls: Option<&'a Certificates>,
    /// Further settings: `--name value`.
    pub(crate) settings: &'a [&'a str],
    /// Variables of its environment.
    pub(crate) variables: &'a [(&'a str, &'a str)],
    /// Another program than the one that the environment says.
    pub(crate) program: Option<PathBuf>,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) tls_port: u16,
    speaks_tls: bool,
    password: Option<String>,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    program: PathBuf,
    directory: TempDir,
    process: Mutex<Option<Process>>,
}

impl Server {
    /// Starts one and waits until it answers.
    pub(crate) fn start(setup: &Setup<'_>) -> Server {
        let server = Server::prepare(setup);
        server.run();
        server
    }

    /// Chooses ports and settings, and starts nothing.
    pub(crate) fn prepare(setup: &Setup<'_>) -> Server {
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

    /// Starts it, again if it was killed.
    pub(crate) fn run(&self) {
        let process = Process::redis(&self.program, self.directory.path(), &self.arguments, &self.variables);
        *self.process.lock().unwrap() = Some(process);
        wait_until("redis-server answers", || {
            if self.process.lock().unwrap().as_mut().is_some_and(Process::has_ended) {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
                panic!("redis-server ended:\n{log}");
            }
            self.admin().is_some()
        });
    }

    pub(crate) fn admin(&self) -> Option<redis::Connection> {
        admin(self.port, self.password.as_deref())
    }

    pub(crate) fn command(&self, words: &str) -> String {
        command(self.port, words).unwrap()
    }

    /// Where servers and Sentinels find it: with TLS if it has that.
    pub(crate) fn peer_port(&self) -> u16 {
        if self.speaks_tls { self.tls_port } else { self.port }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Ends it without a farewell.
    pub(crate) fn kill(&self) {
        *self.process.lock().unwrap() = None;
    }

    /// Stops its process: the system still accepts connections for it, and nobody answers.
    pub(crate) fn hang(&self) {
        self.process.lock().unwrap().as_ref().unwrap().signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.process.lock().unwrap().as_ref().unwrap().signal(Signal::CONT);
    }
}
