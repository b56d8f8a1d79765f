//! Denials of the shipped server, explained by it.

use serde_json::Value;
use tidegate_testkit::http::{self, Response};
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;

const RULES: &str = "
domains:
  api:
    rules:
    - name: per-user
      match: {entries: {user: '*'}}
      key: {entry: user}
      limits: [{name: burst, rate: 3/minute}, {name: daily, algorithm: fixed_window, rate: 1000/day}]
    - {name: exports, match: {entries: {action: export}}, key: {entry: user}, limit: {algorithm: sliding_log, rate: 2/hour}}
    - {name: shut, match: {entries: {action: shut}}, action: block}
    - {name: locked, match: {entries: {action: login}}, key: {entry: user}, limit: 2/minute, penalty: 15m}
";

fn post(node: &Tidegate, path: &str, body: &Value) -> Response {
    http::ask(node.http, "POST", path, &[], &body.to_string())
}

fn explain(node: &Tidegate, id: &str) -> Value {
    let told = node.get(&format!("/v1/explain/{id}"));
    assert_eq!(told.status, 200, "{told:?}");
    serde_json::from_str(&told.body).unwrap()
}

/// The limits that denied, as the answer to a check has them.
fn denied_by(checked: &Value) -> Vec<Value> {
    let denies = |one: &&Value| one["allowed"] == false;
    checked["results"].as_array().unwrap().iter().filter(denies).cloned().collect()
}

#[test]
fn what_was_denied_over_http_is_explained() {
    let directory = directory();
    let (rules, log) = (directory.path().join("rules.yaml"), directory.path().join("decisions.jsonl"));
    std::fs::write(&rules, RULES).unwrap();
    let node = Tidegate::with_config(&rules, &["--decision-log", log.to_str().unwrap()]);
    let mut ids = Vec::new();
    for number in 0..200_usize {
        let user = format!("user {}\u{1b}", number % 7);
        let action = ["export", "shut", "login", "read", "read"][number % 5];
        let request = serde_json::json!({"domain": "api", "descriptors": [{"user": user, "action": action}]});
        let answer = post(&node, "/v1/check", &request);
        let Some(id) = answer.header("tidegate-decision") else {
            assert_eq!(answer.status, 200, "{answer:?}");
            continue;
        };
        let (checked, told): (Value, _) = (serde_json::from_str(&answer.body).unwrap(), explain(&node, id));
        assert_eq!((&checked["decision"], &told["decision"]), (&id.into(), &id.into()));
        let (expected, explained) = (denied_by(&checked), told["denied_by"].as_array().unwrap());
        assert_eq!(expected.len(), explained.len(), "{checked} {told}");
        for one in &expected {
            let same = |other: &&Value| other["rule"] == one["rule"] && other["policy"] == one["policy"];
            let other = explained.iter().find(same).unwrap_or_else(|| panic!("{one} is not in {told}"));
            for name in ["limit", "remaining", "retry_after_ns", "reset_after_ns", "never"] {
                assert_eq!(other[name], one[name], "{name}: {checked} {told}");
            }
        }
        ids.push(id.to_owned());
    }
    assert!(ids.len() > 100, "{}", ids.len());
    // By Envoy's protocol a denial has the id in a header of its own.
    let entries = serde_json::json!([{"key": "user", "value": "user 1\u{1b}"}, {"key": "action", "value": "shut"}]);
    let envoy = serde_json::json!({"domain": "api", "descriptors": [{"entries": entries}]});
    let told: Value = serde_json::from_str(&post(&node, "/json", &envoy).body).unwrap();
    let header = &told["responseHeadersToAdd"][0];
    assert_eq!(header["key"], "tidegate-decision", "{told}");
    ids.push(header["value"].as_str().unwrap().to_owned());
    let blocked = explain(&node, header["value"].as_str().unwrap());
    assert_eq!((&blocked["denial"], &blocked["denied_by"][0]["rule"]), (&"blocked".into(), &"shut".into()));
    drop(node);
    // The log has the same ids.
    let log = std::fs::read_to_string(log).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let logged: Vec<String> = lines.filter_map(|line| line["decision"].as_str().map(str::to_owned)).collect();
    assert_eq!(logged, ids);
}
