//! What becomes of stores when the policy changes.

use tidegate_core::FakeClock;
use tidegate_engine::{Engine, Options};
use tidegate_policy::{Descriptor, Entry, LoadOptions, Policy, Request, load_text};

use crate::bench::at_once;

/// A rule that counts in the store of this name, and one in the default store.
fn policy(store: &str) -> Policy {
    let text = format!(
        "stores: {{{store}: {{keys: 1000}}}}
domains:
  api:
    rules:
    - {{name: apart, match: {{entries: {{apart: '*'}}}}, store: {store}, limit: 10/hour}}
    - {{name: plain, match: {{entries: {{plain: '*'}}}}, limit: 10/hour}}
"
    );
    load_text("test.yaml", &text, &LoadOptions::default()).policy.unwrap()
}

fn remaining(engine: &Engine, entry: &str) -> u64 {
    let entries = [Entry { key: entry, value: "x" }];
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let outcome = at_once(engine.check(&request)).unwrap();
    outcome.judgements().next().unwrap().answer.decision().unwrap().remaining()
}

#[test]
fn counts_stay_as_long_as_the_name_of_their_store() {
    let options = Options { clock: FakeClock::new().into(), keys: Some(1000), ..Options::default() };
    let engine = Engine::with_policy(options, policy("sessions")).unwrap();
    assert_eq!((remaining(&engine, "apart"), remaining(&engine, "plain")), (9, 9));
    engine.install(policy("sessions")).unwrap();
    assert_eq!((remaining(&engine, "apart"), remaining(&engine, "plain")), (8, 8), "the same name");
    engine.install(policy("visits")).unwrap();
    assert_eq!((remaining(&engine, "apart"), remaining(&engine, "plain")), (9, 7), "another name is another store");
    engine.install(policy("sessions")).unwrap();
    assert_eq!((remaining(&engine, "apart"), remaining(&engine, "plain")), (9, 6), "the old one was forgotten");
}
