//! The traces of `spec/`: one JSON object a line, with what goes in and what must come out.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_core::{Calendar, Decision, Limit, Op, Rate, Receipt, Retry, Time};

use super::{Subject, decide};

/// The traces with the names of their files.
const TRACES: [(&str, &str); 8] = [
    ("gcra.jsonl", include_str!("../../../../spec/gcra.jsonl")),
    ("token_bucket.jsonl", include_str!("../../../../spec/token_bucket.jsonl")),
    ("leaky_bucket.jsonl", include_str!("../../../../spec/leaky_bucket.jsonl")),
    ("fixed_window.jsonl", include_str!("../../../../spec/fixed_window.jsonl")),
    ("sliding_log.jsonl", include_str!("../../../../spec/sliding_log.jsonl")),
    ("sliding_counter.jsonl", include_str!("../../../../spec/sliding_counter.jsonl")),
    ("sliced_window.jsonl", include_str!("../../../../spec/sliced_window.jsonl")),
    ("calendar_window.jsonl", include_str!("../../../../spec/calendar_window.jsonl")),
];

/// Runs all traces and compares every field of every line.
///
/// # Panics
/// If a field differs.
pub fn check(subject: &mut impl Subject) {
    TRACES.iter().for_each(|(name, trace)| check_one(name, trace, subject));
}

fn check_one(name: &str, trace: &str, subject: &mut impl Subject) {
    let (mut limit, mut lines) = (None, 0);
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
                let decision = decide(subject, key, limit.as_ref().unwrap(), now, op_of(input));
                output_of(&decision, input.get("want_receipt").is_some())
            }
        };
        assert_eq!(output, parsed["out"], "{name}:{}: {}", line + 1, parsed["in"]);
        lines += 1;
    }
    assert!((30..=80).contains(&lines), "{name} has {lines} lines");
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
        "calendar_window" => Limit::calendar_window(number("limit"), calendar_of(numbers)),
        "sliced_window" => Limit::sliced_window(number("limit"), window()),
        other => panic!("no algorithm `{other}`"),
    };
    let staggers = numbers.get("stagger").and_then(Value::as_bool).unwrap_or(false);
    if staggers { limit.unwrap().staggered() } else { limit.unwrap() }
}

fn calendar_of(numbers: &Map<String, Value>) -> Calendar {
    let text = |field: &str| match &numbers[field] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let anchor = numbers.contains_key("anchor").then(|| text("anchor"));
    Calendar::new(text("period").parse().unwrap(), &text("time_zone"), anchor.as_deref()).unwrap()
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

#[cfg(test)]
mod tests {
    use super::TRACES;

    #[test]
    fn every_trace_of_the_specification_is_named() {
        let spec = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec")).unwrap();
        let files = spec.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.filter(|name| name.ends_with(".jsonl")).collect();
        let mut named = TRACES.map(|(name, _)| name);
        files.sort();
        named.sort_unstable();
        assert_eq!(files, named);
    }
}
