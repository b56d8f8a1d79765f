//! Log lines about configurations that were loaded: how much they hold, their hash, and what they change.

use tidegate_policy::json::shortened;
use tidegate_policy::{Changes, Policy, Rule};

use crate::bounds::RULES_NAMED_MAX;

/// Changes as fields of a log line. A field is `None` where nothing changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeFields {
    added: Option<String>,
    removed: Option<String>,
    changed: Option<String>,
    settings: Option<&'static str>,
}

impl From<Changes<'_>> for ChangeFields {
    fn from(changes: Changes<'_>) -> ChangeFields {
        ChangeFields {
            added: names(&changes.added),
            removed: names(&changes.removed),
            changed: names(&changes.changed),
            settings: match (changes.stores, changes.client_address) {
                (true, true) => Some("stores, client_address"),
                (true, false) => Some("stores"),
                (false, true) => Some("client_address"),
                (false, false) => None,
            },
        }
    }
}

/// Returns the first names of a list of rules, and the number of the others.
fn names(rules: &[&Rule]) -> Option<String> {
    let name = |rule: &&Rule| format!("{}/{}", shortened(&rule.domain), shortened(&rule.name));
    let named: Vec<String> = rules.iter().take(RULES_NAMED_MAX).map(name).collect();
    match rules.len() - named.len() {
        _ if rules.is_empty() => None,
        0 => Some(named.join(", ")),
        more => Some(format!("{} and {more} more", named.join(", "))),
    }
}

/// Logs the configuration that a server starts with.
pub(crate) fn log_start(policy: &Policy, files: usize) {
    let (hash, domains, rules, stores) = counts(policy);
    if files == 0 {
        tracing::info!(hash, "no configuration file: limits come with each request");
        return;
    }
    tracing::info!(hash, files, domains, rules, stores, "configuration loaded");
}

/// Logs a configuration that replaced another one.
pub(crate) fn log_reload(reason: &str, policy: &Policy, files: usize, changes: &ChangeFields) {
    let (hash, domains, rules, stores) = counts(policy);
    if *changes == ChangeFields::default() {
        tracing::info!(reason, hash, files, domains, rules, stores, "configuration reloaded, no changes");
        return;
    }
    let ChangeFields { added, removed, changed, settings } = changes;
    tracing::info!(
        reason,
        hash,
        files,
        domains,
        rules,
        stores,
        rules_added = added.as_deref(),
        rules_removed = removed.as_deref(),
        rules_changed = changed.as_deref(),
        settings_changed = *settings,
        "configuration reloaded"
    );
}

fn counts(policy: &Policy) -> (&str, usize, usize, usize) {
    (policy.hash(), policy.domains().len(), policy.rules().len(), policy.stores().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_policy::{LoadOptions, load_text};

    fn policy(rules: &[(&str, u64)]) -> Policy {
        let rules: Vec<String> =
            rules.iter().map(|(name, units)| format!("{{name: {name}, limit: {units}/s}}")).collect();
        let text = format!("domains: {{api: {{rules: [{}]}}}}", rules.join(", "));
        load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap()
    }

    #[test]
    fn a_few_rules_are_named() {
        let before = policy(&[("a", 1), ("b", 1), ("c", 1)]);
        let after =
            policy(&[("b", 1), ("c", 2), ("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1), ("n6", 1), ("n7", 1)]);
        let fields = ChangeFields::from(after.changes_since(&before));
        let named = |text: &str| Some(text.to_owned());
        assert_eq!(
            fields,
            ChangeFields {
                added: named("api/n1, api/n2, api/n3, api/n4, api/n5 and 2 more"),
                removed: named("api/a"),
                changed: named("api/c"),
                settings: None,
            }
        );
        assert_eq!(ChangeFields::from(before.changes_since(&before)), ChangeFields::default());
    }
}
