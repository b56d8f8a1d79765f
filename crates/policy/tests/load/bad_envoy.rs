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
