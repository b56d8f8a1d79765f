//! Tidegate's limits as tower layers, for axum, tonic, hyper and whatever else speaks `http`.
//!
//! | to find | look in |
//! |---|---|
//! | limits on rates, by a limit or by a policy | `rate/` |
//! | how many at once, for all or for each key | `concurrency/` |
//! | how many at once, over all processes that share a store | `shared_concurrency/` |
//! | how many at once, learnt | `adaptive/` |
//! | whom to turn away under load; a client that holds back | `shed/` |
//! | calls sent at an even pace | `shape/` |
//! | turns among tenants | `fair/` |
//! | all that protects a service, as one layer | `stack/` |
//! | clients that come back when they were told to | `retry/` |
//! | who is in, who waits, and in which order | `gate/` |
//! | the services behind the layers that let in, and their one future | `guard.rs` |
//! | whom a request counts on | `key.rs`, `address.rs` |
//! | requests that do not tell who they are from | `missing_key.rs` |
//! | what a closure sees of a request, of a response and of an end | `head.rs`, `response.rs`, `ended.rs` |
//! | denials and refusals as HTTP and as gRPC tell them | `answer.rs`, `grpc.rs` |
//! | why somebody is not let in, and how layers refuse | `refusal.rs`, `refuser.rs` |
//! | bodies, and what is held until they end | `body.rs` |
//! | whether a layer acts, and what it has done | `switch.rs` |
//! | what the metrics of layers have in common | `exposition.rs` |
//! | time as the runtime's timers have it | `runtime_clock.rs` |
//! | time for what is only measured | `stopwatch.rs` |
//! | locks over arithmetic, and numbers that outlive their layer | `lock.rs`, `spare.rs` |
//! | what is wrong with the configuration of a layer | `error.rs` |
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

/// The examples of the guide to rates and retries are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/tower.md")]
struct RateGuide;

/// The examples of the guide to protection from within are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/protecting.md")]
struct ProtectGuide;

/// So are those of the guide to limits that learn.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/adaptive.md")]
struct AdaptiveGuide;
