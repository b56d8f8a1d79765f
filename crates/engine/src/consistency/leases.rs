//! The leases of all keys: which request asks the store for one, which wait for it, and which units go back.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::{Decision, Limit, Receipt, Time};
use tidegate_stores::{Leased, StoreError};
use tokio::sync::{Notify, watch};

use super::name::Name;
use super::purse::{Flight, Purse, Remainder, Remainders, Step};
use super::slice::{Ask, Terms};
use crate::bounds::LEASED_KEYS_MAX;

/// Locks that keys are divided among.
const SHARDS: usize = 64;

/// Keys that are looked at to find one that can make room.
const VICTIMS: usize = 16;

/// Boxed: a map that is full, or that keys come to and go from, has twice as many places as keys.
type Shard = HashMap<Name, Box<Purse>>;

/// What this node holds of all keys.
pub(super) struct Leases {
    shards: Box<[Mutex<Shard>]>,
    seed: RandomState,
    /// When each key is looked after next: once for each that has an instant. Locked after its shard.
    due: Mutex<BTreeSet<(Time, Name)>>,
    back: Mutex<Vec<(Name, Remainder)>>,
    /// Told when something is due earlier than anything before.
    wake: Arc<Notify>,
}

/// The end of a call that others wait for. If the caller goes away, they learn that too.
pub(super) type Landing = watch::Sender<Option<Result<(), StoreError>>>;

/// What a request is to do, with the call that it is to make.
#[derive(Debug)]
pub(super) enum Turn {
    Answer(Decision),
    Wait(Flight),
    Lease(Ask, Landing),
    Alone(Landing),
    /// There are no leases for it.
    Exact,
}

impl Leases {
    pub(super) fn new(wake: Arc<Notify>) -> Leases {
        Leases {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            seed: RandomState::new(),
            due: Mutex::default(),
            back: Mutex::default(),
            wake,
        }
    }

    /// Takes units that are held, or says what to do to get them.
    pub(super) fn take(&self, name: &[u8], limit: &Limit, terms: Terms, units: u64, now: Time) -> Turn {
        let mut shard = self.shard(name);
        if !shard.contains_key(name) {
            if !self.make_room(&mut shard, now) {
                return Turn::Exact;
            }
            shard.insert(Name::of(name), Box::new(Purse::new(*limit, terms, now)));
        }
        let Some(purse) = shard.get_mut(name) else { return Turn::Exact };
        let gone = purse.adopt(limit, terms);
        let turn = match purse.take(now, units) {
            Step::Answer(decision) => Turn::Answer(decision),
            Step::Wait(flight) => Turn::Wait(flight),
            Step::TooLarge => Turn::Exact,
            step @ (Step::Lease(_) | Step::Alone) => {
                let (landing, flight) = watch::channel(None);
                purse.fly(flight);
                if let Step::Lease(ask) = step { Turn::Lease(ask, landing) } else { Turn::Alone(landing) }
            }
        };
        drop(shard);
        self.queue(name, gone);
        turn
    }

    /// Whether so many units would pass, if that is known here.
    pub(super) fn ask(&self, name: &[u8], units: u64, now: Time) -> Option<Decision> {
        self.shard(name).get(name)?.ask(now, units)
    }

    /// Units of this key that can be spent without asking.
    pub(super) fn left(&self, name: &[u8], now: Time) -> u64 {
        self.shard(name).get(name).map_or(0, |purse| purse.left(now))
    }

    /// Puts units back into the lease that they were taken from. False if it is gone.
    pub(super) fn give_back(&self, name: &[u8], units: u64, receipt: Receipt, now: Time) -> bool {
        self.shard(name).get_mut(name).is_some_and(|purse| purse.give_back(now, units, receipt))
    }

    /// Takes in the answer to a lease, before those who wait for it are told.
    pub(super) fn receive(
        &self,
        name: &[u8],
        ask: &Ask,
        result: Result<&Leased, &StoreError>,
        sent: Time,
        learned: Time,
    ) {
        let gone = self.with(name, |purse| {
            purse.land();
            match result {
                Ok(leased) => purse.receive(ask, leased, sent, learned),
                Err(_) => {
                    purse.fail();
                    Remainders::new()
                }
            }
        });
        self.queue(name, gone.unwrap_or_default());
        self.look_after(name, learned, None);
    }

    /// Takes in the answer to a request that was asked for alone.
    pub(super) fn receive_alone(&self, name: &[u8], units: u64, decision: &Decision, sent: Time, learned: Time) {
        self.with(name, |purse| purse.receive_alone(units, decision, sent, learned));
    }

    /// A call has ended: somebody else may make one.
    pub(super) fn land(&self, name: &[u8], now: Time) {
        self.with(name, Purse::land);
        self.look_after(name, now, None);
    }

    /// Nobody will tell what became of this call: somebody else may make one.
    pub(super) fn lose(&self, name: &[u8], flight: &Flight) {
        self.with(name, |purse| purse.lose(flight));
    }

    pub(super) fn forget_denial(&self, name: &[u8]) {
        self.with(name, Purse::forget_denial);
    }

    pub(super) fn forget(&self, name: &[u8]) {
        self.with(name, Purse::forget);
    }

    /// Looks after a key, if that is due: `at` is when it was to be.
    fn look_after(&self, name: &[u8], now: Time, at: Option<Time>) {
        let mut shard = self.shard(name);
        let Some(purse) = shard.get_mut(name) else { return };
        if at.is_some() && purse.due != at {
            return;
        }
        let (gone, next) = purse.look_after(now);
        match next {
            None => self.remove(&mut shard, name),
            Some(next) if at.is_some() || purse.due.is_none_or(|due| next < due) => {
                let before = purse.due.replace(next);
                // Long names are there once.
                if let Some((own, _)) = shard.get_key_value(name) {
                    self.list(own, before, next);
                }
            }
            Some(_) => {}
        }
        drop(shard);
        self.queue(name, gone);
    }

    /// Lists a key to be looked after at an instant, and no longer at the one before.
    fn list(&self, name: &Name, before: Option<Time>, next: Time) {
        let mut due = lock(&self.due);
        if let Some(before) = before {
            due.remove(&(before, name.clone()));
        }
        if due.first().is_none_or(|(at, _)| next < *at) {
            self.wake.notify_one();
        }
        due.insert((next, name.clone()));
    }

    /// Forgets a key: nothing is lost without it.
    fn remove(&self, shard: &mut Shard, name: &[u8]) {
        if let Some((name, purse)) = shard.remove_entry(name)
            && let Some(at) = purse.due
        {
            lock(&self.due).remove(&(at, name));
        }
    }

    /// Whether there is room for another key, if need be after one that holds nothing has gone.
    fn make_room(&self, shard: &mut Shard, now: Time) -> bool {
        if shard.len() < LEASED_KEYS_MAX / SHARDS {
            return true;
        }
        let idle = shard.iter().take(VICTIMS).find(|(_, purse)| purse.is_idle(now)).map(|(name, _)| name.clone());
        idle.is_some_and(|name| {
            self.remove(shard, &name);
            true
        })
    }

    /// Looks after all keys that are due, and takes out what is to be given back. Tells when to do it again.
    pub(super) fn tidy(&self, now: Time) -> (Vec<(Name, Remainder)>, Option<Time>) {
        loop {
            let mut due = lock(&self.due);
            match due.first() {
                Some((at, _)) if *at <= now => {}
                first => {
                    let next = first.map(|(at, _)| *at);
                    drop(due);
                    return (std::mem::take(&mut *lock(&self.back)), next);
                }
            }
            let Some((at, name)) = due.pop_first() else { continue };
            drop(due);
            self.look_after(&name, now, Some(at));
        }
    }

    /// All that is not spent, of all keys.
    pub(super) fn empty(&self, now: Time) -> Vec<(Name, Remainder)> {
        let mut back = std::mem::take(&mut *lock(&self.back));
        for shard in &self.shards {
            for (name, purse) in lock(shard).iter_mut() {
                back.extend(purse.empty(now).into_iter().map(|remainder| (name.clone(), remainder)));
            }
        }
        back
    }

    /// All of a key that is not spent.
    pub(super) fn take_out(&self, name: &[u8], now: Time) -> Remainders {
        self.with(name, |purse| purse.empty(now)).unwrap_or_default()
    }

    /// Remembers what is to be given back to the store.
    pub(super) fn queue(&self, name: &[u8], gone: impl IntoIterator<Item = Remainder>) {
        let mut gone = gone.into_iter().peekable();
        if gone.peek().is_some() {
            let own = Name::of(name);
            lock(&self.back).extend(gone.map(|remainder| (own.clone(), remainder)));
            self.wake.notify_one();
        }
    }

    fn with<T>(&self, name: &[u8], change: impl FnOnce(&mut Purse) -> T) -> Option<T> {
        self.shard(name).get_mut(name).map(|purse| change(purse))
    }

    fn shard(&self, name: &[u8]) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(self.seed.hash_one(name) % SHARDS as u64).unwrap_or(0);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
        lock(&self.shards[number])
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{Charge, Key, Namespace, Op, Purpose, State, decide};
    use tidegate_testkit::counting::{Counting, held_bytes};

    use super::super::name::Spelling;
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    const NOW: Time = Time::from_nanos(1_700_000_000_000_000_000);

    impl Leases {
        fn keys(&self) -> usize {
            self.shards.iter().map(|shard| lock(shard).len()).sum()
        }

        /// Takes units of a key for which a lease has to be asked for. The store gives one, unless all is spent. Returns
        /// whether there was room for the key.
        fn lease(&self, name: &[u8], limit: &Limit, units: u64, all_is_spent: bool, now: Time) -> bool {
            let (ask, _landing) = match self.take(name, limit, Terms::of(limit).unwrap(), units, now) {
                Turn::Lease(ask, landing) => (ask, landing),
                Turn::Exact => return false,
                turn => panic!("{turn:?}"),
            };
            let mut state = State::fresh(limit);
            if all_is_spent {
                decide(limit, &mut state, now, Op::Take(limit.units()));
            }
            let decision = decide(limit, &mut state, now, Op::Take(ask.sizes[0]));
            let units = if decision.is_allowed() { ask.sizes[0] } else { 0 };
            self.receive(name, &ask, Ok(&Leased::new(units, decision, None)), now, now);
            true
        }
    }

    #[test]
    fn keys_that_come_and_go_leave_nothing_behind() {
        let leases = Leases::new(Arc::default());
        let limit: Limit = "20/day".parse().unwrap();
        // Each asks once, and is told: for a while it would be looked after.
        for number in 0..3 * LEASED_KEYS_MAX {
            let text = format!("flood{number}");
            let charge = Charge::take(Key::new(&text).unwrap(), &limit, 1);
            let (name, terms) = (Spelling::new(&charge), Terms::of(&limit).unwrap());
            assert!(matches!(leases.take(&name, &limit, terms, 1, NOW), Turn::Alone(_)));
            leases.land(&name, NOW);
            let due = lock(&leases.due).len();
            assert!(due <= LEASED_KEYS_MAX, "{due} to look after, {number} keys so far");
        }
        assert_eq!(lock(&leases.due).len(), leases.keys());
        // Who is there is still looked after, and goes when nobody asks for it.
        assert!(leases.keys() > LEASED_KEYS_MAX / 2);
        let (_, next) = leases.tidy(NOW.plus(Duration::from_secs(60)));
        assert_eq!((leases.keys(), next), (0, None));
    }

    #[test]
    fn a_key_is_listed_once_however_often_it_is_looked_after_earlier() {
        let leases = Leases::new(Arc::default());
        let limit: Limit = "60000/minute".parse().unwrap();
        let name = Spelling::new(&Charge::take(Key::new("ann").unwrap(), &limit, 1));
        for cycle in 0..50 {
            let now = NOW.plus(Duration::from_secs(6 * cycle));
            assert!(leases.lease(&name, &limit, 1, false, now));
            // A key that holds nothing is kept for twenty seconds, and leases again before they are over.
            leases.forget(&name);
            leases.tidy(now.plus(Duration::from_secs(5)));
            assert_eq!(lock(&leases.due).len(), 1, "after {cycle} leases");
        }
    }

    #[test]
    fn all_keys_take_fifty_megabytes_at_most() {
        let limit: Limit = "60000/minute".parse().unwrap();
        let namespace = Namespace::named(Purpose::Rule, &["api", "per-user"]);
        let leases = Leases::new(Arc::default());
        let ((), bytes) = held_bytes(|| {
            let (mut number, mut keys) = (0, 0);
            while keys < LEASED_KEYS_MAX {
                let text = format!("user-{number:08}");
                let name = Spelling::new(&Charge::take(Key::new(&text).unwrap(), &limit, 1).within(&namespace));
                // Two leases are held, and a denial is known: nothing makes a key larger.
                let has_room = leases.lease(&name, &limit, 1, false, NOW)
                    && leases.lease(&name, &limit, 20, false, NOW)
                    && leases.lease(&name, &limit, 300, true, NOW);
                (number, keys) = (number + 1, keys + usize::from(has_room));
            }
        });
        println!("{LEASED_KEYS_MAX} keys take {bytes} bytes");
        assert!(bytes <= 50_000_000, "{bytes} bytes");
    }
}
