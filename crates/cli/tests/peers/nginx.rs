//! nginx with auth_request, with the configuration of the examples.

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use tidegate_testkit::http::{Application, Response, ask, get};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::{Process, directory};
use tidegate_testkit::repository::example;
use tidegate_testkit::tidegate::Tidegate;

use crate::readme;

pub(crate) struct Nginx {
    _process: Process,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    fn start(application: &Application, tidegate: &Tidegate) -> Nginx {
        Nginx::start_with(application, tidegate, &[])
    }

    pub(crate) fn start_with(application: &Application, tidegate: &Tidegate, changed: &[(&str, &str)]) -> Nginx {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let replaced = [
            ("127.0.0.1:10080", address.to_string()),
            ("127.0.0.1:8000", application.address.to_string()),
            ("127.0.0.1:8080", tidegate.http.to_string()),
        ];
        let mut replaced = replaced.each_ref().map(|(from, to)| (*from, to.as_str())).to_vec();
        replaced.extend(changed);
        let directory = directory();
        let config = directory.path().join("nginx.conf");
        std::fs::write(&config, example("nginx/nginx.conf", &replaced)).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-p").arg(directory.path()).arg("-c").arg(config).args(["-g", "daemon off;"]);
        let mut process = Process::start(directory, &mut command, None);
        process.wait_until("listening", || std::net::TcpStream::connect(address).is_ok());
        Nginx { _process: process, address }
    }
}

#[test]
fn clients_see_429_and_when_to_come_back() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start(&application, &tidegate);
    let answers: Vec<Response> = (0..12).map(|_| get(nginx.address, "/some/page?q=1")).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat(), "{answers:?}");
    assert_eq!(application.reached(), 10);
    for answer in &answers {
        assert!(answer.header("ratelimit").unwrap().starts_with("\"per-address\";r="), "{answer:?}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"per-address\";q=10;w=60"), "{answer:?}");
    }
    assert_eq!(answers[0].header("retry-after"), None);
    assert!((1..=6).contains(&answers[10].number("retry-after")), "{:?}", answers[10]);
    assert_eq!(answers[10].body, "Too many requests\n");
    // The path is known to the rule, which leaves this one out.
    assert_eq!(get(nginx.address, "/health").status, 200);
}

#[test]
fn a_body_goes_to_the_application_alone() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start(&application, &tidegate);
    let answer = ask(nginx.address, "POST", "/login", &["Connection: close"], "{\"user\":\"ada\"}");
    assert_eq!((answer.status, answer.body.as_str()), (200, "application\n"));
}

#[test]
fn the_application_may_forbid_by_itself() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start(&application, &tidegate);
    let answer = get(nginx.address, "/forbidden");
    assert_eq!((answer.status, answer.body.as_str()), (403, "application\n"), "{answer:?}");
}

#[test]
fn what_a_client_says_of_its_address_is_not_believed() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start(&application, &tidegate);
    let statuses: Vec<u16> = (0..12)
        .map(|number| {
            let forged = format!("X-Forwarded-For: 203.0.113.{number}");
            ask(nginx.address, "GET", "/", &[&forged], "").status
        })
        .collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat());
}

#[test]
fn without_tidegate_nothing_passes() {
    check_failure(&[], 500);
}

#[test]
fn without_tidegate_everything_passes_if_so_told() {
    check_failure(&[("#error_page 502 504", "error_page 502 504")], 200);
}

fn check_failure(changed: &[(&str, &str)], expected: u16) {
    let (application, mut tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start_with(&application, &tidegate, changed);
    assert_eq!(get(nginx.address, "/").status, 200);
    // A bad request is an answer: nobody gets in by it.
    let contradiction = ["X-Original-URI: /other"];
    assert_eq!(ask(nginx.address, "GET", "/", &contradiction, "").status, 500);
    // It is there, and does not answer.
    tidegate.process.hang();
    assert_eq!(get(nginx.address, "/").status, expected);
    tidegate.process.signal(Signal::KILL);
    tidegate.process.ended();
    assert_eq!(get(nginx.address, "/").status, expected);
    assert_eq!(application.reached(), if expected == 200 { 3 } else { 1 });
}

#[test]
fn the_page_of_the_example_is_true() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start(&application, &tidegate);
    readme::check("nginx/README.md", &[("localhost:10080", &nginx.address.to_string())]);
}
