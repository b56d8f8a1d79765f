//! The commands for operators, against a running server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use insta::assert_snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_testkit::authority::Authority;
use tidegate_testkit::http;
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;

use super::tidegate;

const RULES: &str = r#"
domains:
  api:
    rules:
    - name: per-user
      key: {entry: user}
      limits: [{name: burst, rate: 3/30d}, {name: yearly, algorithm: fixed_window, rate: 1000/360d}]
    - {name: path_/login*, match: {path: /login*}, key: address, limit: {algorithm: sliding_log, rate: 5/90d}, mode: shadow}
    - {name: banned, match: {entries: {ban: "*"}}, action: block}
  "odd \"one\" \u202E<b>":
    rules:
    - {name: "right\u200Fleft\u2066", limit: {rate: 100/day, burst: 7}}
"#;

pub(crate) const ANN: [&str; 4] = ["--domain", "api", "--entry", "user=ann"];

/// A server with these rules, and further arguments.
pub(crate) fn serve(arguments: &[&str]) -> (Tidegate, TempDir) {
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    (Tidegate::with_config(&path, arguments), directory)
}

/// A command for the server at an address.
pub(crate) fn verb(server: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = tidegate();
    command.args(arguments).env("TIDEGATE_SERVER", format!("http://{server}"));
    command
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// What a command prints, its problem and its exit code; the usual address stands for that of the server.
pub(crate) fn shown(mut command: Command, server: SocketAddr) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let errors: String = text(stderr).lines().map(|line| format!("stderr: {line}\n")).collect();
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let code = status.code().filter(|code| *code != 0).map(|code| format!("exit code {code}\n")).unwrap_or_default();
    let all = format!("$ tidegate {}\n{}{errors}{code}\n", arguments.join(" "), text(stdout));
    all.replace(&server.to_string(), "127.0.0.1:8080")
}

/// The text with `TIME` for what depends on the clock.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| {
        for before in ["all back in ", "denied for "] {
            if let Some((start, rest)) = line.split_once(before) {
                let end = rest.find(' ').map_or("", |end| &rest[end..]);
                return format!("{start}{before}TIME{end}");
            }
        }
        match line.strip_prefix("    20") {
            Some(entry) => format!("    TIME {}", entry.split_once(' ').unwrap().1),
            None => line.to_owned(),
        }
    });
    lines.map(|line| line + "\n").collect()
}

fn check(server: SocketAddr, body: &Value) {
    http::ask(server, "POST", "/v1/check", &[], &body.to_string());
}

#[test]
fn a_conversation() {
    let (server, _directory) = serve(&[]);
    let ann = json!({"domain": "api", "descriptors": [{"user": "ann"}]});
    let login = json!({"domain": "api", "descriptors": [{}],
        "request": {"method": "POST", "path": "/login", "query": "a=b", "address": "203.0.113.7"}});
    for body in [&ann, &ann, &login] {
        check(server.http, body);
    }
    let with = |verb: &[&'static str]| [verb, &ANN].concat();
    let login = ["--domain", "api", "--method", "POST", "--path", "/login?a=b", "--address", "203.0.113.7"];
    let commands: Vec<Vec<&str>> = vec![
        vec!["rules"],
        with(&["inspect"]),
        [&["inspect"][..], &login, &["--header", "user-agent: curl"]].concat(),
        vec!["inspect", "--domain", "api", "--entry", "nobody=x"],
        with(&["grant", "1"]),
        with(&["block", "1h"]),
        with(&["inspect"]),
        with(&["unblock"]),
        with(&["unblock"]),
        with(&["reset"]),
        with(&["inspect"]),
        vec!["inspect", "--key", "k", "--limit", "5/minute"],
        vec!["inspect", "--key", "k", "--limit", r#"{"algorithm":"fixed_window","rate":"5/minute"}"#],
        vec!["grant", "2", "--key", "k", "--limit", "5/minute"],
        vec!["reset", "--key", "k", "--limit", "5/minute"],
        vec!["mode", "api/per-user", "shadow"],
        vec!["mode", "api/path_/login*", "off"],
        vec!["rules"],
        vec!["mode", "api/per-user", "config"],
        vec!["mode", "odd \"one\" \u{202e}<b>/right\u{200f}left\u{2066}", "enforce"],
    ];
    let all: String = commands.iter().map(|arguments| shown(verb(server.http, arguments), server.http)).collect();
    // The arguments are shown as they are.
    assert_snapshot!(
        without_times(&all).replace('\u{202e}', "RLO").replace('\u{200f}', "RLM").replace('\u{2066}', "LRI")
    );
}

#[test]
fn the_status() {
    let (server, _directory) = serve(&[]);
    check(server.http, &json!({"domain": "api", "descriptors": [{"user": "ann"}]}));
    let shown = shown(verb(server.http, &["status"]), server.http);
    // The connection of the check may still be open.
    let lines = shown.lines().filter(|line| !line.starts_with("connections ")).map(|line| format!("{line}\n"));
    assert_snapshot!(lines.collect::<String>());
    let output = verb(server.http, &["status", "--format", "json"]).output().unwrap();
    let status: Value = serde_json::from_str(&text(output.stdout)).unwrap();
    assert_eq!(status["server"], format!("http://{}", server.http));
    assert_eq!(
        (&status["ready"], &status["version"], &status["stores"]),
        (&json!(true), &json!(env!("CARGO_PKG_VERSION")), &json!([]))
    );
    assert_eq!((&status["decisions"]["allowed"], &status["rules"]["shadow"]), (&json!(1), &json!(1)));
}

#[test]
fn json_is_what_the_server_answers() {
    let (server, _directory) = serve(&[]);
    let printed = |arguments: &[&str]| {
        let output = verb(server.http, &[arguments, &["--format", "json"]].concat()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(output.stderr));
        let printed = text(output.stdout);
        assert!(printed.ends_with("}\n") && printed.lines().count() == 1, "{printed}");
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    let with = |verb: &[&'static str]| printed(&[verb, &ANN].concat());
    assert_eq!(with(&["block", "90s"]), json!({"limits": 2}));
    assert_eq!(with(&["inspect"])["rules"][0]["limits"][0]["remaining"], 3);
    assert_eq!(with(&["unblock"]), json!({"limits": 2, "lifted": 2}));
    assert_eq!(with(&["grant", "1"]), json!({"limits": 2}));
    assert_eq!(with(&["reset"]), json!({"limits": 2}));
    let switched = json!({"domain": "api", "rule": "per-user", "mode": "shadow"});
    assert_eq!(printed(&["mode", "api/per-user", "shadow"]), switched);
    let rules: Value = serde_json::from_str(&server.get("/v1/rules").body).unwrap();
    assert_eq!(printed(&["rules"]), rules);
}

#[test]
fn names_from_files_cannot_change_the_terminal() {
    let (server, _directory) = serve(&[]);
    for format in ["text", "json"] {
        let printed = text(verb(server.http, &["rules", "--format", format]).output().unwrap().stdout);
        assert!(printed.contains("202e") && printed.contains("2066") && printed.contains("200f"), "{printed}");
        let hostile = printed.chars().find(|character| !character.is_ascii() || character.is_ascii_control());
        assert!(printed.trim_end().lines().count() == if format == "json" { 1 } else { 5 }, "{printed}");
        assert_eq!(hostile, Some('\n'), "{printed}");
        assert!(!printed.contains(['\u{202e}', '\u{2066}', '\u{200f}', '\u{1b}']), "{printed}");
    }
}

/// Runs `tidegate rules` with a token from a place, and returns whether the server accepted it.
fn is_accepted(server: SocketAddr, prepare: impl FnOnce(&mut Command)) -> bool {
    let mut command = verb(server, &["rules"]);
    prepare(&mut command);
    command.output().unwrap().status.success()
}

#[test]
fn the_token_is_from_the_environment_or_a_file() {
    let (server, directory) = serve(&["--admin-token", "s3cret"]);
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    assert!(!is_accepted(server.http, |_| ()));
    assert!(is_accepted(server.http, |command| {
        command.env("TIDEGATE_ADMIN_TOKEN", "s3cret");
    }));
    assert!(is_accepted(server.http, |command| {
        // The file is asked for, so it comes first.
        command.env("TIDEGATE_ADMIN_TOKEN", "wrong").arg("--token-file").arg(&file);
    }));
    let status = verb(server.http, &["status"]).output().unwrap();
    assert!(status.status.success(), "the status needs no token");
}

fn write(directory: &Path, name: &str, authority: &Authority) {
    let (certificate, key) = authority.sign(4000);
    std::fs::write(directory.join(format!("{name}.pem")), certificate).unwrap();
    std::fs::write(directory.join(format!("{name}.key")), key).unwrap();
    std::fs::write(directory.join(format!("{name}-ca.pem")), &authority.pem).unwrap();
}

#[test]
fn tls_with_certificates_of_both_sides() {
    let files = directory();
    write(files.path(), "server", &Authority::new("servers"));
    write(files.path(), "client", &Authority::new("clients"));
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key, authority) = (path("server.pem"), path("server.key"), path("client-ca.pem"));
    let server = ["--http-tls-cert", &certificate, "--http-tls-key", &key, "--http-tls-client-ca", &authority];
    let (server, _directory) = serve(&server);
    let rules = |url: &str, arguments: &[&str]| {
        let mut command = tidegate();
        command.current_dir(files.path()).args(["rules", "--server", url]).args(arguments);
        let Output { status, stderr, .. } = command.output().unwrap();
        let port = format!(":{}", server.http.port());
        (status.success(), text(stderr).replace(&port, ":8080"))
    };
    let url = format!("https://localhost:{}", server.http.port());
    let client = ["--client-cert", "client.pem", "--client-key", "client.key"];
    assert_eq!(rules(&url, &[&["--ca", "server-ca.pem"], &client[..]].concat()), (true, String::new()));
    let unknown = "error: https://localhost:8080: TLS failed: invalid peer certificate: UnknownIssuer; name its authority with --ca\n";
    for authority in [&["--ca", "client-ca.pem"][..], &[]] {
        assert_eq!(rules(&url, authority), (false, unknown.to_owned()), "{authority:?}");
    }
    let (done, problem) = rules(&url, &["--ca", "server-ca.pem"]);
    assert!(!done && problem.contains("--client-cert"), "{problem}");
    let (done, problem) = rules(&format!("http://{}", server.http), &[]);
    assert!(!done && problem.ends_with("if the server uses TLS, use https://\n"), "{problem}");
}
