//! Denials that are still valid: a call that is known to be denied is answered without the store.
//!
//! A whole call is remembered: its charges with their limits, keys, ops, costs and vetoes. A denied call took nothing,
//! so the same call is denied until the earliest of its denials ends, and for a second at most. A limit with other
//! numbers makes another call. Checks for penalties in the same call are part of it, denied or not.
//!
//! A refund or a reset can end a denial earlier, and changes the **stamp** of its key. A call is remembered under the
//! stamps that its keys had before it was sent: any change from then on invalidates it. An admission ends no denial,
//! but outdates its numbers: a call for more units than remain would show a fuller bucket than the one that other calls
//! are admitted by. A debit ends no denial either, but causes one for a call that only checks: a penalty imposed since
//! then must be seen, or it would be imposed again. So a key has a second stamp for checks, which debits change too.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

use tidegate_core::{Charge, Decision, Decisions, Identity, Key, Op, Retry, Time};

use super::since;
use crate::bounds::{DENIAL_KNOWN_MAX, DENIALS_MAX};

/// Places among which a denial can choose.
const WAYS: usize = 4;

/// Locks that places are divided among.
const SHARDS: usize = 64;

const SETS: usize = DENIALS_MAX / WAYS / SHARDS;

/// Pairs of stamps, of 1 MB together. Keys that share a pair only make each other forgotten more often: each admission
/// changes one, so with fewer of them busy keys would make the denials of all others forgotten.
const STAMP_PAIRS: usize = 1 << 16;

/// Two hashes of a call under keys of their own, which stand for it.
type Print = [u64; 2];

/// What is known of denied calls.
pub(super) struct Denials {
    shards: Box<[Mutex<Vec<Set>>]>,
    stamps: Box<[Stamps]>,
    seeds: [RandomState; 2],
    /// Whether a call was remembered that a lease or a replica answered in part.
    knows_eased: AtomicBool,
}

/// What changes with a key, for those who take of it and for those who look at it.
#[derive(Default)]
struct Stamps {
    takes: AtomicU64,
    looks: AtomicU64,
}

type Set = [Option<Denied>; WAYS];

struct Denied {
    print: Print,
    stamp: u64,
    learned: Time,
    until: Time,
    answers: Box<[(Decision, bool)]>,
}

/// The charges of a call, as they were before it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    print: Print,
    /// The sum of its keys' stamps. They only grow, so that none has changed if the sum has not.
    stamp: u64,
}

impl Denials {
    pub(super) fn new() -> Denials {
        Denials {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            stamps: (0..STAMP_PAIRS).map(|_| Stamps::default()).collect(),
            seeds: [RandomState::new(), RandomState::new()],
            knows_eased: AtomicBool::new(false),
        }
    }

    /// A call whose denial can be remembered: one that takes, with looks beside it or not, and that can be denied.
    pub(super) fn question(&self, charges: &[Charge<'_>]) -> Option<Question> {
        let takes = charges.iter().any(|charge| matches!(charge.op, Op::Take(1..)));
        let only = charges.iter().all(|charge| matches!(charge.op, Op::Take(1..) | Op::Ask(1..)));
        if !takes || !only || !charges.iter().any(|charge| charge.veto) {
            return None;
        }
        let print = self.seeds.each_ref().map(|seed| {
            let mut hasher = seed.build_hasher();
            for charge in charges {
                let (Op::Take(units) | Op::Ask(units)) = charge.op else { continue };
                (identity(charge), charge.limit, Use::of(charge.op), units, charge.veto).hash(&mut hasher);
            }
            hasher.finish()
        });
        let stamp = charges.iter().fold(0_u64, |sum, charge| {
            let stamps = self.stamps(charge);
            let stamp = if Use::of(charge.op) == Use::Takes { &stamps.takes } else { &stamps.looks };
            sum.wrapping_add(stamp.load(SeqCst))
        });
        Some(Question { print, stamp })
    }

    /// The answers to a call that is known to be denied.
    pub(super) fn answer(&self, call: Question, now: Time) -> Option<Decisions> {
        let (shard, set) = place(call.print);
        let sets = self.shards.get(shard)?.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sets.get(set)?.iter().flatten().find(|denied| denied.print == call.print)?;
        if known.stamp != call.stamp || now >= known.until {
            return None;
        }
        let elapsed = since(known.learned, now);
        let aged = |(decision, veto): &(Decision, bool)| match decision.is_allowed() {
            true => Some((decision.with_reset_nearer(elapsed), *veto)),
            false => Some((decision.aged(elapsed)?, *veto)),
        };
        known.answers.iter().map(aged).collect()
    }

    /// Remembers the answers to a call if it was denied.
    pub(super) fn learn(&self, call: Question, sent: Time, learned: Time, answers: &[(Decision, bool)]) {
        let mut until = learned.plus(DENIAL_KNOWN_MAX);
        for (decision, _) in answers {
            match decision.retry() {
                // From before the call on: the store decided later than that, so that nobody is denied for too long.
                Some(Retry::After(wait)) => until = until.min(sent.plus(wait)),
                Some(Retry::Unknown(_)) => return,
                Some(Retry::Never) | None => {}
            }
        }
        let vetoed = answers.iter().any(|(decision, veto)| *veto && !decision.is_allowed());
        if !vetoed || until <= learned {
            return;
        }
        let (shard, set) = place(call.print);
        let Some(shard) = self.shards.get(shard) else { return };
        let mut sets = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if sets.is_empty() {
            sets.resize_with(SETS, Default::default);
        }
        let Some(ways) = sets.get_mut(set) else { return };
        // Its own place, else a free one, else the one that is over first.
        let rank = |way: &Option<Denied>| match way {
            Some(denied) if denied.print == call.print => (0, Time::default()),
            None => (1, Time::default()),
            Some(denied) => (2, denied.until),
        };
        if let Some(way) = ways.iter_mut().min_by_key(|way| rank(way)) {
            *way = Some(Denied { print: call.print, stamp: call.stamp, learned, until, answers: answers.into() });
        }
    }

    /// Forgets what is known of the keys of a call that the store has answered, as far as it changed them.
    pub(super) fn answered(&self, charges: &[Charge<'_>], decisions: &Decisions) {
        for (charge, decision) in charges.iter().zip(decisions.iter()) {
            match charge.op {
                // A denied call took nothing, and one that passes takes nothing of a limit that is only watched and full.
                Op::Take(_) if !decisions.is_allowed() || !decision.is_allowed() => {}
                _ => self.forget(charge),
            }
        }
    }

    /// Forgets what is known of a charge's key, as far as its op may change that. To be called when it has been done, not
    /// before.
    pub(super) fn forget(&self, charge: &Charge<'_>) {
        let (takes, looks) = match charge.op {
            Op::Take(1..) | Op::Refund(..) | Op::Reset => (true, true),
            Op::Debit(_) => (false, true),
            Op::Take(0) | Op::Ask(_) | Op::Peek => return,
        };
        let stamps = self.stamps(charge);
        if takes {
            stamps.takes.fetch_add(1, SeqCst);
        }
        if looks {
            stamps.looks.fetch_add(1, SeqCst);
        }
    }

    /// Remembers that calls are known whose answers came from leases or replicas in part.
    pub(super) fn note_eased(&self) {
        self.knows_eased.store(true, Relaxed);
    }

    /// Forgets what is known of a key of which a lease or a replica admitted units. Mostly nothing is, and this is one load.
    #[inline]
    pub(super) fn admitted_here(&self, charge: &Charge<'_>, decision: &Decision) {
        if self.knows_eased.load(Relaxed) && decision.is_allowed() && matches!(charge.op, Op::Take(_)) {
            self.forget(charge);
        }
    }

    fn stamps(&self, charge: &Charge<'_>) -> &Stamps {
        let [seed, _] = &self.seeds;
        let hash = seed.hash_one(identity(charge));
        #[expect(clippy::indexing_slicing, reason = "the mask keeps it below the length")]
        &self.stamps[usize::try_from(hash & (STAMP_PAIRS as u64 - 1)).unwrap_or(0)]
    }
}

/// What tells the state that a charge counts in from others.
fn identity<'a>(charge: &Charge<'a>) -> (u128, Identity, &'a [u8], Key<'a>) {
    (charge.namespace.hash(), charge.limit.identity(), charge.placement.tag, charge.key)
}

/// What a call does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Use {
    Takes,
    Looks,
}

impl Use {
    fn of(op: Op) -> Use {
        if let Op::Take(_) = op { Use::Takes } else { Use::Looks }
    }
}

/// The shard and the set of a call.
fn place([shard, set]: Print) -> (usize, usize) {
    let low = |bits: u64, below: usize| usize::try_from(bits % below as u64).unwrap_or(0);
    (low(shard, SHARDS), low(set, SETS))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Clock, DecisionsExt, FakeClock, Limit, MemoryStore};

    use super::*;

    struct Bench {
        clock: FakeClock,
        store: MemoryStore,
        denials: Denials,
        asked: u64,
    }

    impl Bench {
        fn new() -> Bench {
            let clock = FakeClock::new();
            let store = MemoryStore::builder().keys(100).clock(Clock::from(clock.clone())).build().unwrap();
            Bench { clock, store, denials: Denials::new(), asked: 0 }
        }

        /// Asks as the shared store does. A call takes this long in each direction.
        fn ask(&mut self, charges: &[Charge<'_>], way: Duration) -> Decisions {
            let call = self.denials.question(charges);
            if let Some(known) = call.and_then(|call| self.denials.answer(call, self.clock.now())) {
                return known;
            }
            self.asked += 1;
            let sent = self.clock.now();
            self.clock.advance(way);
            let decisions = self.store.charge(charges).unwrap();
            self.clock.advance(way);
            self.denials.answered(charges, &decisions);
            if let Some(call) = call {
                self.denials.learn(call, sent, self.clock.now(), decisions.with_vetoes());
            }
            decisions
        }

        fn take(&mut self, key: &str, limit: &Limit, units: u64) -> Decision {
            let charge = Charge::take(Key::new(key).unwrap(), limit, units);
            let decisions = self.ask(&[charge], Duration::ZERO);
            *decisions.iter().next().unwrap()
        }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_denial_is_told_until_it_is_over_and_for_a_second_at_most() {
        let mut bench = Bench::new();
        let (fast, slow): (Limit, Limit) = ("2/second".parse().unwrap(), "1/minute".parse().unwrap());
        bench.take("ann", &fast, 2);
        assert_eq!(bench.take("ann", &fast, 1).retry(), Some(Retry::After(ms(500))));
        bench.clock.advance(ms(499));
        assert_eq!(bench.take("ann", &fast, 1).retry(), Some(Retry::After(ms(1))));
        assert_eq!(bench.asked, 2, "the second one was known");
        bench.clock.advance(ms(1));
        assert!(bench.take("ann", &fast, 1).is_allowed());

        bench.take("bob", &slow, 1);
        bench.asked = 0;
        for at in 0..100 {
            let retry = bench.take("bob", &slow, 1).retry();
            assert_eq!(retry, Some(Retry::After(ms(60_000 - at * 100))));
            bench.clock.advance(ms(100));
        }
        assert_eq!(bench.asked, 10, "once a second");
    }

    #[test]
    fn other_costs_keys_and_numbers_are_asked_for() {
        let mut bench = Bench::new();
        let rate = tidegate_core::Rate::per_minute(10).unwrap();
        let [limit, raised] = [10, 20].map(|burst| Limit::gcra(rate, burst).unwrap());
        bench.take("ann", &limit, 8);
        assert!(!bench.take("ann", &limit, 3).is_allowed());
        assert!(bench.take("ann", &limit, 2).is_allowed());
        assert!(!bench.take("ann", &limit, 3).is_allowed());
        assert_eq!(bench.asked, 4, "what was admitted since is in the numbers of a denial");
        assert!(!bench.take("ann", &limit, 3).is_allowed());
        assert!(bench.take("bob", &limit, 3).is_allowed());
        assert!(bench.take("ann", &raised, 3).is_allowed(), "a raised limit");
        assert_eq!(bench.asked, 6);
    }

    #[test]
    fn an_admission_makes_older_denials_of_its_key_forgotten() {
        let mut bench = Bench::new();
        let limit: Limit = "10/hour".parse().unwrap();
        let numbers = |decision: Decision| (decision.remaining(), decision.retry());
        // More than the limit, of a key that nobody used yet.
        assert_eq!(numbers(bench.take("ann", &limit, 20)), (10, Some(Retry::Never)));
        assert!(bench.take("ann", &limit, 3).is_allowed());
        assert_eq!(numbers(bench.take("ann", &limit, 20)), (7, Some(Retry::Never)));
        assert_eq!(numbers(bench.take("ann", &limit, 8)), (7, Some(Retry::After(ms(360_000)))));
        assert!(bench.take("ann", &limit, 7).is_allowed());
        assert_eq!(numbers(bench.take("ann", &limit, 8)), (0, Some(Retry::After(ms(8 * 360_000)))));
        // What was denied took nothing, and leaves the others as they are.
        bench.asked = 0;
        assert_eq!(numbers(bench.take("ann", &limit, 1)), (0, Some(Retry::After(ms(360_000)))));
        assert_eq!(numbers(bench.take("ann", &limit, 8)), (0, Some(Retry::After(ms(8 * 360_000)))));
        assert_eq!(bench.asked, 1);
    }

    #[test]
    fn what_never_passes_is_known_too() {
        let mut bench = Bench::new();
        let limit: Limit = "10/minute".parse().unwrap();
        for _ in 0..5 {
            assert_eq!(bench.take("ann", &limit, 11).retry(), Some(Retry::Never));
        }
        assert_eq!(bench.asked, 1);
    }

    #[test]
    fn a_refund_or_reset_makes_it_forgotten_even_while_the_call_is_under_way() {
        let bench = Bench::new();
        let limit: Limit = "1/minute".parse().unwrap();
        let charge = Charge::take(Key::new("ann").unwrap(), &limit, 1);
        bench.store.charge(&[charge]).unwrap();
        let denied = bench.store.charge(&[charge]).unwrap();
        let answers: Vec<(Decision, bool)> = denied.iter().map(|one| (*one, true)).collect();
        let (now, call) = (bench.clock.now(), bench.denials.question(&[charge]).unwrap());
        bench.denials.learn(call, now, now, &answers);
        assert!(bench.denials.answer(call, now).is_some());
        // A call that was sent before the reset and is answered after it.
        bench.denials.forget(&Charge { op: Op::Reset, ..charge });
        bench.denials.learn(call, now, now, &answers);
        let next = bench.denials.question(&[charge]).unwrap();
        assert!(bench.denials.answer(next, now).is_none());
        bench.denials.learn(next, now, now, &answers);
        assert!(bench.denials.answer(next, now).is_some());
    }

    #[test]
    fn a_transaction_is_known_as_a_whole() {
        let mut bench = Bench::new();
        let (tight, wide): (Limit, Limit) = ("1/minute".parse().unwrap(), "9/minute".parse().unwrap());
        let (ann, bob) = (Key::new("ann").unwrap(), Key::new("bob").unwrap());
        let both = [Charge::take(ann, &tight, 1), Charge::take(bob, &wide, 1)];
        for _ in 0..5 {
            bench.ask(&both, Duration::ZERO);
        }
        assert_eq!(bench.asked, 2);
        let known = bench.ask(&both, Duration::ZERO);
        let each: Vec<(bool, u64)> = known.iter().map(|one| (one.is_allowed(), one.remaining())).collect();
        assert_eq!((each, known.is_allowed()), (vec![(false, 0), (true, 8)], false));
        assert!(known.iter().all(|one| one.receipt().is_none()));
        // What does not veto denies nothing.
        let shadow = [Charge { veto: false, ..Charge::take(ann, &tight, 1) }];
        assert!(bench.denials.question(&shadow).is_none());
        let look = [Charge { op: Op::Ask(1), ..Charge::take(ann, &tight, 1) }];
        assert!(bench.denials.question(&look).is_none());
    }

    #[test]
    fn the_time_of_the_call_makes_it_neither_too_long_nor_the_wait_too_short() {
        let mut bench = Bench::new();
        let limit: Limit = "1/minute".parse().unwrap();
        let charge = Charge::take(Key::new("ann").unwrap(), &limit, 1);
        bench.ask(&[charge], Duration::ZERO);
        bench.clock.advance(ms(59_500));
        let told = bench.ask(&[charge], ms(5));
        assert_eq!(told.retry(), Some(Retry::After(ms(495))));
        // It was decided 5 ms ago, which nobody here can know.
        assert_eq!(bench.ask(&[charge], ms(5)).retry(), Some(Retry::After(ms(495))));
        bench.clock.advance(ms(485));
        bench.asked = 0;
        bench.ask(&[charge], ms(5));
        assert_eq!(bench.asked, 1, "495 ms after it was sent");
    }

    #[test]
    fn there_is_room_for_so_many_only_and_what_is_over_goes_first() {
        let denials = Denials::new();
        let limit: Limit = "1/minute".parse().unwrap();
        let store = MemoryStore::builder().keys(10).build().unwrap();
        let charge = Charge::take(Key::new("x").unwrap(), &limit, 1);
        store.charge(&[charge]).unwrap();
        let denied = *store.charge(&[charge]).unwrap().iter().next().unwrap();
        let at = |millis| Time::from_nanos(millis * 1_000_000);
        // All in one set: the bits that choose it are alike.
        let call = |number: u64| Question { print: [0, number * SETS as u64], stamp: 0 };
        for number in 0..6 {
            let now = at(number * 10);
            denials.learn(call(number), now, now, &[(denied, true)]);
        }
        let known: Vec<bool> = (0..6).map(|number| denials.answer(call(number), at(60)).is_some()).collect();
        assert_eq!(known, [false, false, true, true, true, true]);
    }
    #[test]
    fn looks_beside_a_take_are_known_too_until_they_may_change() {
        let mut bench = Bench::new();
        let (limit, penalty): (Limit, Limit) = ("1/minute".parse().unwrap(), "1/hour".parse().unwrap());
        let (ann, of_ann) = (Key::new("ann").unwrap(), Key::new("penalty of ann").unwrap());
        let look = Charge { op: Op::Ask(1), ..Charge::take(of_ann, &penalty, 1) };
        let both = [look, Charge::take(ann, &limit, 1)];
        let asked = |bench: &mut Bench| {
            let before = bench.asked;
            let told = bench.ask(&both, Duration::ZERO);
            (bench.asked - before, told.iter().map(Decision::is_allowed).collect::<Vec<_>>())
        };
        assert_eq!(asked(&mut bench), (1, vec![true, true]));
        assert_eq!(asked(&mut bench), (1, vec![true, false]));
        assert_eq!(asked(&mut bench), (0, vec![true, false]), "denied by the limit");
        // The penalty that follows must be seen, or it would be imposed anew.
        let impose = Charge { op: Op::Debit(1), ..look };
        bench.store.charge(&[impose]).unwrap();
        bench.denials.forget(&impose);
        assert_eq!(asked(&mut bench), (1, vec![false, false]));
        bench.clock.advance(ms(60_000));
        assert_eq!(asked(&mut bench), (1, vec![false, true]));
        for _ in 0..10 {
            assert_eq!(asked(&mut bench), (0, vec![false, true]), "denied by the penalty");
        }
        bench.clock.advance(ms(1_000));
        assert_eq!(asked(&mut bench).0, 1, "for a second at most");
        let lift = Charge { op: Op::Reset, ..look };
        bench.store.charge(&[lift]).unwrap();
        bench.denials.forget(&lift);
        assert_eq!(asked(&mut bench), (1, vec![true, true]), "lifted");
        // What was counted on the key of a take ends no denial.
        assert_eq!(asked(&mut bench), (1, vec![true, false]));
        bench.denials.forget(&Charge { op: Op::Debit(1), ..both[1] });
        assert_eq!(asked(&mut bench), (0, vec![true, false]));
        // To ask for a unit is not to take it, and to ask alone is not remembered.
        let other = [Charge::take(of_ann, &penalty, 1), both[1]];
        assert_ne!(bench.denials.question(&both).unwrap().print, bench.denials.question(&other).unwrap().print);
        assert!(bench.denials.question(&[look]).is_none());
        let void = Charge { op: Op::Ask(0), ..look };
        assert!(bench.denials.question(&[void, both[1]]).is_none());
    }
}
