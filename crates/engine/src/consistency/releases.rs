//! Permits whose release did not reach the store: it is retried until the store answers, or the lease ends.
//!
//! A caller that acquires or renews such a permit before holds it again: then the retries stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::{Key, Namespace, PermitOp, Time};
use tidegate_stores::PermitCharge;

use crate::bounds::RELEASES_BYTES_MAX;
use crate::keys::key_of;

/// What a release takes beside the bytes of its names, about.
const RELEASE_BYTES: usize = 160;

/// The releases of one store.
#[derive(Debug, Default)]
pub(super) struct Releases {
    each: Mutex<Waiting>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    releases: HashMap<Name, State>,
    bytes: usize,
}

/// The namespace of a permit, by its hash, its key and its own name.
type Name = (u128, Box<[u8]>, Box<[u8]>);

#[derive(Debug)]
struct State {
    namespace: Namespace,
    /// When its lease is over.
    until: Time,
    is_under_way: bool,
}

impl Releases {
    /// Has a permit released that is held for this long. If there is no room it is forgotten, and its lease ends.
    pub(super) fn add(&self, charge: &PermitCharge<'_>, left: Duration, now: Time) {
        let (name, mut waiting) = (name(charge), self.lock());
        let until = now.plus(left);
        if let Some(known) = waiting.releases.get_mut(&name) {
            known.until = known.until.max(until);
            return;
        }
        let bytes = waiting.bytes + bytes_of(&name);
        if bytes <= RELEASES_BYTES_MAX {
            waiting.bytes = bytes;
            let state = State { namespace: charge.namespace.clone(), until, is_under_way: false };
            waiting.releases.insert(name, state);
        }
        self.count.store(waiting.releases.len(), Relaxed);
    }

    /// Has a permit not released any more. Returns whether that was possible: a release may be under way.
    pub(super) fn withdraw(&self, charge: &PermitCharge<'_>) -> bool {
        if self.count() == 0 {
            return true;
        }
        let (name, mut waiting) = (name(charge), self.lock());
        match waiting.releases.get(&name) {
            Some(state) if state.is_under_way => false,
            Some(_) => {
                self.remove(&mut waiting, &name);
                true
            }
            None => true,
        }
    }

    /// How many permits are to be released.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Begins to release some permits, at most this many, and forgets those whose lease is over.
    pub(super) fn begin(self: &Arc<Self>, most: usize, now: Time) -> Vec<Release> {
        let mut waiting = self.lock();
        let mut begun = Vec::new();
        let mut over = Vec::new();
        for (name, state) in waiting.releases.iter_mut().filter(|(_, state)| !state.is_under_way) {
            if begun.len() >= most {
                break;
            } else if state.until <= now {
                over.push(name.clone());
            } else {
                state.is_under_way = true;
                let namespace = state.namespace.clone();
                begun.push(Release { all: Arc::clone(self), namespace, name: name.clone(), is_over: false });
            }
        }
        over.iter().for_each(|name| self.remove(&mut waiting, name));
        begun
    }

    fn remove(&self, waiting: &mut Waiting, name: &Name) {
        if waiting.releases.remove(name).is_some() {
            waiting.bytes = waiting.bytes.saturating_sub(bytes_of(name));
        }
        self.count.store(waiting.releases.len(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A release that is under way. If it is dropped without an answer, it is repeated.
pub(super) struct Release {
    all: Arc<Releases>,
    namespace: Namespace,
    name: Name,
    is_over: bool,
}

impl Release {
    /// What to ask of the store.
    pub(super) fn charge(&self) -> Option<PermitCharge<'_>> {
        let (_, key, permit) = &self.name;
        let (key, permit) = (key_of(key).ok()?, Key::new(permit).ok()?);
        Some(PermitCharge { namespace: &self.namespace, key, permit, op: PermitOp::Release })
    }

    /// Ends it: the store has answered.
    pub(super) fn answered(mut self) {
        self.is_over = true;
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let mut waiting = self.all.lock();
        if self.is_over {
            self.all.remove(&mut waiting, &self.name);
        } else if let Some(state) = waiting.releases.get_mut(&self.name) {
            state.is_under_way = false;
        }
    }
}

fn name(charge: &PermitCharge<'_>) -> Name {
    (charge.namespace.hash(), charge.key.as_bytes().into(), charge.permit.as_bytes().into())
}

fn bytes_of((_, key, permit): &Name) -> usize {
    RELEASE_BYTES + key.len() + permit.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::CALLERS;

    fn release(key: &str) -> PermitCharge<'_> {
        let key = Key::new(key).unwrap();
        PermitCharge { namespace: &CALLERS, key, permit: key, op: PermitOp::Release }
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    const LEASE: Duration = Duration::from_secs(60);

    #[test]
    fn a_release_is_repeated_until_it_is_answered_or_the_lease_is_over() {
        let releases = Arc::new(Releases::default());
        for key in ["ann", "bob", "cid"] {
            releases.add(&release(key), LEASE, at(0));
        }
        releases.add(&release("cid"), 2 * LEASE, at(0));
        let mut begun = releases.begin(2, at(1));
        assert_eq!((begun.len(), releases.begin(9, at(1)).len(), releases.count()), (2, 1, 3), "each is begun once");
        assert!(begun.iter().all(|one| one.charge().unwrap().op == PermitOp::Release));
        begun.remove(0).answered();
        drop(begun);
        assert_eq!((releases.begin(9, at(59)).len(), releases.count()), (2, 2));
        let left: Vec<Box<[u8]>> = releases.begin(9, at(60)).iter().map(|one| one.name.1.clone()).collect();
        assert!(left.iter().all(|key| **key == *b"cid"), "{left:?}");
        assert!(releases.begin(9, at(120)).is_empty());
        assert_eq!((releases.count(), releases.lock().bytes), (0, 0));
    }

    #[test]
    fn who_holds_it_again_is_not_released() {
        let releases = Arc::new(Releases::default());
        releases.add(&release("ann"), LEASE, at(0));
        assert!(releases.withdraw(&release("bob")) && releases.withdraw(&release("ann")));
        assert!(releases.begin(9, at(1)).is_empty());
        releases.add(&release("ann"), LEASE, at(1));
        let begun = releases.begin(9, at(1));
        assert!(!releases.withdraw(&release("ann")), "it is on its way");
        drop(begun);
        assert!(releases.withdraw(&release("ann")));
    }

    #[test]
    fn room_is_bounded() {
        let releases = Arc::new(Releases::default());
        let long = "k".repeat(4_000);
        for number in 0..2_000 {
            releases.add(&release(&format!("{number}{long}")[..4_000]), LEASE, at(0));
        }
        let count = releases.count();
        assert!((400..1_000).contains(&count) && releases.lock().bytes <= RELEASES_BYTES_MAX, "{count}");
        assert_eq!(releases.begin(usize::MAX, at(60)).len() + releases.count(), 0);
        releases.add(&release("ann"), LEASE, at(60));
        assert_eq!(releases.count(), 1, "there is room again");
    }
}
