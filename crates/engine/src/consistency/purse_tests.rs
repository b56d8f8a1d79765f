//! Purses of several nodes on a store of whole numbers, in a time of their own.

use std::time::Duration;

use tidegate_core::{Charge, Decision, Decisions, DecisionsExt, Found, Key, Limit, Op, Rate, Retry, Time};
use tidegate_stores::Leased;
use tokio::sync::watch;

use super::purse::{Purse, Remainder, Step};
use super::slice::{Ask, Terms};

const MS: u64 = 1_000_000;
const START: u64 = 1_700_000_000_000 * MS;

fn at(millis: u64) -> Time {
    Time::from_nanos(START + millis * MS)
}

fn key() -> Key<'static> {
    Key::new("ann").unwrap()
}

/// The time of a unit of a bucket and that of its burst, in nanoseconds.
fn numbers(limit: &Limit) -> (u64, u64) {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap();
    (nanos(limit.interval().unwrap()), nanos(limit.period()))
}

/// One key's state, as the scripts keep it.
struct Store {
    limit: Limit,
    words: [u64; 3],
    calls: u64,
}

impl Store {
    fn new(limit: &Limit) -> Store {
        Store { limit: *limit, words: [0; 3], calls: 0 }
    }

    fn terms(&self) -> Terms {
        Terms::of(&self.limit).unwrap()
    }

    /// Decides on the words as they are now, and changes them.
    fn charge(&mut self, now: Time, op: Op) -> Decision {
        self.calls += 1;
        self.decide(now, op)
    }

    fn decide(&mut self, now: Time, op: Op) -> Decision {
        let charge = Charge { op, ..Charge::take(key(), &self.limit, 1) };
        let answer = |taken| Decisions::of_found(&[charge], now, &[Found::Words(self.words)], taken);
        let decision = *answer(true).or_else(|_| answer(false)).unwrap().iter().next().unwrap();
        match (self.limit.algorithm().is_bucket(), decision.receipt()) {
            (true, Some(receipt)) => self.words[0] = receipt.to_bits(),
            (false, Some(receipt)) => {
                self.words[1] = self.limit.units() - decision.remaining();
                self.words[0] = receipt.to_bits() + u64::try_from(decision.reset_after().as_nanos()).unwrap();
            }
            (_, None) => {}
        }
        decision
    }

    fn lease(&mut self, now: Time, ask: &Ask) -> Leased {
        self.calls += 1;
        let before = self.words;
        if self.limit.algorithm().is_bucket() {
            self.words[0] = self.words[0].max(now.plus(ask.length).as_nanos());
        }
        for units in &ask.sizes {
            let decision = self.decide(now, Op::Take(*units));
            if decision.is_allowed() {
                return Leased::new(*units, decision, None);
            }
        }
        let decision = self.decide(now, Op::Take(*ask.sizes.last().unwrap()));
        self.words = before;
        Leased::new(0, decision, None)
    }

    fn give_back(&mut self, now: Time, remainders: impl IntoIterator<Item = Remainder>) {
        for remainder in remainders {
            self.charge(now, remainder.op());
        }
    }
}

/// Takes as a request does, and tells whether it passed.
fn take(store: &mut Store, purse: &mut Purse, now: Time, units: u64) -> bool {
    for _ in 0..4 {
        match purse.take(now, units) {
            Step::Answer(decision) => return decision.is_allowed(),
            Step::Lease(ask) => {
                let leased = store.lease(now, &ask);
                let gone = purse.receive(&ask, &leased, now, now);
                store.give_back(now, gone);
            }
            Step::Alone => {
                let decision = store.charge(now, Op::Take(units));
                purse.receive_alone(units, &decision, now, now);
                return decision.is_allowed();
            }
            Step::TooLarge => return store.charge(now, Op::Take(units)).is_allowed(),
            Step::Wait(_) => unreachable!("nobody else asks"),
        }
    }
    unreachable!("a lease was given and not spent")
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % below
    }
}

/// Lets nodes of these shares ask for one unit at a time, at random instants, `offered` percent of the limit's rate in all.
/// Nothing may pass that a single bucket would not let pass, and of the rate little may be missing.
fn check(limit: &Limit, offered: u64, shares: &[u64], seconds: u64, requests_per_call: u64) {
    let mut store = Store::new(limit);
    let (interval, span) = numbers(limit);
    let mut purses: Vec<Purse> = shares.iter().map(|_| Purse::new(*limit, store.terms(), at(0))).collect();
    let mut due: Vec<Time> = vec![Time::MAX; shares.len()];
    let mut dice = Dice(0x1234_5678_9ABC_DEF1);
    let (mut now, mut requests, mut passed) = (START, 0_u64, 0_u64);
    // The bucket that every unit would have been asked of when it was spent: if all of them fit, never too much passed.
    let mut witness = 0_u64;
    while now < START + seconds * 1_000 * MS {
        now += dice.below(2 * interval * 100 / offered);
        let time = Time::from_nanos(now);
        for (purse, due) in purses.iter_mut().zip(&mut due).filter(|(_, due)| **due <= time) {
            let (gone, next) = purse.look_after(time);
            *due = next.unwrap_or(Time::MAX);
            store.give_back(time, gone);
        }
        let mut pick = dice.below(shares.iter().sum());
        let number =
            shares.iter().position(|share| pick.checked_sub(*share).map(|left| pick = left).is_none()).unwrap();
        requests += 1;
        if take(&mut store, &mut purses[number], time, 1) {
            passed += 1;
            witness = witness.max(now) + interval;
            assert!(witness <= now + span, "{limit:?}: too much passed after {} ms", (now - START) / MS);
        }
        let (gone, next) = purses[number].look_after(time);
        due[number] = next.unwrap_or(Time::MAX);
        store.give_back(time, gone);
    }
    let whole = requests.min(limit.units() + (now - START) / interval);
    let burst_late = limit.units() / crate::bounds::LEASE_SHARE + 2;
    let calls = store.calls;
    println!(
        "{} in {:?}, {offered} %: {requests} requests, {passed} of {whole} passed, {calls} calls",
        limit.units(),
        Duration::from_nanos(span)
    );
    assert!(passed + whole / 100 + burst_late >= whole, "{passed} of {whole} passed");
    assert!(calls * requests_per_call <= requests, "{calls} calls for {requests} requests");
}

#[test]
fn nodes_share_a_limit_with_few_calls() {
    let minute = |units: u64| format!("{units}/minute").parse::<Limit>().unwrap();
    // Over the limit, at it and below it.
    check(&minute(60_000), 200, &[1, 1, 1, 1], 180, 50);
    check(&minute(60_000), 105, &[1, 1, 1, 1], 180, 50);
    check(&minute(60_000), 50, &[1, 1, 1, 1], 120, 40);
    check(&minute(6_000), 200, &[1, 1, 1, 1], 1_200, 10);
    check(&minute(6_000), 20, &[1, 1, 1, 1], 600, 20);
    check(&minute(600), 200, &[1, 1, 1, 1], 3_600, 1);
    check(&minute(600), 20, &[1, 1, 1, 1], 3_600, 2);
    // Nodes that are asked for much and for little.
    check(&minute(60_000), 200, &[100, 10, 1, 1], 180, 50);
    check(&minute(6_000), 130, &[100, 10, 1, 1], 1_200, 10);
    check(&"100/second".parse().unwrap(), 200, &[1, 1, 1, 1], 300, 2);
    check(&"1000/second".parse().unwrap(), 300, &[3, 1, 1, 1], 60, 10);
}

/// Nodes that are asked now and then, and sometimes for all that they can get, all at once.
#[test]
fn whatever_nodes_hold_too_much_never_passes() {
    let limit = Limit::gcra(Rate::per_second(20).unwrap(), 40).unwrap();
    let (interval, span) = numbers(&limit);
    for seed in 1..200 {
        let mut dice = Dice(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let mut store = Store::new(&limit);
        let mut purses: Vec<Purse> = (0..3).map(|_| Purse::new(limit, store.terms(), at(0))).collect();
        let (mut now, mut witness, mut passed) = (START, 0, 0);
        for _ in 0..300 {
            now += [0, MS, 20 * MS, 100 * MS, 400 * MS, 3_000 * MS][usize::try_from(dice.below(6)).unwrap()];
            let time = Time::from_nanos(now);
            let number = usize::try_from(dice.below(3)).unwrap();
            match dice.below(8) {
                0 => {
                    let (gone, _) = purses[number].look_after(time);
                    store.give_back(time, gone);
                }
                1 => {
                    let gone = purses[number].empty(time);
                    store.give_back(time, gone);
                }
                2 => purses.iter_mut().for_each(|purse| {
                    purse.forget_denial();
                    while take(&mut store, purse, time, 1) {
                        passed += 1;
                        witness = witness.max(now) + interval;
                    }
                }),
                _ => {
                    let units = 1 + dice.below(3);
                    if take(&mut store, &mut purses[number], time, units) {
                        passed += units;
                        witness = witness.max(now) + units * interval;
                    }
                }
            }
            assert!(witness <= now + span, "seed {seed}: too much passed after {} ms", (now - START) / MS);
        }
        assert!(passed > 300, "{passed}");
    }
}

/// A window of this length, of which a node has leased nothing yet.
fn window(seconds: u64) -> (Store, Purse) {
    let store = Store::new(&Limit::fixed_window(60_000, Duration::from_secs(seconds)).unwrap());
    let purse = Purse::new(store.limit, store.terms(), at(0));
    (store, purse)
}

/// A window of an hour, and a node that was asked for much and holds this much of one lease.
fn filled() -> (Store, Purse, u64) {
    let (mut store, mut purse) = window(3_600);
    // At different instants, since those are the receipts of a window.
    let mut now = START - 50 * MS;
    while purse.left(at(0)) < 20 {
        now += MS;
        assert!(take(&mut store, &mut purse, Time::from_nanos(now), 1));
    }
    let left = purse.left(at(0));
    (store, purse, left)
}

#[test]
fn a_lease_is_spent_until_it_ends_and_no_later_than_its_window() {
    let (mut store, mut purse) = window(60);
    let into_window = START / MS % 60_000;
    let end = 60_000 - into_window;
    let asked = end - 4_000;
    assert!(take(&mut store, &mut purse, at(asked), 1));
    assert_eq!(purse.left(at(end - 1)), 15);
    assert_eq!(purse.left(at(end)), 0, "the window is over");
    assert_eq!(purse.look_after(at(end)).0.len(), 0, "and there is nothing to give back to it");
    assert!(take(&mut store, &mut purse, at(end + 1_000), 1));
    let ends = end + 1_000 + 10_000 - 10_000 / 1_024;
    assert!(purse.left(at(ends - 10)) > 0 && purse.left(at(ends + 10)) == 0, "a thousandth before its end");
}

#[test]
fn one_asks_and_the_others_wait() {
    let (mut store, mut purse) = window(60);
    let Step::Lease(ask) = purse.take(at(0), 1) else { panic!("nothing is held") };
    let (landing, flight) = watch::channel(None);
    purse.fly(flight);
    for _ in 0..40 {
        assert!(matches!(purse.take(at(1), 1), Step::Wait(_)));
    }
    let leased = store.lease(at(1), &ask);
    purse.land();
    purse.receive(&ask, &leased, at(0), at(2));
    landing.send_replace(Some(Ok(())));
    for _ in 0..leased.units {
        assert!(matches!(purse.take(at(2), 1), Step::Answer(decision) if decision.is_allowed()));
    }
    // 16 of the 41 had theirs. The next call is for all of the rest.
    let Step::Lease(ask) = purse.take(at(3), 1) else { panic!("all is spent") };
    assert!(ask.sizes[0] >= 24, "{ask:?}");
}

#[test]
fn what_was_taken_in_vain_goes_back_to_its_lease() {
    let (mut store, mut purse, left) = filled();
    let Step::Answer(decision) = purse.take(at(1), left) else { panic!("they are held") };
    let receipt = decision.receipt().unwrap();
    assert_eq!(purse.left(at(2)), 0);
    assert!(purse.give_back(at(2), left, receipt));
    assert_eq!(purse.left(at(2)), left);
    assert!(purse.give_back(at(2), left, receipt), "what is given back twice");
    let whole = purse.left(at(2));
    assert!(whole <= left + 1, "is no more than was taken");
    assert!(!purse.give_back(at(20_000), 1, receipt), "the lease is over");
    // A request that needs the next lease too has the receipt of the older one, which ends first.
    assert!(matches!(purse.take(at(99), whole - 5), Step::Answer(_)));
    let Step::Lease(ask) = purse.take(at(100), 10) else { panic!("5 are missing") };
    let leased = store.lease(at(100), &ask);
    purse.receive(&ask, &leased, at(100), at(100));
    let Step::Answer(both) = purse.take(at(101), 10) else { panic!("it is held") };
    assert_eq!(both.receipt(), Some(receipt));
    assert_eq!(purse.left(at(101)), leased.units - 5);
}

#[test]
fn what_nobody_spends_goes_back_at_half_time_and_the_rest_at_the_end() {
    let units = |gone: &[Remainder]| gone.iter().map(|remainder| remainder.units).collect::<Vec<_>>();
    let (_, mut purse, left) = filled();
    let (gone, next) = purse.look_after(at(0));
    assert!(gone.is_empty() && next > Some(at(4_900)) && next < Some(at(5_000)), "{next:?}");
    assert_eq!(units(&purse.look_after(at(5_000)).0), [left]);
    let (gone, next) = purse.look_after(at(5_000));
    assert!(gone.is_empty() && next.is_some(), "what is known of its rate is kept for a while");
    assert_eq!(purse.look_after(at(20_000)).1, None);
    // In use, it goes back at the end only.
    let (mut store, mut purse, left) = filled();
    assert!(take(&mut store, &mut purse, at(4_000), 1));
    assert!(purse.look_after(at(5_000)).0.is_empty());
    assert_eq!(units(&purse.look_after(at(10_000)).0), [left - 1]);
}

#[test]
fn a_denial_is_known_for_what_was_asked_and_a_second_at_most() {
    let limit: Limit = "600/minute".parse().unwrap();
    let mut store = Store::new(&limit);
    let mut purse = Purse::new(limit, store.terms(), at(0));
    store.charge(at(0), Op::Take(600));
    assert!(!take(&mut store, &mut purse, at(1), 1));
    let calls = store.calls;
    let Step::Answer(denied) = purse.take(at(10), 1) else { panic!("it is known") };
    assert!(
        matches!(denied.retry(), Some(Retry::After(wait)) if wait > Duration::from_millis(180)),
        "for two units: {denied:?}"
    );
    assert_eq!(denied.remaining(), 0);
    assert!(!take(&mut store, &mut purse, at(790), 1));
    assert_eq!(store.calls, calls);
    assert!(take(&mut store, &mut purse, at(1_200), 1), "eight are back");
    // A large request that is denied says nothing of a small one.
    assert!(!take(&mut store, &mut purse, at(1_300), 140));
    assert!(!take(&mut store, &mut purse, at(2_299), 140));
    let calls = store.calls;
    assert!(!take(&mut store, &mut purse, at(2_310), 140));
    assert_eq!(store.calls, calls + 1, "after a second it is asked for again");
    assert!(take(&mut store, &mut purse, at(2_320), 1));
    // Other numbers, too, are asked for.
    let raised: Limit = "700/minute".parse().unwrap();
    purse.adopt(&raised, Terms::of(&raised).unwrap());
    assert!(matches!(purse.take(at(2_330), 140), Step::Lease(_) | Step::Alone));
}

#[test]
fn a_store_that_was_away_leaves_leases_short() {
    let store = Store::new(&"600000/minute".parse().unwrap());
    let mut purse = Purse::new(store.limit, store.terms(), at(0));
    let mut asked = |now| match purse.take(now, 1) {
        Step::Lease(ask) => {
            purse.fail();
            ask.length
        }
        step => panic!("{step:?}"),
    };
    // It did not answer, and was not asked for three seconds: a long lease would take them from the burst.
    assert_eq!((asked(at(0)), asked(at(3_000))), (Duration::from_millis(150), Duration::from_millis(150)));
}

#[test]
fn what_was_asked_for_under_other_numbers_goes_back_under_them() {
    let mut store = Store::new(&"600/minute".parse().unwrap());
    let mut purse = Purse::new(store.limit, store.terms(), at(0));
    let Step::Lease(ask) = purse.take(at(0), 1) else { panic!("nothing is held") };
    let (_landing, flight) = watch::channel(None);
    purse.fly(flight);
    let leased = store.lease(at(1), &ask);
    let (old, new) = (store.limit, "60/minute".parse().unwrap());
    purse.adopt(&new, Terms::of(&new).unwrap());
    purse.land();
    let back = purse.receive(&ask, &leased, at(0), at(2));
    assert_eq!((back[0].limit, back[0].units, purse.left(at(2))), (old, leased.units, 0));
}
