//! The traces of `spec/`, through the pure `decide` and through a memory store on a clock of the trace's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_core::{
    Decision, FakeClock, Key, Limit, MemoryStore, Namespace, Op, Rate, Receipt, Retry, State, Time, decide,
};

/// Whatever decides: the pure function or a store.
trait Subject {
    /// Forgets every key.
    fn restart(&mut self);
    fn decide(&mut self, key: &str, limit: &Limit, now: Time, op: Op) -> Decision;
}

#[derive(Default)]
struct Pure {
    states: HashMap<String, State>,
}

impl Subject for Pure {
    fn restart(&mut self) {
        self.states.clear();
    }

    fn decide(&mut self, key: &str, limit: &Limit, now: Time, op: Op) -> Decision {
        let limit = limit.for_key(Namespace::root(), Key::new(key).unwrap());
        let state = self.states.entry(key.to_owned()).or_insert_with(|| State::fresh(&limit));
        decide(&limit, state, now, op)
    }
}

struct Stored {
    clock: FakeClock,
    store: MemoryStore,
}

impl Stored {
    fn new() -> Stored {
        let clock = FakeClock::new();
        Stored { store: MemoryStore::builder().keys(64).clock(clock.clone()).build().unwrap(), clock }
    }
}

impl Subject for Stored {
    fn restart(&mut self) {
        *self = Stored::new();
    }

    fn decide(&mut self, key: &str, limit: &Limit, now: Time, op: Op) -> Decision {
        self.clock.set(now);
        self.store.decide(Key::new(key).unwrap(), limit, op)
    }
}

fn number(input: &Map<String, Value>, field: &str) -> u64 {
    input.get(field).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number `{field}` in {input:?}"))
}

fn limit_of(numbers: &Map<String, Value>) -> Limit {
    let number = |field| number(numbers, field);
    let rate = || Rate::from_nanos(number("rate"), number("per_ns")).unwrap();
    let window = || Duration::from_nanos(number("window_ns"));
    let limit = match numbers["algorithm"].as_str().unwrap() {
        "gcra" => Limit::gcra(rate(), number("burst")),
        "token_bucket" => Limit::token_bucket(rate(), number("capacity")),
        "leaky_bucket" => Limit::leaky_bucket(rate(), number("capacity")),
        "fixed_window" => Limit::fixed_window(number("limit"), window()),
        "sliding_log" => Limit::sliding_log(number("limit"), window()),
        "sliding_counter" => Limit::sliding_counter(number("limit"), window()),
        "sliced_window" if numbers.contains_key("slices") => {
            Limit::sliced_window_of(number("limit"), window(), number("slices"))
        }
        "sliced_window" => Limit::sliced_window(number("limit"), window()),
        other => panic!("no algorithm `{other}`"),
    };
    let staggers = numbers.get("stagger").and_then(Value::as_bool).unwrap_or(false);
    if staggers { limit.unwrap().staggered() } else { limit.unwrap() }
}

fn op_of(input: &Map<String, Value>) -> Op {
    let cost = || input.get("cost").map_or(1, |cost| cost.as_u64().unwrap());
    match input["op"].as_str().unwrap() {
        "charge" => Op::Take(cost()),
        "debit" => Op::Debit(cost()),
        "ask" => Op::Ask(cost()),
        "refund" => Op::Refund(cost(), input.get("receipt").map(|bits| Receipt::from_bits(bits.as_u64().unwrap()))),
        "peek" => Op::Peek,
        "reset" => Op::Reset,
        other => panic!("no operation `{other}`"),
    }
}

fn output_of(decision: &Decision, wants_receipt: bool) -> Value {
    let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap();
    let mut output = json!({
        "allowed": decision.is_allowed(),
        "limit": decision.limit(),
        "remaining": decision.remaining(),
        "retry_after_ns": decision.retry_after().map(nanos),
        "reset_after_ns": nanos(decision.reset_after()),
    });
    if decision.retry() == Some(Retry::Never) {
        output["never"] = true.into();
    }
    if wants_receipt {
        output["receipt"] = decision.receipt().unwrap().to_bits().into();
    }
    output
}

/// Runs a trace and compares every field of every line.
fn check(name: &str, trace: &str, subject: &mut impl Subject) {
    let mut limit = None;
    let mut lines = 0;
    for (line, text) in trace.lines().enumerate() {
        let parsed: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}:{}: {error}", line + 1));
        let input = parsed["in"].as_object().unwrap();
        let output = match input["op"].as_str().unwrap() {
            op @ ("new" | "limit") => {
                limit = Some(limit_of(input["limit"].as_object().unwrap()));
                if op == "new" {
                    subject.restart();
                }
                json!({ "ok": true })
            }
            _ => {
                let key = input.get("key").map_or("key", |key| key.as_str().unwrap());
                let now = Time::from_nanos(number(input, "at_ns"));
                let decision = subject.decide(key, limit.as_ref().unwrap(), now, op_of(input));
                output_of(&decision, input.get("want_receipt").is_some())
            }
        };
        assert_eq!(output, parsed["out"], "{name}:{}: {}", line + 1, parsed["in"]);
        lines += 1;
    }
    assert!((30..=80).contains(&lines), "{name} has {lines} lines");
}

macro_rules! traces {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let name = concat!(stringify!($name), ".jsonl");
                let trace = include_str!(concat!("../../../spec/", stringify!($name), ".jsonl"));
                check(name, trace, &mut Pure::default());
                check(name, trace, &mut Stored::new());
            }
        )*
    };
}

traces! { fixed_window sliding_log sliding_counter sliced_window token_bucket leaky_bucket gcra }
