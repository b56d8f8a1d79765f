//! Random transactions: several charges at once, on several keys under several algorithms, beside the memory store.

use proptest::prelude::*;
use tidegate_core::{Algorithm, Charge, Decision, Decisions, FakeClock, Key, Limit, MemoryStore, Op, Receipt, Time};

use super::in_process::InProcess;
use super::model::history::{Choices, History, Steps, numbers};
use super::model::{Answer, Numbers};
use super::{Runs, bytes, check_end};
use crate::redis::{decode, encode};

/// A key with its limit, and what makes the next charge to it interesting.
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

pub(super) fn check(subject: &mut impl Runs, of_places: &[u64], start: u64, calls: &[Vec<u64>]) {
    subject.restart();
    let clock = FakeClock::new();
    let memory = MemoryStore::builder().keys(64).log_entries(100_000).clock(clock.clone()).build().unwrap();
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
        let charge = |(number, op, veto): &(usize, Op, bool)| {
            let Place { name, limit, .. } = &places[*number];
            Charge { veto: *veto, ..Charge::new(Key::new(name).unwrap(), limit, *op) }
        };
        let expected = check_call(subject, &memory, now, &made.iter().map(charge).collect::<Vec<Charge<'_>>>());
        for ((number, op, _), decision) in made.iter().zip(expected) {
            let answer = Answer::of(*op, &decision);
            let receipt = decision.receipt().map(Receipt::to_bits).and(answer.receipt);
            places[*number].history.note(Answer { receipt, ..answer });
        }
    }
}

/// Puts charges to the scripts and to the memory store, whose clock shows `now`.
fn check_call(subject: &mut impl Runs, memory: &MemoryStore, now: Time, charges: &[Charge<'_>]) -> Vec<Decision> {
    let expected = memory.charge(charges).unwrap();
    let keys: Vec<&[u8]> = charges.iter().map(|charge| charge.key.as_bytes()).collect();
    let reply = match charges {
        [one] => subject.run(subject.scripts().one(one.limit), &keys, &bytes(&encode::one(one), now)),
        several => subject.run(&subject.scripts().several, &keys, &bytes(&encode::several(several), now)),
    };
    let answered = decode::decisions(charges, &reply).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    let all = |decisions: &Decisions| decisions.iter().copied().collect::<Vec<Decision>>();
    assert_eq!(all(&answered), all(&expected), "{charges:#?} at {now:?}: {reply:?}");
    assert_eq!(answered.is_allowed(), expected.is_allowed());
    for (number, (charge, decision)) in charges.iter().zip(expected.iter()).enumerate() {
        // The last of several answers about one state is about what is left of it.
        if charges.iter().skip(number + 1).all(|later| later.key != charge.key) {
            check_end(subject, charge, now, decision);
        }
    }
    all(&expected)
}

/// A clock that jumped back is repaired for every key of a transaction, whether it passes or not.
pub(super) fn check_jump(subject: &mut impl Runs) {
    const WINDOW: u64 = 60_000_000_000;
    let numbers = |algorithm| match algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => Numbers::bucket(algorithm, 5, WINDOW, 5),
        _ => Numbers { slices: 6, ..Numbers::window(algorithm, 5, WINDOW) },
    };
    for (first, second) in Algorithm::ALL.into_iter().flat_map(|first| Algorithm::ALL.map(|second| (first, second))) {
        subject.restart();
        let clock = FakeClock::new();
        let memory = MemoryStore::builder().keys(64).clock(clock.clone()).build().unwrap();
        let (first, second) = (numbers(first).limit(), numbers(second).limit());
        let charges = |op| {
            let charge = |key, limit| Charge::new(Key::new(key).unwrap(), limit, op);
            [charge("one", &first), charge("two", &second), charge("one", &first)]
        };
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

#[test]
fn jumps_in_process() {
    check_jump(&mut InProcess::new());
}

pub(super) fn transactions() -> impl Strategy<Value = (Vec<u64>, u64, Vec<Vec<u64>>)> {
    let calls = prop::collection::vec(prop::collection::vec(any::<u64>(), 1..6), 1..25);
    (prop::collection::vec(any::<u64>(), 1..5), any::<u64>(), calls)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_500) })]
    #[test]
    fn transactions_in_process((places, start, calls) in transactions()) {
        check(&mut InProcess::new(), &places, start, &calls);
    }
}
