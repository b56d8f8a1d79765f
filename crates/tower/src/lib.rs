//! Tidegate's limits as tower layers, for axum, tonic, hyper and everything else on the `http` types.
//!
//! | to find | look in |
//! |---|---|
//! | rate limits, by one limit or by a policy | `rate/` |
//! | concurrency limits, for all requests or for each key | `concurrency/` |
//! | concurrency limits over all processes that share a store | `shared_concurrency/` |
//! | concurrency limits that adapt to response times | `adaptive/` |
//! | load shedding; client-side throttling | `shed/` |
//! | calls sent at an even pace | `shape/` |
//! | fair queues among tenants | `fair/` |
//! | all that protects a service, as one layer | `stack/` |
//! | client retries that honour `Retry-After` | `retry/` |
//! | permits, queues and their order | `gate/` |
//! | the services behind the layers, and their one future | `guard.rs` |
//! | the key that a request is counted by | `key.rs`, `address.rs` |
//! | requests without a key | `missing_key.rs` |
//! | a request, a response and the end of a request, as closures see them | `head.rs`, `response.rs`, `ended.rs` |
//! | denials and refusals as HTTP and gRPC responses | `answer.rs`, `grpc.rs` |
//! | reasons of refusals, and how layers refuse | `refusal.rs`, `refuser.rs` |
//! | bodies, and the permits they hold | `body.rs` |
//! | the mode of a layer, and its counts | `switch.rs` |
//! | the metrics that all layers have | `exposition.rs` |
//! | time for what waits (the runtime's timers) | `runtime_clock.rs` |
//! | time for what is only measured | `stopwatch.rs` |
//! | locks over arithmetic, and numbers that outlive their layer | `lock.rs`, `spare.rs` |
//! | errors in the configuration of a layer | `error.rs` |
//! | every bound, with its reason | `bounds.rs` |

pub mod bounds;

mod adaptive;
mod address;
mod answer;
mod body;
mod concurrency;
mod ended;
mod error;
mod exposition;
mod fair;
mod gate;
mod grpc;
mod guard;
mod head;
mod key;
mod lock;
mod missing_key;
mod rate;
mod refusal;
mod refuser;
mod response;
mod retry;
mod runtime_clock;
mod shape;
mod shared_concurrency;
mod shed;
mod spare;
mod stack;
mod stopwatch;
mod switch;

pub use adaptive::{AdaptiveBuilder, AdaptiveHandle, AdaptiveLayer, AdaptivePermit, Lesson};
pub use address::ClientAddress;
pub use answer::Speaks;
pub use body::LayerBody;
pub use concurrency::{ConcurrencyBuilder, ConcurrencyHandle, ConcurrencyLayer, ConcurrencyPermit};
pub use concurrency::{KeyedConcurrencyBuilder, KeyedConcurrencyHandle, KeyedConcurrencyLayer, KeyedConcurrencyPermit};
pub use ended::Ended;
pub use error::ConfigError;
pub use fair::{FairBuilder, FairHandle, FairLayer, FairPermit, Tenant};
pub use gate::Queue;
pub use guard::{Guarded, GuardedFuture, GuardedUnseen};
pub use head::Head;
pub use key::KeyBy;
pub use missing_key::MissingKey;
pub use rate::{ByLimit, ByPolicy, RateLimitBuilder, RateLimitLayer, Settle};
pub use refusal::{Reason, Refusal};
pub use response::ResponseHead;
pub use retry::{RetryBuilder, RetryPolicy, retry_after};
pub use shape::{Shape, ShapeError, ShapeFuture, ShapeLayer, Shaped, Shaper, ShaperConfig};
pub use shared_concurrency::{
    OnStoreFailure, SharedConcurrencyBuilder, SharedConcurrencyCounts, SharedConcurrencyHandle, SharedConcurrencyLayer,
    SharedPermit,
};
pub use shed::{Backlog, Measure, ShedBuilder, ShedHandle, ShedLayer, ShedPermit};
pub use shed::{Throttle, ThrottleBuilder, ThrottleFuture, ThrottleLayer, Throttled};
pub use stack::{Part, PartStats, StackBuilder, StackHandle, StackLayer, StackStats, Stacked};
pub use switch::Switch;
pub use tidegate_core::shed::Mode;
pub use tidegate_policy::schema::AddressHeader;

/// Tests the examples of the guide to rates and retries.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/tower.md")]
struct RateGuide;

/// Tests the examples of the guide to protection from within.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/protecting.md")]
struct ProtectGuide;

/// Tests the examples of the guide to adaptive limits.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/adaptive.md")]
struct AdaptiveGuide;
