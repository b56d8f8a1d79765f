//! Concurrency limits, for all requests together or for each key.
//!
//! | to find | look in |
//! |---|---|
//! | the layer for all requests | `mod.rs` |
//! | the layer for each key | `keyed.rs` |
//! | their builders | `builder.rs` |
//! | their metrics, switches, and permits for other work | `handle.rs` |

mod builder;
mod handle;
mod keyed;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tidegate_core::shed::Mode;
use tower_layer::Layer;

use crate::error::ConfigError;
use crate::gate::{Entry, Gate, GatePermit, GateWait, Granted};
use crate::guard::{Blind, Doorkeeper, Entered, GuardedUnseen, Learns, Waiting, waited};
use crate::head::Head;
use crate::refusal::{Reason, Refusal};
use crate::refuser::Refuser;

pub use builder::{ConcurrencyBuilder, KeyedConcurrencyBuilder};
pub use handle::{ConcurrencyHandle, KeyedConcurrencyHandle};
pub use keyed::{KeyedConcurrencyLayer, KeyedConcurrencyPermit};

/// Limits the requests in progress. Further requests wait in a bounded queue, if there is one, or get 503 with
/// Retry-After (UNAVAILABLE for gRPC).
///
/// A slot is free again when the body of the response has ended or the caller has gone away, since a streamed body is
/// work until its end. An upgraded connection frees its slot with its response. A request in the queue holds a clone of
/// the service behind that is ready: place layers that hand out something in `poll_ready` in front of this one.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tidegate_tower::{ConcurrencyLayer, Queue};
///
/// let layer = ConcurrencyLayer::builder(100).queue(Queue::new(200, Duration::from_millis(500))).build()?;
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
/// # Ok::<(), tidegate_tower::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct ConcurrencyLayer(Arc<Shared>);

struct Shared {
    gate: Arc<Gate>,
    refuser: Refuser,
}

impl ConcurrencyLayer {
    /// Creates a layer that lets in `limit` requests at the same time and refuses the others at once.
    ///
    /// # Errors
    /// Fails if the limit is zero or too large.
    pub fn new(limit: u64) -> Result<ConcurrencyLayer, ConfigError> {
        ConcurrencyLayer::builder(limit).build()
    }

    /// Returns a builder of a layer that lets in `limit` requests at the same time.
    #[must_use]
    pub fn builder(limit: u64) -> ConcurrencyBuilder {
        ConcurrencyBuilder::new(limit)
    }

    /// Returns a handle with the layer's metrics, switch and permits.
    #[must_use]
    pub fn handle(&self) -> ConcurrencyHandle {
        ConcurrencyHandle::new(Arc::clone(&self.0))
    }
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        self.refuser.refuse(reason, false)
    }

    /// The path of requests without a free slot, and of modes other than [`Mode::Enforce`].
    #[cold]
    #[inline(never)]
    fn enter(&self) -> Entered<ConcurrencyPermit, GateWait> {
        if self.refuser.switch.mode() == Mode::Off {
            return Entered::Uncounted;
        }
        match self.gate.enter(&self.refuser.switch, None) {
            Entry::In(granted) => Entered::In(ConcurrencyPermit::of(granted)),
            Entry::Wait(wait) => Entered::wait(wait),
            Entry::Refused(reason) => Entered::refused(self.refusal(reason)),
        }
    }
}

impl Doorkeeper for ConcurrencyLayer {
    type Permit = ConcurrencyPermit;
    type Held = ConcurrencyPermit;
    type Wait = GateWait;

    #[inline]
    fn enter(&self, _: &Head<'_>) -> Entered<ConcurrencyPermit, GateWait> {
        self.enter_unseen()
    }

    fn wait(self, wait: GateWait, parts: Parts) -> Waiting<ConcurrencyPermit> {
        Box::pin(async move {
            let told = wait.await.map(ConcurrencyPermit::of);
            waited(parts, told, &self.0.refuser.switch, |reason| self.0.refusal(reason))
        })
    }
}

impl<E> Learns<E> for ConcurrencyLayer {}

impl Blind for ConcurrencyLayer {
    #[inline]
    fn enter_unseen(&self) -> Entered<ConcurrencyPermit, GateWait> {
        let shared = &*self.0;
        if shared.refuser.switch.mode() == Mode::Enforce
            && let Some(permit) = shared.gate.try_enter()
        {
            return Entered::In(ConcurrencyPermit { _permit: permit });
        }
        shared.enter()
    }
}

impl<S> Layer<S> for ConcurrencyLayer {
    type Service = GuardedUnseen<S, ConcurrencyLayer>;

    fn layer(&self, inner: S) -> GuardedUnseen<S, ConcurrencyLayer> {
        GuardedUnseen::new(inner, self.clone())
    }
}

impl fmt::Debug for ConcurrencyLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConcurrencyLayer").field("switch", &self.0.refuser.switch).finish_non_exhaustive()
    }
}

/// A permit of the limit. Dropping it frees the slot.
#[derive(Debug)]
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct ConcurrencyPermit {
    _permit: GatePermit,
}

impl ConcurrencyPermit {
    fn of(granted: Granted) -> ConcurrencyPermit {
        ConcurrencyPermit { _permit: granted.into_permit() }
    }
}
