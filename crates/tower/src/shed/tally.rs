//! The requests in progress behind a shedder.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::spare::Spare;

static SPARE: Spare<Tally> = Spare::new();

/// The number of requests in progress, and of those that a fleet's shedder counts: in one word, and in cache lines of
/// its own.
///
/// The lower half counts all requests, 31 bits above it those of the fleet. Neither can overflow: there is no memory
/// for so many requests. The highest bit is set once the layer is gone.
#[repr(align(128))]
pub(super) struct Tally(AtomicU64);

const ONE: u64 = 1;
const ONE_OF_FLEET: u64 = 1 << FLEET_SHIFT | ONE;
const FLEET_SHIFT: u32 = 32;
const CLOSED: u64 = 1 << 63;

impl Tally {
    /// A tally with no requests.
    pub(super) fn new() -> &'static Tally {
        let tally = SPARE.take_or(|| Tally(AtomicU64::new(0)));
        tally.0.store(0, Ordering::Relaxed);
        tally
    }

    /// The number of requests in progress.
    pub(super) fn in_flight(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & ((1 << FLEET_SHIFT) - 1)
    }

    #[inline]
    pub(super) fn enter(&'static self) -> Place {
        self.0.fetch_add(ONE, Ordering::Relaxed);
        Place { tally: self, counted: ONE }
    }

    /// Counts a request of the fleet, if `may` allows it at their present number.
    #[inline]
    pub(super) fn enter_fleet_if(&'static self, may: impl Fn(u64) -> bool) -> Option<Place> {
        let next = |word: u64| may(word >> FLEET_SHIFT).then(|| word + ONE_OF_FLEET);
        let entered = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        entered.ok().map(|_| Place { tally: self, counted: ONE_OF_FLEET })
    }

    /// Marks that the layer is gone: no requests enter any more.
    pub(super) fn close(&'static self) {
        if self.0.fetch_or(CLOSED, Ordering::AcqRel) == 0 {
            SPARE.put(self);
        }
    }
}

/// A request in progress until this is dropped.
pub(super) struct Place {
    tally: &'static Tally,
    /// The summand of the request in the word.
    counted: u64,
}

impl Drop for Place {
    #[inline]
    fn drop(&mut self) {
        let before = self.tally.0.fetch_sub(self.counted, Ordering::AcqRel);
        if before == CLOSED | self.counted {
            SPARE.put(self.tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::lock::lock;

    /// Spare tallies are shared by all tests: a test that checks reuse must run alone.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn all_are_counted_and_some_as_the_fleets() {
        let _alone = lock(&ALONE);
        let tally = Tally::new();
        let (one, other) = (tally.enter(), tally.enter_fleet_if(|others| others < 1));
        assert!(other.is_some() && tally.enter_fleet_if(|others| others < 1).is_none());
        assert_eq!(tally.in_flight(), 2);
        drop(other);
        assert!(tally.enter_fleet_if(|others| others < 1).is_some());
        drop(one);
        assert_eq!(tally.in_flight(), 0);
        tally.close();
    }

    #[test]
    fn who_stays_longer_than_the_layer_is_counted_until_it_leaves() {
        let _alone = lock(&ALONE);
        let tally = Tally::new();
        let (first, second) = (tally.enter(), tally.enter_fleet_if(|_| true));
        tally.close();
        drop(first);
        assert_eq!(tally.in_flight(), 1);
        let other = Tally::new();
        assert!(!std::ptr::eq(tally, other), "it is still in use");
        drop(second);
        let again = Tally::new();
        assert!(std::ptr::eq(tally, again), "it is used again");
        assert_eq!(again.in_flight(), 0);
        again.close();
        assert!(std::ptr::eq(tally, Tally::new()), "and again, with nobody in");
        tally.close();
        other.close();
    }
}
