//! How a concurrency layer is set up.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Semaphore;
use tidegate_core::bounds::KEYS_DEFAULT;
use tidegate_core::shed::Mode;

use super::{ConcurrencyLayer, KeyOf, Keyed, Places, Pool, Shared};
use crate::bounds::{RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX};
use crate::error::{ConfigError, check_keyless, check_time};
use crate::gate::{Gate, KeyedGate, Queue};
use crate::head::Head;
use crate::missing_key::MissingKey;
use crate::switch::Switch;

/// Sets a [`ConcurrencyLayer`] up.
pub struct ConcurrencyBuilder {
    limit: u64,
    queue: Option<Queue>,
    key: Option<KeyOf>,
    keys: Option<usize>,
    missing: Option<MissingKey>,
    too_many: bool,
    retry_after: Duration,
    mode: Mode,
}

impl ConcurrencyBuilder {
    pub(super) fn new(limit: u64) -> ConcurrencyBuilder {
        ConcurrencyBuilder {
            limit,
            queue: None,
            key: None,
            keys: None,
            missing: None,
            too_many: false,
            retry_after: RETRY_AFTER_DEFAULT,
            mode: Mode::Enforce,
        }
    }

    /// Those who are not let in wait. Without a queue they are refused at once.
    #[must_use]
    pub fn queue(self, queue: Queue) -> ConcurrencyBuilder {
        ConcurrencyBuilder { queue: Some(queue), ..self }
    }

    /// The limit is for each key, which the closure tells, and so is the queue, if there is one: each key has a line of
    /// its own, of that depth.
    ///
    /// ```
    /// # use tidegate_tower::ConcurrencyLayer;
    /// let layer = ConcurrencyLayer::builder(20).key(|head| head.header("x-api-key")).too_many_requests().build()?;
    /// # Ok::<(), tidegate_tower::ConfigError>(())
    /// ```
    #[must_use]
    pub fn key<F>(self, key: F) -> ConcurrencyBuilder
    where
        F: for<'a> Fn(Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync + 'static,
    {
        ConcurrencyBuilder { key: Some(Box::new(key)), ..self }
    }

    /// Room for so many keys with requests in progress; 100,000 if nothing is said. Further ones are refused with 503.
    #[must_use]
    pub fn keys(self, keys: usize) -> ConcurrencyBuilder {
        ConcurrencyBuilder { keys: Some(keys), ..self }
    }

    /// What becomes of requests without a key. If nothing is said, they count as one.
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> ConcurrencyBuilder {
        ConcurrencyBuilder { missing: Some(missing), ..self }
    }

    /// Who is above the limit of its key hears 429 (RESOURCE_EXHAUSTED for gRPC) instead of 503, because that is a limit
    /// of its own and not a service that is overloaded.
    #[must_use]
    pub fn too_many_requests(self) -> ConcurrencyBuilder {
        ConcurrencyBuilder { too_many: true, ..self }
    }

    /// When those who are refused are told to come back: after a second, if nothing is said.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> ConcurrencyBuilder {
        ConcurrencyBuilder { retry_after: after, ..self }
    }

    /// Whether it acts at first.
    #[must_use]
    pub fn mode(self, mode: Mode) -> ConcurrencyBuilder {
        ConcurrencyBuilder { mode, ..self }
    }

    /// The layer.
    ///
    /// # Errors
    /// If a number is zero or too large, a time is zero or too long, or something was set that would have no effect.
    pub fn build(self) -> Result<ConcurrencyLayer, ConfigError> {
        check_time("retry_after", self.retry_after, RETRY_AFTER_MAX)?;
        if self.key.is_none() {
            check_keyless(self.keys.is_some(), self.missing.is_some(), self.too_many)?;
        }
        let keys = self.keys.unwrap_or(KEYS_DEFAULT);
        let places = match self.key {
            None => Places::One(Gate::with_queue(self.limit, self.queue)?),
            Some(key) => Places::Keyed(Keyed {
                // First, since it calls the limit what the builder calls it.
                nameless: Gate::with_queue(self.limit, self.queue)?,
                pool: match self.queue {
                    Some(queue) => Pool::Queued(KeyedGate::new(self.limit, queue, keys)?),
                    None => Pool::Semaphore(Semaphore::with_capacity(self.limit, keys)?),
                },
                key,
                missing: self.missing.unwrap_or_default(),
                too_many: self.too_many,
            }),
        };
        let switch = Switch::in_mode(self.mode);
        Ok(ConcurrencyLayer(Arc::new(Shared { places, switch, retry_after: self.retry_after })))
    }
}

impl fmt::Debug for ConcurrencyBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ConcurrencyBuilder");
        shown.field("limit", &self.limit).field("queue", &self.queue).finish_non_exhaustive()
    }
}
