//! Penalties: a key that stays denied until an instant, whatever its count.
//!
//! A penalty is kept as the state of a bucket that holds one unit: while that unit is missing, the key is denied, and
//! the time until it is back is the time that is left. So it needs no store of its own, and it expires by itself.

use std::time::Duration;

use tidegate_core::{Key, Limit, LimitError, MemoryStore, Op, Rate};

use crate::bounds::PENALTY_SECONDS_MAX;

/// Looks at and changes penalties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalties {
    /// Looks with the longest period there is: a shorter one would cut what is left to itself.
    look: Option<Limit>,
}

impl Penalties {
    pub(crate) fn new() -> Penalties {
        Penalties { look: one_in(Duration::from_secs(PENALTY_SECONDS_MAX)).ok() }
    }

    /// How long the key stays denied; nothing if it is not.
    pub(crate) fn left(&self, store: &MemoryStore, key: Key<'_>) -> Option<Duration> {
        let decision = store.decide(key, self.look.as_ref()?, Op::Peek);
        (decision.remaining() == 0).then(|| decision.reset_after())
    }

    /// Denies the key from now on for this long.
    pub(crate) fn impose(store: &MemoryStore, key: Key<'_>, length: Duration) -> Result<(), LimitError> {
        store.decide(key, &one_in(length)?, Op::Debit(1));
        Ok(())
    }

    /// Denies the key from now on for this long, or for as long as it was denied before if that is longer: a rule must
    /// not end what an operator imposed.
    pub(crate) fn lengthen(&self, store: &MemoryStore, key: Key<'_>, length: Duration) -> Result<(), LimitError> {
        match self.left(store, key) {
            Some(left) if left >= length => Ok(()),
            _ => Penalties::impose(store, key, length),
        }
    }

    /// Lets the key pass again.
    pub(crate) fn lift(&self, store: &MemoryStore, key: Key<'_>) {
        if let Some(look) = &self.look {
            store.decide(key, look, Op::Reset);
        }
    }
}

fn one_in(length: Duration) -> Result<Limit, LimitError> {
    Limit::gcra(Rate::new(1, length)?, 1)
}
