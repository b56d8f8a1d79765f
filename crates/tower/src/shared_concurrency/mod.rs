//! Concurrency limits over all processes that share a store, for all requests together or for each key.
//!
//! | to find | look in |
//! |---|---|
//! | the layer, and the key that a request counts on | `mod.rs` |
//! | its builder | `builder.rs` |
//! | a permit: acquired, renewed, released | `holder.rs` |
//! | its counts, its switch, and permits for other work | `handle.rs` |
//! | its metrics for Prometheus | `metrics.rs` |

mod builder;
mod handle;
mod holder;
mod metrics;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::request::Parts;
use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::shed::{Judgement, Mode};
use tidegate_core::{Key, KeyBuf, Permit, Semaphore};
use tidegate_engine::Engine;
use tower_layer::Layer;

use crate::guard::{Doorkeeper, Entered, Guarded, Learns, Waiting, waited};
use crate::head::Head;
use crate::key::{Extractor, KeyRoom};
use crate::missing_key::{MissingKey, Named, named_by};
use crate::refusal::{Reason, Refusal};
use crate::refuser::Refuser;

pub use builder::{OnStoreFailure, SharedConcurrencyBuilder};
use handle::Counters;
pub use handle::{SharedConcurrencyCounts, SharedConcurrencyHandle};
use holder::Asked;
pub use holder::SharedPermit;

/// Limits the requests in progress over all processes whose engines use the same store. Further requests get 503 with
/// Retry-After (UNAVAILABLE for gRPC).
///
/// Each request holds a permit with a lease in the store, renewed while it runs, so that the permits of a process that
/// died come back when their leases end. A permit is released when the body of the response has ended or the caller has
/// gone away. There is no queue: no process learns that a permit has become free in another one.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use tidegate_engine::{Engine, Options};
/// use tidegate_tower::{OnStoreFailure, SharedConcurrencyLayer};
///
/// // With `store: Some("redis://...".into())` all processes count together.
/// let engine = Arc::new(Engine::new(Options::default())?);
/// let layer = SharedConcurrencyLayer::builder(engine, "reports", 100)
///     .lease(Duration::from_secs(5))
///     .on_store_failure(OnStoreFailure::Local(10))
///     .build()?;
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedConcurrencyLayer(Arc<Shared>);

struct Shared {
    engine: Arc<Engine>,
    name: Box<str>,
    whose: Whose,
    limit: u64,
    lease: Duration,
    on_store_failure: Choice,
    /// The prefix of this layer's permit names: nobody can guess it.
    ids: Box<str>,
    next_id: AtomicU64,
    /// Whether refusals are 429 instead of 503.
    too_many: bool,
    refuser: Refuser,
    counters: Counters,
    /// Bounds how many requests in shadow mode the store is asked about at the same time.
    watchers: Arc<tokio::sync::Semaphore>,
}

/// The permits that requests count on.
enum Whose {
    All {
        key: KeyBuf,
    },
    Each {
        by: Extractor,
        missing: MissingKey,
        /// The key of all requests without one: no client's key can be mistaken for it.
        nameless: KeyBuf,
    },
}

/// The choice for when the store does not answer.
enum Choice {
    Allow,
    Deny,
    /// Counts all requests in progress in this process, by key, so that those that the store let in count when it
    /// fails. Then the limit of this process holds.
    Local {
        here: Semaphore,
        most: u64,
    },
}

/// The key that a request counts on.
enum Counted {
    On(KeyBuf),
    Skipped,
    Denied(Reason),
}

impl SharedConcurrencyLayer {
    /// Returns a builder of a layer that allows `limit` requests in progress, counted in the engine's default store
    /// under a name. Layers with the same name count together, and should have the same limit.
    #[must_use]
    pub fn builder(engine: Arc<Engine>, name: impl Into<Box<str>>, limit: u64) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder::new(engine, name.into(), limit)
    }

    /// Returns a handle with the layer's metrics, switch and permits.
    #[must_use]
    pub fn handle(&self) -> SharedConcurrencyHandle {
        SharedConcurrencyHandle::new(Arc::clone(&self.0))
    }
}

impl Whose {
    fn counted(&self, name: &str, head: &Head<'_>) -> Counted {
        match self {
            Whose::All { key } => Counted::On(key.clone()),
            Whose::Each { by, missing, nameless } => {
                let mut room = KeyRoom::default();
                match named_by(by.key(head, &mut room), *missing) {
                    Named::Key(key) => match (keyed(name, key), missing) {
                        (Ok(key), _) => Counted::On(key),
                        (Err(_), MissingKey::Share) => Counted::On(nameless.clone()),
                        (Err(reason), MissingKey::Skip | MissingKey::Deny) => Counted::Denied(reason),
                    },
                    Named::Nobody => Counted::On(nameless.clone()),
                    Named::Skipped => Counted::Skipped,
                    Named::Denied(Reason::KeyTooLong { .. }) => Counted::Denied(too_long(name)),
                    Named::Denied(reason) => Counted::Denied(reason),
                }
            }
        }
    }

    /// The key of work that is not a request.
    fn of_nobody(&self) -> &KeyBuf {
        match self {
            Whose::All { key } | Whose::Each { nameless: key, .. } => key,
        }
    }
}

/// The longest key, in bytes, beside the name: each has its length before it in two bytes, and the engine needs one
/// byte.
fn key_max(name: &str) -> usize {
    KEY_BYTES_MAX.saturating_sub(name.len() + 5)
}

fn too_long(name: &str) -> Reason {
    Reason::KeyTooLong { max: key_max(name) }
}

/// The permits of a key under a name, unless it is too long.
fn keyed(name: &str, key: Key<'_>) -> Result<KeyBuf, Reason> {
    let fits = key.as_bytes().len() <= key_max(name);
    let made = fits.then(|| KeyBuf::from_parts([name.as_bytes(), key.as_bytes()]));
    made.and_then(Result::ok).ok_or_else(|| too_long(name))
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        let is_clients_own = self.too_many && matches!(reason, Reason::ClientBusy);
        self.refuser.refuse(reason, is_clients_own)
    }

    /// Why a request is refused when no permit is free.
    fn busy(&self) -> Reason {
        match self.whose {
            Whose::All { .. } => Reason::Busy,
            Whose::Each { .. } => Reason::ClientBusy,
        }
    }
}

impl Choice {
    /// Counts a request that the store let in among those in progress here, if there is room for its key.
    fn note(&self, key: &KeyBuf) -> Option<Permit> {
        match self {
            Choice::Local { here, .. } => here.try_acquire(key.as_key()).ok(),
            Choice::Allow | Choice::Deny => None,
        }
    }
}

impl Doorkeeper for SharedConcurrencyLayer {
    type Permit = SharedPermit;
    type Held = SharedPermit;
    type Wait = Asked;

    fn enter(&self, head: &Head<'_>) -> Entered<SharedPermit, Asked> {
        let shared = &self.0;
        let mode = shared.refuser.switch.mode();
        if mode == Mode::Off {
            return Entered::Uncounted;
        }
        match (shared.whose.counted(&shared.name, head), mode) {
            (Counted::On(key), Mode::Shadow) => Entered::with(holder::watch(shared, key)),
            (Counted::On(key), _) => Entered::wait(holder::ask(shared, key)),
            (Counted::Skipped, _) => Entered::Uncounted,
            (Counted::Denied(_), Mode::Shadow) => {
                shared.refuser.switch.count(Judgement::WouldShed);
                Entered::Uncounted
            }
            (Counted::Denied(reason), _) => Entered::refused(shared.refusal(reason)),
        }
    }

    fn wait(self, asked: Asked, parts: Parts) -> Waiting<SharedPermit> {
        Box::pin(async move { waited(parts, asked.await, &self.0.refuser.switch, |reason| self.0.refusal(reason)) })
    }
}

impl<E> Learns<E> for SharedConcurrencyLayer {}

impl<S> Layer<S> for SharedConcurrencyLayer {
    type Service = Guarded<S, SharedConcurrencyLayer>;

    fn layer(&self, inner: S) -> Guarded<S, SharedConcurrencyLayer> {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for SharedConcurrencyLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SharedConcurrencyLayer");
        shown.field("limit", &self.0.limit).field("switch", &self.0.refuser.switch).finish_non_exhaustive()
    }
}
