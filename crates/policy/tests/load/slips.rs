//! Common slips: what is reported at once leads to a configuration that loads.

use super::{load, told};

/// A file and the one line that is reported of it, without its place.
#[track_caller]
fn check(text: &str, expected: &str) {
    let loaded = load(text);
    let all: Vec<String> = loaded.diagnostics.iter().map(|one| format!("{}; {}", one.message, one.hint)).collect();
    assert_eq!(all, [expected], "{text}");
}

/// The same of a rule `r` with a limit and these fields.
#[track_caller]
fn check_rule(fields: &str, expected: &str) {
    let limit = if fields.contains("limit") || fields.starts_with("action") { "" } else { "limit: 5/minute, " };
    check(&format!("domains: {{api: {{rules: [{{name: r, {limit}{fields}}}]}}}}"), expected);
}

#[test]
fn old_names_of_fields_lead_to_the_new_ones() {
    check_rule("for: 10m", "rule `r`: unknown field `for`; it is now called `penalty`");
    check_rule(
        "action: block, told_as: {per: minute}",
        "rule `r`: unknown field `told_as`; it is now called `report_as`",
    );
    let loaded = load(
        "domains: {api: {rules: [{name: r, limit: 5/s, penalty: 10m}, {name: b, action: block, report_as: {per: minute, name: x}}]}}",
    );
    assert_eq!(told(&loaded), "");
    let rules = loaded.policy.as_ref().unwrap().rules();
    assert_eq!(rules[0].penalty, Some(std::time::Duration::from_secs(600)));
    assert_eq!(&*rules[1].report_as.as_ref().unwrap().name, "x");
    let yaml = tidegate_policy::migrate::to_yaml(&loaded.config);
    assert!(yaml.contains("penalty: 10m") && yaml.contains("report_as:"), "{yaml}");
}

#[test]
fn durations_without_a_unit() {
    for fields in ["penalty: 10", "penalty: '10'", "penalty: \"10\""] {
        check_rule(fields, "penalty: 10 has no unit; write 10s, 10m or 10h");
    }
    check_rule("response: {retry_jitter: 5}", "retry_jitter: 5 has no unit; write 5s or 5m");
    check_rule("penalty: 0", "penalty: `0` is out of bounds; use 1ms to 365d");
    check_rule("penalty: 1.5", "penalty: cannot read `1.5`; write numbers with units, like 90s, 10m or 1h30m");
    check_rule("penalty: 10 minutes", "penalty: cannot read `10 minutes`; write 10m");
    check_rule("penalty: true", "penalty: cannot read `true`; write numbers with units, like 90s, 10m or 1h30m");
    check_rule("action: block, report_as: {per: 10}", "per: 10 has no unit; write 10s, 10m or 10h");
    let domain = "domains: {api: {response: {retry_jitter: 5}, rules: [{name: r, limit: 5/s}]}}";
    check(domain, "retry_jitter: 5 has no unit; write 5s or 5m");
}

#[test]
fn rates_without_a_period() {
    for limit in ["limit: 5", "limit: '5'", "limits: [5]"] {
        check_rule(limit, "limit: 5 has no period; write 5/second, 5/minute or 5/hour");
    }
    let of_rate = "rate: 5 has no period; write 5/second, 5/minute or 5/hour";
    check_rule("limit: {rate: 5}", &format!("{of_rate}, or add per_ns"));
    check_rule("limit: {rate: '5'}", of_rate);
    check_rule(
        "limit: {algorithm: calendar_window, rate: '5'}",
        "rate: 5 has no period; write 5/day, 5/week, 5/month or 5/year",
    );
    check_rule("limit: 20000000", "limit: 20000000 has no period; write 20000000/minute or 20000000/hour");
    let unreadable = "write units/period, like 100/minute, 5/10s or 1/day";
    check_rule("limit: 1.5", &format!("limit: cannot read `1.5`; {unreadable}"));
    check_rule("limit: {rate: 1.5}", &format!("rate: cannot read `1.5`; {unreadable}"));
    check_rule(
        "limit: 0",
        "limit: 0 is too small; write units and a period, like 100/minute, or write action: block without a limit if nothing may pass",
    );
    check_rule(
        "limit: 5/s, on_store_failure: {local: 5}",
        "local: 5 has no period; write 5/second, 5/minute or 5/hour",
    );
}

#[test]
fn numbers_and_flags_for_text_and_text_for_them() {
    check_rule("cost: 5", "rule `r`: `cost` is the number 5; put it in quotes: \"5\"");
    check_rule(
        "match: {entries: {user: 42}}",
        "rule `r`: `match.entries.user` is the number 42; put it in quotes: \"42\"",
    );
    check_rule(
        "match: {when: 5}",
        "the expression gives a whole number; write one that gives true or false, like request.method == \"POST\"",
    );
    check_rule("on_store_failure: {local: {share: 0.25}}", "share: cannot read `0.25`; write auto, or 1/2 to 1/1000");
    check_rule(
        "match: {address: 10}",
        "`10` is not a network; write an address and a prefix length, like 10.0.0.0/8 or 2001:db8::/32",
    );
    check("stores: {a: {url: 7}}", "url: unknown store type `7`; write memory:");
    for (keys, hint) in [
        ("'100'", "write it without quotes: 100"),
        ("1_000", "write 1000"),
        ("1e6", "write 1000000"),
        ("5.0", "write 5"),
        ("lots", "it must be a whole number from 1 to 4294967296"),
        ("1.5", "it must be a whole number from 1 to 4294967296"),
    ] {
        let loaded = load(&format!("stores: {{a: {{keys: {keys}}}}}"));
        assert!(told(&loaded).contains(&format!("; {hint}\n")), "{}", told(&loaded));
    }
    check(
        "client_address: {ipv6_prefix: 300}",
        "`client_address.ipv6_prefix` is the number 300; use a whole number from 1 to 128",
    );
    check(
        "client_address: {trusted_hops: 65}",
        "`client_address.trusted_hops` is the number 65; use a whole number from 0 to 64",
    );
    check_rule("quota: yes", "rule `r`: `quota` is `yes`; write `true`");
    check_rule("quota: 'false'", "rule `r`: `quota` is `false`; write `false`");
    check_rule("quota: 1", "rule `r`: `quota` is the number 1; write `true`");
    check_rule("quota: maybe", "rule `r`: `quota` is `maybe`; it must be `true` or `false`");
}

#[test]
fn parts_of_keys() {
    for key in ["user", "[address, user]"] {
        let loaded = load(&format!("domains: {{api: {{rules: [{{name: r, limit: 5/s, key: {key}}}]}}}}"));
        let hint = "; write `{entry: user}` for an entry of the descriptor, or `{header: user}` for a header\n";
        assert!(told(&loaded).ends_with(hint), "{}", told(&loaded));
    }
    check_rule("key: ip", "rule `r`: `key` is `ip`, which is not known; did you mean `address`?");
    check_rule("key: entry", "rule `r`: `key` is `entry`, which is not known; write `{entry: …}`");
    check_rule("key: {entri: user}", "rule `r`: unknown field `entri` in `key`; did you mean `entry`?");
}

#[test]
fn names_of_choices() {
    for (written, meant) in [
        ("tokenbucket", "token_bucket"),
        ("TokenBucket", "token_bucket"),
        ("token-bucket", "token_bucket"),
        ("token_buckets", "token_bucket"),
        ("leaky", "leaky_bucket"),
        ("sliding_window", "sliding_counter"),
        ("GCRA", "gcra"),
    ] {
        let expected = format!("algorithm: `{written}` is not known; did you mean `{meant}`?");
        check_rule(&format!("limit: {{algorithm: {written}, rate: 5/s}}"), &expected);
        let file = format!(
            "domain: a\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: 1, algorithm: {written}}}}}]"
        );
        check(&file, &format!("`algorithm` is `{written}`, which is not known; did you mean `{meant}`?"));
    }
    for (field, written, meant) in [
        ("action", "deny", "block"),
        ("action", "allow", "unlimited"),
        ("action", "Block", "block"),
        ("mode", "dry-run", "shadow"),
        ("mode", "disabled", "off"),
        ("missing", "block", "deny"),
        ("consistency", "Leased", "leased"),
    ] {
        let expected = format!("rule `r`: `{field}` is `{written}`, which is not known; did you mean `{meant}`?");
        check_rule(&format!("{field}: {written}"), &expected);
    }
    check_rule(
        "on_store_failure: block",
        "rule `r`: `on_store_failure` is `block`, which is not known; did you mean `deny`?",
    );
    check_rule("hashTag: x", "rule `r`: unknown field `hashTag`; did you mean `hash_tag`?");
    check_rule("match: {ip: 10.0.0.1}", "rule `r`: unknown field `ip` in `match`; did you mean `address`?");
}

#[test]
fn rules_without_a_domain_around_them() {
    check(
        "domain: api\nrules: [{name: r, limit: 5/s}]",
        "`rules` beside `domain`: only files of envoyproxy/ratelimit have `domain`, with `descriptors`; write `domains: {api: {rules: …}}`",
    );
    check(
        "domain: 5\nstores: {a: {}}\nrules: []",
        "`rules` beside `domain`: only files of envoyproxy/ratelimit have `domain`, with `descriptors`; write `domains: {5: {rules: …}}`",
    );
    check("rules: [{name: r, limit: 5/s}]", "`rules` belongs to a domain; write `domains: {NAME: {rules: …}}`");
    check(
        "stores: {a: {}}\nrules: []",
        "unknown field `rules`; write it under a domain: `domains: {NAME: {rules: …}}`",
    );
}
