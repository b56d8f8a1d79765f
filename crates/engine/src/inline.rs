//! Keys under limits that callers bring, apart from all rules.

use tidegate_core::{Charge, Decision, Decisions, Key, KeyError, Limit, Op, Snapshot};

use crate::engine::Engine;
use crate::error::RequestError;
use crate::failure::guarded;
use crate::plan::Purpose;

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
            return self.decide_long(key, limit, op);
        };
        short[0] = Purpose::Inline.byte();
        short[1..].copy_from_slice(key);
        Ok(self.decide_guarded(Key::new(short)?, limit, op))
    }

    #[cold]
    fn decide_long(&self, key: &[u8], limit: &Limit, op: Op) -> Result<Decision, KeyError> {
        Ok(self.decide_guarded(Key::new(&inline_key(key)?)?, limit, op))
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
        match guarded(|| self.default_store.charge(&made)) {
            Ok(decisions) => decisions.map_err(RequestError::Charges),
            Err(_) => Ok(made.iter().map(|charge| (self.undecided(charge.limit), charge.veto)).collect()),
        }
    }

    /// What is known of a key under a limit that the caller brings.
    ///
    /// # Errors
    /// If the key is empty or too long.
    pub async fn inspect_key(&self, key: &[u8], limit: &Limit) -> Result<Snapshot, KeyError> {
        Ok(self.default_store.inspect(Key::new(&inline_key(key)?)?, limit))
    }
}

/// A key of a caller who brings the limit.
fn inline_key(key: &[u8]) -> Result<Vec<u8>, KeyError> {
    // Empty keys are refused here, or they would all be one key.
    Key::new(key)?;
    Ok([&[Purpose::Inline.byte()], key].concat())
}
