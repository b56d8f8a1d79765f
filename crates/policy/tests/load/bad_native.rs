//! What is said of mistakes in Tidegate's own files.

use insta::assert_snapshot;
use tidegate_policy::{CheckStore, LoadOptions, Outside, StoreFacts, load_text};
use tidegate_stores::redis::Target;

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
        "domain: {api: {rules: [{name: login, limit: 5/minute}]}}",
        "domain: {api: {}}\nstores: {a: {}}",
    ]));
}

#[test]
fn blank_fields_and_wrong_types_at_the_top() {
    assert_snapshot!(conversation(&[
        "domains:",
        "domains: []",
        "domains: {api: }",
        "domains: {api: []}",
        "domains: {api: [{name: login, limit: 5/minute}]}",
        "domains: {api: {rules: }}",
        "domains: {api: {rules: {}}}",
        "domains: {api: {rules: [5, x, []]}}",
        "domains: {api: {rulez: []}}",
        "domains: {api: {response: {headers: drafts, hidden: 1, retry_jitter: 5}}}",
        "stores: 5",
        "stores: {a: 5, b: {keys: lots, url: 7}}",
        "stores: {a: {keys: -1}, b: {keys: 99999999999999999999}, c: {keys: 1.5}}",
        "client_address: {trusted_hops: 4294967296, ipv6_prefix: 300, header: x_forwarded_for, trusted_networks: 10.0.0.0/8}",
        "client_address: [10.0.0.0/8]",
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
penalty: 10
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
        "report_as: minute",
        "report_as: {per: minute}",
        "action: block\nreport_as: {per: fortnight, name: \"\"}",
        "a_name_that_is_very_long_and_goes_on_and_on_and_on_until_nobody_reads_it_any_more: 1",
        "\"a\\nb\": 1",
    ]
    .iter()
    .map(|fields| in_rule(fields))
    .collect();
    assert_snapshot!(conversation(&texts.iter().map(String::as_str).collect::<Vec<_>>()));
}

#[test]
fn shares_that_are_none() {
    let texts: Vec<String> = ["2/4", "1/1", "1/1001", "half", "25%"]
        .iter()
        .map(|share| format!("{{share: {share}}}"))
        .chain(["{share: auto, rate: 5/s}", "{share: 0.25}", "{share: }", "{shares: auto}", "auto"].map(str::to_owned))
        .map(|local| in_rule(&format!("on_store_failure: {{local: {local}}}")))
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
        "domains: {api: {rules: [{name: u, action: blok, report_as: {per: minute}}, {name: v, report_as: {name: x}}]}}",
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
fn numbers_that_are_no_limit_lead_to_what_was_meant() {
    let texts = [
        "limit: 0/minute",
        "limit: {rate: 0, per_ns: 1000}",
        "limit: {algorithm: fixed_window, limit: 0, window_ns: 1000}",
        "limit: {rate: 5/minute, burst: 0}",
        "limit: 5/minute, on_store_failure: {local: 0/minute}",
        "limit: {algorithm: sliding_log, rate: 20000/minute}",
        "limit: {algorithm: sliding_log, limit: 20000, window_ns: 60000000000}",
    ]
    .map(|fields| format!("domains: {{api: {{rules: [{{name: u, {fields}}}]}}}}"));
    assert_snapshot!(conversation(&texts.each_ref().map(String::as_str)));
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
      penalty: 5 bananas
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
    assert_snapshot!(loaded.diagnostics.last().unwrap(), @"rules.yaml: error: 29800 more problems; fix those above first");
}

/// What is said of a file where stores may be elsewhere, by somebody whose environment has two variables.
fn with_stores(text: &str) -> String {
    let outside = Outside {
        check_store: Some(|url| {
            url.parse::<Target>()
                .map(|target| StoreFacts { has_slots: target.has_slots(), has_password: target.has_password() })
                .map_err(|error| (error.problem(), error.fix().to_owned()))
        }),
        variable: Some(|name| match name {
            "GOOD" => Some("redis://:secret@localhost".to_owned()),
            "HERE" => Some("memory:".to_owned()),
            _ => None,
        }),
        default_is_elsewhere: Some(false),
    };
    let loaded = load_text("rules.yaml", text, &LoadOptions { outside, ..LoadOptions::default() });
    format!("{text}\n{}\n", super::told(&loaded))
}

#[test]
fn stores() {
    let of_stores = [
        "stores: {a: {url: redis:/localhost}}",
        "stores: {a: {url: localhost:6379}}",
        "stores: {a: {url: 'mysql://:secret@localhost'}}",
        "stores: {a: {url: 'redis://:sec/ret@localhost'}}",
        "stores: {a: {url: 'redis://localhost?time=5'}}",
        "stores: {a: {url: 'redis+cluster://a,b/3'}}",
        "stores: {a: {url: 'redis+sentinel://a,b'}}",
        "stores: {a: {url: 'redis://localhost', keys: 5, log_entries: 5}}",
        "stores: {a: {url: $NOWHERE}}",
        "stores: {a: {url: '${GOOD}/3'}}",
        "stores: {a: {url: $}}",
        "stores: {a: {url: $HERE}}\ndomains: {d: {rules: [{name: a, store: a, limit: 5/minute, on_store_failure: deny}]}}",
    ];
    let of_rules = [
        "store: nowhere, limit: 5/minute",
        "limits: [{name: x, rate: 5/minute, store: nowhere}]",
        "limit: {algorithm: sliding_log, rate: 5/minute}, consistency: leased",
        "limit: {algorithm: sliced_window, rate: 5/minute}, consistency: async",
        "limit: {algorithm: sliding_counter, rate: 5/minute}, consistency: leased",
        "limit: 5/minute, consistency: eventual",
        "limit: 5/minute, hash_tag: ''",
        "limit: 5/minute, hash_tag: 'a}b'",
        // Nothing is wrong with these, but for what is probably not meant.
        "store: shared, limit: 50/minute, consistency: leased, on_store_failure: deny",
        "store: shared, limit: 5/minute, consistency: leased",
        "store: shared, limit: {rate: 100/second, burst: 20}, consistency: leased",
        "store: shared, limit: {algorithm: sliding_counter, rate: 5/minute}, consistency: async",
        "store: shared, limit: 50/minute, consistency: leased, penalty: 10m",
        "store: shared, limit: 50/minute, consistency: leased, count: 'response.status == 401'",
        "store: shared, limit: 5/minute, hash_tag: x",
        "limit: 5/minute, consistency: leased, hash_tag: x, on_store_failure: allow",
    ]
    .map(|fields| {
        let stores = "stores: {shared: {url: '${GOOD}'}}";
        let other = "{name: other, store: shared, match: {entries: {other: '*'}}, limit: 9/minute}";
        format!("{stores}\ndomains: {{d: {{rules: [{other}, {{name: a, {fields}}}]}}}}")
    });
    let password = "stores: {a: {url: 'redis://:secret@localhost'}}\n\
                    domains: {d: {rules: [{name: a, store: a, limit: 5/minute}]}}";
    let all = of_stores.into_iter().chain(of_rules.iter().map(String::as_str)).chain([password]);
    let told: String = all.map(with_stores).collect();
    assert_snapshot!(told);
}

#[test]
fn who_only_checks_needs_no_variables() {
    let check: CheckStore = |_| Err(("it was asked".to_owned(), String::new()));
    let outside = Outside { check_store: Some(check), ..Outside::default() };
    let text = "stores: {a: {url: $NOWHERE}}\ndomains: {d: {rules: [{name: a, store: a, limit: 5/minute}]}}";
    let loaded = load_text("rules.yaml", text, &LoadOptions { outside, ..LoadOptions::default() });
    assert!(loaded.policy.is_some() && loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
}
