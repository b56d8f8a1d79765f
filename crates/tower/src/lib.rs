//! Tidegate's limits as tower layers, for axum, tonic, hyper and whatever else speaks `http`.
//!
//! | to find | look in |
//! |---|---|
//! | limits on rates, by a limit or by a policy | `rate/` |
//! | whom a request counts on | `key.rs`, `address.rs` |
//! | requests that do not tell who they are from | `missing_key.rs` |
//! | what a closure sees of a request or a response | `head.rs`, `response.rs` |
//! | denials as HTTP and as gRPC tell them | `answer.rs`, `grpc.rs`, `body.rs` |
//! | whether a layer acts, and what it has done | `switch.rs` |
//! | clients that come back when they were told to | `retry/` |
//! | every bound, with its reason | `bounds.rs` |

pub mod bounds;

mod address;
mod answer;
mod body;
mod error;
mod grpc;
mod head;
mod key;
mod missing_key;
mod rate;
mod response;
mod retry;
mod switch;

pub use address::ClientAddress;
pub use answer::Speaks;
pub use body::LayerBody;
pub use error::ConfigError;
pub use head::Head;
pub use key::KeyBy;
pub use missing_key::MissingKey;
pub use rate::{ByLimit, ByPolicy, RateLimit, RateLimitBuilder, RateLimitFuture, RateLimitLayer, Settle};
pub use response::ResponseHead;
pub use retry::{RetryBuilder, RetryPolicy, retry_after};
pub use switch::Switch;
pub use tidegate_core::shed::Mode;
pub use tidegate_policy::schema::AddressHeader;

/// The guide's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/tower.md")]
struct Guide;
