//! Keys and tags of what is planned.

use std::collections::HashSet;

use tidegate_policy::{Entry, LoadOptions, Shown, load_text};

use super::*;
use crate::doubles::unreachable;
use crate::keys::is_of_caller;

/// The hash tag of a rule for this user.
fn tag(rule: &str, user: &str) -> Vec<u8> {
    let text = format!(
        "domains: {{api: {{rules: [{{name: {rule}, key: {{entry: user}}, limit: 5/minute, hash_tag: pair}}]}}}}"
    );
    let policy = load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap();
    let active = Active::for_tests(policy, vec![unreachable()]);
    let entries = [Entry { key: "user", value: user }];
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let domain = active.policy.domain("api").unwrap();
    let plan = Plan::of(&active, domain, &request, LongKeys::Refuse).unwrap();
    plan.charge(&active, &plan.planned[0], Op::Peek).unwrap().unwrap().placement.tag.to_vec()
}

#[test]
fn no_value_ends_its_hash_tag() {
    // One of them is as long as a brace is as a number.
    let long = "x".repeat(usize::from(b'}'));
    let users = ["ann", "bob", "}ann", "}bob", "{ann}", "{}", &long];
    let tags: HashSet<Vec<u8>> = users.iter().map(|user| tag("one", user)).collect();
    assert_eq!(tags.len(), users.len());
    for tag in &tags {
        let text = std::str::from_utf8(tag).unwrap();
        assert!(text.starts_with("pair:") && !text.contains(['{', '}']), "{text}");
    }
    assert_eq!(tag("one", "ann"), tag("two", "ann"), "rules with the same tag and key share it");
    // Other versions and other nodes must agree.
    assert_eq!(tag("one", "ann"), b"pair:f9e19fb659aa0399");
}

/// The key of a limit that a request brings to a domain with these entries.
fn own_key(domain: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let policy = load_text("test.yaml", "domains: {api: {rules: []}}", &LoadOptions::default()).policy.unwrap();
    let active = Active::for_tests(policy, vec![unreachable()]);
    let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
    let shown = Shown { units: 5, period_ns: 60_000_000_000 };
    let own = OwnLimit { limit: Some("5/minute".parse().unwrap()), shown };
    let descriptors = [Descriptor { entries: &entries, ask: None, limit: Some(own) }];
    let request = Request { domain, descriptors: &descriptors, http: None, cost: 1 };
    let plan = Plan::of(&active, active.policy.domain("api").unwrap(), &request, LongKeys::Refuse).unwrap();
    plan.key(&plan.planned[0].key).unwrap().as_bytes().to_vec()
}

#[test]
fn limits_that_requests_bring_share_no_key() {
    let brought: [(&str, &[(&str, &str)]); 9] = [
        ("api", &[]),
        ("web", &[]),
        // The same letters, parted elsewhere.
        ("api", &[("ab", "c")]),
        ("api", &[("a", "bc")]),
        ("apia", &[("b", "c")]),
        ("api", &[("abc", "")]),
        ("api", &[("", "abc")]),
        ("api", &[("a", "b"), ("c", "")]),
        ("api", &[("a", "b"), ("", "c")]),
    ];
    let keys: HashSet<Vec<u8>> = brought.iter().map(|(domain, entries)| own_key(domain, entries)).collect();
    assert_eq!(keys.len(), brought.len());
    // An operator is told that no rule chooses for them what happens without the store.
    assert!(is_of_caller(&REQUEST_LIMITS));
}
