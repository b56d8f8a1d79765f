//! `tidegate check`, `migrate` and `schema`.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;

use super::tidegate;

/// Runs it in a directory with these files, and shows what it says.
fn conversation(files: &[(&str, &str)], commands: &[&[&str]]) -> String {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::create_dir_all(directory.path().join(name).parent().unwrap()).unwrap();
        fs::write(directory.path().join(name), text).unwrap();
    }
    commands.iter().map(|arguments| show(directory.path(), arguments)).collect::<Vec<_>>().join("\n")
}

fn show(directory: &Path, arguments: &[&str]) -> String {
    let output = tidegate().args(arguments).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said = [text(output.stdout), text(output.stderr).lines().map(|line| format!("stderr: {line}\n")).collect()];
    format!("$ tidegate {}\n{}exit code {}\n", arguments.join(" "), said.concat(), output.status.code().unwrap())
}

const NATIVE: &str = "domains:
  api:
    rules:
    - name: per-client
      key: {entry: client}
      limits: [5/second, {name: daily, algorithm: fixed_window, rate: 1000/day}]
";
const ENVOYS: &str = "domain: edge
descriptors:
- key: remote_address
  rate_limit: {unit: second, requests_per_unit: 10}
- key: remote_address
  value: 10.*
  rate_limit: {unlimited: true, shadow_mode: true}
";
const BAD: &str = "domains:
  api:
    rules:
    - name: login
      limt: 5/minute
      mode: shadw
    - name: other
      limit: 5/fortnight
";

#[test]
fn check() {
    let files = [("native.yaml", NATIVE), ("dir/a.yaml", ENVOYS), ("dir/sub/b.yml", NATIVE), ("bad.yaml", BAD)];
    assert_snapshot!(conversation(
        &files,
        &[
            &["check", "native.yaml"],
            &["check", "dir"],
            &["check", "bad.yaml"],
            &["check", "native.yaml", "dir", "missing.yaml"],
            &["check", "--merge-domains", "native.yaml", "dir"],
        ],
    ));
}

#[test]
fn skipped_files_and_empty_directories_are_named() {
    let more: Vec<(String, &str)> = (0..12).map(|number| (format!("many/{number:02}.txt"), "")).collect();
    let mut files: Vec<(&str, &str)> = more.iter().map(|(name, text)| (&**name, *text)).collect();
    files.extend([
        ("many/a.yaml", NATIVE),
        ("dir/a.yaml", NATIVE),
        ("dir/b.yaml.bak", NATIVE),
        ("dir/.c.yaml", NATIVE),
    ]);
    files.push(("empty/notes.txt", ""));
    assert_snapshot!(conversation(
        &files,
        &[&["check", "dir"], &["check", "many"], &["check", "empty"], &["check", "--format", "json", "dir", "empty"]],
    ));
}

#[test]
fn warnings_fail_a_strict_check() {
    assert_snapshot!(conversation(
        &[("native.yaml", NATIVE), ("envoy.yaml", ENVOYS)],
        &[
            &["check", "--strict", "native.yaml"],
            &["check", "envoy.yaml"],
            &["check", "--strict", "envoy.yaml"],
            &["check", "--strict", "--format", "json", "envoy.yaml"],
        ],
    ));
}

#[test]
fn a_check_as_json() {
    assert_snapshot!(conversation(
        &[("native.yaml", NATIVE), ("dir/a.yaml", ENVOYS), ("bad.yaml", BAD)],
        &[
            &["check", "--format", "json", "native.yaml"],
            // A problem of a whole file has no line.
            &["check", "--format", "json", "--color", "always", "bad.yaml", "dir", "missing.yaml"],
        ],
    ));
}

#[test]
fn migrate() {
    let files = [("envoy.yaml", ENVOYS), ("bad.yaml", BAD)];
    assert_snapshot!(conversation(
        &files,
        &[
            &["migrate", "envoy.yaml"],
            &["migrate", "--envoy-algorithm", "gcra", "envoy.yaml", "--output", "rules.yaml"],
            &["check", "rules.yaml"],
            &["migrate", "bad.yaml", "--output", "none.yaml"],
            &["check", "none.yaml"],
            &["migrate", "envoy.yaml", "--output", "no/such/directory.yaml"],
        ],
    ));
}

#[test]
fn schema() {
    let shown = conversation(&[], &[&["schema"]]);
    assert!(shown.contains("\"title\": \"Tidegate configuration\""), "{shown}");
    let shown = conversation(&[], &[&["schema", "--markdown"]]);
    assert!(shown.contains("\n| `limit` | [limit](#limit) |"), "{shown}");
}
