use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Algorithm, Charge, Decisions, DecisionsExt, Key, Limit, LimitNumbers, Namespace, Op, Purpose, Rate, Report, State,
    Time, decide,
};

use super::{LAST_STATES_MAX, LastStates, SHARD_KEYS_MAX};
use crate::{Certainty, StoreError};

const START: u64 = 1_700_000_000_000_000_000;
/// The clock of the store is so far ahead.
const AHEAD: Duration = Duration::from_secs(3_600);

fn at(millis: u64) -> Time {
    Time::from_nanos(START + millis * 1_000_000)
}

/// A store with one key.
struct Peer {
    limit: Limit,
    state: State,
}

impl Peer {
    fn new(limit: Limit) -> Peer {
        Peer { limit, state: State::fresh(&limit) }
    }

    fn charge(&mut self, now: Time, op: Op) -> Decisions {
        let at = now.plus(AHEAD);
        let decision = decide(&self.limit, &mut self.state, at, op);
        let report = Report::new(self.state.clone(), at);
        Decisions::from_iter([(decision, true)]).reporting(vec![Some(report)])
    }
}

fn charge(limit: &Limit, op: Op) -> Charge<'_> {
    Charge::new(Key::new("ann").unwrap(), limit, op)
}

fn limits() -> Vec<Limit> {
    let rate: Rate = "10/hour".parse().unwrap();
    let not_calendar = Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::CalendarWindow);
    not_calendar.map(|algorithm| Limit::of(algorithm, &LimitNumbers::from(rate)).unwrap()).collect()
}

fn unsent() -> Result<Decisions, StoreError> {
    failed(Certainty::NotSent)
}

fn failed(certainty: Certainty) -> Result<Decisions, StoreError> {
    Err(StoreError::Failed { certainty, cause: crate::Cause::new(std::io::Error::other("away")) })
}

fn admitted(states: &LastStates, limit: &Limit, parts: u64, owes: bool, now: Time, tries: usize) -> usize {
    let passes = || states.decide(&charge(limit, Op::Take(1)), parts, owes, now).is_allowed();
    (0..tries).filter(|_| passes()).count()
}

#[test]
fn it_goes_on_from_the_last_report_on_the_clock_of_the_store() {
    for limit in limits() {
        let (states, mut peer) = (LastStates::default(), Peer::new(limit));
        let decisions = peer.charge(at(0), Op::Take(4));
        states.learn(&[charge(&limit, Op::Take(4))], &decisions, at(0), at(0));
        assert_eq!(admitted(&states, &limit, 1, false, at(1), 20), 6, "{limit:?}");
        assert_eq!(states.unknown(), 0);
        // The window of the store ends when it would have.
        let decision = states.decide(&charge(&limit, Op::Take(1)), 1, false, at(2));
        let there = decide(&limit, &mut peer.state.clone(), at(2).plus(AHEAD), Op::Take(7));
        if limit.resets_at_once() {
            assert_eq!(decision.retry(), there.retry(), "{limit:?}");
        }
    }
}

#[test]
fn a_part_of_the_limit_goes_on_from_the_same_part_of_the_state() {
    for limit in limits() {
        let (states, mut peer) = (LastStates::default(), Peer::new(limit));
        let decisions = peer.charge(at(0), Op::Take(3));
        states.learn(&[charge(&limit, Op::Take(3))], &decisions, at(0), at(0));
        // A half of ten less a half of three, rounded up.
        assert_eq!(admitted(&states, &limit, 2, false, at(0), 20), 3, "{limit:?}");
        // A key that nothing is known of has the whole part.
        let other = Charge::new(Key::new("bob").unwrap(), &limit, Op::Take(1));
        let passed = (0..20).filter(|_| states.decide(&other, 2, false, at(0)).is_allowed()).count();
        assert_eq!((passed, states.unknown()), (5, 1), "{limit:?}");
        // Nobody is left without any.
        assert!(states.decide(&Charge { key: Key::new("eve").unwrap(), ..other }, 1_000, false, at(0)).is_allowed());
    }
}

#[test]
fn what_the_store_does_not_know_of_is_debited_once() {
    for limit in limits() {
        let (states, mut peer) = (Arc::new(LastStates::default()), Peer::new(limit));
        let take = charge(&limit, Op::Take(1));
        states.learn(&[take], &peer.charge(at(0), Op::Take(2)), at(0), at(0));
        // Three that were not sent, and two that may have been applied.
        assert_eq!(admitted(&states, &limit, 1, true, at(1), 3), 3);
        assert_eq!(admitted(&states, &limit, 1, false, at(1), 2), 2);
        assert!(states.holds(&take) && states.owes());
        let mut debits = states.debits(256, at(2));
        assert_eq!(debits.len(), 1);
        assert_eq!(debits[0].charge().op, Op::Debit(3), "{limit:?}");
        assert!(states.debits(256, at(2)).is_empty(), "one at a time");
        assert!(!debits.remove(0).end(&unsent(), at(2), at(2)));
        assert!(states.holds(&take), "until it is answered");
        let mut debit = states.debits(256, at(3)).remove(0);
        let decisions = peer.charge(at(3), debit.charge().op);
        assert!(debit.end(&Ok(decisions), at(3), at(3)));
        assert!(!states.holds(&take) && !states.owes(), "{limit:?}");
        assert!(states.debits(256, at(4)).is_empty(), "not twice");
        // The store knows of five, and so does who goes on from there.
        assert_eq!(peer.charge(at(4), Op::Peek).first().unwrap().remaining(), 5, "{limit:?}");
        assert_eq!(admitted(&states, &limit, 1, false, at(5), 20), 5, "{limit:?}");
    }
}

#[test]
fn a_debit_that_may_have_been_applied_is_not_made_again() {
    let limit: Limit = "10/hour".parse().unwrap();
    let states = Arc::new(LastStates::default());
    for certainty in [None, Some(Certainty::Unknown)] {
        assert_eq!(admitted(&states, &limit, 1, true, at(0), 1), 1);
        let mut debit = states.debits(1, at(1)).remove(0);
        assert_eq!(debit.charge().op, Op::Debit(1));
        match certainty {
            Some(certainty) => assert!(debit.end(&failed(certainty), at(1), at(2))),
            // The task that made it went away.
            None => drop(debit),
        }
        assert!(!states.owes() && !states.holds(&charge(&limit, Op::Peek)), "{certainty:?}");
    }
    // One that was refused was not applied.
    assert_eq!(admitted(&states, &limit, 1, true, at(0), 1), 1);
    let mut debit = states.debits(1, at(1)).remove(0);
    let _ = debit.charge();
    assert!(!debit.end(&failed(Certainty::Refused), at(1), at(2)));
    assert!(states.owes());
    // One that nobody put to the store, neither.
    drop(states.debits(1, at(1)));
    assert!(states.owes());
}

#[test]
fn only_what_still_counts_is_debited() {
    let hour = Duration::from_secs(3_600);
    let window = Limit::fixed_window(10, hour).unwrap();
    let states = Arc::new(LastStates::default());
    assert_eq!(admitted(&states, &window, 1, true, at(0), 7), 7);
    // In the next window only what that one admitted.
    let next = at(0).plus(hour);
    assert_eq!(admitted(&states, &window, 1, true, next, 2), 2);
    let mut debits = states.debits(256, next);
    assert_eq!(debits[0].charge().op, Op::Debit(2));
    drop(debits.remove(0));
    // A bucket has leaked meanwhile: of six units four came back.
    let bucket: Limit = "10/hour".parse().unwrap();
    let states = Arc::new(LastStates::default());
    assert_eq!(admitted(&states, &bucket, 1, true, at(0), 6), 6);
    let mut debits = states.debits(256, at(4 * 360_000));
    assert_eq!(debits[0].charge().op, Op::Debit(2));
    drop(debits.remove(0));
    // What is over is not debited at all.
    let states = Arc::new(LastStates::default());
    assert_eq!(admitted(&states, &bucket, 1, true, at(0), 6), 6);
    assert!(states.debits(256, at(10 * 360_000)).is_empty());
    assert!(!states.owes() && !states.holds(&charge(&bucket, Op::Peek)));
}

#[test]
fn what_is_taken_while_a_debit_is_under_way_is_debited_next() {
    let limit = Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap();
    let (states, mut peer) = (Arc::new(LastStates::default()), Peer::new(limit));
    let take = charge(&limit, Op::Take(1));
    assert_eq!(admitted(&states, &limit, 1, true, at(0), 3), 3);
    let mut debit = states.debits(256, at(1)).remove(0);
    let decisions = peer.charge(at(1), debit.charge().op);
    assert_eq!(admitted(&states, &limit, 1, true, at(1), 2), 2);
    debit.end(&Ok(decisions), at(1), at(1));
    // The key goes back to the store at once, or it never would.
    assert!(states.owes() && !states.holds(&take));
    let mut debit = states.debits(256, at(2)).remove(0);
    assert_eq!(debit.charge().op, Op::Debit(2));
    let decisions = peer.charge(at(2), debit.charge().op);
    debit.end(&Ok(decisions), at(2), at(2));
    assert!(!states.owes());
    assert_eq!(peer.charge(at(3), Op::Peek).first().unwrap().remaining(), 95);
}

#[test]
fn what_is_given_back_is_not_debited() {
    let limit = Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap();
    let states = Arc::new(LastStates::default());
    let taken = states.decide(&charge(&limit, Op::Take(5)), 1, true, at(0));
    states.decide(&charge(&limit, Op::Refund(5, taken.receipt())), 1, true, at(0));
    assert!(states.debits(256, at(1)).is_empty());
    assert_eq!(states.decide(&charge(&limit, Op::Peek), 1, true, at(0)).remaining(), 100);
}

#[test]
fn keys_that_used_most_are_remembered_longest() {
    let limit = Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap();
    let states = LastStates::default();
    let learn = |key: &str, units: u64| {
        let mut peer = Peer::new(limit);
        let decisions = peer.charge(at(0), Op::Take(units));
        let charge = Charge::new(Key::new(key).unwrap(), &limit, Op::Take(units));
        states.learn(&[charge], &decisions, at(0), at(0));
    };
    let names = |kind: &str| (0..500).map(|number| format!("{kind}{number}")).collect::<Vec<_>>();
    names("busy").iter().for_each(|key| learn(key, 90));
    for number in 0..3 * LAST_STATES_MAX {
        learn(&format!("flood{number}"), 1);
    }
    let there: usize = states.shards.iter().map(|shard| super::lock(shard).entries.len()).sum();
    assert!(there <= LAST_STATES_MAX && there > LAST_STATES_MAX / 2, "{there}");
    assert!(states.shards.iter().all(|shard| super::lock(shard).entries.capacity() <= SHARD_KEYS_MAX));
    for key in names("busy") {
        let left = states.decide(&Charge::new(Key::new(&key).unwrap(), &limit, Op::Peek), 1, false, at(1)).remaining();
        assert_eq!(left, 10, "{key}");
    }
}

#[test]
fn keys_that_callers_bring_crowd_out_none_of_rules() {
    let limit = Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap();
    let states = Arc::new(LastStates::default());
    let rule = Namespace::named(Purpose::Rule, &["api", "per-user", ""]);
    let callers = [Purpose::Caller, Purpose::RequestLimit].map(Namespace::of);
    let names: Vec<String> = (0..500).map(|number| format!("user{number}")).collect();
    let of_rule = |key, op| Charge::new(Key::new(key).unwrap(), &limit, op).within(&rule);
    let take = |charge: &Charge<'_>| states.decide(charge, 1, true, at(0)).remaining();
    names.iter().for_each(|key| assert_eq!(take(&of_rule(key, Op::Take(1))), 99));
    for number in 0..3 * LAST_STATES_MAX {
        let (key, namespace) = (format!("flood{number}"), &callers[number % 2]);
        take(&Charge::new(Key::new(&key).unwrap(), &limit, Op::Take(90)).within(namespace));
    }
    names.iter().for_each(|key| assert_eq!(take(&of_rule(key, Op::Peek)), 99, "{key}"));
    let mut debits = states.debits(names.len() + 1, at(1));
    let of_rules =
        debits.iter_mut().filter_map(|debit| Some(debit.charge()).filter(|charge| charge.op == Op::Debit(1)));
    assert_eq!(of_rules.count(), names.len(), "rules are debited first");
    assert_eq!(debits.len(), names.len() + 1, "then callers");
}

#[test]
fn each_key_that_nothing_is_known_of_counts_once_however_it_is_asked_for() {
    let limit: Limit = "10/hour".parse().unwrap();
    // A penalty is a debit, and no decision. Whoever is denied by another rule only asks first.
    for (ops, unknown) in
        [(&[Op::Take(1), Op::Take(1)][..], 1), (&[Op::Ask(1), Op::Take(1)], 1), (&[Op::Debit(1), Op::Ask(1)], 0)]
    {
        let states = LastStates::default();
        for op in ops {
            states.decide(&charge(&limit, *op), 1, false, at(0));
        }
        assert_eq!(states.unknown(), unknown, "{ops:?}");
    }
}

#[test]
fn keys_that_owe_are_listed_no_longer_than_they_are_remembered() {
    let limit = Limit::fixed_window(100, Duration::from_secs(3_600)).unwrap();
    let states = Arc::new(LastStates::default());
    for number in 0..3 * LAST_STATES_MAX {
        let key = format!("flood{number}");
        states.decide(&Charge::new(Key::new(&key).unwrap(), &limit, Op::Take(1)), 1, true, at(0));
    }
    let there: usize = states.shards.iter().map(|shard| super::lock(shard).entries.len()).sum();
    assert_eq!(states.owing(), there);
    let debits = states.debits(usize::MAX, at(1));
    assert_eq!((debits.len(), states.owing()), (there, 0));
}

#[test]
fn a_key_that_is_free_again_is_forgotten() {
    let limit: Limit = "10/hour".parse().unwrap();
    let (states, mut peer) = (LastStates::default(), Peer::new(limit));
    let count = |states: &LastStates| states.shards.iter().map(|shard| super::lock(shard).entries.len()).sum::<usize>();
    states.learn(&[charge(&limit, Op::Peek)], &peer.charge(at(0), Op::Peek), at(0), at(0));
    assert_eq!(count(&states), 0, "never seen");
    states.learn(&[charge(&limit, Op::Take(1))], &peer.charge(at(0), Op::Take(1)), at(0), at(0));
    assert_eq!(count(&states), 1);
    states.learn(&[charge(&limit, Op::Reset)], &peer.charge(at(1), Op::Reset), at(1), at(1));
    assert_eq!(count(&states), 0);
}

#[test]
fn a_log_that_decides_here_stays_small() {
    let limit = Limit::sliding_log(10_000, Duration::from_secs(3_600)).unwrap();
    let states = LastStates::default();
    for second in 0..3_600 {
        admitted(&states, &limit, 1, true, at(second * 1_000), 2);
    }
    let debug = format!("{:?}", states.shards);
    assert!(debug.matches("out_at").count() <= 32, "{}", debug.matches("out_at").count());
}
