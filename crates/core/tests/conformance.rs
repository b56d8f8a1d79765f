//! The conformance suite on the pure `decide` and on a memory store, on a clock that the suite sets.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;

use tidegate_core::{Charge, Decisions, FakeClock, MemoryStore, State, Time, decide};
use tidegate_testkit::conformance::{self, Subject, histories, traces};

/// The pure function with a state for each key. It knows no transactions.
#[derive(Default)]
struct Pure {
    states: HashMap<Vec<u8>, State>,
}

impl Subject for Pure {
    fn restart(&mut self) {
        self.states.clear();
    }

    fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions {
        let [charge] = charges else { panic!("{} charges", charges.len()) };
        let limit = charge.limit.for_key(charge.namespace, charge.key);
        let state = self.states.entry(charge.key.as_bytes().to_vec()).or_insert_with(|| State::fresh(&limit));
        Decisions::from_iter([(decide(&limit, state, now, charge.op), charge.veto)])
    }
}

struct Stored {
    clock: FakeClock,
    store: MemoryStore,
}

impl Stored {
    fn new() -> Stored {
        let clock = FakeClock::new();
        let store = MemoryStore::builder().keys(64).log_entries(100_000).clock(clock.clone()).build().unwrap();
        Stored { store, clock }
    }
}

impl Subject for Stored {
    fn restart(&mut self) {
        *self = Stored::new();
    }

    fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions {
        self.clock.set(now);
        match charges {
            [one] => Decisions::from_iter([(self.store.decide(one.key, one.limit, one.op), one.veto)]),
            several => self.store.charge(several).unwrap(),
        }
    }
}

#[test]
fn the_pure_function_conforms() {
    traces::check(&mut Pure::default());
    histories::check(&mut Pure::default(), 500);
}

#[test]
fn the_memory_store_conforms() {
    conformance::check(&mut Stored::new(), 500);
}
