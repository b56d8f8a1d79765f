//! Redis behind Sentinels.

use std::fs::{read_to_string, write};

use tempfile::TempDir;

use super::{Certificates, RedisProcess, Server, Setup, admin, command, program};
use crate::ports::free_port;
use crate::wait::wait_until;

/// The name of the primary in the configuration of the Sentinels.
const NAME: &str = "tide";

/// A primary, its replica, and three Sentinels that watch them.
pub struct Sentinels {
    /// The primary at the start.
    pub first: Server,
    /// Its replica at the start.
    pub second: Server,
    /// The ports of the Sentinels, without TLS.
    pub ports: Vec<u16>,
    /// The ports for clients and for other Sentinels: the same ports, or those with TLS.
    peer_ports: Vec<u16>,
    processes: Vec<(TempDir, RedisProcess)>,
}

impl Sentinels {
    /// Starts all five. The Sentinels know each other from the start and need not discover each other first.
    pub fn start() -> Sentinels {
        Sentinels::start_with(None)
    }

    /// Starts all five with TLS between them, and for clients on a second port each.
    pub fn start_with(tls: Option<&Certificates>) -> Sentinels {
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
        let processes = ports.iter().enumerate().map(run_one).collect();
        let sentinels = Sentinels { first, second, ports, peer_ports, processes };
        for port in &sentinels.ports {
            // A Sentinel that did not run for two seconds, as on a machine that was paused, does not fail over for this
            // time. The default is 30 s.
            wait_until("a Sentinel answers", || command(*port, "SENTINEL DEBUG tilt-period 1000").is_ok());
            wait_until("a Sentinel watches", || {
                let state = command(*port, &format!("SENTINEL MASTER {NAME}")).unwrap_or_default();
                state.contains("num-other-sentinels 2")
                    && state.contains("num-slaves 1")
                    && state.contains("flags master ")
            });
        }
        sentinels
    }

    /// Returns the addresses of the Sentinels, separated by commas. The ports are those with TLS if they have them.
    pub fn hosts(&self) -> String {
        self.peer_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// Forces a failover and waits until every Sentinel names the second server as the primary.
    pub fn fail_over(&self) {
        let port = self.ports[0];
        wait_until("the Sentinel accepts a failover", || command(port, &format!("SENTINEL FAILOVER {NAME}")).is_ok());
        self.wait_for_switch();
    }

    /// Waits until every Sentinel names the second server as the primary.
    pub fn wait_for_switch(&self) {
        let second = format!("127.0.0.1 {}", self.second.peer_port());
        for port in &self.ports {
            wait_until("the Sentinels name the new primary", || {
                command(*port, &format!("SENTINEL get-master-addr-by-name {NAME}"))
                    .is_ok_and(|primary| primary == second)
            });
        }
    }
}

/// Prints the logs of the Sentinels if the test fails: only they say why there was no failover.
impl Drop for Sentinels {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (directory, _) in &self.processes {
                eprintln!("{}", read_to_string(directory.path().join("log")).unwrap_or_default());
            }
        }
    }
}

/// One Sentinel with a password, which watches a server with another password.
pub struct LoneSentinel {
    /// The port of the Sentinel.
    pub port: u16,
    _sentinel: (TempDir, RedisProcess),
}

impl LoneSentinel {
    /// Starts a Sentinel. `user` is added to its ACL, beside the default user with the password.
    pub fn start(server: &Server, server_password: &str, password: &str, user: &str) -> LoneSentinel {
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
        LoneSentinel { port, _sentinel: sentinel }
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

fn run(lines: &[String]) -> (TempDir, RedisProcess) {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path().join("sentinel.conf"), lines.join("\n")).unwrap();
    let arguments = ["sentinel.conf".to_owned(), "--sentinel".to_owned()];
    let process = RedisProcess::start(&program(), directory.path(), &arguments, &[]);
    (directory, process)
}
