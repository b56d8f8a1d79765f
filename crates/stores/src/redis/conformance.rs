//! One specification: the traces of `spec/` and random histories through the Lua files, in process and on a live Redis,
//! answer as the arithmetic in Rust does, in every field.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

mod in_process;
mod leases;
mod live;
mod log_costs;
#[path = "../../../core/tests/model/mod.rs"]
mod model;
mod permits;
mod transactions;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::Value;
use serde_json::{Map, Value as Json, json};
use tidegate_core::{
    Algorithm, Charge, Decision, Key, Limit, Op, Rate, Receipt, Retry, State, Time, decide as decide_in_rust,
};

use super::link::{Arg, Script};
use super::script::Scripts;
use super::{decode, encode};
use in_process::InProcess;
use live::Live;
use model::Answer;
use model::history::{Choices, History, Steps, changed, numbers};

/// The scripts with a clock that is told the time, and states that live so many milliseconds longer than they count.
fn told_the_time(spare: u64) -> Scripts {
    Scripts::on(&format!(
        "local now_s, now_n, spare = ARGV[#ARGV - 1] + 0, ARGV[#ARGV] + 0, {spare}\nlocal OTHER_LAYOUT = 'TIDEGATE other'\n",
    ))
}

/// Whatever runs a script.
trait Runs {
    fn scripts(&self) -> &'static Scripts;
    /// Forgets every key.
    fn restart(&mut self);
    fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Vec<u8>]) -> Value;
    /// When a key expires on the clock that the scripts were told, and whether the last run said so; nothing if it is not
    /// known.
    fn end_of(&self, key: &[u8]) -> Option<End>;
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no such key.
    Gone,
    At {
        nanos: u64,
        told_now: bool,
    },
}

/// A state is there until it equals never seen, and no longer than three milliseconds after, as far as a charge made it.
fn check_end(subject: &impl Runs, charge: &Charge<'_>, now: Time, decision: &Decision) {
    let Some(end) = subject.end_of(charge.key.as_bytes()) else { return };
    let counts_until = now.as_nanos() + decision.reset_after().as_nanos() as u64;
    let said = || format!("{end:?}, but it counts until {counts_until}: {charge:?} at {now:?}");
    match end {
        End::Gone => assert!(decision.reset_after().is_zero(), "{}", said()),
        End::At { nanos, told_now } => {
            assert!(nanos >= counts_until || decision.reset_after().is_zero(), "too early: {}", said());
            let has_charged = told_now && decision.receipt().is_some();
            if has_charged && matches!(charge.op, Op::Take(1..) | Op::Debit(1..)) {
                assert!(nanos <= counts_until + 3_000_000, "too late: {}", said());
            }
        }
    }
}

/// The arguments as bytes, and the instant after them.
fn bytes(args: &[Arg<'_>], now: Time) -> Vec<Vec<u8>> {
    let text = |arg: &Arg<'_>| match arg {
        Arg::Bytes(bytes) => bytes.to_vec(),
        Arg::Signed(number) => number.to_string().into_bytes(),
        Arg::Unsigned(number) => number.to_string().into_bytes(),
    };
    let (seconds, nanos) = (now.as_nanos() / 1_000_000_000, now.as_nanos() % 1_000_000_000);
    args.iter().map(text).chain([seconds.to_string().into_bytes(), nanos.to_string().into_bytes()]).collect()
}

fn decide(subject: &mut impl Runs, key: &str, limit: &Limit, now: Time, op: Op) -> Decision {
    let charge = Charge::new(Key::new(key).unwrap(), limit, op);
    let args = bytes(&encode::one(&charge), now);
    let reply = subject.run(subject.scripts().one(limit), &[key.as_bytes()], &args);
    let decisions = decode::decisions(&[charge], &reply);
    let decisions = decisions.unwrap_or_else(|error| panic!("{error}: {reply:?} to {charge:?} at {now:?}"));
    let decision = *decisions.iter().next().unwrap();
    check_end(subject, &charge, now, &decision);
    decision
}

/// Runs a trace and compares every field of every line.
fn check_trace(name: &str, trace: &str, subject: &mut impl Runs) {
    let (mut limit, mut lines) = (None, 0);
    for (line, text) in trace.lines().enumerate() {
        let parsed: Json = serde_json::from_str(text).unwrap();
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
        assert_eq!(output, parsed["out"], "{name}:{}: {text}", line + 1);
        lines += 1;
    }
    assert!(lines > 20, "{name}: only {lines} lines");
}

const TRACES: [(&str, &str); 7] = [
    ("gcra", include_str!("../../../../spec/gcra.jsonl")),
    ("token_bucket", include_str!("../../../../spec/token_bucket.jsonl")),
    ("leaky_bucket", include_str!("../../../../spec/leaky_bucket.jsonl")),
    ("fixed_window", include_str!("../../../../spec/fixed_window.jsonl")),
    ("sliding_log", include_str!("../../../../spec/sliding_log.jsonl")),
    ("sliding_counter", include_str!("../../../../spec/sliding_counter.jsonl")),
    ("sliced_window", include_str!("../../../../spec/sliced_window.jsonl")),
];

#[test]
fn traces_in_process() {
    TRACES.iter().for_each(|(name, trace)| check_trace(name, trace, &mut InProcess::new()));
}

fn check_live(live: &std::cell::RefCell<Live>, cases: u32) {
    TRACES.iter().for_each(|(name, trace)| check_trace(name, trace, &mut *live.borrow_mut()));
    transactions::check_jump(&mut *live.borrow_mut());
    permits::check(&mut *live.borrow_mut());
    permits::check_lengths(&mut *live.borrow_mut());
    let config = || ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    let of_history = |(algorithm, limit, start, words): (usize, u64, u64, Vec<u64>)| {
        check_history(&mut *live.borrow_mut(), Algorithm::ALL[algorithm], limit, start, &words);
        Ok(())
    };
    TestRunner::new(config()).run(&histories(), of_history).unwrap();
    let of_permits = |calls: Vec<_>| {
        permits::check_history(&mut *live.borrow_mut(), &calls);
        Ok(())
    };
    TestRunner::new(config()).run(&permits::calls(), of_permits).unwrap();
    let of_transactions = |(places, start, calls): (Vec<u64>, u64, Vec<Vec<u64>>)| {
        transactions::check(&mut *live.borrow_mut(), &places, start, &calls);
        Ok(())
    };
    TestRunner::new(config()).run(&transactions::transactions(), of_transactions).unwrap();
}

#[test]
fn all_on_a_redis_alone() {
    check_live(&Live::alone().into(), 300);
}

#[test]
fn all_on_a_valkey() {
    check_live(&Live::on_valkey().into(), 100);
}

#[test]
fn all_on_a_redis_behind_sentinels() {
    check_live(&Live::behind_sentinels().into(), 50);
}

#[test]
fn all_on_a_cluster() {
    check_live(&Live::as_cluster().into(), 100);
}

/// Runs a random history of one key beside the arithmetic in Rust.
fn check_history(subject: &mut impl Runs, algorithm: Algorithm, limit_word: u64, start: u64, words: &[u64]) {
    subject.restart();
    let mut history = History::new(numbers(algorithm, limit_word), Steps::AlsoBack, start);
    let mut limit = history.numbers.limit();
    let mut state = State::fresh(&limit);
    for word in words {
        let mut choices = Choices(word.rotate_left(17));
        if choices.below(16) == 0 {
            history.numbers = changed(history.numbers, &mut choices);
            limit = history.numbers.limit();
        }
        let call = history.call(*word);
        let now = Time::from_nanos(call.now);
        let expected = decide_in_rust(&limit, &mut state, now, call.op);
        let answered = decide(subject, "key", &limit, now, call.op);
        assert_eq!(answered, expected, "{:?} at {} under {:?}", call.op, call.now, history.numbers);
        history.note(Answer::of(call.op, &expected));
    }
}

fn histories() -> impl Strategy<Value = (usize, u64, u64, Vec<u64>)> {
    (0..Algorithm::ALL.len(), any::<u64>(), any::<u64>(), prop::collection::vec(any::<u64>(), 1..60))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]
    #[test]
    fn histories_in_process((algorithm, limit, start, words) in histories()) {
        check_history(&mut InProcess::new(), Algorithm::ALL[algorithm], limit, start, &words);
    }
}

fn number(input: &Map<String, Json>, field: &str) -> u64 {
    input.get(field).and_then(Json::as_u64).unwrap_or_else(|| panic!("no number `{field}` in {input:?}"))
}

fn limit_of(numbers: &Map<String, Json>) -> Limit {
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
    let staggers = numbers.get("stagger").and_then(Json::as_bool).unwrap_or(false);
    if staggers { limit.unwrap().staggered() } else { limit.unwrap() }
}

fn op_of(input: &Map<String, Json>) -> Op {
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

fn output_of(decision: &Decision, wants_receipt: bool) -> Json {
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
