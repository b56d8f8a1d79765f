//! One key's place in a table, and the protocol by which threads share it.
//!
//! The first word of the state doubles as the lock: whoever swaps [`LOCKED`] in and gets something else back owns the
//! slot, its fingerprint included, until it writes the word again. Rules that keep everybody moving:
//!
//! 1. Who holds one slot alone waits for nothing.
//! 2. Who takes over an expired slot ([`Slot::claim`]) never waits for it.
//! 3. Who holds several slots (a transaction) took the gates of all their home buckets first, in ascending order.

use super::fingerprint::Fingerprint;
use crate::Time;
use crate::sync::{AtomicU64, Ordering, Wait};

/// The first word of a slot that somebody holds: later than any instant.
const LOCKED: u64 = u64::MAX;

/// A fingerprint and the state that belongs to it.
#[repr(C)]
pub(crate) struct Slot<const WORDS: usize> {
    print: [AtomicU64; 2],
    state: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Slot<WORDS> {
    /// A slot that was never used.
    #[cfg(any(shuttle, miri))]
    pub(crate) fn empty() -> Slot<WORDS> {
        let zero = |_| AtomicU64::new(0);
        Slot { print: std::array::from_fn(zero), state: std::array::from_fn(zero) }
    }

    #[inline]
    pub(crate) fn print(&self) -> Fingerprint {
        Fingerprint { high: self.print[0].load(Ordering::Acquire), low: self.print[1].load(Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn matches(&self, print: Fingerprint) -> bool {
        self.print() == print
    }

    /// Takes the slot for `print`, or answers nothing if it belongs to another by now.
    #[inline]
    pub(crate) fn lock(&self, print: Fingerprint) -> Option<Held<'_, WORDS>> {
        let mut wait = Wait::new();
        loop {
            let first = self.state[0].swap(LOCKED, Ordering::Acquire);
            if first != LOCKED {
                // Dropping it puts the word back.
                let held = Held { slot: self, first };
                return self.matches(print).then_some(held);
            }
            // The holder may be giving the slot to another key and hold more: waiting for that could be for ever.
            while self.state[0].load(Ordering::Relaxed) == LOCKED {
                if !self.matches(print) {
                    return None;
                }
                wait.pause();
            }
        }
    }

    /// Takes the slot over if its state equals never seen at `now` and nobody holds it.
    pub(crate) fn claim(&self, now: Time) -> Option<Held<'_, WORDS>> {
        let first = self.state[0].load(Ordering::Relaxed);
        let claimed = first <= now.as_nanos()
            && self.state[0].compare_exchange(first, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        claimed.then_some(Held { slot: self, first })
    }
}

/// A slot that this thread holds. Dropped, it is left as it was.
pub(crate) struct Held<'a, const WORDS: usize> {
    slot: &'a Slot<WORDS>,
    first: u64,
}

impl<const WORDS: usize> Held<'_, WORDS> {
    #[inline]
    pub(crate) fn state(&self) -> [u64; WORDS] {
        std::array::from_fn(|word| if word == 0 { self.first } else { self.slot.state[word].load(Ordering::Relaxed) })
    }

    pub(crate) fn print(&self) -> Fingerprint {
        self.slot.print()
    }

    /// Gives the slot to another key, with a state that equals never seen until [`Held::release`] says otherwise.
    pub(crate) fn assign(&mut self, print: Fingerprint) {
        self.slot.print[0].store(print.high, Ordering::Release);
        self.slot.print[1].store(print.low, Ordering::Release);
        for word in &self.slot.state[1..] {
            word.store(0, Ordering::Relaxed);
        }
        self.first = 0;
    }

    /// Writes the state and lets go.
    #[inline]
    pub(crate) fn release(mut self, state: [u64; WORDS]) {
        for (word, value) in self.slot.state.iter().zip(state).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        self.first = state[0];
    }
}

impl<const WORDS: usize> Drop for Held<'_, WORDS> {
    #[inline]
    fn drop(&mut self) {
        self.slot.state[0].store(self.first, Ordering::Release);
    }
}
