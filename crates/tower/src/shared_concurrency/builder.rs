//! How a shared concurrency layer is set up.

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

/// What a [`SharedConcurrencyLayer`] does while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreFailure {
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

    /// Room for so many keys with requests in progress in this process, which counts with [`OnStoreFailure::Local`]
    /// while the store does not answer; 100,000 if nothing is said. Further ones are refused with 503 then.
    #[must_use]
    pub fn keys(self, keys: usize) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { keys: Some(keys), ..self }
    }

    /// What becomes of requests without a key. If nothing is said, they count as one.
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { missing: Some(missing), ..self }
    }

    /// Who is above the limit of its key hears 429 (RESOURCE_EXHAUSTED for gRPC) instead of 503, because that is a limit
    /// of its own and not a service that is overloaded.
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
    pub fn on_store_failure(self, on_store_failure: OnStoreFailure) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { on_store_failure, ..self }
    }

    /// When those who are refused are told to come back: after a second, if nothing is said.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { refuser: self.refuser.retry_after(after), ..self }
    }

    /// Whether it acts at first.
    #[must_use]
    pub fn mode(self, mode: Mode) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder { refuser: self.refuser.mode(mode), ..self }
    }

    /// The layer.
    ///
    /// # Errors
    /// If a number is zero or too large, a time is out of its bounds, the name or the key is at fault, or something was
    /// set that would have no effect.
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

/// Checks that where there is no key nothing is said of keys.
fn check_keyless(keys: bool, missing_key: bool, too_many_requests: bool) -> Result<(), ConfigError> {
    for (field, is_said) in [("keys", keys), ("missing_key", missing_key), ("too_many_requests", too_many_requests)] {
        if is_said {
            return Err(ConfigError::unused(field, "without a key", "set key too, or leave it out"));
        }
    }
    Ok(())
}
