//! Decisions that wait for nobody, for callers who would have to set up more to wait.

use std::sync::Arc;

use arc_swap::Guard;
use tidegate_policy::{Policy, Request};

use crate::engine::{Active, Engine};
use crate::error::RequestError;
use crate::failure::guarded_at_once;
use crate::outcome::Outcome;
use crate::plan::LongKeys;

/// One decision at once, and the policy that makes it: what is asked of that policy before holds for the decision too,
/// though others may be installed in between.
#[derive(Debug)]
pub struct AtOnce<'e> {
    engine: &'e Engine,
    active: Guard<Arc<Active>>,
}

impl Engine {
    /// A decision at once; nothing if a shared store may have to be asked.
    #[must_use]
    pub fn at_once(&self) -> Option<AtOnce<'_>> {
        let active = self.active.load();
        (!active.has_shared).then_some(AtOnce { engine: self, active })
    }
}

impl AtOnce<'_> {
    /// The policy that decides.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.active.policy
    }

    /// Decides as [`Engine::check_or_deny`] does.
    ///
    /// # Errors
    /// If the request itself is at fault in another way than by the length of its keys.
    pub fn check_or_deny(self, request: &Request<'_>) -> Result<Outcome, RequestError> {
        let AtOnce { engine, active } = self;
        let checked = guarded_at_once(|| engine.check_by_rules(active, request, LongKeys::Deny));
        checked.unwrap_or_else(|_| Ok(engine.unplanned(request)))
    }
}
