//! A primary, a replica, and three Sentinels that watch them.

use std::fs::{read_to_string, write};

use tempfile::TempDir;

use super::{Certificates, Process, Server, Setup, admin, command, free_port, program, wait_until};

/// How the Sentinels call the primary.
pub(crate) const NAME: &str = "tide";

pub(crate) struct Trio {
    /// The primary at the start.
    pub(crate) first: Server,
    /// Its replica at the start.
    pub(crate) second: Server,
    pub(crate) ports: Vec<u16>,
    /// Where clients and other Sentinels find them: the same ports, or those with TLS.
    peer_ports: Vec<u16>,
    sentinels: Vec<(TempDir, Process)>,
}

impl Trio {
    /// Starts all of them. They know each other from the start, so that they need not find each other first.
    pub(crate) fn start() -> Trio {
        Trio::start_with(None)
    }

    /// The same, all of whom speak TLS to each other, and to clients on ports of its own.
    pub(crate) fn start_with(tls: Option<&Certificates>) -> Trio {
        let settings = ["--repl-diskless-sync-delay 0"];
        let setup = Setup { settings: &settings, tls, ..Setup::default() };
        let first = Server::start(&setup);
        let second = Server::start(&setup);
        second.command(&format!("REPLICAOF 127.0.0.1 {}", first.peer_port()));
        wait_until("the replica follows", || second.command("INFO replication").contains("master_link_status:up"));
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let peer_ports: Vec<u16> = ports.iter().map(|port| tls.map_or(*port, |_| free_port())).collect();
        let run_one = |(index, port): (usize, &u16)| {
            let mut lines = sentinel(index, &peer_ports, &first, &second);
            lines.push(format!("port {port}"));
            let settings = tls.map(|tls| tls.settings(peer_ports[index]));
            lines.extend(settings.iter().flatten().map(|(name, value)| format!("{name} {value}")));
            run(&lines)
        };
        let sentinels = ports.iter().enumerate().map(run_one).collect();
        let trio = Trio { first, second, ports, peer_ports, sentinels };
        for port in &trio.ports {
            // One that did not run for two seconds, as on a machine that was paused, trusts its clock again after this
            // time, and does not switch before. It would be 30 s.
            wait_until("a Sentinel answers", || command(*port, "SENTINEL DEBUG tilt-period 1000").is_ok());
            wait_until("a Sentinel watches", || {
                let told = command(*port, &format!("SENTINEL MASTER {NAME}")).unwrap_or_default();
                told.contains("num-other-sentinels 2")
                    && told.contains("num-slaves 1")
                    && told.contains("flags master ")
            });
        }
        trio
    }

    pub(crate) fn hosts(&self) -> String {
        self.peer_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// Has the Sentinels switch, whatever the primary says, and waits until one of them says so.
    pub(crate) fn fail_over(&self) {
        let port = self.ports[0];
        wait_until("the Sentinel accepts to switch", || command(port, &format!("SENTINEL FAILOVER {NAME}")).is_ok());
        self.wait_for_switch();
    }

    /// Waits until every Sentinel names the second server.
    pub(crate) fn wait_for_switch(&self) {
        let second = format!("127.0.0.1 {}", self.second.peer_port());
        for port in &self.ports {
            wait_until("the Sentinels switch", || {
                command(*port, &format!("SENTINEL get-master-addr-by-name {NAME}")).is_ok_and(|told| told == second)
            });
        }
    }
}

/// A test that fails tells what the Sentinels said: why they did not switch stands nowhere else.
impl Drop for Trio {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (directory, _) in &self.sentinels {
                eprintln!("{}", read_to_string(directory.path().join("log")).unwrap_or_default());
            }
        }
    }
}

/// One Sentinel that wants a password, and watches a server that wants another.
pub(crate) struct Lone {
    pub(crate) port: u16,
    _sentinel: (TempDir, Process),
}

impl Lone {
    /// `user` is one of its ACL, beside the one that has the password.
    pub(crate) fn start(server: &Server, server_password: &str, password: &str, user: &str) -> Lone {
        let port = free_port();
        let lines = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("requirepass {password}"),
            format!("user {user}"),
            format!("sentinel monitor {NAME} 127.0.0.1 {} 1", server.port),
            format!("sentinel auth-pass {NAME} {server_password}"),
        ];
        let sentinel = run(&lines);
        wait_until("the Sentinel answers", || admin(port, Some(password)).is_some());
        Lone { port, _sentinel: sentinel }
    }
}

fn sentinel(index: usize, ports: &[u16], first: &Server, second: &Server) -> Vec<String> {
    let id = |index: usize| format!("{index}").repeat(40);
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        format!("sentinel myid {}", id(index)),
        format!("sentinel monitor {NAME} 127.0.0.1 {} 2", first.peer_port()),
        format!("sentinel down-after-milliseconds {NAME} 700"),
        format!("sentinel failover-timeout {NAME} 3000"),
        format!("sentinel known-replica {NAME} 127.0.0.1 {}", second.peer_port()),
    ];
    for (other, port) in ports.iter().enumerate().filter(|(other, _)| *other != index) {
        lines.push(format!("sentinel known-sentinel {NAME} 127.0.0.1 {port} {}", id(other)));
    }
    lines
}

fn run(lines: &[String]) -> (TempDir, Process) {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path().join("sentinel.conf"), lines.join("\n")).unwrap();
    let arguments = ["sentinel.conf".to_owned(), "--sentinel".to_owned()];
    let process = Process::redis(&program(), directory.path(), &arguments, &[]);
    (directory, process)
}
