//! Keys that are decided together: their memory is fetched in parallel, which makes a pipeline of many keys much
//! cheaper than one decision after the other.

use tidegate_core::{Charge, Decision, Key, KeyError, Limit, MemoryStore, Op};

use crate::bounds::{BATCH_KEYS_MAX, BATCH_ROOM_BYTES};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::failure::guarded;
use crate::inline::limited_key;

/// Keys to decide together, under one limit that the caller brings.
#[derive(Debug, Default)]
pub struct Batch {
    /// One key after the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    /// Adds a key.
    ///
    /// # Errors
    /// Fails if the key is too long; then it is not added.
    #[inline]
    pub fn push(&mut self, key: &[u8]) -> Result<(), KeyError> {
        limited_key(key)?;
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Returns the keys, in the order in which they were added.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns whether one more key would be decided separately.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ends.len() >= BATCH_KEYS_MAX
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        if self.bytes.capacity() > BATCH_ROOM_BYTES {
            self.bytes.shrink_to(BATCH_ROOM_BYTES);
        }
    }
}

impl Engine {
    /// Decides about each key of a batch in order, at one instant, in the store of callers, and appends the decisions.
    /// Does nothing if that store has to be awaited: see [`Engine::default_store_awaits`].
    #[inline]
    pub fn decide_batch(&self, caller: &Caller, batch: &Batch, limit: &Limit, op: Op, decisions: &mut Vec<Decision>) {
        let Some(store) = self.callers.states() else { return };
        let mut start = 0;
        for ends in batch.ends.chunks(BATCH_KEYS_MAX) {
            let mut keys = [Key::ALL; BATCH_KEYS_MAX];
            for (key, end) in keys.iter_mut().zip(ends) {
                let bytes = batch.bytes.get(start..*end).unwrap_or_default();
                // Every key was checked when it was added.
                *key = limited_key(bytes).unwrap_or(Key::ALL);
                start = *end;
            }
            let (keys, answered) = (keys.get(..ends.len()).unwrap_or_default(), decisions.len());
            if guarded(|| store.decide_batch_in(caller.namespace(), keys, limit, op, decisions)).is_err() {
                let rest = Rest { caller, keys, limit, op, answered };
                self.decide_rest(store, &rest, decisions);
            }
        }
    }

    /// Decides the rest of a batch that panicked, after the decisions that were complete. The last one that it began is
    /// for the key that caused the panic.
    #[cold]
    fn decide_rest(&self, store: &MemoryStore, rest: &Rest<'_>, decisions: &mut Vec<Decision>) {
        let Rest { caller, keys, limit, op, answered } = *rest;
        let begun = decisions.len().saturating_sub(answered);
        if let (1.., Some(last)) = (begun, decisions.last_mut()) {
            *last = self.untaken(limit);
        }
        let charges = keys.iter().skip(begun).map(|key| Charge::new(*key, limit, op).within(caller.namespace()));
        decisions.extend(charges.map(|charge| self.decide_guarded(store, &charge)));
    }
}

/// The keys of a batch, some of which had decisions before one panicked.
#[derive(Clone, Copy)]
struct Rest<'a> {
    caller: &'a Caller,
    keys: &'a [Key<'a>],
    limit: &'a Limit,
    op: Op,
    answered: usize,
}

#[cfg(test)]
mod tests {
    use tidegate_core::{FakeClock, KeyError};

    use super::*;
    use crate::{Options, at_once};

    fn engine() -> Engine {
        Engine::new(Options { clock: FakeClock::new().into(), keys: Some(1_000), ..Options::default() }).unwrap()
    }

    #[test]
    fn a_batch_decides_as_its_keys_one_by_one() {
        let limit: Limit = "3/minute".parse().unwrap();
        let key = |number: u32| if number == 0 { String::new() } else { format!("key{number}") };
        let keys: Vec<String> = (0..50).map(|number| key(number % 9)).collect();
        let (together, apart) = (engine(), engine());
        let mut batch = Batch::default();
        keys.iter().for_each(|key| batch.push(key.as_bytes()).unwrap());
        let mut decisions = Vec::new();
        together.decide_batch(&Caller::default(), &batch, &limit, Op::Take(1), &mut decisions);
        let expected: Vec<Decision> =
            keys.iter().map(|key| at_once(apart.decide(key.as_bytes(), &limit, Op::Take(1))).unwrap()).collect();
        assert_eq!(decisions, expected);
        // Both count on the same keys.
        let seen = at_once(together.decide(b"", &limit, Op::Peek)).unwrap();
        assert_eq!(seen.remaining(), 0);
    }

    #[test]
    fn keys_that_cannot_be_counted_on_are_not_added() {
        let mut batch = Batch::default();
        assert_eq!(batch.push(&[b'a'; 4096]), Err(KeyError::TooLong { length: 4096, max: 4095 }));
        assert!(batch.is_empty());
        batch.push(&[b'a'; 4095]).unwrap();
        batch.push(b"").unwrap();
        batch.push(b"b").unwrap();
        assert_eq!(batch.keys().collect::<Vec<_>>(), [&[b'a'; 4095][..], b"", b"b"]);
        assert_eq!(batch.len(), 3);
    }
}
