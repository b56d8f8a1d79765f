//! A primary, a replica, and three Sentinels that watch them.

use std::fs::write;

use tempfile::TempDir;

use super::{Process, Server, Setup, admin, command, free_port, wait_until};

/// How the Sentinels call the primary.
pub(crate) const NAME: &str = "tide";

pub(crate) struct Trio {
    /// The primary at the start.
    pub(crate) first: Server,
    /// Its replica at the start.
    pub(crate) second: Server,
    pub(crate) ports: Vec<u16>,
    sentinels: Vec<(TempDir, Process)>,
}

impl Trio {
    /// Starts all of them. They know each other from the start, so that they need not find each other first.
    pub(crate) fn start() -> Trio {
        let settings = ["--repl-diskless-sync-delay 0"];
        let setup = Setup { settings: &settings, ..Setup::default() };
        let first = Server::start(&setup);
        let second = Server::start(&setup);
        second.command(&format!("REPLICAOF 127.0.0.1 {}", first.port));
        wait_until("the replica follows", || second.command("INFO replication").contains("master_link_status:up"));
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let sentinels = (0..3).map(|index| sentinel(index, &ports, &first, &second)).collect();
        let trio = Trio { first, second, ports, sentinels };
        for port in &trio.ports {
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
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// Has the Sentinels switch, whatever the primary says, and waits until one of them says so.
    pub(crate) fn fail_over(&self) {
        let port = self.ports[0];
        wait_until("the Sentinel accepts to switch", || command(port, &format!("SENTINEL FAILOVER {NAME}")).is_ok());
        self.wait_for_switch();
    }

    /// Waits until every Sentinel names the second server.
    pub(crate) fn wait_for_switch(&self) {
        let second = format!("127.0.0.1 {}", self.second.port);
        for port in &self.ports {
            wait_until("the Sentinels switch", || {
                command(*port, &format!("SENTINEL get-master-addr-by-name {NAME}")).is_ok_and(|told| told == second)
            });
        }
    }
}

/// One Sentinel that wants a password, and watches a server that wants another.
pub(crate) struct Lone {
    pub(crate) port: u16,
    _sentinel: (TempDir, Process),
}

impl Lone {
    pub(crate) fn start(server: &Server, server_password: &str, password: &str) -> Lone {
        let port = free_port();
        let lines = [
            format!("port {port}"),
            "bind 127.0.0.1".to_owned(),
            format!("requirepass {password}"),
            format!("sentinel monitor {NAME} 127.0.0.1 {} 1", server.port),
            format!("sentinel auth-pass {NAME} {server_password}"),
        ];
        let sentinel = run(&lines);
        wait_until("the Sentinel answers", || admin(port, Some(password)).is_some());
        Lone { port, _sentinel: sentinel }
    }
}

fn sentinel(index: usize, ports: &[u16], first: &Server, second: &Server) -> (TempDir, Process) {
    let id = |index: usize| format!("{index}").repeat(40);
    let mut lines = vec![
        format!("port {}", ports[index]),
        "bind 127.0.0.1".to_owned(),
        format!("sentinel myid {}", id(index)),
        format!("sentinel monitor {NAME} 127.0.0.1 {} 2", first.port),
        format!("sentinel down-after-milliseconds {NAME} 700"),
        format!("sentinel failover-timeout {NAME} 3000"),
        format!("sentinel known-replica {NAME} 127.0.0.1 {}", second.port),
    ];
    for (other, port) in ports.iter().enumerate().filter(|(other, _)| *other != index) {
        lines.push(format!("sentinel known-sentinel {NAME} 127.0.0.1 {port} {}", id(other)));
    }
    run(&lines)
}

fn run(lines: &[String]) -> (TempDir, Process) {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path().join("sentinel.conf"), lines.join("\n")).unwrap();
    let arguments = ["sentinel.conf".to_owned(), "--sentinel".to_owned()];
    let process = Process::redis(directory.path(), &arguments, &[]);
    (directory, process)
}
