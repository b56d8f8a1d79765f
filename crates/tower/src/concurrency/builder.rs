//! The builders of concurrency layers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Semaphore;
use tidegate_core::bounds::KEYS_DEFAULT;
use tidegate_core::shed::Mode;

use super::keyed::{KeyOf, Pool, Shared as KeyedShared};
use super::{ConcurrencyLayer, KeyedConcurrencyLayer, Shared};
use crate::error::ConfigError;
use crate::gate::{Gate, KeyedGate, Queue};
use crate::missing_key::MissingKey;
use crate::refuser::RefuserConfig;

/// Builds a [`ConcurrencyLayer`].
#[derive(Debug)]
pub struct ConcurrencyBuilder {
    limit: u64,
    queue: Option<Queue>,
    refuser: RefuserConfig,
}

impl ConcurrencyBuilder {
    pub(super) fn new(limit: u64) -> ConcurrencyBuilder {
        ConcurrencyBuilder { limit, queue: None, refuser: RefuserConfig::default() }
    }

    /// Adds a queue for requests above the limit. By default they are refused at once.
    #[must_use]
    pub fn queue(self, queue: Queue) -> ConcurrencyBuilder {
        ConcurrencyBuilder { queue: Some(queue), ..self }
    }

    /// Sets the `Retry-After` of refusals. Default: 1 s.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> ConcurrencyBuilder {
        ConcurrencyBuilder { refuser: self.refuser.retry_after(after), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> ConcurrencyBuilder {
        ConcurrencyBuilder { refuser: self.refuser.mode(mode), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is zero or too large, or a duration is zero or too long.
    pub fn build(self) -> Result<ConcurrencyLayer, ConfigError> {
        let refuser = self.refuser.build()?;
        let gate = Gate::with_queue(self.limit, self.queue)?;
        Ok(ConcurrencyLayer(Arc::new(Shared { gate, refuser })))
    }
}

/// Builds a [`KeyedConcurrencyLayer`].
pub struct KeyedConcurrencyBuilder {
    each: ConcurrencyBuilder,
    key: KeyOf,
    keys: usize,
    missing: MissingKey,
    too_many: bool,
}

impl KeyedConcurrencyBuilder {
    pub(super) fn new(limit: u64, key: KeyOf) -> KeyedConcurrencyBuilder {
        let (each, missing) = (ConcurrencyBuilder::new(limit), MissingKey::default());
        KeyedConcurrencyBuilder { each, key, keys: KEYS_DEFAULT, missing, too_many: false }
    }

    /// Adds a queue for requests above the limit: each key has a queue of this depth. By default they are refused at
    /// once.
    #[must_use]
    pub fn queue(self, queue: Queue) -> KeyedConcurrencyBuilder {
        KeyedConcurrencyBuilder { each: self.each.queue(queue), ..self }
    }

    /// Sets the number of keys that can have requests in progress. Default: 100,000. Requests of further keys get 503.
    #[must_use]
    pub fn keys(self, keys: usize) -> KeyedConcurrencyBuilder {
        KeyedConcurrencyBuilder { keys, ..self }
    }

    /// Sets how requests without a key are treated. Default: [`MissingKey::Share`].
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> KeyedConcurrencyBuilder {
        KeyedConcurrencyBuilder { missing, ..self }
    }

    /// Answers requests above the limit of their key with 429 (RESOURCE_EXHAUSTED for gRPC) instead of 503: the client
    /// has reached its own limit, and the service is not overloaded.
    #[must_use]
    pub fn too_many_requests(self) -> KeyedConcurrencyBuilder {
        KeyedConcurrencyBuilder { too_many: true, ..self }
    }

    /// Sets the `Retry-After` of refusals. Default: 1 s.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> KeyedConcurrencyBuilder {
        KeyedConcurrencyBuilder { each: self.each.retry_after(after), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> KeyedConcurrencyBuilder {
        KeyedConcurrencyBuilder { each: self.each.mode(mode), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is zero or too large, or a duration is zero or too long.
    pub fn build(self) -> Result<KeyedConcurrencyLayer, ConfigError> {
        let ConcurrencyBuilder { limit, queue, refuser } = self.each;
        let refuser = refuser.build()?;
        // First, since it calls the limit what the builder calls it.
        let nameless = Gate::with_queue(limit, queue)?;
        let pool = match queue {
            Some(queue) => Pool::Queued(KeyedGate::new(limit, queue, self.keys)?),
            None => Pool::Semaphore(Semaphore::with_capacity(limit, self.keys)?),
        };
        Ok(KeyedConcurrencyLayer(Arc::new(KeyedShared {
            pool,
            nameless,
            key: self.key,
            missing: self.missing,
            too_many: self.too_many,
            refuser,
        })))
    }
}

impl fmt::Debug for KeyedConcurrencyBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedConcurrencyBuilder").field("each", &self.each).finish_non_exhaustive()
    }
}
