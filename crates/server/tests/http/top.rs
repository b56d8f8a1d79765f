//! The heaviest keys, and the blocks in force.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, body, status, wrong};

async fn check(bench: &Bench, entries: &Value) -> u16 {
    status(&bench.post("/v1/check", &json!({"domain": "api", "descriptors": [entries]}).to_string()).await)
}

async fn top(bench: &Bench, query: &str) -> Value {
    let answer = bench.get(&format!("/v1/top{query}")).await;
    assert_eq!(status(&answer), 200, "{answer}");
    let mut answer = body(&answer);
    // It is another one each time.
    answer["nodes"][0]["id"] = "NODE".into();
    answer
}

#[tokio::test]
async fn the_heaviest_keys() {
    let bench = Bench::new();
    for (user, times) in [("ann", 5), ("bob", 2)] {
        for _ in 0..times {
            check(&bench, &json!({"user": user})).await;
        }
    }
    insta::assert_snapshot!("by_requests", format!("{:#}", top(&bench, "").await));
    insta::assert_snapshot!("by_denials", format!("{:#}", top(&bench, "?by=denials&window=hour&limit=1").await));
    let narrowed = top(&bench, "?domain=api&rule=trial").await;
    assert_eq!(narrowed["rules"].as_array().unwrap().len(), 1);
    assert_eq!(top(&bench, "?domain=web").await["rules"], json!([]));
    bench.clock.advance(Duration::from_secs(120));
    assert_eq!(top(&bench, "").await["rules"], json!([]), "a minute later");
    assert_eq!(top(&bench, "?window=hour").await["rules"][0]["requests"], 7);
}

#[tokio::test]
async fn blocks_in_force() {
    let bench = Bench::new();
    for _ in 0..2 {
        let report = r#"{"domain":"api","descriptors":[{"guess":"eve"}],"response":{"status":401}}"#;
        assert_eq!(status(&bench.post("/v1/report", report).await), 200);
    }
    let block = r#"{"domain":"api","descriptors":[{"trail":"ann"}],"duration":"1h"}"#;
    assert_eq!(status(&bench.post("/v1/block", block).await), 200);
    let blocks = async |query: &str| {
        let mut answer = body(&bench.get(&format!("/v1/blocks{query}")).await);
        for pointer in ["/nodes/0/id", "/blocks/0/node", "/blocks/1/node"] {
            if let Some(node) = answer.pointer_mut(pointer) {
                *node = "NODE".into();
            }
        }
        answer
    };
    insta::assert_snapshot!("blocks", format!("{:#}", blocks("").await));
    assert_eq!(blocks("?rule=guess").await["blocks"].as_array().unwrap().len(), 1);
    bench.clock.advance(Duration::from_secs(600));
    assert_eq!(blocks("").await["blocks"].as_array().unwrap().len(), 1, "the penalty is over");
    bench.post("/v1/reset", r#"{"domain":"api","descriptors":[{"trail":"ann"}]}"#).await;
    assert_eq!(blocks("").await["blocks"], json!([]));
}

#[tokio::test]
async fn questions_that_cannot_be_answered() {
    let bench = Bench::new();
    for (path, expected) in [
        ("/v1/top?by=size", "400 by: size is unknown; use requests or denials"),
        ("/v1/top?window=day", "400 window: day is unknown; use minute or hour"),
        ("/v1/top?limit=0", "400 limit: 0 is out of bounds; use 1 to 100"),
        ("/v1/top?limit=101", "400 limit: 101 is out of bounds; use 1 to 100"),
        ("/v1/top?limit=x", "400 limit: x is not a whole number; use 1 to 100"),
        ("/v1/top?sort=x", "400 sort: unknown parameter; use domain, rule, by, window, limit"),
        ("/v1/top?domain=api&rule=none", "404 rule: there is no rule none; GET /v1/rules lists them"),
        ("/v1/top?domain=web&rule=trial", "404 rule: there is no rule trial; GET /v1/rules lists them"),
        ("/v1/blocks?rule=none", "404 rule: there is no rule none; GET /v1/rules lists them"),
        ("/v1/blocks?by=requests", "400 by: unknown parameter; use domain, rule"),
    ] {
        assert_eq!(wrong(&bench.get(path).await), expected, "{path}");
    }
    for path in ["/v1/top?domain=none", "/v1/blocks?domain=none"] {
        assert_eq!(status(&bench.get(path).await), 404, "{path}");
    }
}

/// Names that clients chose are shown whole, and cannot harm a terminal or a web page.
#[tokio::test]
async fn hostile_names() {
    let bench = Bench::with(
        "domains: {api: {rules: [
          {name: user, key: {entry: user}, limit: 1/minute},
          {name: query, match: {query: {q: '*'}}, key: {query: q}, show: true, limit: 1/minute}]}}",
    );
    let names = [
        "<script>alert(1)</script>",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "\u{202e}nimda\u{2066}",
        "a\u{0}b",
        "line\r\nfeed",
        "zero\u{200b}width",
        "\u{feff}",
        "tag\u{e0041}",
        "\"},{\"",
        "\\u0041",
        "日本語 😀",
    ];
    for name in names {
        check(&bench, &json!({"user": name})).await;
    }
    let long = "x".repeat(4_096);
    check(&bench, &json!({"user": long})).await;
    let http = r#"{"domain":"api","descriptors":[{"user":"plain"}],"request":{"query":"q=%FF%25%00"}}"#;
    assert_eq!(status(&bench.post("/v1/check", http).await), 200);
    let answer = bench.get("/v1/top?limit=100").await;
    let (_, json) = answer.split_once("\n\n").unwrap();
    assert!(json.chars().all(tidegate_policy::json::is_seen), "{json:?}");
    let answer = body(&answer);
    let rule = |name: &str| answer["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == name).unwrap();
    let parts: Vec<&Value> = rule("user")["keys"].as_array().unwrap().iter().map(|key| &key["key"][0]).collect();
    for name in names {
        assert!(parts.contains(&&json!({"part": "entry:user", "value": name})), "{name:?}: {parts:?}");
    }
    let digest = parts.iter().find(|part| part["part"] == "digest").unwrap();
    assert_eq!(digest["value"].as_str().map(str::len), Some(64));
    let query = &rule("query")["keys"][0]["key"][0];
    assert_eq!(*query, json!({"part": "query:q", "value": "%FF%25\u{0}", "escaped": true}));
    let blocked = json!({"domain": "api", "descriptors": [{"user": names[1]}], "duration": "1m"}).to_string();
    assert_eq!(status(&bench.post("/v1/block", &blocked).await), 200);
    let answer = bench.get("/v1/blocks").await;
    assert!(answer.split_once("\n\n").unwrap().1.chars().all(tidegate_policy::json::is_seen), "{answer:?}");
    assert_eq!(body(&answer)["blocks"][0]["key"][0]["value"], names[1]);
}

#[tokio::test]
async fn rules_without_end() {
    let rules: String = (0..300).map(|number| format!("    - {{name: rule-{number}, limit: 9/minute}}\n")).collect();
    let bench = Bench::with(&format!("domains:\n  api:\n    rules:\n{rules}"));
    check(&bench, &json!({})).await;
    let answer = top(&bench, "").await;
    assert_eq!((answer["rules"].as_array().unwrap().len(), &answer["rules_left_out"]), (100, &json!(200)));
}
