//! The layers of this crate in one, in the order in which they belong: shed, rate, fair, concurrency.
//!
//! | to find | look in |
//! |---|---|
//! | the layer, and why it has this order | `mod.rs` |
//! | how it is set up, and what holds if nothing is said | `builder.rs` |
//! | one request's way through the parts, and who is counted | `door.rs` |
//! | its switches, and what it tells of itself | `handle.rs` |
//! | that as Prometheus reads it | `metrics.rs` |

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
/// 1. **Shed**: what matters least is turned away when there is too much of everything. It comes first because it costs
///    the least, and because what it turns away must not cost the caller any of its rate.
/// 2. **Rate**: who asks too often is told so, before it takes a place in any line.
/// 3. **Fair**: when all places are taken, each tenant waits in a line of its own, and places go to the tenants in turn.
///    Before it there is no line that one tenant could fill for all.
/// 4. **Concurrency**: the total, held by a semaphore of this process. It asks nobody: with a shared store gone, and with
///    fairness switched off, no more are in progress than the service bears.
///
/// Each part can be left out, and each has a switch of its own; [`StackLayer::handle`] reaches them all.
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
///     // After the stack, which does not stand before it: who is overloaded still tells so.
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
    /// A stack to be set up, for a service that bears `limit` requests at once. Without further words it holds that
    /// limit: the others wait in a line, and who finds no room there, or waits for more than a second, hears 503.
    pub fn builder(limit: u64) -> StackBuilder {
        StackBuilder::new(limit)
    }

    /// What this stack is asked and told from outside.
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
