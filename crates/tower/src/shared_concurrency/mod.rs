//! How many requests may be in progress at once over all processes that share a store: for all together, or for each key.
//!
//! | to find | look in |
//! |---|---|
//! | the layer and its service, and whom a request counts on | `mod.rs` |
//! | how it is set up | `builder.rs` |
//! | one request's way through it | `future.rs` |
//! | a response that holds a place until its body has ended | `body.rs` |
//! | a place: acquired, renewed, released | `holder.rs` |
//! | its metrics, its switch, and places without a service | `handle.rs` |

mod body;
mod builder;
mod future;
mod handle;
mod holder;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::shed::{Judgement, Mode};
use tidegate_core::{Key, KeyBuf, Permit, Semaphore};
use tidegate_engine::Engine;
use tower_layer::Layer;
use tower_service::Service;

use crate::grpc::is_call;
use crate::head::Head;
use crate::key::Extractor;
use crate::missing_key::{MissingKey, Named, named_by};
use crate::refusal::{Reason, Refusal};
use crate::switch::Switch;

pub use body::HeldBody;
pub use builder::{SharedConcurrencyBuilder, WithoutStore};
pub use future::SharedConcurrencyFuture;
use handle::Counters;
pub use handle::{SharedConcurrencyCounts, SharedConcurrencyHandle};
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
/// use tidegate_tower::{SharedConcurrencyLayer, WithoutStore};
///
/// // With `store: Some("redis://...".into())` all processes count together.
/// let engine = Arc::new(Engine::new(Options::default())?);
/// let layer = SharedConcurrencyLayer::builder(engine, "reports", 100)
///     .lease(Duration::from_secs(5))
///     .without_store(WithoutStore::Local(10))
///     .build()?;
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedConcurrencyLayer(Arc<Shared>);

/// What all services of a layer share.
struct Shared {
    engine: Arc<Engine>,
    whose: Whose,
    limit: u64,
    lease: Duration,
    without_store: Fallback,
    /// What the names of this layer's permits begin with: nobody else can guess it.
    ids: Box<str>,
    next_id: AtomicU64,
    /// Whether who is above the limit of its key hears 429 instead of 503.
    too_many: bool,
    retry_after: Duration,
    switch: Switch,
    counters: Counters,
}

/// Which permits requests are counted on.
enum Whose {
    All {
        key: KeyBuf,
    },
    Each {
        name: Box<str>,
        by: Extractor,
        missing: MissingKey,
        /// For those without a key together: no key can be mistaken for it.
        nameless: KeyBuf,
    },
}

/// What happens while the store does not answer.
enum Fallback {
    Allow,
    Deny,
    /// Those in progress in this process, for each key: all of them, as far as they have room, so that those of the store
    /// count when it is gone.
    Local(Semaphore),
}

/// What a request counts on.
enum Counted {
    On(KeyBuf),
    Skipped,
    Denied,
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
    fn counted(&self, head: Head<'_>) -> Counted {
        match self {
            Whose::All { key } => Counted::On(key.clone()),
            Whose::Each { name, by, missing, nameless } => {
                let value = by.key(head);
                match named_by(&value, *missing) {
                    Named::Key(key) => match (keyed(name, key), missing) {
                        (Some(key), _) => Counted::On(key),
                        (None, MissingKey::Share) => Counted::On(nameless.clone()),
                        (None, MissingKey::Skip | MissingKey::Deny) => Counted::Denied,
                    },
                    Named::Nobody => Counted::On(nameless.clone()),
                    Named::Skipped => Counted::Skipped,
                    Named::Denied => Counted::Denied,
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

/// The permits of a key under a name. Nothing if it is too long: the engine needs a byte for itself.
fn keyed(name: &str, key: Key<'_>) -> Option<KeyBuf> {
    let made = KeyBuf::from_parts([name.as_bytes(), key.as_bytes()]).ok()?;
    (made.as_key().as_bytes().len() < KEY_BYTES_MAX).then_some(made)
}

impl Shared {
    fn refusal(&self, reason: Reason) -> Refusal {
        self.switch.count(Judgement::Shed);
        match reason {
            Reason::NoKey => Refusal::without_key(),
            Reason::ClientBusy if self.too_many => Refusal::too_many(reason, self.retry_after),
            reason => Refusal::unavailable(reason, self.retry_after),
        }
    }

    /// Why somebody is refused who finds all places taken.
    fn busy(&self) -> Reason {
        match self.whose {
            Whose::All { .. } => Reason::Busy,
            Whose::Each { .. } => Reason::ClientBusy,
        }
    }
}

impl Fallback {
    /// A place among those in progress here, if there is one.
    fn place(&self, key: &KeyBuf) -> Option<Permit> {
        match self {
            Fallback::Local(semaphore) => semaphore.try_acquire(key.as_key()).ok(),
            Fallback::Allow | Fallback::Deny => None,
        }
    }
}

impl<S> Layer<S> for SharedConcurrencyLayer {
    type Service = SharedConcurrency<S>;

    fn layer(&self, inner: S) -> SharedConcurrency<S> {
        SharedConcurrency { inner, shared: Arc::clone(&self.0) }
    }
}

/// A service behind a [`SharedConcurrencyLayer`].
#[derive(Clone)]
pub struct SharedConcurrency<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S, A, B> Service<Request<A>> for SharedConcurrency<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body,
{
    type Response = Response<HeldBody<B>>;
    type Error = S::Error;
    type Future = SharedConcurrencyFuture<S, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> SharedConcurrencyFuture<S, A> {
        let shared = &self.shared;
        let mode = shared.switch.mode();
        if mode == Mode::Off {
            return SharedConcurrencyFuture::serving(self.inner.call(request), None);
        }
        match shared.whose.counted(Head::of(&request)) {
            Counted::On(key) if mode == Mode::Shadow => {
                let permit = holder::watch(shared, key);
                SharedConcurrencyFuture::serving(self.inner.call(request), permit)
            }
            Counted::On(key) => {
                let asked = holder::ask(shared, key);
                // The one that is ready waits along; who calls next must find its clone ready first.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                SharedConcurrencyFuture::asking(asked, ready, request, Arc::clone(&self.shared))
            }
            Counted::Skipped => SharedConcurrencyFuture::serving(self.inner.call(request), None),
            Counted::Denied if mode == Mode::Shadow => {
                shared.switch.count(Judgement::WouldShed);
                SharedConcurrencyFuture::serving(self.inner.call(request), None)
            }
            Counted::Denied => {
                SharedConcurrencyFuture::refused(shared.refusal(Reason::NoKey), is_call(request.headers()))
            }
        }
    }
}

impl fmt::Debug for SharedConcurrencyLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("SharedConcurrencyLayer");
        shown.field("limit", &self.0.limit).field("switch", &self.0.switch).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for SharedConcurrency<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedConcurrency").field("limit", &self.shared.limit).finish_non_exhaustive()
    }
}
