//! A concurrency limit for each key.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use tidegate_core::shed::{Judgement, Mode};
use tidegate_core::{Busy, Key, Permit, Semaphore};
use tower_layer::Layer;

use super::{KeyedConcurrencyBuilder, KeyedConcurrencyHandle};
use crate::gate::{Entry, Gate, GatePermit, GateWait, Granted, KeyedEntry, KeyedGate, KeyedPermit, KeyedPlace, Wait};
use crate::guard::{Doorkeeper, Entered, Guarded, Learns, Waiting, waited};
use crate::head::Head;
use crate::missing_key::{MissingKey, Named, named};
use crate::refusal::{Reason, Refusal};
use crate::refuser::Refuser;

/// Limits the requests of each key in progress, as [`ConcurrencyLayer`](super::ConcurrencyLayer) does for all together.
///
/// ```
/// use tidegate_tower::KeyedConcurrencyLayer;
///
/// let layer = KeyedConcurrencyLayer::builder(20, |head| head.header("x-api-key")).too_many_requests().build()?;
/// # Ok::<(), tidegate_tower::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct KeyedConcurrencyLayer(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) pool: Pool,
    /// The gate of all requests without a key: no key can be mistaken for it.
    pub(super) nameless: Arc<Gate>,
    pub(super) key: KeyOf,
    pub(super) missing: MissingKey,
    /// Whether refusals are 429 instead of 503.
    pub(super) too_many: bool,
    pub(super) refuser: Refuser,
}

/// The permits of each key. Without a queue they need no lock of their own, and no allocation.
pub(super) enum Pool {
    Semaphore(Semaphore),
    Queued(Arc<KeyedGate>),
}

pub(super) type KeyOf = Box<dyn for<'a> Fn(&Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync>;

type Entering = Entered<KeyedConcurrencyPermit, KeyedConcurrencyWait>;

impl KeyedConcurrencyLayer {
    /// Returns a builder of a layer that allows `limit` requests in progress for each key, which the closure returns.
    #[must_use]
    pub fn builder<F>(limit: u64, key: F) -> KeyedConcurrencyBuilder
    where
        F: for<'a> Fn(Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync + 'static,
    {
        KeyedConcurrencyBuilder::new(limit, Box::new(move |head| key(*head)))
    }

    /// Returns a handle with the layer's metrics, switch and permits.
    #[must_use]
    pub fn handle(&self) -> KeyedConcurrencyHandle {
        KeyedConcurrencyHandle::new(Arc::clone(&self.0))
    }
}

impl Shared {
    pub(super) fn refusal(&self, reason: Reason) -> Refusal {
        // A table of keys that is full is not the client's fault.
        let is_clients_own = self.too_many && reason != Reason::Busy;
        self.refuser.refuse(reason, is_clients_own)
    }

    fn enter(&self, head: &Head<'_>) -> Entering {
        let mode = self.refuser.switch.mode();
        if mode == Mode::Off {
            return Entered::Uncounted;
        }
        let bytes = (self.key)(head);
        let key = match named(bytes.as_deref(), self.missing) {
            Named::Key(key) => key,
            Named::Nobody => return self.enter_nameless(),
            Named::Skipped => return Entered::Uncounted,
            Named::Denied(reason) => return self.refuse(mode, reason),
        };
        match &self.pool {
            Pool::Queued(gate) if mode == Mode::Enforce => match gate.enter(key) {
                KeyedEntry::In(permit) => Entered::In(permit.into()),
                KeyedEntry::Wait(wait) => Entered::wait(KeyedConcurrencyWait::Key(wait)),
                KeyedEntry::Refused(reason) => Entered::refused(self.refusal(reason)),
            },
            pool => match pool.try_enter(key) {
                Ok(permit) => Entered::In(permit),
                Err(reason) => self.refuse(mode, reason),
            },
        }
    }

    /// Lets in a request without a key: all such requests count as one client.
    fn enter_nameless(&self) -> Entering {
        match self.nameless.enter(&self.refuser.switch, None) {
            Entry::In(granted) => Entered::In(KeyedConcurrencyPermit::of(granted)),
            Entry::Wait(wait) => Entered::wait(KeyedConcurrencyWait::Nameless(wait)),
            Entry::Refused(reason) => Entered::refused(self.refusal(as_client(reason))),
        }
    }

    fn refuse(&self, mode: Mode, reason: Reason) -> Entering {
        if mode == Mode::Shadow {
            self.refuser.switch.count(Judgement::WouldShed);
            return Entered::Uncounted;
        }
        Entered::refused(self.refusal(reason))
    }
}

/// The reason of a refusal at the gate of requests without a key, in the words for a single client.
fn as_client(reason: Reason) -> Reason {
    if reason == Reason::Busy { Reason::ClientBusy } else { reason }
}

impl Pool {
    /// Takes a permit of a key if one is free.
    pub(super) fn try_enter(&self, key: Key<'_>) -> Result<KeyedConcurrencyPermit, Reason> {
        match self {
            Pool::Queued(gate) => gate.try_enter(key).map(KeyedConcurrencyPermit::from),
            Pool::Semaphore(semaphore) => match semaphore.try_acquire(key) {
                Ok(permit) => Ok(KeyedConcurrencyPermit(Held::Key { _permit: permit })),
                Err(Busy::InUse { .. }) => Err(Reason::ClientBusy),
                Err(Busy::NoRoom { .. }) => Err(Reason::Busy),
            },
        }
    }
}

impl Doorkeeper for KeyedConcurrencyLayer {
    type Permit = KeyedConcurrencyPermit;
    type Held = KeyedConcurrencyPermit;
    type Wait = KeyedConcurrencyWait;

    #[inline]
    fn enter(&self, head: &Head<'_>) -> Entering {
        self.0.enter(head)
    }

    fn wait(self, wait: KeyedConcurrencyWait, parts: Parts) -> Waiting<KeyedConcurrencyPermit> {
        Box::pin(async move {
            let told = match wait {
                KeyedConcurrencyWait::Nameless(wait) => wait.await.map(KeyedConcurrencyPermit::of),
                KeyedConcurrencyWait::Key(wait) => wait.await.map(KeyedConcurrencyPermit::from),
            };
            waited(parts, told, &self.0.refuser.switch, |reason| self.0.refusal(as_client(reason)))
        })
    }
}

impl<E> Learns<E> for KeyedConcurrencyLayer {}

/// The wait of a queued request.
pub enum KeyedConcurrencyWait {
    Nameless(GateWait),
    Key(Wait<KeyedPermit, KeyedPlace>),
}

impl<S> Layer<S> for KeyedConcurrencyLayer {
    type Service = Guarded<S, KeyedConcurrencyLayer>;

    fn layer(&self, inner: S) -> Guarded<S, KeyedConcurrencyLayer> {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for KeyedConcurrencyLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedConcurrencyLayer").field("switch", &self.0.refuser.switch).finish_non_exhaustive()
    }
}

/// A permit of a key. Dropping it frees the slot.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct KeyedConcurrencyPermit(Held);

enum Held {
    Nameless {
        _permit: GatePermit,
    },
    Key {
        _permit: Permit,
    },
    /// Boxed: its key is on the heap anyway, and the others are smaller for it.
    QueuedKey {
        _permit: Box<KeyedPermit>,
    },
}

impl KeyedConcurrencyPermit {
    fn of(granted: Granted) -> KeyedConcurrencyPermit {
        KeyedConcurrencyPermit(Held::Nameless { _permit: granted.into_permit() })
    }
}

impl From<KeyedPermit> for KeyedConcurrencyPermit {
    fn from(permit: KeyedPermit) -> KeyedConcurrencyPermit {
        KeyedConcurrencyPermit(Held::QueuedKey { _permit: Box::new(permit) })
    }
}

impl fmt::Debug for KeyedConcurrencyPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_key = !matches!(self.0, Held::Nameless { .. });
        formatter.debug_struct("KeyedConcurrencyPermit").field("has_key", &has_key).finish()
    }
}
