//! How layers refuse: the mode, and the `Retry-After` of refusals.

use std::time::Duration;

use tidegate_core::shed::{Judgement, Mode};

use crate::bounds::{RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX};
use crate::error::{ConfigError, check_time};
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

/// The settings that all layers that refuse share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefuserConfig {
    retry_after: Duration,
    mode: Mode,
}

impl Default for RefuserConfig {
    fn default() -> RefuserConfig {
        RefuserConfig { retry_after: RETRY_AFTER_DEFAULT, mode: Mode::Enforce }
    }
}

impl RefuserConfig {
    pub(crate) fn retry_after(self, retry_after: Duration) -> RefuserConfig {
        RefuserConfig { retry_after, ..self }
    }

    pub(crate) fn mode(self, mode: Mode) -> RefuserConfig {
        RefuserConfig { mode, ..self }
    }

    pub(crate) fn build(self) -> Result<Refuser, ConfigError> {
        check_time("retry_after", self.retry_after, RETRY_AFTER_MAX)?;
        Ok(Refuser { switch: Switch::in_mode(self.mode), retry_after: self.retry_after })
    }
}

/// The state that all layers that refuse share.
pub(crate) struct Refuser {
    pub(crate) switch: Switch,
    pub(crate) retry_after: Duration,
}

impl Refuser {
    /// Counts a refused request and builds its refusal: 429 if the limit is the client's own, else 503.
    pub(crate) fn refuse(&self, reason: Reason, is_clients_own: bool) -> Refusal {
        self.switch.count(Judgement::Shed);
        match reason {
            Reason::NoKey | Reason::KeyTooLong { .. } => Refusal::without_key(reason),
            reason if is_clients_own => Refusal::too_many(reason, self.retry_after),
            reason => Refusal::unavailable(reason, self.retry_after),
        }
    }
}
