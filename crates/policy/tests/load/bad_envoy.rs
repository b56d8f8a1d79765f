//! What is said of mistakes in the files of envoyproxy/ratelimit.

use insta::assert_snapshot;

use super::conversation;

fn with(descriptors: &str) -> String {
    format!("domain: edge\ndescriptors:\n{descriptors}")
}

fn check(descriptors: &[&str]) -> String {
    let texts: Vec<String> = descriptors.iter().map(|descriptors| with(descriptors)).collect();
    conversation(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_top() {
    assert_snapshot!(conversation(&[
        "descriptors: []",
        "domain: ''\ndescriptors: []",
        "domain:\ndescriptors: []",
        "domain: 1.5",
        "domain: [a]",
        "domain: {a: b}\ndescriptors: []",
        "domain: edge\ndescriptors: {}",
        "domain: edge\ndescriptors: [a, 5, []]",
        "domain: edge\ndescriptor: []",
        "domain: edge\n5: []",
        "domain: edge\nunit: second",
    ]));
}

#[test]
fn descriptors() {
    assert_snapshot!(check(&[
        "- value: x",
        "- key: ''",
        "- key: [a]",
        "- rate_limit: {unit: second, requests_per_unit: 5}\n  descriptors:\n  - key: b\n    rate_limit: {unit: second}",
        "- key: a\n  value: 1.0",
        "- key: a\n  valu: b",
        "- key: a\n  requests_per_unit: 5",
        "- key: a\n  true: 5",
        "- key: a\n- key: b\n- key: a",
        "- key: a\n  value: x\n- key: a\n  value: x",
        "- key: a\n  descriptors:\n  - key: b\n  - key: b",
        "- key: a\n  value: x\n  share_threshold: true",
        "- key: a\n  shadow_mode: maybe",
        "- key: a\n  key: b",
        "- key: a\n  metadata: 5",
    ]));
}

/// The warnings of descriptors that are otherwise right.
fn warnings(descriptors: &str) -> String {
    let loaded = super::load(&with(descriptors));
    assert!(loaded.policy.is_some(), "{descriptors}");
    super::told(&loaded)
}

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 1}";

#[test]
fn a_value_that_hides_nested_limits() {
    let nested = |own: &str, other: &str, below: &str| {
        warnings(&format!(
            "- {{key: user, value: admin, {own}}}\n- {{key: user, {other} descriptors: [{{key: path, {LIMIT}}}]}}\n{below}"
        ))
    };
    let hint = "repeat `path` below this descriptor, with `unlimited: true` if it needs no limit\n";
    let both = "requests with both match no limit";
    assert_eq!(
        nested(LIMIT, "", ""),
        format!(
            "rules.yaml:3:3: warning: `user` with value `admin` hides `path` below `user` without a value at rules.yaml:4:3: {both}; {hint}"
        )
    );
    for (value, hidden) in [("'*'", "*"), ("a*", "a*"), ("'*n'", "*n")] {
        let told = nested(LIMIT, &format!("value: {value},"), "");
        assert!(told.contains(&format!("hides `path` below `user` with value `{hidden}` at rules.yaml:4:3")), "{told}");
    }
    let deeper = format!("descriptors: [{{key: path, descriptors: [{{key: method, {LIMIT}}}]}}]");
    assert!(nested(&deeper, "", "").contains("hides `path`"), "nothing counts the path itself");
    // A wildcard hides what a later one has.
    let wildcards = format!(
        "- {{key: user, value: ad*, {LIMIT}}}\n- {{key: user, value: '*', descriptors: [{{key: path, {LIMIT}}}]}}"
    );
    assert!(warnings(&wildcards).contains("`user` with value `ad*` hides `path` below `user` with value `*`"));
    // Below another level, and in the other order.
    let deep = format!(
        "- key: a\n  descriptors:\n  - {{key: b, descriptors: [{{key: c, {LIMIT}}}]}}\n  - {{key: b, value: x, {LIMIT}}}"
    );
    assert!(
        warnings(&deep).contains("rules.yaml:6:5: warning: `b` with value `x` hides `c` below `b` without a value")
    );
}

/// A wildcard that comes after one that matches all its values is never chosen, so it hides nothing.
#[test]
fn a_wildcard_that_is_never_chosen_hides_nothing() {
    let nested = |key: &str| format!("descriptors: [{{key: {key}, {LIMIT}}}]");
    let text = format!(
        "- {{key: user, value: 'a*', {LIMIT}}}\n- {{key: user, value: 'ab*', {}}}\n- {{key: user, {}}}",
        nested("path"),
        nested("method")
    );
    let warnings = warnings(&text);
    assert!(warnings.contains("`user` with value `a*` hides"), "{warnings}");
    assert!(!warnings.contains("`user` with value `ab*` hides"), "{warnings}");
}

#[test]
fn a_value_that_hides_nothing() {
    let below = |fields: &str| format!("descriptors: [{{key: path, {fields}}}]");
    for own in [
        // Values that are listed to except them.
        "shadow_mode: true".to_owned(),
        "rate_limit: {unlimited: true}".to_owned(),
        below(LIMIT),
        below("rate_limit: {unlimited: true}"),
        below(&format!("value: /login, {LIMIT}")),
    ] {
        let text =
            format!("- {{key: user, value: admin, {own}}}\n- {{key: user, descriptors: [{{key: path, {LIMIT}}}]}}");
        assert_eq!(warnings(&text), "", "{text}");
    }
    for text in [
        // Only the first wildcard that matches would be chosen, and it excepts its values.
        format!(
            "- {{key: user, value: admin, {LIMIT}}}\n- {{key: user, value: a*}}\n- {{key: user, value: '*n', descriptors: [{{key: path, {LIMIT}}}]}}"
        ),
        format!(
            "- {{key: user, value: admin, {LIMIT}}}\n- {{key: user, value: x*, descriptors: [{{key: path, {LIMIT}}}]}}"
        ),
        format!("- {{key: user, value: admin, {LIMIT}}}\n- {{key: tenant, descriptors: [{{key: path, {LIMIT}}}]}}"),
        format!("- {{key: user, value: admin, {LIMIT}}}\n- {{key: user, descriptors: [{{key: path}}]}}"),
    ] {
        assert_eq!(warnings(&text), "", "{text}");
    }
}

#[test]
fn rate_limits() {
    assert_snapshot!(check(&[
        "- key: a\n  rate_limit: 5",
        "- key: a\n  rate_limit: {}",
        "- key: a\n  rate_limit: {unit: fortnight, requests_per_unit: 1}",
        "- key: a\n  rate_limit: {unit: minut, requests_per_unit: 1}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: '5'}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 1.5}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: -1}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 4294967296}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 4294967295}",
        "- key: a\n  rate_limit: {unit: second, unlimited: true}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 1, shadow_mode: true}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 1, name: x, replaces: [{name: x}, {name: ''}, {}, x, {nam: y}]}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 1, replaces: x}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 1, algorithm: sliding}",
        "- key: a\n  rate_limit: {unit: second, requests_per_unit: 1, burst: 5}",
    ]));
}
