use super::*;
use crate::{Entry, Http, KeyMade, LoadOptions, Policy, Question, load_text};

fn policy(rule: &str) -> Policy {
    let rules = format!("domains: {{api: {{rules: [{{name: r, limit: 1/s, {rule}}}]}}}}");
    let config = format!("client_address: {{ipv6_prefix: 56}}\n{rules}");
    let loaded = load_text("test.yaml", &config, &LoadOptions::default());
    loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

/// Each part as one text: hidden ones with a `#`.
fn texts(parts: Vec<ShownPart>) -> Vec<String> {
    let text = |part: ShownPart| {
        let (sign, mark) = (if part.hidden { '#' } else { '=' }, if part.escaped { " (escaped)" } else { "" });
        format!("{}{sign}{}{mark}", part.part, part.value)
    };
    parts.into_iter().map(text).collect()
}

fn shown(policy: &Policy, question: &Question<'_>) -> Vec<String> {
    let (rule, mut bytes) = (&policy.rules()[0], Vec::new());
    assert_eq!(rule.key(question, &mut bytes), KeyMade::Whole);
    texts(rule.shown_key(&bytes))
}

fn of_entries(rule: &str, entries: &[Entry<'_>]) -> Vec<String> {
    shown(&policy(rule), &Question { domain: "api", entries, http: None, cost: 1 })
}

fn of_http(rule: &str, http: &Http<'_>) -> Vec<String> {
    shown(&policy(rule), &Question { domain: "api", entries: &[], http: Some(http), cost: 1 })
}

#[test]
fn a_key_is_shown_part_by_part() {
    let http = Http {
        method: "GET",
        host: "Example.com",
        path: "/a/b",
        query: "q=1&q=2",
        headers: &[("x-user", "ann"), ("cookie", "id=secret")],
        address: "2001:db8:1:2ff::7".parse().ok(),
        ..Http::default()
    };
    let key = "key: [address, method, host, path, {header: X-User}, {cookie: id}, {query: q}]";
    let plain = ["address=2001:db8:1:200::/56", "method=GET", "host=example.com", "path=/a/b"];
    // Every node and every version shows the same hashes.
    let hashes = ["header:x-user#55dc69eaff18de17", "cookie:id#b2601560f074ec65", "query:q#a2495315ac9f432f"];
    assert_eq!(of_http(key, &http), [&plain[..], &hashes[..]].concat());
    let expression = "key: {expression: 'request.headers[\"x-user\"] + \"!\"'}";
    assert!(of_http(expression, &http)[0].starts_with("expression#"));
}

#[test]
fn keys_without_parts() {
    assert_eq!(of_entries("", &[]), [""; 0]);
    assert_eq!(of_entries("key: {entry: a}, missing: share", &[]), ["missing="]);
    assert_eq!(policy("key: {entry: a}").rules()[0].shown_key(MISSING_KEY)[0].part, "missing".into());
    let long = of_entries("key: {entry: a}", &[Entry { key: "a", value: &"x".repeat(1_001) }]);
    assert!(long[0].starts_with("digest=") && long[0].len() == 71, "{long:?}");
}

#[test]
fn hostile_values_are_shown_whole() {
    for value in ["", "<script>alert(1)</script>", "\u{1b}[31mred", "\u{202e}gpj.exe", "a\0b", "100%", "\u{fc}\u{9b}"] {
        assert_eq!(of_entries("key: {entry: a}", &[Entry { key: "a", value }]), [format!("entry:a={value}")]);
    }
    let policy = policy("key: {entry: a}");
    assert_eq!(texts(policy.rules()[0].shown_key(b"\0\x05\xff%\xc3\xbc\xc3")), ["entry:a=%FF%25\u{fc}%C3 (escaped)"]);
}

#[test]
fn what_other_parts_made_is_hidden() {
    let policy = policy("key: [{entry: a}, address]");
    for key in [&b"\0\x06secret"[..], b"\0", b"\0\x01a\0\x02ab", b"\0\x01a\0\x04\x01\x02\x03\x04more", b"\xff\xf0"] {
        let shown = policy.rules()[0].shown_key(key);
        assert!(matches!(&shown[..], [part] if part.hidden && &*part.part == "key"), "{key:?}: {shown:?}");
    }
}

#[test]
fn keys_of_envoy_files() {
    let file = "domain: api\ndescriptors:\n- key: a\n  descriptors:\n  - key: a\n    value: x*\n    share_threshold: true\n\
                \u{20}   descriptors:\n    - key: b\n      rate_limit: {unit: day, requests_per_unit: 5}\n";
    let loaded = load_text("envoy.yaml", file, &LoadOptions::default());
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let entries = [("a", "1"), ("a", "xy"), ("b", "2")].map(|(key, value)| Entry { key, value });
    let question = Question { domain: "api", entries: &entries, http: None, cost: 1 };
    assert_eq!(shown(&policy, &question), ["entry:a=1", "entry:b=2"]);
}
