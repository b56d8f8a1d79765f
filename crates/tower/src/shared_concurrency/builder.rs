//! The builder of a shared concurrency layer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_core::bounds::{KEYS_DEFAULT, PERMITS_MAX};
use tidegate_core::shed::Mode;
use tidegate_core::{KeyBuf, Semaphore};
use tidegate_engine::bounds::PERMIT_LIMIT_MAX;
use tidegate_engine::{Engine, new_permit_id};

use super::handle::Counters;
use super::{Choice, Shared, SharedConcurrencyLayer, Whose};
use crate::bounds::{SHARED_LEASE_DEFAULT, SHARED_LEASE_MAX, SHARED_LEASE_MIN, WATCHED_MAX};
use crate::error::{ConfigError, check_count, check_name};
use crate::key::KeyBy;
use crate::missing_key::MissingKey;
use crate::refuser::RefuserConfig;

/// How a [`SharedConcurrencyLayer`] decides while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
    /// Lets all requests pass. Place a limit of this process behind it.
    Allow,
    /// Refuses all requests with 503.
    Deny,
    /// Limits the requests in progress in this process to this number, for each key if there are keys. Requests that
    /// the store let in count too.
    Local(u64),
}

/// Builds a [`SharedConcurrencyLayer`].
pub struct SharedConcurrencyBuilder {
    engine: Arc<Engine>,
    name: Box<str>,
    limit: u64,
    key: Option<KeyBy>,
    keys: Option<usize>,
    missing: Option<MissingKey>,
    too_many: bool,
    lease: Duration,
    on_store_failure: OnStoreFailure,
    refuser: RefuserConfig,
}

impl SharedConcurrencyBuilder {
    pub(super) fn new(engine: Arc<Engine>, name: Box<str>, limit: u64) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder {
            engine,
            name,
            limit,
            key: None,
            keys: None,
            missing: None,
            too_many: false,
            lease: SHARED_LEASE_DEFAULT,
            on_store_failure: OnStoreFailure::Local(limit),
            refuser: RefuserConfig::default(),
        }
    }

    /// Applies the limit to each key.
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

    /// Sets the number of keys that can have requests in progress in this process, for [`OnStoreFailure::Local`] while
    /// the store does not answer. Default: 100,000. Requests of further keys then get 503.
    #[must_use]
    pub fn keys(self, keys: usize) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { keys: Some(keys), ..self }
    }

    /// Sets how requests without a key are treated. Default: [`MissingKey::Share`].
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { missing: Some(missing), ..self }
    }

    /// Answers requests above the limit of their key with 429 (RESOURCE_EXHAUSTED for gRPC) instead of 503: the client
    /// has reached its own limit, and the service is not overloaded.
    #[must_use]
    pub fn too_many_requests(self) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { too_many: true, ..self }
    }

    /// Sets how long the permits of a process that died stay taken. Default: 10 s. Requests may take longer: a lease is
    /// renewed three times in this time, which costs one call to the store each.
    #[must_use]
    pub fn lease(self, lease: Duration) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { lease, ..self }
    }

    /// Sets how the layer decides while the store does not answer. By default each process applies the limit by itself.
    #[must_use]
    pub fn on_store_failure(self, on_store_failure: OnStoreFailure) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { on_store_failure, ..self }
    }

    /// Sets the `Retry-After` of refusals. Default: 1 s.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { refuser: self.refuser.retry_after(after), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { refuser: self.refuser.mode(mode), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is zero or too large, a duration is out of its bounds, the name or the key is invalid, or a
    /// setting would have no effect.
    pub fn build(self) -> Result<SharedConcurrencyLayer, ConfigError> {
        let refuser = self.refuser.build()?;
        check_count("limit", self.limit, PERMIT_LIMIT_MAX)?;
        if !(SHARED_LEASE_MIN..=SHARED_LEASE_MAX).contains(&self.lease) {
            let hours = SHARED_LEASE_MAX.as_secs() / 3600;
            let remedy = format!("{SHARED_LEASE_MIN:?} to {hours} hours");
            return Err(ConfigError::number("lease", format!("{:?}", self.lease), remedy));
        }
        check_name(&self.name)?;
        if let OnStoreFailure::Local(limit) = self.on_store_failure {
            check_count("on_store_failure", limit, PERMIT_LIMIT_MAX)?;
        } else if self.keys.is_some() {
            return Err(ConfigError::unused("keys", "unless on_store_failure is Local", "leave it out"));
        }
        if self.key.is_none() {
            check_keyless(self.keys.is_some(), self.missing.is_some(), self.too_many)?;
        }
        // One key needs little room.
        let keys = if self.key.is_some() { self.keys.unwrap_or(KEYS_DEFAULT) } else { 1 };
        let on_store_failure = match self.on_store_failure {
            OnStoreFailure::Allow => Choice::Allow,
            OnStoreFailure::Deny => Choice::Deny,
            // Room for all that any store lets in: those beyond `most` are noted too.
            OnStoreFailure::Local(most) => Choice::Local { here: Semaphore::with_capacity(PERMITS_MAX, keys)?, most },
        };
        let nameless = KeyBuf::from_parts([self.name.as_bytes()])?;
        let whose = match self.key {
            None => Whose::All { key: nameless },
            Some(key) => Whose::Each { by: key.compile()?, missing: self.missing.unwrap_or_default(), nameless },
        };
        Ok(SharedConcurrencyLayer(Arc::new(Shared {
            engine: self.engine,
            name: self.name,
            whose,
            limit: self.limit,
            lease: self.lease,
            on_store_failure,
            ids: new_permit_id()?,
            next_id: AtomicU64::new(0),
            too_many: self.too_many,
            refuser,
            counters: Counters::default(),
            watchers: Arc::new(tokio::sync::Semaphore::new(WATCHED_MAX)),
        })))
    }
}

impl fmt::Debug for SharedConcurrencyBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SharedConcurrencyBuilder");
        shown.field("name", &self.name).field("limit", &self.limit).field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// Checks that nothing is set about keys if there is no key.
fn check_keyless(keys: bool, missing_key: bool, too_many_requests: bool) -> Result<(), ConfigError> {
    for (field, is_said) in [("keys", keys), ("missing_key", missing_key), ("too_many_requests", too_many_requests)] {
        if is_said {
            return Err(ConfigError::unused(field, "without a key", "set key too, or leave it out"));
        }
    }
    Ok(())
}
