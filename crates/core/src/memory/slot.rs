//! One key's place in a table, and the rules by which threads share it.
//!
//! Whoever holds the slot's cell owns the fingerprint too. Rules that keep everybody moving:
//!
//! 1. Who holds one slot alone waits for nothing.
//! 2. Who takes over an expired slot ([`Cell::claim`]) never waits for it.
//! 3. Who holds several slots (a transaction) took the gates of all their home buckets first, in ascending order.

use super::cell::{Cell, Held};
use super::fingerprint::Fingerprint;
use crate::sync::{AtomicU64, Ordering, Wait};

/// A fingerprint and the state that belongs to it.
#[repr(C)]
pub(crate) struct Slot<const WORDS: usize> {
    print: [AtomicU64; 2],
    pub(crate) cell: Cell<WORDS>,
}

impl<const WORDS: usize> Slot<WORDS> {
    /// A slot that was never used.
    #[cfg(any(shuttle, miri))]
    pub(crate) fn empty() -> Slot<WORDS> {
        Slot { print: std::array::from_fn(|_| AtomicU64::new(0)), cell: Cell::fresh() }
    }

    #[inline]
    pub(crate) fn print(&self) -> Fingerprint {
        Fingerprint { high: self.print[0].load(Ordering::Acquire), low: self.print[1].load(Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn matches(&self, print: Fingerprint) -> bool {
        self.print() == print
    }

    /// Holds the slot for `print`, or returns `None` if it belongs to another key by now.
    #[inline]
    pub(crate) fn lock(&self, print: Fingerprint) -> Option<Held<'_, WORDS>> {
        let mut wait = Wait::new();
        loop {
            if let Some(held) = self.cell.try_lock() {
                return self.matches(print).then_some(held);
            }
            // The holder may be a transaction that gives the slot to another key and waits for this very thread.
            while self.cell.is_locked() {
                if !self.matches(print) {
                    return None;
                }
                wait.pause();
            }
        }
    }

    /// Decides on the state of `print`, if the slot is still its own; see [`Cell::change`].
    #[inline(always)]
    pub(crate) fn change(
        &self,
        print: Fingerprint,
        only_look: impl FnOnce(&[u64; WORDS]) -> bool,
        decide: impl FnOnce(&mut [u64; WORDS]),
    ) -> bool {
        self.cell.change(only_look, || self.matches(print), || self.lock(print), decide)
    }

    /// Gives the slot that the caller holds to another key, with a state that equals never seen.
    pub(crate) fn assign(&self, held: &mut Held<'_, WORDS>, print: Fingerprint) {
        self.print[0].store(print.high, Ordering::Release);
        self.print[1].store(print.low, Ordering::Release);
        *held.state_mut() = [0; WORDS];
    }
}
