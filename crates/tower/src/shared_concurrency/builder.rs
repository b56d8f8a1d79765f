//! How a shared concurrency layer is set up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_core::bounds::KEYS_DEFAULT;
use tidegate_core::shed::Mode;
use tidegate_core::{KeyBuf, Semaphore};
use tidegate_engine::bounds::PERMIT_LIMIT_MAX;
use tidegate_engine::{Engine, new_permit_id};

use super::handle::Counters;
use super::{Fallback, Shared, SharedConcurrencyLayer, Whose};
use crate::bounds::{
    NAME_BYTES_MAX, RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX, SHARED_LEASE_DEFAULT, SHARED_LEASE_MAX, SHARED_LEASE_MIN,
};
use crate::error::{ConfigError, check_count, check_time};
use crate::key::KeyBy;
use crate::missing_key::MissingKey;
use crate::switch::Switch;

/// What a [`SharedConcurrencyLayer`] does while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WithoutStore {
    /// All requests pass. Put a limit of this process behind it.
    Allow,
    /// All requests are refused with 503.
    Deny,
    /// So many are in progress at once in this process, for each key if there are keys. Those that came in by the store
    /// count too.
    Local(u64),
}

/// Sets a [`SharedConcurrencyLayer`] up.
pub struct SharedConcurrencyBuilder {
    engine: Arc<Engine>,
    name: Box<str>,
    limit: u64,
    key: Option<KeyBy>,
    keys: usize,
    missing: MissingKey,
    too_many: bool,
    lease: Duration,
    without_store: WithoutStore,
    retry_after: Duration,
    mode: Mode,
}

impl SharedConcurrencyBuilder {
    pub(super) fn new(engine: Arc<Engine>, name: Box<str>, limit: u64) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder {
            engine,
            name,
            limit,
            key: None,
            keys: KEYS_DEFAULT,
            missing: MissingKey::default(),
            too_many: false,
            lease: SHARED_LEASE_DEFAULT,
            without_store: WithoutStore::Local(limit),
            retry_after: RETRY_AFTER_DEFAULT,
            mode: Mode::Enforce,
        }
    }

    /// The limit is for each key.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tidegate_engine::{Engine, Options};
    /// # use tidegate_tower::{KeyBy, SharedConcurrencyLayer};
    /// # let engine = Arc::new(Engine::new(Options::default())?);
    /// let layer = SharedConcurrencyLayer::builder(engine, "exports", 2).key(KeyBy::api_key()).too_many_requests().build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(self, key: KeyBy) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { key: Some(key), ..self }
    }

    /// Room for so many keys with requests in progress in this process, which counts with [`WithoutStore::Local`] while the
    /// store does not answer; 100,000 if nothing is said. Further ones are refused with 503 then.
    #[must_use]
    pub fn keys(self, keys: usize) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { keys, ..self }
    }

    /// What becomes of requests without a key. If nothing is said, they count as one.
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { missing, ..self }
    }

    /// Who is above the limit of its key hears 429 (RESOURCE_EXHAUSTED for gRPC) instead of 503, because that is a limit
    /// of its own and not a service that is overloaded. Without a key this has no effect.
    #[must_use]
    pub fn too_many_requests(self) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { too_many: true, ..self }
    }

    /// For how long a process that died keeps its places: 10 s, if nothing is said. Requests may take longer: their leases
    /// are renewed three times in this time, which costs the store a call each.
    #[must_use]
    pub fn lease(self, lease: Duration) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { lease, ..self }
    }

    /// What happens while the store does not answer. If nothing is said, each process lets in the limit by itself.
    #[must_use]
    pub fn without_store(self, without_store: WithoutStore) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { without_store, ..self }
    }

    /// When those who are refused are told to come back: after a second, if nothing is said.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { retry_after: after, ..self }
    }

    /// Whether it acts at first.
    #[must_use]
    pub fn mode(self, mode: Mode) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { mode, ..self }
    }

    /// The layer.
    ///
    /// # Errors
    /// If a number is zero or too large, a time is out of its bounds, or the name or the key is at fault.
    pub fn build(self) -> Result<SharedConcurrencyLayer, ConfigError> {
        check_time("retry_after", self.retry_after, RETRY_AFTER_MAX)?;
        check_count("limit", self.limit, PERMIT_LIMIT_MAX)?;
        if !(SHARED_LEASE_MIN..=SHARED_LEASE_MAX).contains(&self.lease) {
            let hours = SHARED_LEASE_MAX.as_secs() / 3600;
            let remedy = format!("{SHARED_LEASE_MIN:?} to {hours} hours");
            return Err(ConfigError::number("lease", format!("{:?}", self.lease), remedy));
        }
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) {
            return Err(ConfigError::Name { length: self.name.len() });
        }
        // One key needs little room.
        let keys = if self.key.is_some() { self.keys } else { 1 };
        let without_store = match self.without_store {
            WithoutStore::Allow => Fallback::Allow,
            WithoutStore::Deny => Fallback::Deny,
            WithoutStore::Local(limit) => Fallback::Local(Semaphore::with_capacity(limit, keys)?),
        };
        let nameless = KeyBuf::from_parts([self.name.as_bytes()])?;
        let whose = match self.key {
            None => Whose::All { key: nameless },
            Some(key) => Whose::Each { by: key.compile()?, missing: self.missing, nameless, name: self.name },
        };
        let switch = Switch::default();
        switch.set_mode(self.mode);
        Ok(SharedConcurrencyLayer(Arc::new(Shared {
            engine: self.engine,
            whose,
            limit: self.limit,
            lease: self.lease,
            without_store,
            ids: new_permit_id()?,
            next_id: AtomicU64::new(0),
            too_many: self.too_many,
            retry_after: self.retry_after,
            switch,
            counters: Counters::default(),
        })))
    }
}

impl fmt::Debug for SharedConcurrencyBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SharedConcurrencyBuilder");
        shown.field("name", &self.name).field("limit", &self.limit).field("lease", &self.lease).finish_non_exhaustive()
    }
}
