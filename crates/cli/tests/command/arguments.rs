//! Flags, help, and errors about invalid arguments.

use insta::assert_snapshot;

use super::run;

fn help(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_of_all() {
    assert_snapshot!(help(&["--help"]));
}

#[test]
fn help_of_decide() {
    assert_snapshot!(help(&["decide", "--help"]));
}

#[test]
fn help_of_demo() {
    assert_snapshot!(help(&["demo", "--help"]));
}

#[test]
fn help_of_completions() {
    assert_snapshot!(help(&["completions", "--help"]));
}

#[test]
fn help_of_check() {
    assert_snapshot!(help(&["check", "--help"]));
}

#[test]
fn help_of_migrate() {
    assert_snapshot!(help(&["migrate", "--help"]));
}

#[test]
fn help_of_serve() {
    assert_snapshot!(help(&["serve", "--help"]));
}

#[test]
fn help_of_schema() {
    assert_snapshot!(help(&["schema", "--help"]));
}

#[test]
fn help_of_store() {
    assert_snapshot!(help(&["store", "--help"]));
}

#[test]
fn help_of_store_check() {
    assert_snapshot!(help(&["store", "check", "--help"]));
}

#[test]
fn help_of_status() {
    assert_snapshot!(help(&["status", "--help"]));
}

#[test]
fn help_of_rules() {
    assert_snapshot!(help(&["rules", "--help"]));
}

#[test]
fn help_of_mode() {
    assert_snapshot!(help(&["mode", "--help"]));
}

#[test]
fn help_of_inspect() {
    assert_snapshot!(help(&["inspect", "--help"]));
}

#[test]
fn help_of_explain() {
    assert_snapshot!(help(&["explain", "--help"]));
}

#[test]
fn help_of_reset() {
    assert_snapshot!(help(&["reset", "--help"]));
}

#[test]
fn help_of_grant() {
    assert_snapshot!(help(&["grant", "--help"]));
}

#[test]
fn help_of_block() {
    assert_snapshot!(help(&["block", "--help"]));
}

#[test]
fn help_of_unblock() {
    assert_snapshot!(help(&["unblock", "--help"]));
}

#[test]
fn help_of_top() {
    assert_snapshot!(help(&["top", "--help"]));
}

#[test]
fn version() {
    assert_eq!(help(&["--version"]), format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_command_shows_the_help() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), help(&["--help"]));
}

#[test]
fn bad_arguments_are_one_line() {
    let attempts: [&[&str]; 33] = [
        &["--colour"],
        &["decid"],
        &["demo", "--fas"],
        &["demo", "--fast=3"],
        &["decide", "file"],
        &["completions"],
        &["completions", "cmd"],
        &["check"],
        &["check", "rules.yaml", "--envoy-algorithm", "sliding"],
        &["check", "rules.yaml", "--format", "xml"],
        &["check", "rules.yaml", "--color", "sometimes"],
        &["migrate"],
        &["schema", "rules.yaml"],
        &["store", "chek"],
        &["store", "check"],
        &["store", "check", "--format", "xml", "redis://127.0.0.1"],
        &["status", "--server", "127.0.0.1:8080"],
        &["status", "--server", "redis://127.0.0.1"],
        &["status", "--server", "http://user:secret@127.0.0.1"],
        &["status", "--server", "http://127.0.0.1/?a=b"],
        &["status", "--ca", "ca.pem"],
        &["status", "--server", "https://127.0.0.1", "--ca", "/nowhere/ca.pem"],
        &["status", "--server", "https://127.0.0.1", "--client-cert", "client.pem"],
        &["rules", "--token-file", "/nowhere/token"],
        &["mode", "per-user", "shadow"],
        &["mode", "api/per-user", "on"],
        &["inspect"],
        &["inspect", "--domain", "api", "--entry", "user"],
        &["reset", "--domain", "api", "--key", "k", "--limit", "1/s"],
        &["reset", "--key", "k"],
        &["block", "soon", "--domain", "api"],
        &["grant", "-1", "--domain", "api"],
        &["top", "--interval", "1ms"],
    ];
    let said: String = attempts
        .iter()
        .map(|arguments| {
            let output = run(arguments);
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(output.stdout, b"");
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(message.lines().count(), 1, "{message}");
            format!("$ tidegate {}\n{message}", arguments.join(" "))
        })
        .collect();
    assert_snapshot!(said);
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = help(&["completions", shell]);
        assert!(["decide", "demo", "completions"].iter().all(|command| script.contains(command)), "{shell}");
    }
}
