//! What keeps the server from starting is one line that tells what to do, and exit code 2.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;

use insta::assert_snapshot;
use tidegate_testkit::process::{Process, directory};
use tidegate_testkit::tidegate::command;

/// What it says, with exit code 2 and nothing on stdout.
fn refusal(arguments: &[&str]) -> String {
    refusal_of(command(), arguments)
}

fn refusal_of(mut command: std::process::Command, arguments: &[&str]) -> String {
    command.arg0("tidegate").arg("serve").args(arguments);
    // Ended with the test, should it start after all.
    let mut process = Process::start(directory(), &mut command, None);
    let status = process.ended();
    let said = process.log();
    assert_eq!(status.code(), Some(2), "{said}");
    assert_eq!(std::fs::read(process.path("stdout")).unwrap(), b"");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    let mut said = String::new();
    for flag in ["--http", "--grpc", "--resp"] {
        let mut arguments = vec!["--http", free, "--grpc", free, "--resp", free];
        let place = arguments.iter().position(|argument| *argument == flag).unwrap();
        arguments[place + 1] = &address;
        said += &refusal(&arguments);
    }
    assert_snapshot!(said.replace(&address, "127.0.0.1:PORT"));
}

#[test]
fn a_port_for_two() {
    // An address of this test alone, so that nobody takes the port meanwhile.
    let address = TcpListener::bind("127.0.0.77:0").unwrap().local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    let mut said = refusal(&["--http", &address, "--grpc", &address, "--resp", free]);
    said += &refusal(&["--http", &address, "--grpc", free, "--resp", &address]);
    said += &refusal(&["--http", free, "--grpc", &address, "--resp", &address]);
    assert_snapshot!(said.replace(&address, "127.0.0.77:PORT"));
}

#[test]
fn certificates_that_are_not_there() {
    let said = refusal(&["--tls-cert", "missing.pem", "--tls-key", "missing.key"]);
    assert_snapshot!(said, @"error: --tls-cert missing.pem: cannot be read: No such file or directory (os error 2); check the path and its permissions");
}

#[test]
fn authorities_of_clients_leave_no_listener_in_the_clear() {
    let said = refusal(&["--tls-client-ca", "ca.pem", "--http-tls-cert", "c.pem", "--http-tls-key", "k.pem"]);
    for flag in ["--grpc-tls-cert", "--resp-tls-cert"] {
        assert!(said.contains(flag), "{said}");
    }
}

#[test]
fn a_config_that_cannot_be_used() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("garbled.yaml"), "domains: [").unwrap();
    std::fs::write(path("wrong.yaml"), "domains: {a: {rules: [{name: x, limit: 5/fortnight}, {limit: 0/s}]}}").unwrap();
    let mut said = String::new();
    for name in ["missing.yaml", "garbled.yaml", "wrong.yaml"] {
        said += &refusal(&["--config", &path(name)]);
    }
    assert_snapshot!(said.replace(directory.path().to_str().unwrap(), "DIR"));
}

#[test]
fn a_bad_flag() {
    let attempts: [&[&str]; 27] = [
        &["rules.yaml"],
        &["--htp", "127.0.0.1:0"],
        &["--http", "localhost"],
        &["--http", "127.0.0.1:99999"],
        &["--http", "8080"],
        &["--grpc", "localhost:http"],
        &["--admin-token", ""],
        &["--password", ""],
        &["--otlp", "nonsense"],
        &["--otlp", "https://127.0.0.1:4317/v1/traces"],
        &["--otlp", "http://127.0.0.1:4317/v1/traces"],
        &["--store", "redis:localhost"],
        &["--store", "redis:6379"],
        &["redis://:secret@localhost"],
        &["--store", "postgres://:secret@localhost"],
        &["--store", "redis://:secret@localhost:port"],
        &["--store", "memory:many"],
        &["--store", "memory:0"],
        &["--store", "memory:4294967297"],
        &["--threads", "0"],
        &["--threads", "many"],
        &["--drain-delay", "-1"],
        &["--drain-delay", "3601"],
        &["--config"],
        &["--envoy-algorithm", "guess"],
        &["--decision-log-every", "2"],
        &["--decision-log", "log", "--decision-log-every", "0"],
    ];
    let said: String = attempts
        .iter()
        .map(|arguments| format!("$ tidegate serve {}\n{}", arguments.join(" "), refusal(arguments)))
        .collect();
    assert_snapshot!(said);
}

#[test]
fn an_empty_secret_in_the_environment() {
    for name in ["TIDEGATE_PASSWORD", "TIDEGATE_ADMIN_TOKEN"] {
        let mut command = command();
        command.env(name, "");
        let said = refusal_of(command, &[]);
        assert!(
            said.contains("it is empty; set a value, or omit the flag and unset its environment variable"),
            "{said}"
        );
    }
}

#[test]
fn localhost_is_an_address() {
    let free = "localhost:0";
    let mut command = command();
    command.args(["serve", "--http", free, "--grpc", free, "--resp", free]);
    let mut process = Process::start(directory(), &mut command, None);
    let greeting = process.path("stdout");
    process.wait_until("the greeting", || {
        std::fs::read_to_string(&greeting).is_ok_and(|text| text.contains("serves HTTP on 127.0.0.1:"))
    });
}

#[test]
fn on_all_addresses_it_warns_that_admin_calls_need_a_token() {
    let start = |token: Option<&str>| {
        let mut command = command();
        command.args(["serve", "--http", "0.0.0.0:0", "--grpc", "127.0.0.1:0", "--resp", "[::]:0"]);
        command.args(token.into_iter().flat_map(|token| ["--admin-token", token]));
        let mut process = Process::start(directory(), &mut command, None);
        let greeting = process.path("stdout");
        let greeting = || std::fs::read_to_string(&greeting).unwrap_or_default();
        process.wait_until("the greeting", || greeting().ends_with('\n'));
        (greeting(), process.log())
    };
    let (greeting, log) = start(None);
    assert!(greeting.contains("serves HTTP on 0.0.0.0:"), "{greeting}");
    // Commands to try are for terminals, and this goes to a file.
    assert_eq!(greeting.lines().count(), 1, "{greeting}");
    let told = log.lines().filter(|line| line.contains("admin calls will be refused (403)")).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains("set TIDEGATE_ADMIN_TOKEN"), "{log}");
    let (_, log) = start(Some("secret"));
    assert!(!log.contains("admin calls"), "{log}");
}
