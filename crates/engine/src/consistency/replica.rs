//! A copy of one key's state in this process, decided on without a call, and corrected by the store's reports.
//!
//! Units that were taken here and that the store does not know yet are **pending**. They are pushed as a debit from
//! time to time, and the answer contains the state over all nodes, to which units taken since are added again. Units
//! that were pushed without an answer are not pushed again: they may have been counted. While they are few compared
//! with the remaining units, they are pushed only once a second.

use tidegate_core::{Charge, Decision, Decisions, Limit, Op, Receipt, State, Time, decide};
use tidegate_stores::ClockOffset;

use super::since;
use crate::bounds::{DENIAL_KNOWN_MAX, REPLICA_ALONE_MAX, SYNC_SHARE};

/// What a store says of one key.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Its answer.
    pub(super) decision: Decision,
    /// The state of the key after it.
    pub(super) state: State,
    /// When that was, by the store's clock.
    pub(super) now: Time,
}

impl Told {
    /// What is said of the first of these charges, if the store reports that.
    pub(super) fn of(decisions: &Decisions) -> Option<Told> {
        let report = decisions.report(0)?;
        Some(Told { decision: *decisions.first()?, state: report.state.clone(), now: report.at })
    }
}

/// The copy.
#[derive(Debug)]
pub(super) struct Replica {
    limit: Limit,
    state: State,
    clock: ClockOffset,
    pending: u64,
    pushing: u64,
    pub(super) used: Time,
    synced: Time,
    /// When the first push was made of those that the store has left without an answer since the last one.
    failing: Option<Time>,
    /// Units that were left by the last decision.
    left: u64,
    /// The store's instant of the state.
    told_at: Time,
    /// Whether it is on the list of those that are to be synced.
    pub(super) listed: bool,
}

impl Replica {
    pub(super) fn new(limit: Limit, told: &Told, sent: Time, learned: Time) -> Replica {
        Replica {
            limit,
            state: told.state.clone(),
            clock: ClockOffset::new(told.now, sent, learned),
            pending: 0,
            pushing: 0,
            used: learned,
            synced: learned,
            failing: None,
            left: told.decision.remaining(),
            told_at: told.now,
            listed: false,
        }
    }

    /// Whether it was pushed in vain for so long that it is no copy any more. One that nobody asked had nothing to push.
    pub(super) fn is_alone(&self, now: Time) -> bool {
        self.failing.is_some_and(|first| since(first, now) > REPLICA_ALONE_MAX)
    }

    /// Decides here. Limits with other numbers go on with the same state.
    pub(super) fn decide(&mut self, charge: &Charge<'_>, now: Time) -> Decision {
        self.used = now;
        self.limit = *charge.limit;
        let limit = charge.limit.for_key(charge.namespace, charge.key);
        let decision = decide(&limit, &mut self.state, self.clock.at(now), charge.op);
        self.left = decision.remaining();
        if let (Op::Take(units) | Op::Debit(units), true) = (charge.op, decision.is_allowed()) {
            self.pending = self.pending.saturating_add(units);
        }
        decision
    }

    /// Takes units back. Tells how many of them the store may know of, and must be told about.
    pub(super) fn give_back(&mut self, charge: &Charge<'_>, now: Time, units: u64, receipt: Option<Receipt>) -> u64 {
        self.decide(&Charge { op: Op::Refund(units, receipt), ..*charge }, now);
        let unknown = self.pending.min(units);
        self.pending -= unknown;
        units - unknown
    }

    /// What to push now: pending units, or none to learn what became of the state elsewhere; nothing if neither is needed,
    /// or a push is under way. At last everything goes.
    pub(super) fn push(&mut self, now: Time, last: bool) -> Option<(Limit, u64)> {
        let old = since(self.synced, now) >= DENIAL_KNOWN_MAX;
        // What is little beside what is left can wait.
        let little = self.pending.saturating_mul(SYNC_SHARE) <= self.left;
        let wanted = if last { self.pending > 0 } else { old || !little };
        if self.pushing > 0 || !wanted {
            return None;
        }
        self.synced = now;
        self.pushing = std::mem::take(&mut self.pending);
        Some((self.limit, self.pushing))
    }

    /// Whether it has been asked since it last was in step with the store.
    pub(super) fn is_ahead(&self) -> bool {
        self.pending > 0 || self.used >= self.synced
    }

    /// What the store said, to a push that has ended before or to anything else.
    pub(super) fn receive(&mut self, charge: &Charge<'_>, told: &Told, sent: Time, learned: Time) {
        self.clock = self.clock.or_newer(ClockOffset::new(told.now, sent, learned));
        self.failing = None;
        // Answers may overtake each other; one that is much older is of a clock that jumped back.
        if told.now < self.told_at && since(told.now, self.told_at) < DENIAL_KNOWN_MAX {
            return;
        }
        self.told_at = told.now;
        self.state = told.state.clone();
        let unknown = self.pending.saturating_add(self.pushing);
        if unknown > 0 {
            let now = self.clock.at(learned).max(told.now);
            let limit = self.limit.for_key(charge.namespace, charge.key);
            decide(&limit, &mut self.state, now, Op::Debit(unknown));
        }
    }

    /// A push has ended. What was not sent stays pending. If there was an answer, it is received next.
    pub(super) fn pushed(&mut self, was_sent: bool) {
        self.failing.get_or_insert(self.synced);
        let units = std::mem::take(&mut self.pushing);
        if !was_sent {
            self.pending = self.pending.saturating_add(units);
        }
    }

    /// The state, and the clock that it goes by.
    pub(super) fn copy(&self) -> (State, ClockOffset) {
        (self.state.clone(), self.clock)
    }

    /// Whether nothing is lost without it.
    pub(super) fn is_idle(&self) -> bool {
        self.pending == 0 && self.pushing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_core::{Key, Retry};

    const START: u64 = 1_700_000_000_000_000_000;

    fn at(millis: u64) -> Time {
        Time::from_nanos(START + millis * 1_000_000)
    }

    /// The store, whose clock is an hour ahead.
    struct Store {
        state: State,
        limit: Limit,
    }

    impl Store {
        fn charge(&mut self, now: Time, op: Op) -> Told {
            let now = now.plus(Duration::from_secs(3_600));
            let decision = decide(&self.limit, &mut self.state, now, op);
            Told { decision, state: self.state.clone(), now }
        }
    }

    fn charge(limit: &Limit, op: Op) -> Charge<'_> {
        Charge::new(Key::new("ann").unwrap(), limit, op)
    }

    fn start(limit: &Limit) -> (Store, Replica) {
        let mut store = Store { state: State::fresh(limit), limit: *limit };
        let told = store.charge(at(5), Op::Take(1));
        (store, Replica::new(*limit, &told, at(0), at(10)))
    }

    #[test]
    fn it_decides_as_the_store_would_and_learns_of_others() {
        for limit in [
            "10/minute".parse().unwrap(),
            Limit::fixed_window(10, Duration::from_secs(60)).unwrap(),
            Limit::sliding_counter(10, Duration::from_secs(60)).unwrap(),
        ] {
            let (mut store, mut replica) = start(&limit);
            for left in (4..9).rev() {
                assert_eq!(replica.decide(&charge(&limit, Op::Take(1)), at(20)).remaining(), left, "{limit:?}");
            }
            // Others took three, and the push tells.
            store.charge(at(30), Op::Debit(3));
            let (_, units) = replica.push(at(40), false).unwrap();
            assert_eq!(units, 5);
            assert_eq!(replica.push(at(41), false), None, "one at a time");
            assert!(replica.decide(&charge(&limit, Op::Take(1)), at(42)).is_allowed());
            let told = store.charge(at(45), Op::Debit(units));
            replica.pushed(true);
            replica.receive(&charge(&limit, Op::Peek), &told, at(40), at(50));
            assert_eq!(replica.decide(&charge(&limit, Op::Peek), at(50)).remaining(), 0, "{limit:?}");
            assert!(matches!(
                replica.decide(&charge(&limit, Op::Take(1)), at(51)).retry(),
                Some(Retry::After(wait)) if wait > Duration::ZERO
            ));
            assert_eq!(replica.push(at(140), false), Some((limit, 1)), "what was taken meanwhile");
        }
    }

    #[test]
    fn a_push_that_was_not_sent_is_kept_and_one_without_an_answer_is_not() {
        let limit: Limit = "10/minute".parse().unwrap();
        let (_, mut replica) = start(&limit);
        replica.decide(&charge(&limit, Op::Take(4)), at(20));
        assert_eq!(replica.push(at(100), false), Some((limit, 4)));
        replica.pushed(false);
        replica.decide(&charge(&limit, Op::Take(1)), at(120));
        assert_eq!(replica.push(at(200), false), Some((limit, 5)));
        replica.pushed(true);
        assert_eq!(replica.push(at(300), false), None);
        assert_eq!(replica.push(at(1_300), false), Some((limit, 0)), "to learn of resets elsewhere");
        replica.pushed(true);
        // A little can wait for a second, but not for the end.
        let large: Limit = "1000/minute".parse().unwrap();
        let (_, mut replica) = start(&large);
        replica.decide(&charge(&large, Op::Take(10)), at(20));
        assert_eq!(replica.push(at(1_009), false), None);
        assert_eq!(replica.push(at(1_010), false), Some((large, 10)));
        replica.pushed(true);
        replica.decide(&charge(&large, Op::Take(10)), at(1_020));
        assert_eq!(replica.push(at(1_030), true), Some((large, 10)));
    }

    #[test]
    fn what_is_given_back_is_not_pushed() {
        let limit: Limit = "10/minute".parse().unwrap();
        let (_, mut replica) = start(&limit);
        let receipt = replica.decide(&charge(&limit, Op::Take(4)), at(20)).receipt();
        assert_eq!(replica.give_back(&charge(&limit, Op::Peek), at(21), 4, receipt), 0);
        assert_eq!(replica.push(at(100), false), None);
        assert_eq!(replica.decide(&charge(&limit, Op::Peek), at(22)).remaining(), 9);
        let receipt = replica.decide(&charge(&limit, Op::Take(4)), at(23)).receipt();
        replica.push(at(100), false);
        assert_eq!(replica.give_back(&charge(&limit, Op::Peek), at(101), 4, receipt), 4, "the store must be told");
    }

    #[test]
    fn only_who_pushes_in_vain_is_alone() {
        let limit: Limit = "1000/minute".parse().unwrap();
        let (mut store, mut replica) = start(&limit);
        // Nobody asked for a while: nothing was to be pushed, and now something is.
        assert!(!replica.is_alone(at(9_000)));
        replica.decide(&charge(&limit, Op::Take(1)), at(9_000));
        assert!(replica.is_ahead());
        assert_eq!(replica.push(at(9_010), false), Some((limit, 1)));
        let told = store.charge(at(9_011), Op::Debit(1));
        replica.pushed(true);
        replica.receive(&charge(&limit, Op::Peek), &told, at(9_010), at(9_012));
        assert!(!replica.is_alone(at(20_000)));
        // Pushes that fail, whether they were sent or not, from the first of them on.
        for (failed, was_sent) in [(20_000, false), (21_000, true), (22_000, true), (23_000, false)] {
            replica.decide(&charge(&limit, Op::Take(1)), at(failed));
            assert!(!replica.is_alone(at(failed)), "{failed}");
            assert!(replica.push(at(failed), false).is_some());
            replica.pushed(was_sent);
        }
        assert!(replica.is_alone(at(23_001)));
        replica.receive(&charge(&limit, Op::Peek), &store.charge(at(24_000), Op::Peek), at(24_000), at(24_001));
        assert!(!replica.is_alone(at(24_002)));
    }
}
