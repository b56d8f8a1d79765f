//! An engine to ask, and short ways to ask it.

use futures_util::FutureExt;
use tidegate_core::{FakeClock, Time};
use tidegate_engine::{Engine, Options, Outcome};
use tidegate_policy::{Ask, Descriptor, Entry, LoadOptions, Request, load_text};

/// The answer of something that must not wait: with its state in memory, nothing does.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) clock: FakeClock,
}

impl Bench {
    pub(crate) fn new(rules: &str) -> Bench {
        Bench::with(rules, false)
    }

    /// One that denies nothing at all.
    pub(crate) fn in_shadow(rules: &str) -> Bench {
        Bench::with(rules, true)
    }

    fn with(rules: &str, shadow: bool) -> Bench {
        let clock = FakeClock::at(Time::from_nanos(1_000_000_000_000));
        let engine = Engine::new(Options { clock: clock.clone().into(), shadow, ..Options::default() }).unwrap();
        let bench = Bench { engine, clock };
        bench.install(rules);
        bench
    }

    pub(crate) fn install(&self, rules: &str) {
        let text = format!("domains:\n  api:\n    rules:\n{}", indent(rules));
        let loaded = load_text("test.yaml", &text, &LoadOptions::default());
        let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
        self.engine.install(policy).unwrap();
    }

    pub(crate) fn ask(&self, descriptors: &[Descriptor<'_>], cost: u64) -> Outcome {
        let request = Request { domain: "api", descriptors, http: None, cost };
        at_once(self.engine.check(&request)).unwrap()
    }

    /// Asks for one unit with these entries.
    pub(crate) fn one(&self, entries: &[(&str, &str)]) -> Outcome {
        let entries = self::entries(entries);
        self.ask(&[Descriptor { entries: &entries, ..Descriptor::default() }], 1)
    }

    pub(crate) fn remaining(&self, entries: &[(&str, &str)]) -> Vec<u64> {
        let entries = self::entries(entries);
        let outcome = self.ask(&[Descriptor { entries: &entries, ask: Some(Ask::Take(0)), limit: None }], 0);
        remaining(&outcome)
    }
}

fn indent(rules: &str) -> String {
    rules.lines().map(|line| format!("    {line}\n")).collect()
}

pub(crate) fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    pairs.iter().map(|(key, value)| Entry { key, value }).collect()
}

pub(crate) fn remaining(outcome: &Outcome) -> Vec<u64> {
    outcome.judgements().filter_map(|judgement| judgement.answer.decision().map(|one| one.remaining())).collect()
}

pub(crate) const PER_USER: &str = "
- name: user
  match: {entries: {user: '*'}}
  key: {entry: user}
  limit: 3/minute
";
