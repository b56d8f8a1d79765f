//! The purses of all keys: who asks the store for a lease, who waits for it, and what goes back.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::{Decision, Limit, Receipt, Time};
use tidegate_stores::{Leased, StoreError};
use tokio::sync::{Notify, watch};

use super::name::Name;
use super::purse::{Flight, Purse, Remainder, Remainders, Step};
use super::slice::{Ask, Terms};
use crate::bounds::{LEASED_KEYS_MAX, LEASES_DUE_MAX};

/// Locks that keys are divided among.
const SHARDS: usize = 64;

/// Keys that are looked at to find one that can make room.
const VICTIMS: usize = 16;

type Shard = HashMap<Name, Purse>;

/// What this node holds of all keys.
pub(super) struct Leases {
    shards: Box<[Mutex<Shard>]>,
    seed: RandomState,
    due: Mutex<BinaryHeap<Reverse<(Time, Name)>>>,
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
            if !make_room(&mut shard, now) {
                return Turn::Exact;
            }
            shard.insert(Name::of(name), Purse::new(*limit, terms, now));
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
        let mut too_many = false;
        let earlier = at.is_some() || purse.due.is_none_or(|due| next.is_some_and(|next| next < due));
        match next {
            None => {
                shard.remove(name);
            }
            Some(next) if earlier => {
                purse.due = Some(next);
                // Long names are there once.
                let own = shard.get_key_value(name).map(|(own, _)| own.clone());
                let mut due = lock(&self.due);
                let first = due.peek().is_none_or(|Reverse((at, _))| next < *at);
                due.extend(own.map(|own| Reverse((next, own))));
                too_many = due.len() > LEASES_DUE_MAX;
                if first {
                    self.wake.notify_one();
                }
            }
            Some(_) => {}
        }
        drop(shard);
        self.queue(name, gone);
        if too_many {
            self.renew_due();
        }
    }

    /// Makes the list of what is due anew, of the keys that are there: it still has those that made room for others.
    fn renew_due(&self) {
        lock(&self.due).clear();
        for shard in &self.shards {
            let shard = lock(shard);
            let each = shard.iter().filter_map(|(name, purse)| Some(Reverse((purse.due?, name.clone()))));
            lock(&self.due).extend(each);
        }
        // Meanwhile it may have been found empty.
        self.wake.notify_one();
    }

    /// Looks after all keys that are due, and takes out what is to be given back. Tells when to do it again.
    pub(super) fn tidy(&self, now: Time) -> (Vec<(Name, Remainder)>, Option<Time>) {
        loop {
            let mut due = lock(&self.due);
            match due.peek() {
                Some(Reverse((at, _))) if *at <= now => {}
                first => {
                    let next = first.map(|Reverse((at, _))| *at);
                    drop(due);
                    return (std::mem::take(&mut *lock(&self.back)), next);
                }
            }
            let Some(Reverse((at, name))) = due.pop() else { continue };
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
        self.shard(name).get_mut(name).map(change)
    }

    fn shard(&self, name: &[u8]) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(self.seed.hash_one(name) % SHARDS as u64).unwrap_or(0);
        #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
        lock(&self.shards[number])
    }
}

/// Whether there is room for another key, if need be after one that holds nothing has gone.
fn make_room(shard: &mut Shard, now: Time) -> bool {
    if shard.len() < LEASED_KEYS_MAX / SHARDS {
        return true;
    }
    let idle = shard.iter().take(VICTIMS).find(|(_, purse)| purse.is_idle(now)).map(|(name, _)| name.clone());
    idle.is_some_and(|name| shard.remove(&name).is_some())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Charge, Key};

    use super::super::name::Spelling;
    use super::*;

    #[test]
    fn keys_that_come_and_go_leave_nothing_behind() {
        let leases = Leases::new(Arc::default());
        let limit: Limit = "20/day".parse().unwrap();
        let now = Time::from_nanos(1_700_000_000_000_000_000);
        // Each asks once, and is told: for a while it would be looked after.
        for number in 0..3 * LEASED_KEYS_MAX {
            let text = format!("flood{number}");
            let charge = Charge::take(Key::new(&text).unwrap(), &limit, 1);
            let (name, terms) = (Spelling::new(&charge), Terms::of(&limit).unwrap());
            assert!(matches!(leases.take(&name, &limit, terms, 1, now), Turn::Alone(_)));
            leases.land(&name, now);
            let due = lock(&leases.due).len();
            assert!(due <= LEASES_DUE_MAX, "{due} to look after, {number} keys so far");
        }
        // Who is there is still looked after, and goes when nobody asks for it.
        let there: usize = leases.shards.iter().map(|shard| lock(shard).len()).sum();
        assert!(there > LEASED_KEYS_MAX / 2);
        let (_, next) = leases.tidy(now.plus(std::time::Duration::from_secs(60)));
        let there: usize = leases.shards.iter().map(|shard| lock(shard).len()).sum();
        assert_eq!((there, next), (0, None));
    }
}
