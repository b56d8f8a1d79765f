//! `tidegate explain`, against a running server.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidegate_testkit::http;

use crate::operate::{ANN, serve, shown, verb};

/// Asks as this user until that is denied, and returns the id.
fn denied(server: SocketAddr, user: &str) -> String {
    let body = json!({"domain": "api", "descriptors": [{"user": user}]}).to_string();
    let ask = |_| http::ask(server, "POST", "/v1/check", &[], &body).header("tidegate-decision").map(str::to_owned);
    (0..10).find_map(ask).unwrap()
}

#[test]
fn a_denial_is_explained() {
    let (server, _directory) = serve(&[]);
    let id = denied(server.http, "a\u{1b}[2J\u{202e}");
    let told = shown(verb(server.http, &["explain", &id]), server.http);
    let lines: Vec<&str> = told.lines().skip(1).collect();
    assert_eq!(lines[0], "denied (over_limit) in domain api", "{told}");
    assert!(lines[1].starts_with("  per-user / burst: over_limit, 3 of 3 used, 1 asked for, retry after "), "{told}");
    assert_eq!(lines[2..4], [r"    key: entry:user=a\u{1b}[2J\u{202e}", "    store: default"], "{told}");
    assert!(lines[4].starts_with("at 20") && lines[4].ends_with(", the last of 1 denial in this second"), "{told}");
    assert!(lines[5].starts_with(&format!("by node {}", &id[..8])), "{told}");
    let output = verb(server.http, &["explain", &id, "--format", "json"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{printed:?}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["decision"], id);
}

#[test]
fn a_request_is_explained() {
    let (server, _directory) = serve(&[]);
    let explain = [&["explain"], &ANN[..]].concat();
    let expected = "it would pass
  per-user: matches, key: entry:user=ann
    burst: allowed, 3 of 3 left
    yearly: allowed, 1000 of 1000 left
  banned: does not match; match.entries.ban is nothing, not \"*\"
  path_/login* (shadow): does not match; match.path is nothing, not \"/login*\"
";
    for _ in 0..2 {
        let output = verb(server.http, &explain).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<&str> = printed.lines().collect();
        // Rules that match as little as each other come in the order of the file.
        lines[4..].sort_unstable();
        assert_eq!(lines, expected.lines().collect::<Vec<_>>());
    }
    denied(server.http, "ann");
    let told = shown(verb(server.http, &explain), server.http);
    assert!(told.contains("\nit would be denied\n") && told.contains("    burst: over_limit, 0 of 3 left"), "{told}");
}

#[test]
fn what_cannot_be_explained_is_an_error() {
    let (server, _directory) = serve(&[]);
    let own = denied(server.http, "ann");
    let forged = format!("{}-00000000000000000001", &own[..8]);
    for (arguments, expected, code) in [
        (&["explain", "42"][..], "decision: `42` is not the id of a denial", 1),
        (&["explain", &forged], "is unknown; node ", 1),
        (&["explain", "../rules"], "an id has 8 hexadecimal digits", 2),
        (&["explain", "42", "--domain", "api"], "cannot be used with", 2),
        (&["explain"], "name a key: use --domain and --entry", 2),
        (&["explain", "--domain", "web"], "there are no rules for `web`", 1),
    ] {
        let told = shown(verb(server.http, arguments), server.http);
        assert!(told.contains(expected) && told.contains(&format!("exit code {code}")), "{told}");
    }
}
