//! Load shedding: which requests to refuse under overload.
//!
//! | to find | look in |
//! |---|---|
//! | the layer for services: the fleet's, the worker's and the queue's shedder | `layer.rs` |
//! | its builder | `builder.rs` |
//! | the count of requests in progress | `tally.rs` |
//! | the worker's shedder under concurrent requests | `worker.rs` |
//! | the layer for clients, which hold requests back after refusals | `throttle.rs` |
//!
//! A queue with a high delay sheds by itself: [`Queue::codel`](crate::Queue::codel).

mod builder;
mod layer;
mod tally;
mod throttle;
mod worker;

pub use builder::ShedBuilder;
pub use layer::{Backlog, Measure, ShedHandle, ShedLayer, ShedPermit};
pub use throttle::{Throttle, ThrottleBuilder, ThrottleFuture, ThrottleLayer, Throttled};

use std::hash::{BuildHasher, RandomState};

/// A seed that is different in each process.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0u64)
}
