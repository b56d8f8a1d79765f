//! Envoy in front of an application, with the configuration of the examples.

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use tidegate_testkit::http::{Application, Response, get};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::{Process, directory};
use tidegate_testkit::repository::{example, venv};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::{eventually, not_at_the_end_of_a_minute};

use crate::readme;

pub(crate) struct Envoy {
    process: Process,
    pub(crate) edge: SocketAddr,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts Envoy between clients, an application and Tidegate, and waits until both are healthy.
    pub(crate) fn start(application: &Application, tidegate: &Tidegate, replaced: &[(&str, &str)]) -> Envoy {
        let port = |number: u16| format!("port_value: {number}");
        let (edge, admin) = (free_port(), free_port());
        let ports = [
            (port(10000), port(edge)),
            (port(9901), port(admin)),
            (port(8000), port(application.address.port())),
            (port(8081), port(tidegate.grpc.port())),
        ];
        let mut all: Vec<(&str, &str)> = ports.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        all.extend(replaced);
        let directory = directory();
        let config = directory.path().join("envoy.yaml");
        std::fs::write(&config, example("envoy/envoy.yaml", &all)).unwrap();
        let mut command = Command::new(venv("envoy"));
        // Without hot restart several of them share nothing; one thread is enough here.
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warn", "-c"]).arg(config);
        let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let mut process = Process::start(directory, &mut command, None);
        process.wait_until("listening", || std::net::TcpStream::connect(local(edge)).is_ok());
        let envoy = Envoy { process, edge: local(edge), admin: local(admin) };
        assert!(eventually(|| envoy.tidegate_is_healthy()), "{}", get(envoy.admin, "/clusters").body);
        envoy
    }

    fn get(&self, path: &str) -> Response {
        get(self.edge, path)
    }

    /// Whether the health check of Envoy says so.
    fn tidegate_is_healthy(&self) -> bool {
        let clusters = get(self.admin, "/clusters").body;
        clusters.lines().any(|line| line.starts_with("tidegate::127") && line.ends_with("::health_flags::healthy"))
    }

    /// A counter of Envoy's own.
    fn counter(&self, name: &str) -> u64 {
        let body = get(self.admin, &format!("/stats?filter={name}$")).body;
        body.trim().rsplit_once(": ").map_or(0, |(_, value)| value.parse().unwrap())
    }
}

#[test]
fn it_limits_each_address() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let envoy = Envoy::start(&application, &tidegate, &[]);
    not_at_the_end_of_a_minute();
    let answers: Vec<Response> = (0..22).map(|_| envoy.get("/")).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [vec![200; 20], vec![429; 2]].concat());
    assert_eq!(application.reached(), 20, "what is denied does not reach the application");
    for (number, answer) in (0..).zip(&answers[..20]) {
        assert_eq!(answer.body, "application\n");
        assert_eq!(answer.number("x-ratelimit-remaining"), 19 - number, "{answer:?}");
        assert!(answer.header("x-ratelimit-limit").unwrap().starts_with("20, 20;w=60"), "{answer:?}");
        assert!((1..=60).contains(&answer.number("x-ratelimit-reset")), "{answer:?}");
        assert_eq!(answer.header("retry-after"), None);
    }
    for answer in &answers[20..] {
        assert!((1..=60).contains(&answer.number("retry-after")), "{answer:?}");
        assert_eq!(answer.number("x-ratelimit-remaining"), 0);
    }
    assert_eq!(envoy.counter("ratelimit.over_limit"), 2);
    assert_eq!(envoy.counter("ratelimit.error"), 0);
}

#[test]
fn it_limits_a_path_by_itself() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let envoy = Envoy::start(&application, &tidegate, &[]);
    not_at_the_end_of_a_minute();
    let statuses: Vec<u16> = (0..5).map(|_| envoy.get("/reports/2026").status).collect();
    // The application has no such page.
    assert_eq!(statuses, [404, 404, 404, 429, 429]);
    let other = envoy.get("/other");
    assert_eq!(other.status, 200);
    // The two that were denied took nothing from the limit of the address: 20 less 3 and this one.
    assert_eq!(other.number("x-ratelimit-remaining"), 16, "{other:?}");
}

#[test]
fn the_page_of_the_example_is_true() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let envoy = Envoy::start(&application, &tidegate, &[]);
    not_at_the_end_of_a_minute();
    readme::check("envoy/README.md", &[("localhost:10000", &envoy.edge.to_string())]);
}

#[test]
fn what_was_sent_is_counted_afterwards() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let envoy = Envoy::start(&application, &tidegate, &[]);
    // More than the 100,000 bytes of a minute: it was not known before, so it passes.
    assert_eq!(envoy.get("/bytes/150000").status, 200);
    // Envoy tells of it without waiting for an answer.
    assert!(eventually(|| envoy.get("/").status == 429), "bytes are not counted");
    let denied = envoy.get("/");
    assert!((25..=60).contains(&denied.number("retry-after")), "{denied:?}");
}

#[test]
fn without_tidegate_nothing_passes_if_so_told() {
    check_failure("failure_mode_deny: true", 503);
}

#[test]
fn without_tidegate_everything_passes_if_so_told() {
    check_failure("failure_mode_deny: false", 200);
}

fn check_failure(mode: &str, expected: u16) {
    let (application, mut tidegate) = (Application::start(), Tidegate::with_examples());
    let envoy = Envoy::start(&application, &tidegate, &[("failure_mode_deny: true", mode)]);
    assert_eq!(envoy.get("/").status, 200);
    tidegate.process.signal(Signal::KILL);
    tidegate.process.ended();
    let statuses: Vec<u16> = (0..3).map(|_| envoy.get("/").status).collect();
    assert_eq!(statuses, [expected; 3], "{}", envoy.process.log());
    assert!(eventually(|| !envoy.tidegate_is_healthy()));
    assert_eq!(envoy.get("/").status, expected, "the same once it is known to be unhealthy");
    assert!(envoy.counter("ratelimit.error") >= 3);
}

#[test]
fn envoy_sees_that_it_drains() {
    let (application, mut tidegate) = (Application::start(), Tidegate::start(&["--drain-delay", "30"]));
    let envoy = Envoy::start(&application, &tidegate, &[]);
    tidegate.process.signal(Signal::TERM);
    assert!(eventually(|| !envoy.tidegate_is_healthy()), "{}", get(envoy.admin, "/clusters").body);
    // It still runs: told a second time it goes at once.
    assert!(tidegate.process.child.try_wait().unwrap().is_none());
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
}
