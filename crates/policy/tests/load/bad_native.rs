//! What is said of mistakes in Tidegate's own files.

use insta::assert_snapshot;

use super::conversation;

#[test]
fn not_yaml() {
    assert_snapshot!(conversation(&[
        "domains:\n\tapi: {}",
        "domains: [1\nstores: {}",
        "domains: {api: {rules: [}}}",
        "domains: 'api",
        "domains:\n  api: {}\n stores: {}",
        "domains: *nothing",
        "domains: &a {b: *a}",
        "domains: !secret {}",
        "? [a]\n: b",
        "domains: {}\n---\ndomains: {}",
        "domains: {<<: 5}",
        "domains: \"\\q\"",
        "@",
    ]));
}

#[test]
fn not_a_configuration() {
    assert_snapshot!(conversation(&[
        "",
        "# nothing but a comment",
        "---",
        "- a",
        "hello",
        "{}",
        "domans: {}",
        "listeners: []",
        "domains: {}\ndomain: x",
    ]));
}

#[test]
fn blank_fields_and_wrong_types_at_the_top() {
    assert_snapshot!(conversation(&[
        "domains:",
        "domains: []",
        "domains: {api: }",
        "domains: {api: []}",
        "domains: {api: {rules: }}",
        "domains: {api: {rules: {}}}",
        "domains: {api: {rules: [5, x, []]}}",
        "domains: {api: {rulez: []}}",
        "domains: {api: {response: {headers: drafts, hidden: 1, retry_jitter: 5}}}",
        "stores: 5",
        "stores: {a: 5, b: {keys: lots, url: 7}}",
        "stores: {a: {keys: -1}, b: {keys: 99999999999999999999}, c: {keys: 1.5}}",
        "client_address: {trusted_hops: 4294967296, ipv6_prefix: 300, header: x_forwarded_for, trusted_networks: 10.0.0.0/8}",
        "domains: {}\nfoo: 1",
        "domains: {}\n1: 1",
    ]));
}

fn in_rule(fields: &str) -> String {
    let lines: Vec<String> = fields.lines().map(|line| format!("      {line}")).collect();
    format!("domains:\n  api:\n    rules:\n    - name: login\n      limit: 5/minute\n{}\n", lines.join("\n"))
}

#[test]
fn every_mistake_of_a_rule_is_told() {
    assert_snapshot!(conversation(&[&in_rule(
        "limt: 5/s
limits: [{rat: 5/s, burst: x}, 7, {algorithm: gcra, per_ns: -5}]
match: {header: [a], entries: {user: 5}, path: {is: x}, query: {a: {is: b, except: c, excpt: []}}, adress: 10.0.0.1}
key: [addres, {entr: x}, {header: y, cookie: z}, entry, 5, {}]
mode: shadw
action: deny
quota: yes
cost: 5
for: 10
on_store_failure: {lokal: 5/s}
response: {problem: maybe}
replaces: other
metrics: {by_entries: [1]}
name: twice"
    )]));
}

#[test]
fn fields_of_rules() {
    let texts: Vec<String> = [
        "key:",
        "key: {entry: [a]}",
        "on_store_failure: local",
        "on_store_failure: {local: 5}",
        "on_store_failure: {local: {rate: 5/s, brust: 5}}",
        "on_store_failure: 5",
        "match: {entries: [user, {a: b}]}",
        "match: {entries: user}",
        "match: {address: {a: b}}",
        "match: {method: [GET, 5]}",
        "match: entries",
        "metadata:",
        "told_as: minute",
        "told_as: {per: minute}",
        "action: block\ntold_as: {per: fortnight, name: \"\"}",
        "a_name_that_is_very_long_and_goes_on_and_on_and_on_until_nobody_reads_it_any_more: 1",
        "\"a\\nb\": 1",
    ]
    .iter()
    .map(|fields| in_rule(fields))
    .collect();
    assert_snapshot!(conversation(&texts.iter().map(String::as_str).collect::<Vec<_>>()));
}

#[test]
fn a_mistake_in_one_rule_hides_none_in_another_nor_the_good_ones() {
    let text = "domains: {api: {rules: [{name: a, limit: 5/s}, {name: 5}, {name: b, limit: 5/s}, {limit: }]}}";
    let loaded = super::load(text);
    let names: Vec<&str> = loaded.config.domains["api"].rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(loaded.policy.is_none());
    assert_snapshot!(super::told(&loaded));
}

#[test]
fn a_wrong_field_hides_no_wrong_value() {
    let texts = [
        "domains: {api: {rules: [{name: u, limit: 5/foo, nope: 1}]}}",
        "domains: {api: {rules: [{name: u, limit: 5/s}, {name: u, limit: 5/s, nope: 1}]}}",
        // What is left out is not missing as well, and what depends on it is not wrong.
        "domains: {api: {rules: [{name: u, limt: 5/s}, {name: v, limit: 5}, {limit: 5/s}, {name: 5, limit: 5/s}]}}",
        "domains: {api: {rules: [{name: u, action: blok, told_as: {per: minute}}, {name: v, told_as: {name: x}}]}}",
        "domains: {api: {rules: [{name: u, limit: {algorithm: 5, rate: 5/foo, capacity: 5}}]}}",
        "domains: {api: {rules: [{name: u, limit: {rate: 5, per_ns: x, burst: 0}}]}}",
        "domains: {api: {rules: [{name: u, limit: {rate: 5/foo, algorithm: gcraa, nope: 1}}]}}",
        "domains: {api: {rules: [{name: u, limit: {rate: 5/foo, burst: 0, capacity: 1, slices: 2}}]}}",
        "domains: {api: {rules: [{name: u, limits: [{rate: 5/s}, 7, {name: d, rate: 5/foo}]}]}}",
        "domains: {api: {rules: [{name: u, limit: 5/s, match: {entries: [{a: 5}, {b: c, d: e}]}}]}}",
        "domains: {api: {rules: [{name: u, limit: 5/s, key: [addres, {header: \"x y\"}]}]}}",
        "domains: {api: {rules: [{name: u, limit: 5/s, store: a}]}}\nstores: {a: {keys: lots, log_entries: 0}}",
        "client_address: {trusted_networks: [10.0.0.0/99], header: none, ipv4_prefix: 33}",
        "domains: {api: {response: {headers: x, retry_jitter: soon}, rules: [5, {name: u, limit: 5/foo}]}}",
    ];
    assert_snapshot!(conversation(&texts));
}

#[test]
fn every_mistake_of_a_file_is_told_at_once() {
    let text = "domains:
  api:
    rules:
    - name: one
      limit: 5/foo
      nope: 1
    - name: two
      limit: 5/minute
      for: 5 bananas
      mode: shadw
    - name: three
      limit: 5/minute
      cost: \"1 +\"
      quota: maybe
    - name: four
      limit: {rate: 5/minute, algorithm: gcraa, burts: 5}
    - name: five
      limit: 5/minute
      store: nowhere
      count_denied: 7
    - name: six
      limit: 5/minute
      match: {address: 10.0.0.0/99, adress: 10.0.0.1}
    - name: seven
      limit: 5/minute
      match: {when: \"1 +\", path: 5}
    - name: seven
      limits: 5/minute
  web:
    rules:
    - name: one
      limit: 0/minute
";
    let loaded = super::load(text);
    assert_eq!(loaded.rules, 9);
    assert_snapshot!(super::told(&loaded));
}

#[test]
fn not_more_is_told_than_anybody_reads() {
    let rules = "{nam: 1}, ".repeat(10_000);
    let loaded = super::load(&format!("domains: {{api: {{rules: [{rules}]}}}}"));
    assert_eq!(loaded.diagnostics.len(), 201);
    assert_snapshot!(loaded.diagnostics.last().unwrap(), @"rules.yaml: error: 29800 more problems; see to those above first");
}
