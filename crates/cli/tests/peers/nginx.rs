//! nginx with auth_request, with the configuration of the examples.

use std::net::SocketAddr;
use std::process::Command;

use rustix::process::Signal;
use tidegate_testkit::http::{Application, Connection, Response, ask, get};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::{Process, directory};
use tidegate_testkit::repository::{example, root};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

use crate::readme;

pub(crate) struct Nginx {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    fn start(application: &Application, tidegate: &Tidegate) -> Nginx {
        Nginx::start_with(application.address, tidegate, &[])
    }

    pub(crate) fn start_with(application: SocketAddr, tidegate: &Tidegate, changed: &[(&str, &str)]) -> Nginx {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let replaced = [
            ("127.0.0.1:10080", address.to_string()),
            ("127.0.0.1:8000", application.to_string()),
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
        Nginx { process, address }
    }
}

/// The application of the example, whose login accepts one password.
pub(crate) struct Logins {
    _process: Process,
    pub(crate) address: SocketAddr,
}

impl Logins {
    pub(crate) fn start() -> Logins {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new("python3");
        command.arg(root().join("examples/nginx/application.py")).arg(address.port().to_string());
        let mut process = Process::start(directory(), &mut command, None);
        process.wait_until("listening", || std::net::TcpStream::connect(address).is_ok());
        Logins { _process: process, address }
    }
}

/// Asserts that a denial has the status, the type and the kind of problem that Tidegate gave it.
#[track_caller]
fn check_denial(denial: &Response, status: u16, kind: &str) {
    assert_eq!(denial.status, status, "{denial:?}");
    assert_eq!(denial.header("content-type"), Some("application/problem+json"), "{denial:?}");
    assert_eq!(denial.header("cache-control"), Some("no-store"), "{denial:?}");
    assert!(denial.body.contains(&format!("\"status\":{status}")), "{denial:?}");
    assert!(denial.body.starts_with("{\"type\":\"") && denial.body.contains(kind), "{denial:?}");
}

#[test]
fn clients_see_429_and_when_to_come_back() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start(&application, &tidegate);
    // The end of the path is one that nginx knows another type for.
    let answers: Vec<Response> = (0..12).map(|_| get(nginx.address, "/some/page.html?q=1")).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat(), "{answers:?}");
    assert_eq!(application.reached(), 10);
    for answer in &answers {
        assert!(answer.header("ratelimit").unwrap().starts_with("\"per-address\";r="), "{answer:?}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"per-address\";q=10;w=60"), "{answer:?}");
    }
    assert_eq!(answers[0].header("retry-after"), None);
    for denial in &answers[10..] {
        check_denial(denial, 429, "#quota-exceeded");
        assert!(denial.body.ends_with("\"violated-policies\":[\"per-address\"]}"), "{denial:?}");
        assert!((1..=6).contains(&denial.number("retry-after")), "{denial:?}");
    }
    // Each of them asked once.
    let denied = "tidegate_decisions_total{domain=\"web\",rule=\"per-address\",verdict=\"denied\"}";
    assert_eq!(tidegate.metric(denied), Some(2.0));
    // The path is known to the rule, which leaves this one out.
    assert_eq!(get(nginx.address, "/health").status, 200);
}

#[test]
fn a_network_that_is_kept_out_gets_403() {
    let (application, tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start_with(application.address, &tidegate, &[("$remote_addr;", "192.0.2.7;")]);
    let denial = get(nginx.address, "/");
    check_denial(&denial, 403, "about:blank");
    assert_eq!((denial.header("retry-after"), application.reached()), (None, 0));
}

#[test]
fn a_store_that_is_away_is_503_where_a_rule_denies_then() {
    let (application, place) = (Application::start(), directory());
    let config = place.path().join("rules.yaml");
    let rule = "{name: r, key: address, limit: 10/minute, on_store_failure: deny}";
    std::fs::write(&config, format!("domains: {{web: {{rules: [{rule}]}}}}\n")).unwrap();
    let store = format!("redis://127.0.0.1:{}", free_port());
    let tidegate = Tidegate::with_config(&config, &["--store", &store]);
    let nginx = Nginx::start(&application, &tidegate);
    let denial = get(nginx.address, "/");
    check_denial(&denial, 503, "#temporary-reduced-capacity");
    assert_eq!((denial.number("retry-after"), application.reached()), (1, 0));
}

#[test]
fn five_failed_logins_close_the_login_and_nothing_else() {
    let (application, tidegate) = (Logins::start(), Tidegate::with_examples());
    let log = "log_format statuses $response_status; access_log statuses.log statuses;";
    let nginx = Nginx::start_with(application.address, &tidegate, &[("access_log off;", log)]);
    // On one connection, since nginx reads its next request when the report of the last one is answered.
    let mut client = Connection::open(nginx.address).unwrap();
    let mut login = |path: &str, password: &str| {
        // What browsers send. A report with these headers would be refused.
        let headers = ["Origin: https://shop.example", "Sec-Fetch-Site: cross-site"];
        client.ask("POST", path, &headers, &format!("password={password}")).unwrap()
    };
    assert_eq!(login("/login", "right").status, 200);
    for path in ["/login", "/login?a=\"b\"", "/login#\"", "/login", "/login"] {
        let failed = login(path, "wrong");
        assert_eq!((failed.status, failed.body.as_str()), (401, "wrong password\n"), "{failed:?}");
    }
    let denial = login("/login", "right");
    check_denial(&denial, 429, "#abnormal-usage-detected");
    assert!((890..=900).contains(&denial.number("retry-after")), "{denial:?}");
    assert_eq!(get(nginx.address, "/").status, 200);
    // nginx writes a line when it has sent the response.
    let statuses = ["200", "401", "401", "401", "401", "401", "429", "200"];
    let logged = || std::fs::read_to_string(nginx.process.path("statuses.log")).unwrap();
    assert!(eventually(|| logged().split_whitespace().eq(statuses)), "{}", logged());
    let reported = "tidegate_reported_units_total{domain=\"web\",rule=\"wrong-passwords\"}";
    assert_eq!(tidegate.metric(reported), Some(5.0));
}

#[test]
fn a_report_that_fails_changes_no_response() {
    let (application, mut tidegate) = (Logins::start(), Tidegate::with_examples());
    let nginx = Nginx::start_with(application.address, &tidegate, &[]);
    tidegate.process.signal(Signal::KILL);
    tidegate.process.ended();
    let mut client = Connection::open(nginx.address).unwrap();
    for _ in 0..3 {
        let failed = client.ask("POST", "/login", &[], "password=wrong").unwrap();
        assert_eq!((failed.status, failed.body.as_str()), (401, "wrong password\n"), "{failed:?}");
    }
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
fn without_tidegate_everything_passes() {
    check_failure(&[], 200);
}

#[test]
fn without_tidegate_nothing_passes_if_the_line_is_removed() {
    check_failure(&[("error_page 502 504 = @without-tidegate;", "")], 500);
}

fn check_failure(changed: &[(&str, &str)], expected: u16) {
    let (application, mut tidegate) = (Application::start(), Tidegate::with_examples());
    let nginx = Nginx::start_with(application.address, &tidegate, changed);
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
    let (application, tidegate) = (Logins::start(), Tidegate::with_examples());
    let nginx = Nginx::start_with(application.address, &tidegate, &[]);
    let replaced = [("localhost:10080", nginx.address), ("localhost:8080", tidegate.http)];
    let replaced = replaced.map(|(from, to)| (from, to.to_string()));
    readme::check("nginx/README.md", &replaced.each_ref().map(|(from, to)| (*from, to.as_str())));
}
