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
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::shed::{Judgement, Mode};
use tidegate_core::{Busy, Permit, Semaphore};
use tower_layer::Layer;

use crate::gate::{Entry, Gate, GatePermit};
use crate::guard::{Doorkeeper, Entered, Guarded, Waited, Waiting};
use crate::head::Head;
use crate::missing_key::{MissingKey, Named, named};
use crate::protect_error::ProtectError;
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

pub use builder::ConcurrencyBuilder;
pub use handle::ConcurrencyHandle;

/// Lets so many requests in at once. The others wait in a bounded queue, if there is one, or are answered 503 with
/// Retry-After (UNAVAILABLE for gRPC).
///
/// A place is free again when the response is there, or when the caller has gone away; its body may still be on its
/// way then. While a request waits it holds a clone of the service behind that is ready: put layers that give something
/// out in `poll_ready` before this one.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tidegate_tower::{ConcurrencyLayer, Queue};
///
/// let layer = ConcurrencyLayer::builder(100).queue(Queue::new(200, Duration::from_millis(500))).build()?;
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
/// # Ok::<(), tidegate_tower::ProtectError>(())
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
    semaphore: Semaphore,
    /// For those without a key together: no key can be mistaken for them.
    nameless: Arc<Gate>,
    key: KeyOf,
    missing: MissingKey,
    /// Whether who is refused hears 429 instead of 503.
    too_many: bool,
}

type KeyOf = Box<dyn for<'a> Fn(Head<'a>) -> Option<Cow<'a, [u8]>> + Send + Sync>;

impl ConcurrencyLayer {
    /// Lets `limit` requests in at once and refuses the others at once.
    ///
    /// # Errors
    /// If the limit is zero or too large.
    pub fn new(limit: u64) -> Result<ConcurrencyLayer, ProtectError> {
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
            (_, Reason::NoKey) => Refusal::without_key(),
            (Places::Keyed(keyed), Reason::ClientBusy) if keyed.too_many => Refusal::too_many(reason, self.retry_after),
            (_, reason) => Refusal::unavailable(reason, self.retry_after),
        }
    }

    fn enter_one(&self, gate: &Arc<Gate>, mode: Mode) -> Entered<ConcurrencyPermit> {
        if mode == Mode::Shadow {
            let (permit, had_room) = gate.enter_anyway();
            self.switch.count(if had_room { Judgement::Pass } else { Judgement::WouldShed });
            return Entered::In(permit.into());
        }
        match gate.enter(None) {
            Entry::In(permit) => Entered::In(permit.into()),
            Entry::Wait(wait) => Entered::Wait(Waiting(wait)),
            Entry::Refused(reason) => Entered::Refused(self.refusal(reason)),
        }
    }

    fn enter_keyed(&self, keyed: &Keyed, mode: Mode, head: Head<'_>) -> Entered<ConcurrencyPermit> {
        let bytes = (keyed.key)(head);
        let key = match named(bytes.as_deref(), keyed.missing) {
            Named::Key(key) => key,
            Named::Nobody => {
                return match keyed.nameless.try_enter() {
                    Some(permit) => Entered::In(permit.into()),
                    None => self.refuse(mode, Reason::ClientBusy),
                };
            }
            Named::Skipped => return Entered::In(ConcurrencyPermit(Held::Nothing)),
            Named::Denied => return self.refuse(mode, Reason::NoKey),
        };
        match keyed.semaphore.try_acquire(key) {
            Ok(permit) => Entered::In(ConcurrencyPermit(Held::Key { _permit: permit })),
            Err(Busy::InUse { .. }) => self.refuse(mode, Reason::ClientBusy),
            // That is not the client's fault.
            Err(Busy::NoRoom { .. }) => self.refuse(mode, Reason::Busy),
        }
    }

    fn refuse(&self, mode: Mode, reason: Reason) -> Entered<ConcurrencyPermit> {
        if mode == Mode::Shadow {
            self.switch.count(Judgement::WouldShed);
            return Entered::In(ConcurrencyPermit(Held::Nothing));
        }
        Entered::Refused(self.refusal(reason))
    }
}

impl Doorkeeper for ConcurrencyLayer {
    type Permit = ConcurrencyPermit;

    #[inline]
    fn enter(&self, head: Head<'_>) -> Entered<ConcurrencyPermit> {
        let shared = &*self.0;
        match (shared.switch.mode(), &shared.places) {
            (Mode::Off, _) => Entered::In(ConcurrencyPermit(Held::Nothing)),
            (mode, Places::One(gate)) => shared.enter_one(gate, mode),
            (mode, Places::Keyed(keyed)) => shared.enter_keyed(keyed, mode, head),
        }
    }

    fn waited(&self, Waited(told): Waited) -> Result<ConcurrencyPermit, Refusal> {
        told.map(ConcurrencyPermit::from).map_err(|reason| self.0.refusal(reason))
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
    /// It was let in without being counted.
    Nothing,
}

impl From<GatePermit> for ConcurrencyPermit {
    fn from(permit: GatePermit) -> ConcurrencyPermit {
        ConcurrencyPermit(Held::Place { _permit: permit })
    }
}

impl fmt::Debug for ConcurrencyPermit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = !matches!(self.0, Held::Nothing);
        formatter.debug_struct("ConcurrencyPermit").field("counted", &counted).finish()
    }
}
