//! How many requests may be in progress at once: for all together, or for each key.
//!
//! | to find | look in |
//! |---|---|
//! | the layer and what it lets in | `mod.rs` |
//! | how it is set up | `builder.rs` |
//! | its metrics, its switch, and permits without a service | `handle.rs` |

mod builder;
mod handle;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tidegate_core::shed::{Judgement, Mode};
use tidegate_core::{Busy, Key, Permit, Semaphore};
use tower_layer::Layer;

use crate::error::ConfigError;
use crate::gate::{Entry, Gate, GatePermit, KeyedEntry, KeyedGate, KeyedPermit, KeyedPlace, PlaceInLine, Wait};
use crate::guard::{Doorkeeper, Entered, Guarded};
use crate::head::Head;
use crate::missing_key::{MissingKey, Named, named};
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

pub use builder::ConcurrencyBuilder;
pub use handle::ConcurrencyHandle;

/// Lets so many requests in at once. The others wait in a bounded queue, if there is one, or are answered 503 with
/// Retry-After (UNAVAILABLE for gRPC).
///
/// A place is free again when the body of the response has ended, or when the caller has gone away: what is made as it
/// is sent is work until its end. A connection that is upgraded is free with its response. While a request waits it
/// holds a clone of the service behind that is ready: put layers that give something out in `poll_ready` before this
/// one.
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
    places: Places,
    switch: Switch,
    retry_after: Duration,
}

enum Places {
    One(Arc<Gate>),
    Keyed(Keyed),
}

struct Keyed {
    pool: Pool,
    /// For those without a key together: no key can be mistaken for them.
    nameless: Arc<Gate>,
    key: KeyOf,
    missing: MissingKey,
    /// Whether who is refused hears 429 instead of 503.
    too_many: bool,
}

/// Places of each key. Without a queue they need no lock of their own, and no allocation.
enum Pool {
    Semaphore(Semaphore),
    Queued(Arc<KeyedGate>),
}

type KeyOf = Box<dyn for<'a> Fn(Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync>;

impl ConcurrencyLayer {
    /// Lets `limit` requests in at once and refuses the others at once.
    ///
    /// # Errors
    /// If the limit is zero or too large.
    pub fn new(limit: u64) -> Result<ConcurrencyLayer, ConfigError> {
        ConcurrencyLayer::builder(limit).build()
    }

    /// A layer to be set up.
    #[must_use]
    pub fn builder(limit: u64) -> ConcurrencyBuilder {
        ConcurrencyBuilder::new(limit)
    }

    /// What this layer is asked and told from outside.
    #[must_use]
    pub fn handle(&self) -> ConcurrencyHandle {
        ConcurrencyHandle::new(Arc::clone(&self.0))
    }
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        self.switch.count(Judgement::Shed);
        match (&self.places, reason) {
            (_, Reason::NoKey | Reason::KeyTooLong { .. }) => Refusal::without_key(reason),
            // A table of keys that is full is not the client's fault.
            (Places::Keyed(keyed), reason) if keyed.too_many && reason != Reason::Busy => {
                Refusal::too_many(reason, self.retry_after)
            }
            (_, reason) => Refusal::unavailable(reason, self.retry_after),
        }
    }

    /// Lets a request in at a gate for many: all of them, or those without a key, who then are as one client.
    fn enter_gate(&self, gate: &Arc<Gate>, mode: Mode) -> Entered<ConcurrencyPermit, ConcurrencyWait> {
        if mode == Mode::Shadow {
            let (permit, had_room) = gate.enter_anyway();
            self.switch.count(if had_room { Judgement::Pass } else { Judgement::WouldShed });
            return Entered::In(permit.into());
        }
        match gate.enter(None) {
            Entry::In(permit) => Entered::In(permit.into()),
            Entry::Wait(wait) => Entered::wait(ConcurrencyWait::One { wait }),
            Entry::Refused(reason) => Entered::refused(self.refusal(self.at_gate(reason))),
        }
    }

    /// Who is refused at the gate of those without a key is refused as a client.
    fn at_gate(&self, reason: Reason) -> Reason {
        match (&self.places, reason) {
            (Places::Keyed(_), Reason::Busy) => Reason::ClientBusy,
            (_, reason) => reason,
        }
    }

    fn enter_keyed(&self, keyed: &Keyed, mode: Mode, head: Head<'_>) -> Entered<ConcurrencyPermit, ConcurrencyWait> {
        let bytes = (keyed.key)(head);
        let key = match named(bytes.as_deref(), keyed.missing) {
            Named::Key(key) => key,
            Named::Nobody => return self.enter_gate(&keyed.nameless, mode),
            Named::Skipped => return Entered::In(ConcurrencyPermit(Held::Nothing)),
            Named::Denied(reason) => return self.refuse(mode, reason),
        };
        match &keyed.pool {
            Pool::Queued(gate) if mode == Mode::Enforce => match gate.enter(key) {
                KeyedEntry::In(permit) => Entered::In(permit.into()),
                KeyedEntry::Wait(wait) => Entered::wait(ConcurrencyWait::Keyed { wait }),
                KeyedEntry::Refused(reason) => Entered::refused(self.refusal(reason)),
            },
            pool => match pool.try_enter(key) {
                Ok(permit) => Entered::In(permit),
                Err(reason) => self.refuse(mode, reason),
            },
        }
    }

    fn refuse(&self, mode: Mode, reason: Reason) -> Entered<ConcurrencyPermit, ConcurrencyWait> {
        if mode == Mode::Shadow {
            self.switch.count(Judgement::WouldShed);
            return Entered::In(ConcurrencyPermit(Held::Nothing));
        }
        Entered::refused(self.refusal(reason))
    }
}

impl Pool {
    /// Takes a place of a key if one is free.
    fn try_enter(&self, key: Key<'_>) -> Result<ConcurrencyPermit, Reason> {
        match self {
            Pool::Queued(gate) => gate.try_enter(key).map(ConcurrencyPermit::from),
            Pool::Semaphore(semaphore) => match semaphore.try_acquire(key) {
                Ok(permit) => Ok(ConcurrencyPermit(Held::Key { _permit: permit })),
                Err(Busy::InUse { .. }) => Err(Reason::ClientBusy),
                Err(Busy::NoRoom { .. }) => Err(Reason::Busy),
            },
        }
    }
}

impl Doorkeeper for ConcurrencyLayer {
    type Permit = ConcurrencyPermit;
    type Wait = ConcurrencyWait;

    #[inline]
    fn enter_unseen(&self) -> Option<ConcurrencyPermit> {
        let shared = &*self.0;
        match (&shared.places, shared.switch.mode()) {
            (Places::One(gate), Mode::Enforce) => gate.try_enter().map(ConcurrencyPermit::from),
            _ => None,
        }
    }

    fn enter(&self, head: Head<'_>) -> Entered<ConcurrencyPermit, ConcurrencyWait> {
        let shared = &*self.0;
        match (shared.switch.mode(), &shared.places) {
            (Mode::Off, _) => Entered::In(ConcurrencyPermit(Held::Nothing)),
            (mode, Places::One(gate)) => shared.enter_gate(gate, mode),
            (mode, Places::Keyed(keyed)) => shared.enter_keyed(keyed, mode, head),
        }
    }

    fn waited(&self, told: Result<ConcurrencyPermit, Reason>) -> Result<ConcurrencyPermit, Refusal> {
        match told {
            Ok(permit) => Ok(permit),
            Err(_) if self.0.switch.lets_late_in() => Ok(ConcurrencyPermit(Held::Nothing)),
            Err(reason) => Err(self.0.refusal(self.0.at_gate(reason))),
        }
    }
}

pin_project! {
    /// Waits for a place.
    #[project = WaitProjection]
    pub enum ConcurrencyWait {
        One { #[pin] wait: Wait<GatePermit, PlaceInLine> },
        Keyed { #[pin] wait: Wait<KeyedPermit, KeyedPlace> },
    }
}

impl Future for ConcurrencyWait {
    type Output = Result<ConcurrencyPermit, Reason>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            WaitProjection::One { wait } => wait.poll(context).map_ok(ConcurrencyPermit::from),
            WaitProjection::Keyed { wait } => wait.poll(context).map_ok(ConcurrencyPermit::from),
        }
    }
}

impl<S> Layer<S> for ConcurrencyLayer {
    type Service = Guarded<S, ConcurrencyLayer>;

    fn layer(&self, inner: S) -> Guarded<S, ConcurrencyLayer> {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for ConcurrencyLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConcurrencyLayer").field("switch", &self.0.switch).finish_non_exhaustive()
    }
}

/// A place under the limit. It is free again when this is dropped.
#[must_use = "a permit that is dropped at once holds nothing"]
pub struct ConcurrencyPermit(Held);

enum Held {
    Place {
        _permit: GatePermit,
    },
    Key {
        _permit: Permit,
    },
    /// Apart: its key is on the heap anyway, and the others are the smaller for it.
    QueuedKey {
        _permit: Box<KeyedPermit>,
    },
    /// It was let in without being counted.
    Nothing,
}

impl From<GatePermit> for ConcurrencyPermit {
    #[inline]
    fn from(permit: GatePermit) -> ConcurrencyPermit {
        ConcurrencyPermit(Held::Place { _permit: permit })
    }
}

impl From<KeyedPermit> for ConcurrencyPermit {
    fn from(permit: KeyedPermit) -> ConcurrencyPermit {
        ConcurrencyPermit(Held::QueuedKey { _permit: Box::new(permit) })
    }
}

impl fmt::Debug for ConcurrencyPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = !matches!(self.0, Held::Nothing);
        formatter.debug_struct("ConcurrencyPermit").field("counted", &counted).finish()
    }
}
