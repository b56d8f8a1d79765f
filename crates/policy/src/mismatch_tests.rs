use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::find_tests::{of_entries, of_http, policy};
use crate::{Entry, Http};

fn of_match(matching: serde_json::Value) -> Policy {
    policy(&json!([{"name": "r", "match": matching, "limit": "1/s"}]))
}

/// The first condition that is not met, as one text.
fn failed(matching: serde_json::Value, question: &Question<'_>) -> String {
    let policy = of_match(matching);
    let mismatch = Policy::comparison(question).mismatch(&policy.rules()[0]);
    mismatch.map_or("-".to_owned(), |Mismatch { field, expected, found }| {
        format!("{field}: {expected}; {}", found.unwrap_or("nothing".to_owned()))
    })
}

#[test]
fn the_first_condition_that_fails_is_named() {
    let entries = [Entry { key: "plan", value: "free" }, Entry { key: "user", value: "ann" }];
    let headers = [("x-key", "a"), ("x-key", "b"), ("cookie", "id=7")];
    let http = Http {
        method: "POST",
        host: "Example.org.",
        path: "/login",
        query: "q=1&q=%ff",
        headers: &headers,
        address: "192.0.2.7".parse().ok(),
        ..Http::default()
    };
    let (by_entries, by_http) = (of_entries(&entries), of_http(&http));
    for (matching, question, expected) in [
        (json!({}), &by_entries, "-"),
        (json!({"entries": {"plan": "free"}}), &by_entries, "-"),
        (json!({"entries": {"plan": "pro"}}), &by_entries, "match.entries.plan: \"pro\"; \"free\""),
        (json!({"entries": {"team": "*"}}), &by_entries, "match.entries.team: \"*\"; nothing"),
        (
            json!({"entries": [{"plan": "free"}]}),
            &by_entries,
            "match.entries: exactly [plan: \"free\"]; [plan: \"free\", user: \"ann\"]",
        ),
        (json!({"path": "/*"}), &by_entries, "match.path: \"/*\"; nothing"),
        (json!({"path": "/a*b*c", "method": "GET"}), &by_http, "match.path: \"/a*b*c\"; \"/login\""),
        (
            json!({"path": "/login", "method": ["GET", "HEAD"]}),
            &by_http,
            "match.method: one of \"GET\", \"HEAD\"; \"POST\"",
        ),
        (json!({"host": "*.example.org"}), &by_http, "match.host: \"*.example.org\"; \"Example.org.\""),
        (
            json!({"header": {"X-Key": {"is": "*", "except": ["a", "b"]}}}),
            &by_http,
            "match.header.x-key: \"*\" except \"a\", \"b\"; \"a\", \"b\"",
        ),
        (json!({"cookie": {"id": "8"}}), &by_http, "match.cookie.id: \"8\"; \"7\""),
        (json!({"query": {"q": "2"}}), &by_http, "match.query.q: \"2\"; \"1\", \"\u{fffd}\""),
        (json!({"address": ["10.0.0.0/8", "::1"]}), &by_http, "match.address: in 10.0.0.0/8, ::1/128; 192.0.2.7"),
        (json!({"when": "request.path == \"/\""}), &by_http, "match.when: request.path == \"/\"; not true"),
    ] {
        assert_eq!(failed(matching.clone(), question), expected, "{matching}");
    }
}

#[test]
fn what_is_told_is_bounded() {
    let values: Vec<String> = (0..1_000).map(|number| format!("v{number}")).collect();
    let long = "x".repeat(100_000);
    let entries = [Entry { key: "plan", value: &long }];
    let policy = of_match(json!({"entries": {"plan": values}}));
    let question = of_entries(&entries);
    let mismatch = Policy::comparison(&question).mismatch(&policy.rules()[0]).unwrap();
    assert!(mismatch.expected.ends_with("and 992 more"), "{mismatch:?}");
    assert_eq!(mismatch.found.unwrap().chars().count(), MISMATCH_CHARS_MAX + 1);
}

proptest! {
    #[test]
    fn a_rule_without_a_mismatch_is_one_that_matches(
        conditions in prop::collection::vec((0..8_usize, "[ab*]{1,2}"), 0..4),
        value in "[ab]{1,2}",
        is_http in any::<bool>(),
    ) {
        let mut matching = serde_json::Map::new();
        for (kind, pattern) in conditions {
            let (name, condition) = match kind {
                0 => ("entries", json!({"x": pattern})),
                1 => ("entries", json!([{"x": pattern}])),
                2 => ("path", json!(pattern)),
                3 => ("method", json!(pattern)),
                4 => ("header", json!({"x": pattern})),
                5 => ("query", json!({"x": pattern})),
                6 => ("address", json!("192.0.2.0/24")),
                _ => ("when", json!("size(entries) == 1")),
            };
            matching.insert(name.to_owned(), condition);
        }
        let policy = of_match(matching.into());
        let (entries, headers) = ([Entry { key: "x", value: &value }], [("x", &*value)]);
        let query = format!("x={value}");
        let http = Http { method: &value, path: &value, query: &query, headers: &headers, ..Http::default() };
        let question = Question { domain: "d", entries: &entries, http: is_http.then_some(&http), cost: 1 };
        let mut found = crate::FoundRules::new();
        policy.find(policy.domain("d").unwrap(), &question, &mut found);
        let comparison = Policy::comparison(&question);
        prop_assert_eq!(comparison.mismatch(&policy.rules()[0]).is_none(), !found.is_empty());
        prop_assert_eq!(comparison.met(&policy.rules()[0]).1, !found.is_empty());
    }
}
