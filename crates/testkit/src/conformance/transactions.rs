//! Random transactions: several charges at once, on several keys under several algorithms, beside the memory store.

use proptest::prelude::*;
use tidegate_core::{Algorithm, Charge, Decision, Decisions, FakeClock, Limit, MemoryStore, Op, Receipt, Time};

use super::history::{Choices, History, Steps, numbers};
use super::model::{Answer, Numbers};
use super::{Subject, charge, run_cases};

/// A key with its limit, and the history that makes its next charge.
struct Place {
    name: String,
    limit: Limit,
    history: History,
}

fn places(words: &[u64], start: u64) -> Vec<Place> {
    let place = |(number, word): (usize, &u64)| {
        let mut choices = Choices(*word);
        let algorithm = Algorithm::ALL[choices.below(Algorithm::ALL.len() as u64) as usize];
        let numbers = numbers(algorithm, choices.any_below(u64::MAX));
        let history = History::new(numbers, Steps::Forward, start);
        Place { name: format!("key{number}"), limit: numbers.limit(), history }
    };
    words.iter().enumerate().map(place).collect()
}

/// The memory store that decides what is expected, and its clock.
fn reference() -> (FakeClock, MemoryStore) {
    let clock = FakeClock::new();
    let memory = MemoryStore::builder().keys(64).log_entries(100_000).clock(clock.clone()).build().unwrap();
    (clock, memory)
}

/// Runs random transactions of up to five charges on up to four keys.
///
/// # Panics
/// If a decision differs from that of a memory store, or the whole is not allowed or denied as there.
pub fn check(subject: &mut impl Subject, cases: u32) {
    let calls = prop::collection::vec(prop::collection::vec(any::<u64>(), 1..6), 1..25);
    let transactions = (prop::collection::vec(any::<u64>(), 1..5), any::<u64>(), calls);
    run_cases(subject, cases, transactions, |subject, (places, start, calls)| {
        check_one(subject, &places, start, &calls);
    });
}

fn check_one(subject: &mut impl Subject, of_places: &[u64], start: u64, calls: &[Vec<u64>]) {
    subject.restart();
    let (clock, memory) = reference();
    let mut places = places(of_places, start);
    for words in calls {
        let mut made: Vec<(usize, Op, bool)> = Vec::new();
        let mut now = 0;
        for word in words {
            let mut choices = Choices(word.rotate_left(23));
            let number = choices.below(places.len() as u64) as usize;
            let call = places[number].history.call(*word);
            now = call.now;
            made.push((number, call.op, choices.below(3) > 0));
        }
        // All keys are on one clock.
        places.iter_mut().for_each(|place| place.history.now = now);
        let now = Time::from_nanos(now);
        clock.set(now);
        let charges: Vec<Charge<'_>> = made
            .iter()
            .map(|(number, op, veto)| charge(&places[*number].name, &places[*number].limit, *op, *veto))
            .collect();
        let expected = check_call(subject, &memory, now, &charges);
        for ((number, op, _), decision) in made.iter().zip(expected) {
            let answer = Answer::of(*op, &decision);
            let receipt = decision.receipt().map(Receipt::to_bits).and(answer.receipt);
            places[*number].history.note(Answer { receipt, ..answer });
        }
    }
}

/// Puts charges to the subject and to the memory store, whose clock shows `now`.
fn check_call(subject: &mut impl Subject, memory: &MemoryStore, now: Time, charges: &[Charge<'_>]) -> Vec<Decision> {
    let expected = memory.charge(charges).unwrap();
    let answered = subject.charge(now, charges);
    let all = |decisions: &Decisions| decisions.iter().copied().collect::<Vec<Decision>>();
    assert_eq!(all(&answered), all(&expected), "{charges:#?} at {now:?}");
    assert_eq!(answered.is_allowed(), expected.is_allowed(), "{charges:#?} at {now:?}");
    all(&expected)
}

/// Checks that a clock that jumped back is repaired for every key of a transaction, whether it passes or not.
///
/// # Panics
/// If a decision differs from that of a memory store.
pub fn check_jumps(subject: &mut impl Subject) {
    const WINDOW: u64 = 60_000_000_000;
    let numbers = |algorithm| match algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => Numbers::bucket(algorithm, 5, WINDOW, 5),
        _ => Numbers { slices: 6, ..Numbers::window(algorithm, 5, WINDOW) },
    };
    for (first, second) in Algorithm::ALL.into_iter().flat_map(|first| Algorithm::ALL.map(|second| (first, second))) {
        subject.restart();
        let (clock, memory) = reference();
        let (first, second) = (numbers(first).limit(), numbers(second).limit());
        let charges =
            |op| [("one", &first), ("two", &second), ("one", &first)].map(|(key, limit)| charge(key, limit, op, true));
        let start = 1_700_000_000_000_000_000;
        let jumps = [0, 0, 3 * WINDOW, 3 * WINDOW, 3 * WINDOW - 7, 2 * WINDOW, WINDOW, 0];
        let ops = [Op::Take(2), Op::Debit(9), Op::Take(2), Op::Peek, Op::Refund(3, None), Op::Take(1), Op::Take(1)];
        for (jump, op) in jumps.into_iter().zip(ops) {
            let now = Time::from_nanos(start - jump);
            clock.set(now);
            check_call(subject, &memory, now, &charges(op));
        }
    }
}
