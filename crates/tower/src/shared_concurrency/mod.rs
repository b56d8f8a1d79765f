//! How many requests may be in progress at once over all processes that share a store: for all together, or for each key.
//!
//! | to find | look in |
//! |---|---|
//! | the layer, and whom a request counts on | `mod.rs` |
//! | how it is set up | `builder.rs` |
//! | a place: acquired, renewed, released | `holder.rs` |
//! | its counts, its switch, and places without a service | `handle.rs` |
//! | the counts as Prometheus reads them | `metrics.rs` |

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

/// Lets so many requests in at once, over all processes whose engines have the same store. The others are answered 503
/// with Retry-After (UNAVAILABLE for gRPC).
///
/// Each request holds a permit with a lease in the store, renewed while it runs, so that a process that died frees its
/// places when their leases end. A place is free again when the body of the response has ended, or the caller has gone
/// away. There is no queue: nobody tells a process that a place has become free in another one.
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
    /// What the names of this layer's permits begin with: nobody else can guess it.
    ids: Box<str>,
    next_id: AtomicU64,
    /// Whether who is above the limit of its key hears 429 instead of 503.
    too_many: bool,
    refuser: Refuser,
    counters: Counters,
    /// How many requests in shadow mode the store may be asked about at once.
    watchers: Arc<tokio::sync::Semaphore>,
}

/// Which permits requests are counted on.
enum Whose {
    All {
        key: KeyBuf,
    },
    Each {
        by: Extractor,
        missing: MissingKey,
        /// For those without a key together: no key can be mistaken for it.
        nameless: KeyBuf,
    },
}

/// What happens while the store does not answer.
enum Choice {
    Allow,
    Deny,
    /// Those in progress in this process, for each key: all of them, so that those of the store count when it is gone.
    /// Then so many may be in progress.
    Local {
        here: Semaphore,
        most: u64,
    },
}

/// What a request counts on.
enum Counted {
    On(KeyBuf),
    Skipped,
    Denied(Reason),
}

impl SharedConcurrencyLayer {
    /// A layer to be set up: `limit` at once, in the default store of the engine, under a name that tells apart what has
    /// nothing to do with each other. Layers of the same name count together; all should have the same limit.
    #[must_use]
    pub fn builder(engine: Arc<Engine>, name: impl Into<Box<str>>, limit: u64) -> SharedConcurrencyBuilder {
        SharedConcurrencyBuilder::new(engine, name.into(), limit)
    }

    /// What this layer is asked and told from outside.
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

    /// What work counts on that is no request.
    fn of_nobody(&self) -> &KeyBuf {
        match self {
            Whose::All { key } | Whose::Each { nameless: key, .. } => key,
        }
    }
}

/// How long a key may be: beside it stands the name, each with its length in two bytes, and the engine needs a byte for
/// itself.
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

    /// Why somebody is refused who finds all places taken.
    fn busy(&self) -> Reason {
        match self.whose {
            Whose::All { .. } => Reason::Busy,
            Whose::Each { .. } => Reason::ClientBusy,
        }
    }
}

impl Choice {
    /// Notes one that the store let in among those in progress here, if there is room for its key.
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
