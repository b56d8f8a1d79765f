//! Keys that a full store in memory counts approximately. It keeps the least that each of them may have taken, so that units
//! cannot be given back to them, and they cannot be reset.

use std::time::Duration;

use tidegate_core::bounds::SPAN_NANOS_MAX;
use tidegate_core::{Charge, KeyError, Limit, Op, Rate, Retry};
use tidegate_stores::Call;

use crate::engine::Engine;
use crate::failure::guarded;
use crate::inline::limited_key;
use crate::keys::CALLERS;
use crate::store::{Backend, StoreError};

/// Returns how long the key of a charge may still be limited if a full store in memory counts it approximately.
pub(crate) fn approximate_left(backend: &Backend, charge: &Charge<'_>) -> Result<Option<Duration>, StoreError> {
    let Some(states) = backend.states() else { return Ok(None) };
    let whole = Op::Ask(charge.limit.units());
    let asked = guarded(|| states.decide_in(charge.namespace, charge.key, charge.limit, whole))?;
    // Of a key with a place of its own the store knows exactly when the whole limit is back.
    Ok(matches!(asked.retry(), Some(Retry::Unknown(_))).then(|| asked.reset_after()))
}

/// Whether a full store in memory counts the key of a charge approximately.
pub(crate) fn is_approximate(backend: &Backend, charge: &Charge<'_>) -> Result<bool, StoreError> {
    Ok(approximate_left(backend, charge)?.is_some())
}

/// Returns a charge as it is made, so that a reset leaves a log its place in a store in memory: a full store would give the place
/// to another key, and count this one approximately from then on.
pub(crate) fn forgetting<'a>(backend: &Backend, charge: &Charge<'a>) -> Charge<'a> {
    let is_log = charge.limit.log_entries_max() > 0;
    match charge.op {
        Op::Reset if is_log && backend.states().is_some() => Charge { op: Op::Refund(u64::MAX, None), ..*charge },
        _ => *charge,
    }
}

/// Forgets the key of a charge. Returns whether that was possible.
pub(crate) async fn forget(backend: &Backend, charge: &Charge<'_>) -> Result<bool, StoreError> {
    backend.decide(&Call::default(), &forgetting(backend, charge)).await?;
    Ok(!is_approximate(backend, charge)?)
}

/// Returns limits of all lengths that a full store in memory distinguishes: each represents all from a sixteenth of its
/// length on.
fn limits_of_each_length() -> impl Iterator<Item = Limit> {
    let lengths = (1..=u64::BITS / 4).map(|quarter| u64::MAX >> (u64::BITS - 4 * quarter));
    let limit = |length: u64| {
        let rate = Rate::new(1, Duration::from_nanos(length.min(SPAN_NANOS_MAX)));
        rate.and_then(|rate| Limit::gcra(rate, 1)).ok()
    };
    lengths.filter_map(limit)
}

impl Engine {
    /// Returns how long a key under `gcra` limits that callers bring may still be limited, if a full store in memory counts it
    /// approximately. The limit need not be known.
    ///
    /// # Errors
    /// If the key is too long.
    pub fn approximate_left(&self, key: &[u8]) -> Result<Option<Duration>, KeyError> {
        let key = limited_key(key)?;
        let left = |limit: Limit| {
            let charge = Charge::new(key, &limit, Op::Peek).within(&CALLERS);
            approximate_left(&self.callers, &charge).ok().flatten()
        };
        Ok(limits_of_each_length().filter_map(left).max())
    }
}
