//! Stores in memory that are too small for the logs of their limits.

use tidegate_core::bounds::{BLOCK_ENTRIES, KEYS_DEFAULT, LOG_ENTRIES_MAX};

use super::Both;
use super::sharing::Kind;
use crate::bounds::KEYS_A_FULL_LOG;
use crate::diagnostic::Diagnostics;
use crate::json::quote;
use crate::policy::{Policy, StoreSpec};

pub(super) fn of_rule(both: &Both<'_>, policy: &Policy, stores: &[Kind], diagnostics: &mut Diagnostics<'_>) {
    for (place, limit) in both.rule.limits.iter().enumerate() {
        let (Some(kind), Some(store)) = (stores.get(limit.store), policy.stores().get(limit.store)) else { continue };
        // Debits can make a log twice as long as the limit, but are rare.
        let needed = limit.limit.log_entries_max().min(limit.limit.units());
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        let (keys, entries) = room(store);
        let expected = if both.rule.key.is_empty() { 1 } else { keys.div_ceil(KEYS_A_FULL_LOG) };
        let Some(full_logs) = entries.checked_div(needed).filter(|full_logs| *full_logs < expected) else { continue };
        // The place of the default store may be set by a flag alone.
        let unless = match kind {
            Kind::Memory => "",
            Kind::Unknown => ", unless --store is a shared store",
            _ => continue,
        };
        let message = format!(
            "limit `{}`: store `{}` has room for only {full_logs} keys at the limit ({needed} log entries each) and denies \
             others early{unless}",
            quote(&limit.name),
            quote(&store.name),
        );
        let hint = format!(
            "set log_entries of the store to {needed} for each concurrently active key, or use sliced_window or gcra"
        );
        diagnostics.warning(&both.at_limit(place), message, hint);
    }
}

/// Returns the keys and the log entries that a store has room for.
fn room(store: &StoreSpec) -> (usize, usize) {
    let keys = store.keys.unwrap_or(KEYS_DEFAULT);
    (keys, store.log_entries.unwrap_or_else(|| keys.saturating_mul(BLOCK_ENTRIES).min(LOG_ENTRIES_MAX)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::lint::tests::{warnings, warnings_with};
    use crate::stores::Outside;

    /// A rule with these limits on each user, and what is said of the default store.
    fn config(store: Value, limit: Value) -> Value {
        let rule = json!({"name": "r", "key": {"entry": "user"}, "limit": limit});
        json!({"stores": {"default": store}, "domains": {"d": {"rules": [rule]}}})
    }

    fn sliding(rate: &str) -> Value {
        json!({"algorithm": "sliding_log", "rate": rate})
    }

    #[test]
    fn too_few_entries() {
        let all = warnings(config(json!({}), sliding("500/day")));
        let told = "/domains/d/rules/0/limit: limit `r`: store `default` has room for only 1400 keys at the limit (500 log \
                    entries each) and denies others early";
        assert_eq!(all, [told]);
        assert_eq!(warnings(config(json!({"keys": 10_000}), sliding("500/day"))).len(), 1);
        assert_eq!(warnings(config(json!({"log_entries": 4_999_999}), sliding("500/day"))).len(), 1);
        let unknown = warnings_with(config(json!({}), sliding("500/day")), &Outside::default());
        assert_eq!(unknown, [format!("{told}, unless --store is a shared store")]);
    }

    #[test]
    fn enough_entries() {
        for (store, limit) in [
            (json!({}), sliding("70/minute")),
            (json!({"log_entries": 5_000_000}), sliding("500/day")),
            (json!({"keys": 10_000, "log_entries": 500_000}), sliding("500/day")),
            (json!({}), json!({"algorithm": "sliced_window", "rate": "1000000/day"})),
            (json!({}), json!("1000000/day")),
        ] {
            assert_eq!(warnings(config(store.clone(), limit.clone())), [""; 0], "{store} {limit}");
        }
        let elsewhere = Outside { default_is_elsewhere: Some(true), ..Outside::default() };
        assert_eq!(warnings_with(config(json!({}), sliding("500/day")), &elsewhere), [""; 0]);
    }

    #[test]
    fn a_rule_without_a_key_has_one_log() {
        let rule = json!({"name": "r", "limit": sliding("5000/day")});
        assert_eq!(warnings(json!({"domains": {"d": {"rules": [rule]}}})), [""; 0]);
        let small = json!({"default": {"keys": 700}});
        assert_eq!(warnings(json!({"stores": small, "domains": {"d": {"rules": [rule]}}})).len(), 1);
    }
}
