//! Equal charges that are decided in one call have the answers that they have one after the other.

use proptest::prelude::*;
use tidegate_core::{Algorithm, Charge, Key, Limit, LimitExt, Op, State, Time, decide as decide_purely};
use tidegate_testkit::conformance::history::{Choices, History, Steps, numbers};
use tidegate_testkit::conformance::run_cases;

use super::in_process::InProcess;
use super::live::Live;
use super::{Runs, bytes};
use crate::redis::link::Arg;
use crate::redis::{decode, encode};

const KEY: &str = "key";

/// Decides so many equal charges in one call, and compares each answer with that of the pure functions.
fn check_call(subject: &mut impl Runs, limit: &Limit, state: &mut State, now: Time, op: Op, calls: usize) {
    let charge = Charge::new(Key::new(KEY).unwrap(), limit, op);
    let mut args = encode::one(&charge, now);
    args[0] = Arg::from(calls as u64);
    let script = subject.scripts().one(limit);
    let reply = subject.run(script, &[KEY.as_bytes()], &bytes(&args, now));
    for place in 0..calls {
        let said = format!("call {place} of {calls}: {op:?} at {now:?} under {limit:?}: {reply:?}");
        let expected = decide_purely(limit, state, now, op);
        let decisions = decode::one(&charge, &reply, place).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(decisions.first(), Some(&expected), "{said}");
        if let Some(report) = decisions.report(0).filter(|_| limit.can_be_copied()) {
            let looks = [&report.state, &*state].map(|state| decide_purely(limit, &mut state.clone(), now, Op::Peek));
            assert_eq!(looks[0], looks[1], "the state: {said}");
        }
    }
}

fn check(subject: &mut impl Runs, cases: u32) {
    let words = prop::collection::vec(any::<u64>(), 1..40);
    let histories = (0..Algorithm::ALL.len(), any::<u64>(), any::<u64>(), words);
    run_cases(subject, cases, histories, |subject, (algorithm, limit, start, words)| {
        subject.restart();
        let mut history = History::new(numbers(Algorithm::ALL[algorithm], limit), Steps::AlsoBack, start);
        let limit = history.numbers.limit();
        let mut state = State::fresh(&limit);
        for word in words {
            let call = history.call(word);
            let calls = if matches!(call.op, Op::Take(1..)) { 1 + Choices(word).below(7) as usize } else { 1 };
            check_call(subject, &limit, &mut state, Time::from_nanos(call.now), call.op, calls);
        }
    });
}

#[test]
fn joined_calls_in_process() {
    check(&mut InProcess::new(), 2_000);
}

#[test]
fn joined_calls_on_a_redis() {
    check(&mut Live::alone(), 100);
}
