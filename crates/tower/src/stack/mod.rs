//! The layers of this crate combined into one, in the right order: shed, rate, fair, concurrency.
//!
//! | to find | look in |
//! |---|---|
//! | the layer, and the reasons for its order | `mod.rs` |
//! | its builder and defaults | `builder.rs` |
//! | a request's way through the parts, and its counts | `door.rs` |
//! | its switches and statistics | `handle.rs` |
//! | its metrics for Prometheus | `metrics.rs` |

mod builder;
mod door;
mod handle;
mod metrics;

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::guard::Guarded;
use crate::{ConcurrencyLayer, FairLayer, RateLimitLayer, ShedLayer};
use door::Counts;

pub use builder::StackBuilder;
pub use handle::{Part, PartStats, StackHandle, StackStats};

/// All that protects a service, as one layer. A request passes:
///
/// 1. **Shed**: refuses the least important requests when the service is overloaded. It comes first because it costs
///    the least, and because a request that is shed must not use up the caller's rate.
/// 2. **Rate**: denies requests over their rate limit, before they take a slot in any queue.
/// 3. **Fair**: queues the requests of each tenant separately when all slots are taken, and serves the tenants in turn.
///    No queue before it could be filled by one tenant for all.
/// 4. **Concurrency**: limits the requests in progress, by a semaphore of this process. It depends on nothing else:
///    with the shared store gone and the fair queues switched off, no more requests are in progress than the service
///    can handle.
///
/// Each part can be left out, and each has a switch of its own; [`StackLayer::handle`] has them all.
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate_core::shed::Criticality;
/// use tidegate_tower::{KeyBy, RateLimitLayer, StackLayer, Tenant};
///
/// let stack = StackLayer::builder(100)
///     .class(|head| if head.uri().path() == "/pay" { Criticality::Critical } else { Criticality::Get })
///     .rate(RateLimitLayer::limit("1000/minute".parse()?, KeyBy::header("x-tenant")).build()?)
///     .tenant(|head| Some(Tenant::new(head.header("x-tenant")?)))
///     .build()?;
/// let handle = stack.handle();
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(stack)
///     // Added after the stack, which does not guard it: an overloaded service still serves its metrics.
///     .route("/metrics", get(async move || handle.render()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StackLayer(Arc<Parts>);

/// A service behind a [`StackLayer`].
pub type Stacked<S> = Guarded<S, StackLayer>;

struct Parts {
    name: Box<str>,
    shed: Option<ShedLayer>,
    rate: Option<RateLimitLayer>,
    fair: Option<FairLayer>,
    concurrency: Option<ConcurrencyLayer>,
    counts: Counts,
}

impl StackLayer {
    /// Returns a builder of a stack for a service that can handle `limit` requests at the same time. The stack enforces
    /// that limit without further settings: other requests wait in a queue, and get 503 if it is full or after a
    /// second.
    pub fn builder(limit: u64) -> StackBuilder {
        StackBuilder::new(limit)
    }

    /// Returns a handle with the stack's metrics and switches.
    #[must_use]
    pub fn handle(&self) -> StackHandle {
        StackHandle::new(Arc::clone(&self.0))
    }
}

impl<S> Layer<S> for StackLayer {
    type Service = Stacked<S>;

    fn layer(&self, inner: S) -> Stacked<S> {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for StackLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("StackLayer").field(&self.handle().stats()).finish()
    }
}
