//! Decisions without awaiting, for callers that would have to set up more to wait.

use std::sync::Arc;

use arc_swap::Guard;
use futures_util::future::OptionFuture;
use tidegate_policy::{Descriptor, DomainId, Http, HttpParts, Policy, Request};
use tidegate_stores::Call;

use crate::active::Active;
use crate::engine::Engine;
use crate::error::RequestError;
use crate::failure::{guarded, guarded_at_once};
use crate::outcome::Outcome;
use crate::plan::LongKeys;
use crate::sole::{self, Way};

/// One decision without awaiting, with the policy that makes it: facts read from that policy hold for the decision too,
/// even if another policy is installed in between. If the decision panics, that policy decides about the request.
#[derive(Debug)]
pub struct AtOnce<'e> {
    engine: &'e Engine,
    active: Guard<Arc<Active>>,
    domain: &'e str,
    /// `None` if there are no rules for it.
    known: Option<DomainId>,
}

impl Engine {
    /// Prepares a decision by the rules of a domain without awaiting. Returns `None` if a store may have to be awaited.
    #[must_use]
    pub fn at_once<'e>(&'e self, domain: &'e str) -> Option<AtOnce<'e>> {
        let active = self.active.load();
        let known = active.policy.domain(domain);
        if known.is_some_and(|known| active.domain_awaits(known)) {
            return None;
        }
        Some(AtOnce { engine: self, active, domain, known })
    }

    /// Decides by the rules of the request's domain, if there are any, of which none has a store that is awaited.
    pub(crate) fn check_at_once(
        &self,
        active: Guard<Arc<Active>>,
        domain: Option<DomainId>,
        request: &Request<'_>,
        long_keys: LongKeys,
    ) -> Result<Outcome, RequestError> {
        let Some(domain) = domain else { return Ok(Outcome::of_unknown_domain(active)) };
        if active.has_watched(domain) {
            // A look that fails leaves what is known as it is.
            let _ = guarded_at_once(|| OptionFuture::from(active.learn_of_blocks(domain)));
        }
        let checked = match guarded(|| sole::judge(&active, &self.local, domain, request)) {
            Ok(Way::Judged(judged, decision)) => return Ok(self.sole_outcome(active, judged, decision)),
            Ok(Way::Onward(found)) => {
                guarded_at_once(|| self.check_onward(active, domain, request, Call::default(), long_keys, found))
            }
            Err(failure) => Err(failure),
        };
        checked.unwrap_or_else(|_| Ok(self.unplanned(request)))
    }
}

impl AtOnce<'_> {
    /// Returns the policy that decides.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.active.policy
    }

    /// Returns the parts of HTTP requests that its rules read. Other parts may be left empty.
    #[must_use]
    pub fn http_parts(&self) -> HttpParts {
        self.known.map(|domain| self.policy().http_parts(domain)).unwrap_or_default()
    }

    /// Decides as [`Engine::check_or_deny`] does.
    ///
    /// # Errors
    /// Fails if the request is invalid for another reason than the length of its keys.
    pub fn check_or_deny(
        self,
        descriptors: &[Descriptor<'_>],
        http: &Http<'_>,
        cost: u64,
    ) -> Result<Outcome, RequestError> {
        let AtOnce { engine, active, domain, known } = self;
        let request = &Request { domain, descriptors, http: Some(http), cost };
        engine.check_at_once(active, known, request, LongKeys::Deny)
    }
}
