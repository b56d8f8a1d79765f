//! One server under one load: what it used meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_bench_server::Process;

use crate::Options;
use crate::load::Seen;
use crate::scenarios::{Subject, Table};
use crate::servers::Servers;

/// Most requests while a server is traced, which stops it at each of its system calls.
const TRACED_MAX: u64 = 20_000;

/// What one round showed of one server.
pub(crate) struct Round {
    pub(crate) seen: Seen,
    /// CPU seconds of the server.
    pub(crate) cpu: f64,
    /// CPU seconds of the Redis behind it.
    pub(crate) redis_cpu: f64,
    /// Scripts that Redis ran.
    pub(crate) scripts: u64,
    /// Writes to eventfds.
    pub(crate) wakes: u64,
}

impl Round {
    /// Runs the load of a subject, as the run of this number.
    pub(crate) fn run(
        table: Table,
        subject: &Subject,
        servers: &mut Servers<'_>,
        options: &Options,
        number: u64,
    ) -> Round {
        let requests = options.thousands * 1000;
        let redis_before = usage_of_redis(table, servers);
        let server = servers.get(subject.server);
        let before = server.process.cpu_seconds();
        let load = |requests| subject.load.run(server, options, requests, number);
        let (seen, wakes) = match table {
            Table::Wakes => count_wakes(&server.process, &options.scratch(), || load(requests.min(TRACED_MAX))),
            Table::Cpu | Table::CpuWithRedis => (load(requests), 0),
        };
        let cpu = server.process.cpu_seconds() - before;
        let redis_after = usage_of_redis(table, servers);
        Round { seen, cpu, redis_cpu: redis_after.0 - redis_before.0, scripts: redis_after.1 - redis_before.1, wakes }
    }
}

/// CPU seconds of Redis so far, and the scripts that it ran.
fn usage_of_redis(table: Table, servers: &mut Servers<'_>) -> (f64, u64) {
    if table != Table::CpuWithRedis {
        return (0.0, 0);
    }
    let redis = servers.store();
    (redis.cpu_seconds(), redis.script_calls())
}

/// Counts the writes of a server to eventfds while it is loaded.
fn count_wakes(server: &Process, scratch: &Path, load: impl FnOnce() -> Seen) -> (Seen, u64) {
    let log = scratch.join("strace.log");
    let strace = attach_strace(server, &log);
    let seen = load();
    detach_strace(strace);
    // `-y` shows what is behind the number of a file.
    let is_wake = |line: &&str| line.contains("write(") && line.contains("[eventfd]");
    let wakes = fs::read_to_string(&log).unwrap().lines().filter(is_wake).count();
    (seen, wakes as u64)
}

/// Starts strace, and waits until it sees all threads of the server.
fn attach_strace(server: &Process, log: &Path) -> Child {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=write", "-p", &server.id().to_string(), "-o"]).arg(log);
    let mut strace =
        command.stderr(Stdio::piped()).spawn().expect("strace is missing: `make bench-server` installs it");
    let mut said = BufReader::new(strace.stderr.as_mut().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let fix = "run it as root, or set kernel.yama.ptrace_scope to 0";
    assert!(line.contains(" attached"), "strace: {line:?}; {fix}");
    strace
}

/// Ends strace such that the server goes on.
fn detach_strace(mut strace: Child) {
    assert!(Command::new("kill").args(["-INT", &strace.id().to_string()]).status().unwrap().success());
    strace.wait().unwrap();
}
