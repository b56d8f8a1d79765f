//! Caddy with forward_auth, with the configuration of the examples.

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use tidegate_testkit::http::{Application, Response, ask, get};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::{Process, directory};
use tidegate_testkit::repository::example;
use tidegate_testkit::tidegate::Tidegate;

use crate::nginx::Logins;
use crate::readme;

pub(crate) struct Caddy {
    _process: Process,
    pub(crate) address: SocketAddr,
}

impl Caddy {
    fn start(application: &Application, tidegate: &Tidegate) -> Caddy {
        Caddy::start_with(application.address, tidegate, &[])
    }

    pub(crate) fn start_with(application: SocketAddr, tidegate: &Tidegate, changed: &[(&str, &str)]) -> Caddy {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let replaced = [
            (":10081", format!(":{}", address.port())),
            ("127.0.0.1:8000", application.to_string()),
            ("127.0.0.1:8080", tidegate.http.to_string()),
        ];
        let mut all = changed.to_vec();
        all.extend(replaced.each_ref().map(|(from, to)| (*from, to.as_str())));
        let directory = directory();
        let config = directory.path().join("Caddyfile");
        std::fs::write(&config, example("caddy/Caddyfile", &all)).unwrap();
        let mut command = Command::new("caddy");
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(config);
        // It keeps its state there, and nowhere else.
        command.env("XDG_DATA_HOME", directory.path()).env("XDG_CONFIG_HOME", directory.path());
        let mut process = Process::start(directory, &mut command, None);
        process.wait_until("listening", || std::net::TcpStream::connect(address).is_ok());
        Caddy { _process: process, address }
    }
}

#[test]
fn clients_see_the_answer_of_tidegate() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let caddy = Caddy::start(&application, &tidegate);
    let answers: Vec<Response> = (0..12).map(|_| get(caddy.address, "/some/page?q=1")).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat(), "{answers:?}");
    assert_eq!(application.reached(), 10);
    let denied = &answers[10];
    assert!((1..=6).contains(&denied.number("retry-after")), "{denied:?}");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.header("ratelimit-policy"), Some("\"per-address\";q=10;w=60"));
    assert!(denied.body.contains("quota-exceeded"), "{denied:?}");
    assert_eq!(get(caddy.address, "/health").status, 200);
}

#[test]
fn what_a_client_says_of_its_address_is_not_believed() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let caddy = Caddy::start(&application, &tidegate);
    let statuses: Vec<u16> = (0..12)
        .map(|number| {
            let forged = format!("X-Forwarded-For: 203.0.113.{number}");
            ask(caddy.address, "GET", "/", &[&forged], "").status
        })
        .collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat());
}

#[test]
fn without_tidegate_everything_passes() {
    check_failure(&[], [200, 200]);
}

/// The block of the example that lets requests pass.
const PASSES_UNASKED: &str = "\thandle_errors {
\t\t@unasked not vars asked yes
\t\treverse_proxy @unasked 127.0.0.1:8000
\t}
";

#[test]
fn without_tidegate_nothing_passes_if_the_block_is_removed() {
    check_failure(&[(PASSES_UNASKED, "")], [504, 502]);
}

fn check_failure(changed: &[(&str, &str)], [slow, gone]: [u16; 2]) {
    let (application, mut tidegate) = (Application::start(), Tidegate::with_examples());
    let caddy = Caddy::start_with(application.address, &tidegate, changed);
    assert_eq!(get(caddy.address, "/").status, 200);
    // A bad request is an answer: nobody gets in by it.
    let contradiction = ["X-Original-URI: /other"];
    assert_eq!(ask(caddy.address, "GET", "/", &contradiction, "").status, 400);
    tidegate.process.hang();
    assert_eq!(get(caddy.address, "/").status, slow);
    tidegate.process.signal(Signal::KILL);
    tidegate.process.ended();
    assert_eq!(get(caddy.address, "/").status, gone);
    assert_eq!(application.reached(), if gone == 200 { 3 } else { 1 });
}

#[test]
fn a_body_arrives_with_and_without_tidegate() {
    let (application, mut tidegate) = (Logins::start(), Tidegate::with_examples());
    let caddy = Caddy::start_with(application.address, &tidegate, &[]);
    let login = |password: &str| {
        ask(caddy.address, "POST", "/login", &["Connection: close"], &format!("password={password}")).status
    };
    assert_eq!((login("right"), login("wrong")), (200, 401));
    tidegate.process.hang();
    assert_eq!((login("right"), login("wrong")), (200, 401));
    tidegate.process.signal(Signal::KILL);
    tidegate.process.ended();
    assert_eq!((login("right"), login("wrong")), (200, 401));
}

#[test]
fn what_the_application_fails_at_is_not_sent_twice() {
    let tidegate = Tidegate::with_examples();
    // It takes what it is sent, and hangs up.
    let application = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = application.local_addr().unwrap();
    let (taken, connections) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in application.incoming() {
            let mut stream = stream.unwrap();
            let read = std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap_or_default();
            // Told before it hangs up, since the answer follows that at once.
            let _ = taken.send(read);
        }
    });
    let caddy = Caddy::start_with(address, &tidegate, &[]);
    assert_eq!(ask(caddy.address, "POST", "/orders", &["Connection: close"], "{}").status, 502);
    assert_eq!(connections.try_iter().filter(|read| *read > 0).count(), 1);
}

#[test]
fn the_page_of_the_example_is_true() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let caddy = Caddy::start(&application, &tidegate);
    readme::check("caddy/README.md", &[("localhost:10081", &caddy.address.to_string())]);
}
