//! Stores that stand for others in tests of what is done when a store does not answer, or not yet.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Charge, Clock, Decisions, FakeClock, Snapshot, Time};
use tidegate_stores::{AnyStore, Call, Cause, Certainty, Health, Nature, Other, Store, StoreError};

use crate::store::Backend;

/// What a double does.
#[derive(Clone, Copy)]
enum Double {
    /// It does not answer.
    Unreachable,
    /// It is still to answer.
    Silent,
    /// This node is too busy to ask it.
    Overloaded,
}

/// A store that does not answer.
pub(crate) fn unreachable() -> Backend {
    Double::Unreachable.backend()
}

/// A store that is still to answer.
pub(crate) fn silent() -> Backend {
    Double::Silent.backend()
}

/// A store that this node is too busy to ask.
pub(crate) fn overloaded() -> Backend {
    Double::Overloaded.backend()
}

#[derive(Debug, thiserror::Error)]
#[error("nobody is there")]
struct Nobody;

impl Double {
    fn backend(self) -> Backend {
        let clock = Clock::from(FakeClock::at(Time::from_nanos(1_000_000_000_000)));
        Backend::of("double", AnyStore::from(Other::new(Arc::new(self))), &clock)
    }

    async fn answer<T>(self) -> Result<T, StoreError> {
        let failed = |certainty| Err(StoreError::Failed { certainty, cause: Cause::new(Nobody) });
        match self {
            Double::Unreachable => failed(Certainty::NotSent),
            Double::Overloaded => failed(Certainty::Overloaded),
            Double::Silent => std::future::pending().await,
        }
    }
}

impl Store for Double {
    async fn charge(&self, _call: &Call, _charges: &[Charge<'_>]) -> Result<Decisions, StoreError> {
        self.answer().await
    }

    async fn inspect(&self, _call: &Call, _charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        self.answer().await
    }

    fn nature(&self) -> Nature {
        Nature::shared(Duration::from_millis(10))
    }

    fn health(&self) -> Health {
        Health::of("double")
    }

    async fn close(&self) {}
}
