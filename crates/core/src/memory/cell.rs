//! A state that threads share, and the lock in it.
//!
//! The first word of the state doubles as the lock: a thread that swaps [`LOCKED`] in and gets something else back
//! holds the cell until it writes the word again. That is one atomic instruction per decision, like a compare-and-swap,
//! and it serves states of several words as well. A state of one word can also be read without holding it: if nothing
//! is to be written, as for a denial, that is enough.

use super::pages::Zeroed;
use crate::Time;
use crate::sync::{AtomicU64, Ordering, Wait};

/// The first word of a cell that is held: later than any instant.
const LOCKED: u64 = u64::MAX;

#[repr(transparent)]
pub(crate) struct Cell<const WORDS: usize>([AtomicU64; WORDS]);

// SAFETY: a cell is made of `AtomicU64` alone.
#[allow(unsafe_code)]
unsafe impl<const WORDS: usize> Zeroed for Cell<WORDS> {
    #[cfg(any(shuttle, miri))]
    fn zero() -> Self {
        Cell::fresh()
    }
}

impl<const WORDS: usize> Cell<WORDS> {
    /// A state that equals never seen.
    pub(crate) fn fresh() -> Cell<WORDS> {
        Cell(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Holds the cell, after waiting for the thread that holds it.
    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, WORDS> {
        let mut wait = Wait::new();
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            while self.is_locked() {
                wait.pause();
            }
        }
    }

    /// Holds the cell if nobody else does.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, WORDS>> {
        let first = self.0[0].swap(LOCKED, Ordering::Acquire);
        // Where somebody else holds it, the swap changed nothing.
        if first == LOCKED { None } else { Some(self.held(first)) }
    }

    /// Decides on a state of one word. If `only_look` says of the word that nothing will change, it is enough to read
    /// it, unless `is_mine` denies that it is the right one; else `lock` gives the cell. False if it does not, or
    /// if there was something to change after all.
    #[inline(always)]
    pub(crate) fn change<'a>(
        &'a self,
        only_look: impl FnOnce(&[u64; WORDS]) -> bool,
        is_mine: impl FnOnce() -> bool,
        lock: impl FnOnce() -> Option<Held<'a, WORDS>>,
        decide: impl FnOnce(&mut [u64; WORDS]),
    ) -> bool {
        let word = self.0[0].load(Ordering::Acquire);
        let looks = word != LOCKED && only_look(&[word; WORDS]) && is_mine();
        let held = if looks { None } else { lock() };
        let Some(before) = held.as_ref().map(|held| held.state[0]).or(looks.then_some(word)) else { return false };
        // One place for both: a decision that is compiled twice is not inlined, which takes longer than the lock.
        let mut state = [before; WORDS];
        decide(&mut state);
        match held {
            Some(held) => {
                held.release(state);
                true
            }
            None => state[0] == before,
        }
    }

    /// The instant from which on the state equals never seen; later than any if the cell is held.
    pub(crate) fn fresh_at(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.fresh_at() == LOCKED
    }

    /// Holds the cell if its state equals never seen at `now` and nobody holds it.
    pub(crate) fn claim(&self, now: Time) -> Option<Held<'_, WORDS>> {
        let first = self.fresh_at();
        let claimed = first <= now.as_nanos()
            && self.0[0].compare_exchange(first, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok();
        claimed.then(|| self.held(first))
    }

    #[inline]
    fn held(&self, first: u64) -> Held<'_, WORDS> {
        let word = |word: usize| if word == 0 { first } else { self.0[word].load(Ordering::Relaxed) };
        Held { cell: self, state: std::array::from_fn(word) }
    }
}

/// A cell that this thread holds, and its state. When it is dropped, also by a panic, the state is written as it then
/// is, and the cell is unlocked: at every step of a change the state must be one that does not over-admit.
pub(crate) struct Held<'a, const WORDS: usize> {
    cell: &'a Cell<WORDS>,
    state: [u64; WORDS],
}

impl<const WORDS: usize> Held<'_, WORDS> {
    #[inline]
    pub(crate) fn state(&self) -> [u64; WORDS] {
        self.state
    }

    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut [u64; WORDS] {
        &mut self.state
    }

    /// Sets the state and lets go.
    #[inline]
    pub(crate) fn release(mut self, state: [u64; WORDS]) {
        self.state = state;
    }
}

impl<const WORDS: usize> Drop for Held<'_, WORDS> {
    #[inline]
    fn drop(&mut self) {
        for (word, value) in self.cell.0.iter().zip(self.state).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        self.cell.0[0].store(self.state[0], Ordering::Release);
    }
}
