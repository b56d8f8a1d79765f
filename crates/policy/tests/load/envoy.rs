//! The files of envoyproxy/ratelimit, and the rules they become.

use insta::assert_snapshot;
use tidegate_core::Algorithm;
use tidegate_policy::schema::{Action, KeyPart, OneOrMany};
use tidegate_policy::{LoadOptions as Options, load_text, migrate};

use super::{good, load, told};

const EXAMPLE: &str = r#"
domain: edge
descriptors:
  # Each client by itself.
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: remote_address
    value: 10.0.0.1
    rate_limit: {unlimited: true, name: internal}
  - key: remote_address
    value: 10.0.*
    shadow_mode: true
    rate_limit:
      unit: MINUTE
      requests_per_unit: 100
      name: office
      replaces: [{name: internal}]
    descriptors:
      - key: path
        value: /login
        detailed_metric: true
        metadata: {team: [1, 2.5, x], on: true}
        rate_limit: {unit: day, requests_per_unit: 0}
      - key: path
        value: /shared*
        share_threshold: true
        quota_mode: true
        rate_limit: {unit: week, requests_per_unit: 7}
      - key: remote_address
        value_to_metric: true
        rate_limit: {unit: year, requests_per_unit: 7, algorithm: gcra, burst: 3, count_denied: true}
  - key: nothing_here
"#;

#[test]
fn a_file_and_what_it_becomes() {
    assert_snapshot!(migrate::to_yaml(&good(EXAMPLE)));
}

#[test]
fn scalars_are_taken_as_the_reference_server_takes_them() {
    let config = good(
        "domain: 1\ndescriptors:\n- {key: true, value: 007, shadow_mode: yes, rate_limit: {unit: Second, requests_per_unit: 1_000}}\n- {key: 0x10, value: , rate_limit: {unit: DAY, requests_per_unit: 010}}\n",
    );
    assert_snapshot!(migrate::to_yaml(&config));
}

#[test]
fn anchors_and_merges() {
    let config = good(
        "domain: a\ndescriptors:\n- &base {key: a, rate_limit: &limit {unit: second, requests_per_unit: 1}}\n- {<<: *base, key: b, rate_limit: {<<: *limit, unit: hour}}\n",
    );
    let names: Vec<&str> = config.domains["a"].rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn another_algorithm_for_all() {
    let options = Options { envoy_algorithm: Algorithm::SlidingCounter, ..Options::default() };
    let loaded = load_text("rules.yaml", EXAMPLE, &options);
    assert_eq!(told(&loaded), "");
    let yaml = migrate::to_yaml(&loaded.config);
    assert_eq!(yaml.matches("sliding_counter").count(), 3);
    assert_eq!(yaml.matches("gcra").count(), 1);
}

#[test]
fn zero_denies_all_and_unlimited_has_no_limit() {
    let loaded = load(
        "domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: second}}\n- {key: b, rate_limit: {unit: second, requests_per_unit: 0, name: stop}}\n- {key: c, rate_limit: {unlimited: true}}\n",
    );
    let shown: Vec<(&str, Action, bool)> = loaded.config.domains["a"]
        .rules
        .iter()
        .map(|rule| (rule.name.as_str(), rule.action, rule.limit.is_some()))
        .collect();
    assert_eq!(shown, [("a", Action::Block, false), ("stop", Action::Block, false), ("c", Action::Unlimited, false)]);
    assert!(loaded.policy.is_some());
    assert_snapshot!(told(&loaded), @"rules.yaml:3:24: warning: `rate_limit` has no `requests_per_unit`, which defaults to 0, so every request is denied; add `requests_per_unit`, or set it to 0 to deny all");
}

#[test]
fn names_of_different_ways_differ() {
    let config = good(
        r"
domain: a
descriptors:
- {key: a, value: b_c, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: a_b, value: c, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: a_b_c, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: 'a\_b', value: c, rate_limit: {unit: second, requests_per_unit: 1}}
- key: x
  descriptors: [{key: y, rate_limit: {unit: second, requests_per_unit: 1}}]
- {key: x.y, rate_limit: {unit: second, requests_per_unit: 1}}
",
    );
    let names: Vec<&str> = config.domains["a"].rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["a_b_c", r"a\_b_c", r"a\_b\_c", r"a\\\_b_c", "x.y", r"x\.y"]);
}

#[test]
fn a_key_that_stands_twice_is_counted_by_its_place() {
    let config = good(
        "domain: a\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n    descriptors:\n    - {key: a, rate_limit: {unit: second, requests_per_unit: 1}}\n",
    );
    let key = &config.domains["a"].rules[0].key;
    let expected = vec![KeyPart::EntryAt(0), KeyPart::Entry("b".to_owned()), KeyPart::EntryAt(2)];
    assert_eq!(*key, OneOrMany::Many(expected));
}
