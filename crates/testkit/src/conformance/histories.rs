//! Random histories of one key, beside the pure functions and the literal models.

use proptest::prelude::*;
use tidegate_core::{Algorithm, State, Time, decide as decide_purely};

use super::history::{Choices, History, Steps, changed, numbers};
use super::model::Answer;
use super::{Subject, decide, run_cases};

/// Runs random histories of all algorithms. The limit changes on the way, and the clock jumps back.
///
/// # Panics
/// If a decision differs from that of the pure functions, or that from the answer of the model.
pub fn check(subject: &mut impl Subject, cases: u32) {
    let words = prop::collection::vec(any::<u64>(), 1..60);
    let histories = (0..Algorithm::ALL.len(), any::<u64>(), any::<u64>(), words);
    run_cases(subject, cases, histories, |subject, (algorithm, limit, start, words)| {
        check_one(subject, Algorithm::ALL[algorithm], limit, start, &words);
    });
}

fn check_one(subject: &mut impl Subject, algorithm: Algorithm, limit_word: u64, start: u64, words: &[u64]) {
    subject.restart();
    let mut history = History::new(numbers(algorithm, limit_word), Steps::AlsoBack, start);
    let (mut limit, mut model) = (history.numbers.limit(), history.numbers.model());
    let mut state = State::fresh(&limit);
    for word in words {
        let mut choices = Choices(word.rotate_left(17));
        if choices.below(16) == 0 {
            history.numbers = changed(history.numbers, &mut choices);
            limit = history.numbers.limit();
            model.change(history.numbers);
        }
        let call = history.call(*word);
        let now = Time::from_nanos(call.now);
        let said = format!("{:?} at {} under {:?}", call.op, call.now, history.numbers);
        let expected = decide_purely(&limit, &mut state, now, call.op);
        let answer = model.apply(call.now, call.op);
        assert_eq!(Answer::of(call.op, &expected), answer, "the pure function: {said}");
        assert_eq!(decide(subject, "key", &limit, now, call.op), expected, "{said}");
        history.note(answer);
    }
}
