//! Tidegate as tower layers, for axum, tonic and hyper.
//!
//! | to find | look in |
//! |---|---|
//! | how many at once, for all or for each key | `concurrency/` |
//! | how many at once, learnt | `adaptive/` |
//! | whom to turn away under load; a client that holds back | `shed/` |
//! | calls sent at an even pace | `shape/` |
//! | turns among tenants | `fair/` |
//! | who is in, who waits, and in which order | `gate/` |
//! | the one service and future behind the layers that let in | `guard.rs` |
//! | what is told to those who are not let in | `refusal.rs` |
//! | whether a layer acts, and what it has done | `switch.rs` |
//! | what a closure sees of a request and of its end | `head.rs`, `ended.rs` |
//! | requests that do not tell who they are from | `missing_key.rs` |
//! | every bound, with its reason | `bounds.rs` |

pub mod bounds;

mod adaptive;
mod concurrency;
mod ended;
mod fair;
mod gate;
mod guard;
mod head;
mod missing_key;
mod protect_error;
mod refusal;
mod runtime_clock;
mod shape;
mod shed;
mod switch;

pub use adaptive::{AdaptiveBuilder, AdaptiveHandle, AdaptiveLayer, AdaptivePermit, Outcome};
pub use concurrency::{ConcurrencyBuilder, ConcurrencyHandle, ConcurrencyLayer, ConcurrencyPermit};
pub use ended::Ended;
pub use fair::{FairBuilder, FairHandle, FairLayer, FairPermit, Tenant};
pub use gate::Queue;
pub use guard::{Guarded, GuardedFuture};
pub use head::Head;
pub use missing_key::MissingKey;
pub use protect_error::ProtectError;
pub use refusal::{Reason, Refusal};
pub use shape::{Shape, ShapeError, ShapeFuture, ShapeLayer, Shaped, Shaper, ShaperConfig};
pub use shed::{Measure, ShedBuilder, ShedHandle, ShedLayer, ShedPermit};
pub use shed::{Throttle, ThrottleBuilder, ThrottleFuture, ThrottleLayer, Throttled};
pub use switch::Switch;
pub use tidegate_core::shed::Mode;

/// The guide's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/protecting.md")]
struct Guide;
