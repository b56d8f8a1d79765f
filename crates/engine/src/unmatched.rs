//! Requests that no rule of their domain matched, as with a misspelt entry. They pass.

use std::sync::Arc;

use tidegate_policy::{DomainId, Policy};

use crate::engine::Engine;
use crate::stats::{Counter, Sharded};

/// What was counted of each domain of a policy, by its number. There are as many as the configuration names.
#[derive(Debug, Default)]
pub(crate) struct Unmatched(Vec<(Box<str>, Arc<Sharded>)>);

impl Unmatched {
    /// That of another policy: domains that stay keep their counts.
    pub(crate) fn of(policy: &Policy, before: &Unmatched) -> Unmatched {
        let mut known: Vec<&(Box<str>, Arc<Sharded>)> = before.0.iter().collect();
        known.sort_by(|left, right| left.0.cmp(&right.0));
        let find =
            |name: &str| known.binary_search_by(|one| (*one.0).cmp(name)).ok().and_then(|place| known.get(place));
        let counter = |name: &str| find(name).map_or_else(|| Arc::new(Sharded::new()), |one| Arc::clone(&one.1));
        Unmatched(policy.domains().into_iter().map(|name| (name.into(), counter(name))).collect())
    }

    /// Counts a request to this domain.
    pub(crate) fn count(&self, domain: DomainId) {
        if let Some((_, counter)) = self.0.get(domain.index()) {
            counter.add(Counter::Unmatched, 1);
        }
    }
}

impl Engine {
    /// Returns, for each domain of the configuration in force, the number of requests that none of its rules matched.
    #[must_use]
    pub fn unmatched(&self) -> Vec<(Box<str>, u64)> {
        let active = self.active.load();
        let told = |(name, counter): &(Box<str>, Arc<Sharded>)| (name.clone(), counter.sum(Counter::Unmatched));
        let mut all: Vec<(Box<str>, u64)> = active.unmatched.0.iter().map(told).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use tidegate_policy::{Descriptor, Entry, LoadOptions, Mode, Request, load_text};

    use super::*;
    use crate::{Options, at_once};

    const RULES: &str = "domains:
  api:
    rules:
      - {name: per-user, key: {entry: user}, limit: 5/minute}
      - {name: by-tool, match: {entries: {tool: '*'}}, limit: 5/minute}
  web: {rules: [{name: all, limit: 5/minute}]}
";

    fn engine() -> Engine {
        let engine = Engine::new(Options::default()).unwrap();
        engine.install(load_text("test.yaml", RULES, &LoadOptions::default()).policy.unwrap()).unwrap();
        engine
    }

    fn ask(engine: &Engine, domain: &str, entries: &[&str]) {
        let entries: Vec<Entry<'_>> = entries.iter().map(|key| Entry { key, value: "42" }).collect();
        let descriptors: Vec<Descriptor<'_>> =
            entries.chunks(1).map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
        at_once(engine.check(&Request { domain, descriptors: &descriptors, http: None, cost: 1 })).unwrap();
    }

    fn told(engine: &Engine) -> String {
        let one = |(name, count): &(Box<str>, u64)| format!("{name} {count}");
        engine.unmatched().iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn requests_that_no_rule_met_are_counted_by_domain() {
        let engine = engine();
        assert_eq!(told(&engine), "api 0, web 0");
        ask(&engine, "api", &["user"]);
        ask(&engine, "api", &["tool"]);
        ask(&engine, "web", &["usr"]);
        ask(&engine, "nowhere", &["usr"]);
        assert_eq!(told(&engine), "api 0, web 0", "each was met, or has no such domain");
        ask(&engine, "api", &["usr"]);
        ask(&engine, "api", &["usr", "toll"]);
        ask(&engine, "api", &["usr", "tool"]);
        assert_eq!(told(&engine), "api 2, web 0", "one descriptor that is met is enough");
    }

    #[test]
    fn a_rule_that_is_off_is_met_all_the_same() {
        let engine = engine();
        engine.set_mode("api", "by-tool", Some(Mode::Off)).unwrap();
        ask(&engine, "api", &["tool"]);
        assert_eq!(told(&engine), "api 0, web 0");
    }

    #[test]
    fn counts_survive_a_reload_as_long_as_their_domain_stays() {
        let engine = engine();
        let install = |text: &str| {
            engine.install(load_text("test.yaml", text, &LoadOptions::default()).policy.unwrap()).unwrap();
        };
        ask(&engine, "api", &["usr"]);
        install("domains: {a: {rules: []}, api: {rules: [{name: x, key: {entry: user}, limit: 1/s}]}}");
        ask(&engine, "api", &["usr"]);
        assert_eq!(told(&engine), "a 0, api 2");
        install("domains: {}");
        assert_eq!(told(&engine), "");
        install(RULES);
        assert_eq!(told(&engine), "api 0, web 0");
    }
}
