//! Keys under limits that callers bring, apart from all rules.

use std::sync::atomic::Ordering;

use tidegate_core::{Charge, Decision, Decisions, Key, KeyError, Limit, Op, Snapshot};

use crate::bounds::OWN_KEY_BYTES_MAX;
use crate::engine::Engine;
use crate::error::RequestError;
use crate::keys::Purpose;
use crate::store::{Backend, ChargeFailure, Placing, charge_in_memory};

impl Engine {
    /// Decides for a key under a limit that the caller brings, in the default store.
    ///
    /// # Errors
    /// If the key is empty or too long.
    #[inline]
    pub async fn decide(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, KeyError> {
        let mut bytes = [0; 64];
        // Most keys are short, and need no allocation to get their first byte.
        let Some(short) = bytes.get_mut(..=key.len()).filter(|_| !key.is_empty()) else {
            let key = inline_key(key)?;
            return Ok(self.decide_key(Key::new(&key)?, limit, op).await);
        };
        short[0] = Purpose::Inline.byte();
        short[1..].copy_from_slice(key);
        Ok(self.decide_key(Key::new(short)?, limit, op).await)
    }

    /// Decides for a key in the default store; in the memory of this process if that does not answer.
    #[inline]
    pub(crate) async fn decide_key(&self, key: Key<'_>, limit: &Limit, op: Op) -> Decision {
        if let Backend::Memory(store) = &self.default_store {
            return self.decide_guarded(store, key, limit, op);
        }
        match self.default_store.decide(key, limit, op, Placing::default()).await {
            Ok(decision) => decision,
            Err(_) => self.decide_here(key, limit, op),
        }
    }

    /// Decides in the memory of this process, because the default store does not answer.
    #[cold]
    fn decide_here(&self, key: Key<'_>, limit: &Limit, op: Op) -> Decision {
        self.note_fallbacks(1);
        self.decide_guarded(&self.local, key, limit, op)
    }

    /// Looks at a key under a limit that the caller brings, or changes it, in the default store and nowhere else: what is
    /// said of a key must be true of it.
    ///
    /// # Errors
    /// If the key is empty or too long, or the store does not answer.
    pub async fn administer(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, RequestError> {
        let key = inline_key(key).map_err(RequestError::Key)?;
        let key = Key::new(&key).map_err(RequestError::Key)?;
        Ok(self.default_store.decide(key, limit, op, Placing::default()).await?)
    }

    /// Decides several keys under limits that the caller brings, all or none. The decisions come joined.
    ///
    /// # Errors
    /// If a key is empty or too long, or the charges cannot be made together.
    pub async fn decide_all(&self, charges: &[(&[u8], Limit, Op)]) -> Result<Decisions, RequestError> {
        let keys: Result<Vec<Vec<u8>>, KeyError> = charges.iter().map(|(key, ..)| inline_key(key)).collect();
        let keys = keys.map_err(RequestError::Key)?;
        let mut made = Vec::with_capacity(charges.len());
        for ((_, limit, op), key) in charges.iter().zip(&keys) {
            let key = Key::new(key).map_err(RequestError::Key)?;
            made.push(Charge { key, limit, op: *op, veto: true });
        }
        let placings = vec![Placing::default(); made.len()];
        let mut decisions = self.default_store.charge(&made, &placings).await;
        if matches!(decisions, Err(ChargeFailure::Store(_))) && matches!(self.default_store, Backend::Shared(_)) {
            self.note_fallbacks(made.len() as u64);
            decisions = charge_in_memory(&self.local, &made);
        }
        match decisions {
            Ok(decisions) => Ok(decisions),
            Err(ChargeFailure::Refused(error)) => Err(RequestError::Charges(error)),
            Err(ChargeFailure::Store(_)) => {
                Ok(made.iter().map(|charge| (self.untaken(charge.limit), charge.veto)).collect())
            }
        }
    }

    /// What is known of a key under a limit that the caller brings.
    ///
    /// # Errors
    /// If the key is empty or too long, or the store does not answer.
    pub async fn inspect_key(&self, key: &[u8], limit: &Limit) -> Result<Snapshot, RequestError> {
        let key = inline_key(key).map_err(RequestError::Key)?;
        Ok(self.default_store.inspect(Key::new(&key).map_err(RequestError::Key)?, limit, &[]).await?)
    }

    /// Charges under limits that callers and requests brought with them that were decided in the memory of this process,
    /// because the default store did not answer.
    #[must_use]
    pub fn fell_back(&self) -> u64 {
        self.fell_back.load(Ordering::Relaxed)
    }

    pub(crate) fn note_fallbacks(&self, charges: u64) {
        if charges > 0 {
            self.fell_back.fetch_add(charges, Ordering::Relaxed);
        }
    }
}

/// A key of a caller who brings the limit.
pub(crate) fn inline_key(key: &[u8]) -> Result<Vec<u8>, KeyError> {
    own_key(Purpose::Inline, key)
}

/// A key that somebody brings, behind the byte of its purpose.
pub(crate) fn own_key(purpose: Purpose, key: &[u8]) -> Result<Vec<u8>, KeyError> {
    check_own_key(key)?;
    Ok([&[purpose.byte()], key].concat())
}

/// Checks a key that somebody brings, before it gets its first byte.
pub(crate) fn check_own_key(key: &[u8]) -> Result<(), KeyError> {
    match key.len() {
        // All of them would be one key.
        0 => Err(KeyError::Empty),
        1..=OWN_KEY_BYTES_MAX => Ok(()),
        length => Err(KeyError::TooLong { length, max: OWN_KEY_BYTES_MAX }),
    }
}
