//! Tests of what `compile` accepts, refuses and makes.

use std::num::NonZeroU64;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Count, Diagnostics, Local, Location, OnStoreFailure, Outside, Policy, Question, Response, Share, compile};

/// The policy, and the errors as pointer and message.
fn compiled(config: Value) -> (Policy, Vec<String>) {
    let locate = |pointer: &str| Location { file: pointer.into(), line: 0, column: 0 };
    let mut diagnostics = Diagnostics::new(&locate);
    let policy = compile(&serde_json::from_value(config).unwrap(), &Outside::default(), &mut diagnostics);
    let is_broken = diagnostics.has_errors();
    let all = diagnostics.finish();
    assert!(all.iter().all(|one| !one.message.is_empty() && !one.hint.is_empty()), "{all:?}");
    let told = all.into_iter().map(|one| format!("{}: {}", one.location, one.message));
    (policy, if is_broken { told.collect() } else { Vec::new() })
}

fn rules(rules: Value) -> Value {
    json!({"domains": {"d": {"rules": rules}}})
}

fn check(config: Value, expected: &[&str]) {
    let (_, errors) = compiled(config.clone());
    assert_eq!(errors.len(), expected.len(), "{config}: {errors:#?}");
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.starts_with(expected), "{config}: {error}");
    }
}

fn check_rule(mut rule: Value, expected: &[&str]) {
    if rule.get("name").is_none() {
        rule["name"] = "r".into();
    }
    let expected: Vec<String> = expected.iter().map(|text| format!("/domains/d/rules/0{text}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(rules(json!([rule])), &expected);
}

#[test]
fn names() {
    check_rule(json!({"name": "", "limit": "1/s"}), &["/name: name: empty"]);
    check_rule(json!({"name": "a\u{7}", "limit": "1/s"}), &["/name: name: `a\\u{7}` contains control characters"]);
    check_rule(json!({"name": "n".repeat(1025), "limit": "1/s"}), &["/name: name: `nnn"]);
    let twice = rules(json!([{"name": "a", "limit": "1/s"}, {"name": "a", "limit": "1/s"}]));
    check(twice, &["/domains/d/rules/1/name: name: another rule of this domain is named `a`"]);
    check(json!({"domains": {"": {}}}), &["/domains/: domain name: empty"]);
    let slash = json!({"domains": {"a/b~c": {"rules": [{"name": "r"}]}}});
    check(slash, &["/domains/a~1b~0c/rules/0: limit: missing"]);
}

#[test]
fn limits() {
    check_rule(json!({}), &[": limit: missing"]);
    check_rule(
        json!({"limit": "1/s", "limits": ["2/s"]}),
        &["/limits: limits: cannot be combined with limit", "/limits/0: name: another limit of this rule is named `r`"],
    );
    check_rule(json!({"limits": ["1/s", {"name": "day", "rate": "5/day"}]}), &[]);
    check_rule(json!({"limits": ["1/s", "5/day"]}), &["/limits/1: name: another limit of this rule is named `r`"]);
    check_rule(json!({"limit": "fast"}), &["/limit: limit: cannot read `fast`"]);
    check_rule(json!({"limit": {"rate": "1/s", "burst": 0}}), &["/limit/burst: burst: 0 is too small"]);
    check_rule(json!({"limits": [{"name": "", "rate": "1/s"}]}), &["/limits/0/name: name: empty"]);
    check_rule(json!({"action": "block", "limit": "1/s"}), &["/limit: limit: not allowed with action: block"]);
    check_rule(
        json!({"action": "unlimited", "limits": ["1/s"]}),
        &["/limits: limits: not allowed with action: unlimited"],
    );
    let nine: Vec<Value> = (0..9).map(|i| json!({"name": i.to_string(), "rate": "1/s"})).collect();
    check_rule(json!({"limits": nine}), &["/limits: limits: 9 limits are too many"]);
    check_rule(
        json!({"limit": "1/s", "on_store_failure": {"local": "x"}}),
        &["/on_store_failure/local: local: cannot"],
    );
}

#[test]
fn shares_of_local_limits() {
    let on_failure = |local: Value| json!({"name": "r", "limit": "1/s", "on_store_failure": {"local": local}});
    let one_of = |parts| Share::OneOf(NonZeroU64::new(parts).unwrap());
    for (text, expected) in [("auto", Share::Auto), ("1/2", one_of(2)), ("1/4", one_of(4)), ("1/1000", one_of(1_000))] {
        let (policy, errors) = compiled(rules(json!([on_failure(json!({"share": text}))])));
        assert_eq!(errors, [""; 0], "{text}");
        let Some(OnStoreFailure::Local(Local::Share(share))) = policy.rules()[0].on_store_failure else {
            panic!("{text}: {:?}", policy.rules()[0].on_store_failure)
        };
        assert_eq!(share, expected, "{text}");
    }
    let wrong = [
        "",
        "1",
        "half",
        "Auto",
        "25%",
        "0.25",
        "2/4",
        "1/0",
        "1/1",
        "1/1001",
        "1/-4",
        "1/x",
        "1/",
        " 1/4",
        "1/4 ",
        "1/+4",
        "1/18446744073709551616",
    ];
    for text in wrong {
        let expected = format!("/on_store_failure/local/share: share: cannot read `{text}`");
        check_rule(on_failure(json!({"share": text})), &[&expected]);
    }
    // A limit written out is none of the rule's own.
    let (policy, errors) = compiled(rules(json!([on_failure(json!({"rate": "1/4s"}))])));
    assert!(errors.is_empty(), "{errors:?}");
    assert!(matches!(policy.rules()[0].on_store_failure, Some(OnStoreFailure::Local(Local::Limit(_)))));
}

#[test]
fn stores_and_addresses() {
    check(json!({"stores": {"a": {"url": "redis://x"}}}), &["/stores/a/url: url: unknown store type `redis://x`"]);
    check(json!({"stores": {"a": {"keys": 0}}}), &["/stores/a/keys: keys: 0 is out of bounds"]);
    check(
        json!({"stores": {"default": {"log_entries": 1_u64 << 60}}}),
        &["/stores/default/log_entries: log_entries: 115"],
    );
    for url in ["memory", "memory:", "memory://"] {
        check(json!({"stores": {"default": {"url": url}}}), &[]);
    }
    check_rule(json!({"limit": "1/s", "store": "x"}), &["/store: store: unknown store `x`"]);
    let both = json!({"client_address": {"trusted_hops": 1, "trusted_networks": ["10.0.0.0/8"]}});
    check(both, &["/client_address/trusted_hops: trusted_hops: cannot be combined"]);
    check(json!({"client_address": {"trusted_hops": 65}}), &["/client_address/trusted_hops: trusted_hops: 65 is too"]);
    check(json!({"client_address": {"ipv6_prefix": 129}}), &["/client_address/ipv6_prefix: ipv6_prefix: 129 is out"]);
    check(json!({"client_address": {"ipv4_prefix": 0}}), &["/client_address/ipv4_prefix: ipv4_prefix: 0 is out"]);
    let networks = json!({"client_address": {"trusted_networks": ["10.0.0.0/8", "here"]}});
    check(networks, &["/client_address/trusted_networks/1: `here` is not a network"]);
}

#[test]
fn conditions_and_the_rest() {
    let matching =
        |matching: Value, expected: &[&str]| check_rule(json!({"limit": "1/s", "match": matching}), expected);
    matching(json!({"address": "10.0.0.1/8"}), &["/match/address/0: `10.0.0.1/8` has bits set beyond"]);
    matching(json!({"path": []}), &["/match/path: an empty list matches nothing"]);
    matching(json!({"path": "x".repeat(4097)}), &["/match/path: a value of 4097 bytes is too long"]);
    matching(json!({"path": "*a".repeat(17)}), &["/match/path: `*a*a"]);
    matching(json!({"entries": [{"a": "1", "b": "2"}]}), &["/match/entries/0: entries: an item of the list has 2"]);
    matching(json!({"header": {"X Key": "1"}}), &["/match/header/X Key: `X Key` is not a valid header name"]);
    matching(json!({"when": "nothing"}), &["/match/when: unknown variable `nothing`"]);
    let many: Value = (0..33).map(|i| (i.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    matching(json!({"header": many}), &["/match/header: 33 conditions of this kind are too many"]);

    check_rule(json!({"limit": "1/s", "penalty": "10"}), &["/penalty: penalty: 10 has no unit"]);
    check_rule(json!({"limit": "1/s", "penalty": "0s"}), &["/penalty: penalty: `0s` is out of bounds"]);
    check_rule(json!({"limit": "1/s", "penalty": "99w"}), &["/penalty: penalty: `99w` is out of bounds"]);
    check_rule(
        json!({"limit": "1/s", "response": {"retry_jitter": "2h"}}),
        &["/response/retry_jitter: retry_jitter: `2h`"],
    );
    check_rule(json!({"limit": "1/s", "key": {"header": "a:b"}}), &["/key/0: `a:b` is not a valid header name"]);
    check_rule(json!({"limit": "1/s", "key": {"header": ""}}), &["/key/0: key: empty"]);
    check_rule(json!({"limit": "1/s", "key": vec!["path"; 17]}), &["/key: key: 17 parts are too many"]);
    check_rule(json!({"limit": "1/s", "cost": "1 +"}), &["/cost: invalid expression"]);
    check_rule(
        json!({"limit": "1/s", "replaces": ["r", ""]}),
        &["/replaces/0: replaces: `r` is a", "/replaces/1: replaces: e"],
    );
    check_rule(json!({"limit": "1/s", "metadata": "x".repeat(70_000)}), &["/metadata: metadata: 70002 bytes"]);
}

#[test]
fn all_problems_are_told_at_once() {
    let config = rules(json!([{"name": "a"}, {"name": "b", "limit": "x", "penalty": "y", "store": "z"}]));
    assert_eq!(compiled(config).1.len(), 4);
}

#[test]
fn what_is_made() {
    let config = json!({
        "stores": {"big": {"keys": 1000}},
        "domains": {"d": {
            "response": {"headers": "legacy", "retry_jitter": "5s", "problem": false},
            "rules": [
                {"name": "a", "limits": ["1/s", {"name": "day", "rate": "9/day"}], "store": "big", "penalty": "1h30m",
                 "mode": "shadow", "response": {"hidden": true, "retry_jitter": "0s"}},
                {"name": "b", "limit": "1/s", "match": {"entries": [{"user": "*"}, {"plan": "free"}, {"x": ["a", "b"]}]}},
                {"name": "c", "limit": {"name": "day", "rate": "1/s"}, "response": {"problem": true}},
            ],
        }},
    });
    let (policy, errors) = compiled(config);
    assert_eq!(errors, [""; 0]);
    assert_eq!(policy.stores().iter().map(|store| &*store.name).collect::<Vec<_>>(), ["default", "big"]);
    let [a, b, c] = policy.rules() else { panic!("three rules") };
    assert_eq!((a.limits[0].store, a.penalty), (1, Some(Duration::from_secs(5400))));
    assert_eq!(a.limits.iter().map(|limit| &*limit.name).collect::<Vec<_>>(), ["a", "day"]);
    assert!(a.response.hidden && a.response.problem == Some(false) && a.response.retry_jitter.is_zero());
    assert!(
        !c.response.hidden && c.response.problem == Some(true) && c.response.retry_jitter == Duration::from_secs(5)
    );
    assert_eq!(*b.metric_path, ["user".into(), "plan_free".into(), "x".into()]);
    assert_eq!(*a.metric_path, ["a".into()]);
    assert!(a.on_store_failure.is_none(), "the nature of its store decides");
    let namespaces = [&a.limits[0], &a.limits[1], &b.limits[0], &c.limits[0]].map(|limit| limit.namespace.as_bytes());
    assert_eq!(namespaces, [&b"r\x01d\x01a\0"[..], b"r\x01d\x01a\x03day", b"r\x01d\x01b\0", b"r\x01d\x01c\x03day"]);
    assert_eq!((a.penalties.as_bytes(), a.blocks.as_bytes()), (&b"p\x01d\x01a\0"[..], &b"d\x01d\x01a\0"[..]));
}

#[test]
fn long_names_have_long_namespaces() {
    let (policy, _) = compiled(rules(json!([{"name": "n".repeat(300), "limit": "1/s"}])));
    let namespace = policy.rules()[0].limits[0].namespace.as_bytes();
    assert!(namespace.starts_with(b"r\x01d\xac\x02nnn") && namespace.ends_with(b"n\0"));
    assert_eq!(namespace.len(), 1 + 2 + 2 + 300 + 1);
}

#[test]
fn counting() {
    let rule = |fields: Value| {
        let mut rule = json!({"name": "r", "limit": "1000/s"});
        rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        compiled(rules(json!([rule]))).0
    };
    let question = |cost| Question { domain: "d", entries: &[], http: None, cost };
    let cases = [
        (json!({}), 3, Count::Now(3)),
        (json!({"cost": "cost * 2"}), 3, Count::Now(6)),
        (json!({"count": "cost > 2"}), 3, Count::Now(3)),
        (json!({"count": "cost > 2"}), 2, Count::Look(2)),
        (json!({"count": "cost * 5", "cost": "cost + 1"}), 2, Count::Now(15)),
        (json!({"count": "response.status == 401", "cost": "2"}), 3, Count::Later(2)),
        (json!({"count": "7", "cost": "9"}), 0, Count::Now(0)),
        (json!({"count": "entries.a == '1'"}), 4, Count::Now(4)),
    ];
    for (fields, cost, expected) in cases {
        assert_eq!(rule(fields.clone()).rules()[0].count(&question(cost)), expected, "{fields}");
    }
    let response = Response { status: 401, bytes: 10, millis: 1 };
    let policy = rule(json!({"count": "response.status == 401", "cost": "2"}));
    assert_eq!(policy.rules()[0].count_response(&question(1), &response), 2);
    assert_eq!(policy.rules()[0].count_response(&question(1), &Response::default()), 0);
    assert_eq!(rule(json!({"count": "cost > 0"})).rules()[0].count_response(&question(1), &response), 0);
    assert_eq!(policy.expression_errors(), 0);
    let policy = rule(json!({"cost": "int(entries.a)"}));
    assert_eq!(policy.rules()[0].count(&question(5)), Count::Failed);
    assert_eq!(policy.expression_errors(), 1);
    let policy = rule(json!({"cost": "int(entries.a)", "count": "response.status == 401"}));
    assert_eq!(policy.rules()[0].count_response(&question(1), &response), 0);
}
