//! Stores that several processes share: fields that need one, and passwords in files.

use super::Both;
use crate::bounds::{LEASED_SPAN_MIN, LEASED_UNITS_MIN};
use crate::compile::child;
use crate::diagnostic::Diagnostics;
use crate::policy::{Policy, StorePlace, StoreSpec};
use crate::schema::{Action, Config, Consistency};
use crate::stores::{Outside, StoreFacts, can_be_leased};

/// The kind of a store, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Memory,
    /// One server, alone or behind Sentinels.
    Shared,
    Cluster,
    /// Shared in a way that is not known here.
    SomehowShared,
    Unknown,
}

/// Returns the kinds of all stores, in the order of the policy.
pub(super) fn kinds(policy: &Policy, outside: &Outside) -> Vec<Kind> {
    let kind = |store: &StoreSpec| match &store.place {
        Some(StorePlace::At(_)) => match store.facts {
            None => Kind::SomehowShared,
            Some(StoreFacts { has_slots: true, .. }) => Kind::Cluster,
            Some(_) => Kind::Shared,
        },
        Some(StorePlace::Memory) => Kind::Memory,
        None => match outside.default_is_elsewhere {
            Some(true) => Kind::SomehowShared,
            Some(false) => Kind::Memory,
            None => Kind::Unknown,
        },
    };
    policy.stores().iter().map(kind).collect()
}

pub(super) fn of_rule(both: &Both<'_>, stores: &[Kind], diagnostics: &mut Diagnostics<'_>) {
    let (written, rule) = (both.written, both.rule);
    if written.action != Action::Limit {
        return;
    }
    let kinds: Vec<Kind> = rule.limits.iter().filter_map(|limit| stores.get(limit.store).copied()).collect();
    let is_eased = written.consistency != Consistency::Exact;
    if kinds.iter().all(|kind| *kind == Kind::Memory) {
        for (field, is_set, message) in [
            ("on_store_failure", written.on_store_failure.is_some(), "a store in memory does not fail"),
            ("consistency", is_eased, "a store in memory is not shared"),
            ("hash_tag", written.hash_tag.is_some(), "a store in memory has no slots"),
        ] {
            if is_set {
                let message = format!("{field}: no effect, because {message}");
                diagnostics.warning(
                    &both.at(field),
                    message,
                    "remove it, or use a store with the URL of a Redis server",
                );
            }
        }
        return;
    }
    if written.hash_tag.is_some() && kinds.iter().all(|kind| matches!(kind, Kind::Memory | Kind::Shared)) {
        let message = "hash_tag: no effect, because only a Redis Cluster has slots";
        let hint = "remove it, or use a redis+cluster:// URL";
        diagnostics.warning(&both.at("hash_tag"), message, hint);
    }
    let counts_later = rule.count.as_ref().is_some_and(|count| count.mentions_response());
    if written.consistency == Consistency::Leased && counts_later {
        let message =
            "consistency: leased has no effect, because count uses the response and nothing is taken before it";
        diagnostics.warning(&both.at("consistency"), message, "remove it, or use async");
    }
    if written.consistency == Consistency::Leased && !rule.limits.iter().any(|limit| can_be_leased(&limit.limit)) {
        let message = format!(
            "consistency: leased has no effect on limits below {LEASED_UNITS_MIN} units and buckets that refill within {} ms",
            LEASED_SPAN_MIN.as_millis()
        );
        diagnostics.warning(&both.at("consistency"), message, "remove it, or use async");
    }
    if is_eased && rule.penalty.is_some() && kinds.first() != Some(&Kind::Memory) {
        let message = format!(
            "consistency: {} saves no calls, because each request asks the store for the penalty of its key",
            written.consistency
        );
        diagnostics.warning(&both.at("consistency"), message, "remove consistency or penalty");
    }
}

pub(super) fn of_stores(config: &Config, policy: &Policy, diagnostics: &mut Diagnostics<'_>) {
    for (name, store) in &config.stores {
        let is_variable = store.url.as_deref().is_some_and(|url| url.starts_with('$'));
        let facts = policy.stores().iter().find(|spec| *spec.name == **name).and_then(|spec| spec.facts);
        if !is_variable && facts.is_some_and(|facts| facts.has_password) {
            let message = "url: the password is readable for everyone who can read this file";
            let hint = "put the URL in an environment variable, and write url: $REDIS_URL";
            diagnostics.warning(&child(&child("/stores", name), "url"), message, hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::lint::tests::{of_rule, warnings_with};
    use crate::stores::{Outside, StoreFacts};

    /// Stands for those who know URLs.
    fn facts(url: &str) -> StoreFacts {
        StoreFacts { has_slots: url.contains("+cluster"), has_password: url.contains(":p@") }
    }

    /// The warnings of one rule whose store has this URL; whether the default store is shared is not known.
    fn with_store(url: &str, mut rule: Value) -> Vec<String> {
        rule["name"] = "r".into();
        rule["store"] = "s".into();
        rule["limit"] = "9/s".into();
        let outside = Outside { check_store: Some(|url| Ok(facts(url))), ..Outside::default() };
        let config = json!({"stores": {"s": {"url": url}}, "domains": {"d": {"rules": [rule]}}});
        let told = warnings_with(config, &outside).into_iter();
        told.map(|warning| warning.replacen("/domains/d/rules/0", "", 1)).collect()
    }

    #[test]
    fn fields_that_need_a_shared_store() {
        let rule = json!({"on_store_failure": "deny", "consistency": "leased", "hash_tag": "x"});
        let of_memory = [
            "/consistency: consistency: no effect, because a store in memory is not shared",
            "/hash_tag: hash_tag: no effect, because a store in memory has no slots",
            "/on_store_failure: on_store_failure: no effect, because a store in memory does not fail",
        ];
        let mut with_limit = rule.clone();
        with_limit["limit"] = "9/s".into();
        assert_eq!(of_rule(with_limit.clone()), of_memory);
        assert_eq!(with_store("memory:", rule.clone()), of_memory);
        let of_one = "/hash_tag: hash_tag: no effect, because only a Redis Cluster has slots";
        assert_eq!(with_store("redis://h", rule.clone()), [of_one]);
        assert_eq!(with_store("redis+cluster://h", rule.clone()), [""; 0]);
        assert_eq!(with_store("$REDIS_URL", rule), [""; 0]);
        with_limit["name"] = "r".into();
        let config = json!({"domains": {"d": {"rules": [with_limit]}}});
        assert_eq!(warnings_with(config, &Outside::default()), [""; 0], "a flag of serve may name a store");
    }

    #[test]
    fn what_spares_nothing() {
        let count = json!({"count": "response.status == 401", "consistency": "leased"});
        assert!(with_store("redis://h", count)[0].contains("leased has no effect, because count uses the response"));
        let count = json!({"count": "response.status == 401", "consistency": "async"});
        assert_eq!(with_store("redis://h", count), [""; 0]);
        for consistency in ["leased", "async"] {
            let rule = json!({"penalty": "1m", "consistency": consistency});
            let told = with_store("redis://h", rule);
            assert!(told[0].contains(&format!("consistency: {consistency} saves no calls")), "{told:?}");
        }
        assert_eq!(with_store("redis://h", json!({"penalty": "1m"})), [""; 0]);
    }

    #[test]
    fn what_counts_nothing_has_no_store() {
        assert_eq!(of_rule(json!({"action": "block", "consistency": "async", "hash_tag": "x"})).len(), 2);
    }

    #[test]
    fn passwords_are_noticed() {
        let warning = "/stores/s/url: url: the password is readable for everyone who can read this file";
        assert!(with_store("redis://:p@h", json!({}))[0].starts_with(warning));
        for url in ["redis://h", "memory:", "$REDIS_URL"] {
            assert_eq!(with_store(url, json!({})), [""; 0], "{url}");
        }
    }
}
