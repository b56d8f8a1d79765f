//! Load, latencies, and the resources of the server.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_testkit::tidegate::Tidegate;

use crate::client::{Answer, Client, PROTOCOLS, Protocol, rules};
use crate::report::Watch;

/// Pause between the requests of a client that measures latency.
const PAUSE: Duration = Duration::from_millis(2);

/// Creates a directory, in memory if possible: replacing a file on a busy disk takes seconds.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A limit that no run reaches.
pub(crate) const PLENTY: u64 = 1_000_000_000;

/// A server with a file of rules that can be changed.
pub(crate) struct Server {
    pub(crate) tidegate: Tidegate,
    directory: TempDir,
}

impl Server {
    /// Starts a server with rules that allow each user this many units per hour.
    pub(crate) fn start(units: u64, arguments: &[&str]) -> Server {
        Server::start_by(units, arguments, Tidegate::start)
    }

    /// Starts a server with these rules.
    pub(crate) fn with_rules(rules: &str, arguments: &[&str]) -> Server {
        Server::start_with(rules, arguments, Tidegate::start)
    }

    /// Starts a server by another function.
    pub(crate) fn start_by(units: u64, arguments: &[&str], start: impl FnOnce(&[&str]) -> Tidegate) -> Server {
        Server::start_with(&rules(units), arguments, start)
    }

    fn start_with(rules: &str, arguments: &[&str], start: impl FnOnce(&[&str]) -> Tidegate) -> Server {
        let directory = directory();
        let path = directory.path().join("rules.yaml");
        std::fs::write(&path, rules).unwrap();
        let all = [&["--config", path.to_str().unwrap()], arguments].concat();
        Server { tidegate: start(&all), directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Deref for Server {
    type Target = Tidegate;

    fn deref(&self) -> &Tidegate {
        &self.tidegate
    }
}

/// Sorted latencies of answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Returns the latency at a rank, in thousandths.
    fn at(&self, thousandth: usize) -> Duration {
        let place = (self.0.len() * thousandth / 1000).min(self.0.len() - 1);
        self.0[place]
    }

    pub(crate) fn p99(&self) -> Duration {
        self.at(990)
    }

    /// Returns the p50 and the p99 as text.
    pub(crate) fn summary(&self) -> String {
        format!("{} / {}", milliseconds(self.at(500)), milliseconds(self.p99()))
    }
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Sends a light load over all three protocols for a time, and returns its latencies. Every request must be answered.
pub(crate) fn probe(tidegate: &Tidegate, time: Duration) -> Latencies {
    let probes = PROTOCOLS.map(|protocol| (protocol, protocol.address(tidegate)));
    let mut all: Vec<Duration> = std::thread::scope(|scope| {
        let one = |(protocol, address)| {
            scope.spawn(move || {
                let mut client = Client::open(protocol, address).unwrap();
                let (mut latencies, watch) = (Vec::new(), Watch::start());
                while watch.elapsed() < time {
                    let asked = Watch::start();
                    client.ask(protocol.name()).unwrap_or_else(|error| panic!("{protocol:?}: {error}"));
                    latencies.push(asked.elapsed());
                    std::thread::sleep(PAUSE);
                }
                latencies
            })
        };
        let threads = probes.map(one);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    Latencies(all)
}

/// A flag that ends the load, even if a run fails.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn is_now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn at_the_end(&self) -> StopAtTheEnd<'_> {
        StopAtTheEnd(self)
    }
}

pub(crate) struct StopAtTheEnd<'a>(&'a Stop);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests without a pause until the load ends, for `users` users in turn. Every request must be answered, and
/// `check` is called with each answer.
pub(crate) fn hammer(
    tidegate: &Tidegate,
    protocol: Protocol,
    users: u64,
    stop: &Stop,
    asked: &AtomicU64,
    check: impl Fn(Answer),
) {
    let mut client = Client::open(protocol, protocol.address(tidegate)).unwrap();
    while !stop.is_now() {
        let user = format!("{}-{}", protocol.name(), asked.fetch_add(1, Ordering::Relaxed) % users);
        check(client.ask(&user).unwrap_or_else(|error| panic!("{protocol:?}: {error}")));
    }
}

/// Resident memory of the server, in megabytes.
pub(crate) fn resident(tidegate: &Tidegate) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", tidegate.process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// Number of open files and sockets of the server.
pub(crate) fn open_files(tidegate: &Tidegate) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", tidegate.process.child.id())).unwrap().count()
}
