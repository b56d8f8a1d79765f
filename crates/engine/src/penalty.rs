//! Penalties: a key that stays denied until an instant, whatever its count.
//!
//! A penalty is kept as the state of a bucket that holds one unit: while that unit is missing, the key is denied, and
//! the time until it is back is the time that is left. So it needs no store of its own, and it expires by itself.

use std::time::Duration;

use tidegate_core::{Decision, Key, Limit, LimitError, MemoryStore, Op, Rate};
use tidegate_policy::Rule;

use crate::bounds::PENALTY_SECONDS_MAX;
use crate::error::RequestError;
use crate::plan::Purpose;

/// The penalty of one key of a rule, whether it is in force or not.
#[derive(Debug)]
pub(crate) struct Penalty<'s> {
    store: &'s MemoryStore,
    key: Vec<u8>,
}

impl<'s> Penalty<'s> {
    /// That of the key with these parts: one for all limits of the rule, so it has the namespace of the first.
    pub(crate) fn of(store: &'s MemoryStore, rule: &Rule, parts: &[u8]) -> Penalty<'s> {
        let namespace = rule.limits.first().map_or(&[][..], |limit| &limit.namespace);
        Penalty { store, key: [&[Purpose::Penalty.byte()], namespace, parts].concat() }
    }

    /// How long the key stays denied; nothing if it is not.
    pub(crate) fn left(&self) -> Result<Option<Duration>, RequestError> {
        let decision = self.decide(LONGEST, Op::Peek)?;
        Ok((decision.remaining() == 0).then(|| decision.reset_after()))
    }

    /// Denies the key from now on for this long.
    pub(crate) fn impose(&self, length: Duration) -> Result<(), RequestError> {
        self.decide(length, Op::Debit(1)).map(|_| ())
    }

    /// Denies the key from now on for this long, or for as long as it was denied before if that is longer: a rule must
    /// not end what an operator imposed.
    pub(crate) fn lengthen(&self, length: Duration) -> Result<(), RequestError> {
        match self.left()? {
            Some(left) if left >= length => Ok(()),
            _ => self.impose(length),
        }
    }

    /// Lets the key pass again.
    pub(crate) fn lift(&self) -> Result<(), RequestError> {
        self.decide(LONGEST, Op::Reset).map(|_| ())
    }

    fn decide(&self, length: Duration, op: Op) -> Result<Decision, RequestError> {
        let key = Key::new(&self.key).map_err(RequestError::Key)?;
        Ok(self.store.decide(key, &one_in(length).map_err(RequestError::Penalty)?, op))
    }
}

/// Looks are made with the longest period there is: a shorter one would cut what is left to itself.
const LONGEST: Duration = Duration::from_secs(PENALTY_SECONDS_MAX);

fn one_in(length: Duration) -> Result<Limit, LimitError> {
    Limit::gcra(Rate::new(1, length)?, 1)
}
