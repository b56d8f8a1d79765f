//! The builder of a fair layer.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::fair::{DeficitRoundRobin, FairConfig};
use tidegate_core::shed::Mode;
use tidegate_core::{KeyBuf, KeyError};

use super::{FairLayer, Shared, TenantOf};
use crate::bounds::{DEADLINE_DEFAULT, QUEUE_DEPTH_MAX, WAIT_MAX};
use crate::error::{ConfigError, check_count, check_time};
use crate::gate::{Gate, Room};
use crate::missing_key::MissingKey;
use crate::refuser::RefuserConfig;

/// Builds a [`FairLayer`].
pub struct FairBuilder {
    limit: u64,
    tenant: TenantOf,
    queue: FairConfig,
    deadline: Duration,
    missing: MissingKey,
    refuser: RefuserConfig,
}

impl FairBuilder {
    pub(super) fn new(limit: u64, tenant: TenantOf) -> FairBuilder {
        FairBuilder {
            limit,
            tenant,
            queue: FairConfig::default(),
            deadline: DEADLINE_DEFAULT,
            missing: MissingKey::default(),
            refuser: RefuserConfig::default(),
        }
    }

    /// Sets the queue bounds of each tenant and of all tenants. A request costs one unit.
    #[must_use]
    pub fn queue(self, queue: FairConfig) -> FairBuilder {
        FairBuilder { queue, ..self }
    }

    /// Sets the longest wait of a request. Default: 1 s.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> FairBuilder {
        FairBuilder { deadline, ..self }
    }

    /// Sets how requests without a tenant are treated. By default they are one tenant of weight 1.
    #[must_use]
    pub fn missing_key(self, missing: MissingKey) -> FairBuilder {
        FairBuilder { missing, ..self }
    }

    /// Sets the `Retry-After` of refusals. Default: 1 s.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> FairBuilder {
        FairBuilder { refuser: self.refuser.retry_after(after), ..self }
    }

    /// Sets the initial mode. Default: [`Mode::Enforce`].
    #[must_use]
    pub fn mode(self, mode: Mode) -> FairBuilder {
        FairBuilder { refuser: self.refuser.mode(mode), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// Fails if a number is zero or too large, or a duration is zero or too long.
    pub fn build(self) -> Result<FairLayer, ConfigError> {
        let refuser = self.refuser.build()?;
        check_time("deadline", self.deadline, WAIT_MAX)?;
        check_count("total_max", self.queue.total_max as u64, QUEUE_DEPTH_MAX as u64)?;
        let gate = Gate::new(self.limit, Room::Fair(DeficitRoundRobin::new(self.queue)?), self.deadline)?;
        Ok(FairLayer(Arc::new(Shared {
            gate,
            tenant: self.tenant,
            missing: self.missing,
            nameless: unguessable()?,
            refuser,
        })))
    }
}

/// A key that is different in each process, of 16 bytes and their length.
fn unguessable() -> Result<KeyBuf, KeyError> {
    let random = RandomState::new();
    KeyBuf::from_parts([[random.hash_one(0u8).to_be_bytes(), random.hash_one(1u8).to_be_bytes()].as_flattened()])
}

impl fmt::Debug for FairBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("FairBuilder");
        shown.field("limit", &self.limit).field("queue", &self.queue).finish_non_exhaustive()
    }
}
