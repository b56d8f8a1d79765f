//! Fields without effect.

use std::collections::HashSet;

use super::Both;
use crate::compile::child;
use crate::diagnostic::Diagnostics;
use crate::json::quote;
use crate::policy::Policy;
use crate::schema::{Action, AddressHeader, Config, Consistency, KeyPart};

pub(super) fn of_rule(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    let (written, rule) = (both.written, both.rule);
    let counts = written.action == Action::Limit;
    let kind = match written.action {
        Action::Block => "action: block",
        Action::Unlimited => "action: unlimited",
        Action::Limit => "",
    };
    let only_counting = [
        ("key", !written.key.as_slice().is_empty()),
        ("missing", written.missing.is_some()),
        ("show", written.show),
        ("cost", written.cost.is_some()),
        ("count", written.count.is_some()),
        ("count_denied", written.count_denied),
        ("penalty", written.penalty.is_some()),
        ("quota", written.quota && written.action == Action::Unlimited),
        ("response/headers", written.response.headers.is_some()),
        ("response/retry_jitter", written.response.retry_jitter.is_some()),
        ("response/problem", written.response.problem.is_some() && written.action == Action::Unlimited),
        ("store", written.store.is_some()),
        ("on_store_failure", written.on_store_failure.is_some()),
        ("consistency", written.consistency != Consistency::Exact),
        ("hash_tag", written.hash_tag.is_some()),
    ];
    for (field, _) in only_counting.into_iter().filter(|(_, there)| *there && !counts) {
        let name = field.trim_start_matches("response/");
        let message = format!("{name}: no effect with {kind}, which does not count");
        diagnostics.warning(&both.at(field), message, "remove it");
    }
    if written.missing.is_some() && counts && written.key.as_slice().is_empty() {
        let message = "missing: no effect, because the rule has no key";
        diagnostics.warning(&both.at("missing"), message, "remove it, or add a key");
    }
    if written.show && counts && !rule.hides_any() {
        let message = "show: no effect, because no part of the key is hidden";
        let hint = "remove it; only headers, cookies, query parameters and expressions are hidden";
        diagnostics.warning(&both.at("show"), message, hint);
    }
    if written.count_denied && rule.count.as_ref().is_some_and(|count| count.mentions_response()) {
        let message = "count_denied: no effect, because count waits for the response and denied requests have none";
        diagnostics.warning(&both.at("count_denied"), message, "remove it");
    }
    let spoken =
        [("retry_jitter", written.response.retry_jitter.is_some()), ("headers", written.response.headers.is_some())];
    for (field, _) in spoken.into_iter().filter(|(_, there)| *there && counts && rule.response.hidden) {
        let message = format!("{field}: no effect with hidden: true");
        diagnostics.warning(&both.at(&format!("response/{field}")), message, format!("remove {field} or hidden"));
    }
}

pub(super) fn of_stores(policy: &Policy, diagnostics: &mut Diagnostics<'_>) {
    for (place, store) in policy.stores().iter().enumerate().skip(1) {
        let pointer = child("/stores", &store.name);
        let mut limits =
            policy.rules().iter().flat_map(|rule| &rule.limits).filter(|limit| limit.store == place).peekable();
        if limits.peek().is_none() {
            let message = format!("store `{}`: not used by any rule", quote(&store.name));
            diagnostics.warning(&pointer, message, "remove it, or add store to a rule");
        } else if store.log_entries.is_some() && limits.all(|limit| limit.limit.log_entries_max() == 0) {
            let message = "log_entries: no effect, because no limit in this store keeps a log";
            let hint = "remove it: only sliding_log and sliced_window keep one";
            diagnostics.warning(&child(&pointer, "log_entries"), message, hint);
        }
    }
}

pub(super) fn of_client_address(config: &Config, diagnostics: &mut Diagnostics<'_>) {
    let written = &config.client_address;
    let pointer = "/client_address";
    if written.header != AddressHeader::default() && written.trusted_hops == 0 && written.trusted_networks.is_empty() {
        let message = "header: no effect without trusted_hops or trusted_networks";
        diagnostics.warning(&child(pointer, "header"), message, "add one of them, or remove header");
    }
    let mut keys = config.domains.values().flat_map(|domain| &domain.rules).flat_map(|rule| rule.key.as_slice());
    let lengths = [("ipv4_prefix", written.ipv4_prefix), ("ipv6_prefix", written.ipv6_prefix)];
    if lengths.iter().any(|(_, length)| length.is_some()) && !keys.any(|part| *part == KeyPart::Address) {
        for (field, _) in lengths.into_iter().filter(|(_, length)| length.is_some()) {
            let message = format!("{field}: no effect, because no rule has key: address");
            diagnostics.warning(&child(pointer, field), message, "add key: address to a rule, or remove it");
        }
    }
}

pub(super) fn of_replaces(rules: &[Both<'_>], diagnostics: &mut Diagnostics<'_>) {
    let limits = rules.iter().flat_map(|both| &both.rule.limits).map(|limit| &*limit.name);
    let others = rules.iter().filter(|both| both.rule.limits.is_empty()).map(|both| &*both.rule.name);
    let names: HashSet<&str> = limits.chain(others).collect();
    for both in rules {
        for (place, name) in both.written.replaces.iter().enumerate().filter(|(_, name)| !names.contains(name.as_str()))
        {
            let message = format!("replaces: no limit of this domain is named `{}`", quote(name));
            let hint = "use the name of a limit, or the name of its rule if the limit has none";
            diagnostics.warning(&both.at(&format!("replaces/{place}")), message, hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lint::tests::{of_rule, warnings};
    use serde_json::json;

    #[test]
    fn of_actions() {
        let all =
            of_rule(json!({"action": "block", "key": "address", "penalty": "1m", "cost": "2", "count_denied": true}));
        let blocks = "no effect with action: block, which does not count";
        assert_eq!(all, ["cost", "count_denied", "key", "penalty"].map(|field| format!("/{field}: {field}: {blocks}")));
        assert!(
            of_rule(json!({"action": "unlimited", "penalty": "1m"}))[0].contains("no effect with action: unlimited")
        );
        let response = json!({"headers": "legacy", "retry_jitter": "1s", "problem": false});
        let all = of_rule(json!({"action": "block", "response": response}));
        assert_eq!(all, ["headers", "retry_jitter"].map(|field| format!("/response/{field}: {field}: {blocks}")));
        assert_eq!(of_rule(json!({"action": "unlimited", "response": response})).len(), 3);
        assert_eq!(of_rule(json!({"limit": "1/s", "response": response})), [""; 0]);
    }

    #[test]
    fn of_a_missing_part() {
        let blocks = of_rule(json!({"action": "block", "key": "address", "missing": "deny"}));
        assert!(blocks[1].starts_with("/missing: missing: no effect with action: block"), "{blocks:?}");
        let no_key = of_rule(json!({"limit": "1/s", "missing": "share"}));
        assert!(no_key[0].starts_with("/missing: missing: no effect, because the rule has no key"), "{no_key:?}");
        assert_eq!(of_rule(json!({"limit": "1/s", "key": "address", "missing": "share"})), [""; 0]);
    }

    #[test]
    fn of_keys_that_are_shown() {
        assert_eq!(
            of_rule(json!({"limit": "1/s", "key": {"cookie": "id"}, "missing": "share", "show": true})),
            [""; 0]
        );
        for key in [json!([]), json!("address"), json!([{"entry": "user"}, "path"])] {
            let warned = of_rule(json!({"limit": "1/s", "key": key, "show": true}));
            assert!(
                warned[0].starts_with("/show: show: no effect, because no part of the key is hidden"),
                "{warned:?}"
            );
        }
        assert!(of_rule(json!({"action": "block", "show": true}))[0].contains("show: no effect with action: block"));
    }

    #[test]
    fn of_what_waits_or_is_hidden() {
        let rule = json!({"limit": "1/s", "count": "response.status == 401", "count_denied": true});
        assert!(of_rule(rule)[0].contains("count_denied: no effect, because count waits"));
        assert_eq!(of_rule(json!({"limit": "1/s", "count": "cost > 1", "count_denied": true})), [""; 0]);
        let rule = json!({"limit": "1/s", "response": {"hidden": true, "retry_jitter": "1s", "headers": "legacy"}});
        assert_eq!(of_rule(rule).len(), 2);
    }

    #[test]
    fn of_stores() {
        let rules = json!([{"name": "a", "limit": "1/s", "store": "used"}]);
        let stores = json!({"default": {"log_entries": 7}, "idle": {}, "used": {"log_entries": 7}});
        let all = warnings(json!({"stores": stores, "domains": {"d": {"rules": rules}}}));
        assert_eq!(all.len(), 2);
        assert!(all[0].starts_with("/stores/idle: store `idle`: not used by any rule"));
        assert!(all[1].starts_with(
            "/stores/used/log_entries: log_entries: no effect, because no limit in this store keeps a log"
        ));
    }

    #[test]
    fn of_the_client_address() {
        let all = warnings(json!({"client_address": {"header": "forwarded", "ipv6_prefix": 56}}));
        assert!(all[0].contains("header: no effect without trusted_hops"));
        assert!(all[1].contains("ipv6_prefix: no effect, because no rule has key: address"));
    }

    #[test]
    fn of_replaces() {
        assert!(
            of_rule(json!({"limit": "1/s", "replaces": ["other"]}))[0]
                .contains("no limit of this domain is named `other`")
        );
    }
}
