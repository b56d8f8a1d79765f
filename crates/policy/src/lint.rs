//! Warnings about probable mistakes, for configurations without errors.
//!
//! `effect.rs`: fields without effect. `reach.rs`: rules that never apply. `bite.rs`: limits that never deny, or always.
//! `identity.rs`: limits by address where accounts are known. `missing.rs`: keys that clients can leave out. `sharing.rs`:
//! shared stores. `room.rs`: stores that are too small for their limits.

mod bite;
mod effect;
mod identity;
mod missing;
mod reach;
mod room;
mod sharing;

use crate::compile::child;
use crate::diagnostic::Diagnostics;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::schema::{self, Config};
use crate::stores::Outside;

/// A rule, as written and as compiled.
#[derive(Clone, Copy)]
struct Both<'a> {
    written: &'a schema::Rule,
    rule: &'a Rule,
    pointer: &'a str,
}

impl Both<'_> {
    fn at(&self, field: &str) -> String {
        format!("{}/{field}", self.pointer)
    }

    /// Returns the pointer of one of its limits.
    fn at_limit(&self, place: usize) -> String {
        match self.written.limits.is_empty() {
            true => self.at("limit"),
            false => self.at(&format!("limits/{place}")),
        }
    }
}

pub(crate) fn lint(config: &Config, policy: &Policy, outside: &Outside, diagnostics: &mut Diagnostics<'_>) {
    effect::of_stores(policy, diagnostics);
    sharing::of_stores(config, policy, diagnostics);
    let stores = sharing::kinds(policy, outside);
    effect::of_client_address(config, diagnostics);
    let mut compiled = policy.rules().iter();
    for (name, domain) in &config.domains {
        let pointer = child("/domains", name);
        let pointers: Vec<String> = (0..domain.rules.len()).map(|place| format!("{pointer}/rules/{place}")).collect();
        let rules: Vec<Both<'_>> = (domain.rules.iter().zip(compiled.by_ref()).zip(&pointers))
            .map(|((written, rule), pointer)| Both { written, rule, pointer })
            .collect();
        for rule in &rules {
            effect::of_rule(rule, diagnostics);
            sharing::of_rule(rule, &stores, diagnostics);
            reach::of_rule(rule, diagnostics);
            bite::of_rule(rule, diagnostics);
            room::of_rule(rule, policy, &stores, diagnostics);
            missing::of_rule(rule, diagnostics);
        }
        effect::of_replaces(&rules, diagnostics);
        identity::of_rules(&rules, diagnostics);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Diagnostics, Location, Outside, Severity, compile};

    /// The warnings of a configuration, as pointer and message.
    pub(super) fn warnings(config: serde_json::Value) -> Vec<String> {
        warnings_with(config, &Outside { default_is_elsewhere: Some(false), ..Outside::default() })
    }

    /// The same where more is known of stores.
    pub(super) fn warnings_with(config: serde_json::Value, outside: &Outside) -> Vec<String> {
        let locate = |pointer: &str| Location { file: pointer.into(), line: 0, column: 0 };
        let mut diagnostics = Diagnostics::new(&locate);
        compile(&serde_json::from_value(config).unwrap(), outside, &mut diagnostics);
        let all = diagnostics.finish();
        assert!(all.iter().all(|one| one.severity == Severity::Warning && !one.hint.is_empty()), "{all:?}");
        all.into_iter().map(|one| format!("{}: {}", one.location, one.message)).collect()
    }

    /// The warnings of the only rule.
    pub(super) fn of_rule(mut rule: serde_json::Value) -> Vec<String> {
        rule["name"] = "r".into();
        let warnings = warnings(serde_json::json!({"domains": {"d": {"rules": [rule]}}}));
        warnings.into_iter().map(|warning| warning.replacen("/domains/d/rules/0", "", 1)).collect()
    }

    #[test]
    fn ordinary_rules_are_fine() {
        let rules = serde_json::json!([
            {"name": "users", "key": {"entry": "user"}, "match": {"entries": {"user": "*"}}, "limit": "100/minute"},
            {"name": "login", "key": "address", "match": {"path": "/login", "method": "POST"},
             "limits": [{"name": "burst", "rate": "5/minute"}, {"name": "daily", "rate": "50/day"}],
             "count": "response.status == 401", "penalty": "10m", "response": {"retry_jitter": "5s"}},
            {"name": "bots", "match": {"header": {"user-agent": "*bot*"}}, "action": "block"},
            {"name": "inside", "match": {"address": "10.0.0.0/8"}, "action": "unlimited", "replaces": ["users"]},
            {"name": "costly", "key": "address", "match": {"path": "/search"}, "limit": "100/minute", "cost": "5"},
        ]);
        assert_eq!(warnings(serde_json::json!({"domains": {"d": {"rules": rules}}})), [""; 0]);
    }
}
