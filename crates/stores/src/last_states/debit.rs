//! A debit of what was admitted while the store was away.

use std::sync::Arc;

use tidegate_core::{Charge, Decisions, Op, Time};

use super::entry::OwnedKey;
use super::{LastStates, Print};
use crate::StoreError;

/// Units of one key to debit. However it ends, also if it is dropped, the table learns of it: while it waits for one debit of
/// a key it makes no other.
#[derive(Debug)]
pub struct Debit {
    states: Arc<LastStates>,
    print: Print,
    key: OwnedKey,
    units: u64,
    /// Whether it may have been applied.
    was_applied: bool,
}

impl Debit {
    pub(super) fn new(states: Arc<LastStates>, print: Print, key: OwnedKey, units: u64) -> Debit {
        Debit { states, print, key, units, was_applied: false }
    }

    /// The charge to put to the store. From then on it may have been applied.
    #[must_use]
    pub fn charge(&mut self) -> Charge<'_> {
        self.was_applied = true;
        self.key.charge(Op::Debit(self.units))
    }

    /// Ends the debit with the answer of the store to a call between two instants. Returns whether it was applied, or may have
    /// been: it is not made twice.
    pub fn end(mut self, answer: &Result<Decisions, StoreError>, sent: Time, learned: Time) -> bool {
        self.was_applied = !answer.as_ref().is_err_and(StoreError::was_not_applied);
        let (states, key, was_applied) = (Arc::clone(&self.states), self.key.clone(), self.was_applied);
        // What the store reports has these units in it.
        drop(self);
        if let Ok(decisions) = answer {
            states.learn(&[key.charge(Op::Peek)], decisions, sent, learned);
        }
        was_applied
    }
}

impl Drop for Debit {
    fn drop(&mut self) {
        self.states.pushed(self.print, self.was_applied);
    }
}
