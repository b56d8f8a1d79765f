//! Load shedding: whom to turn away when there is too much.
//!
//! | to find | look in |
//! |---|---|
//! | the layer for services: the fleet's, the worker's and the queue's shedder | `layer.rs` |
//! | how it is set up | `builder.rs` |
//! | who is in progress behind it | `tally.rs` |
//! | the worker's shedder, for many requests at once | `worker.rs` |
//! | the layer for clients, which hold back when they are refused | `throttle.rs` |
//!
//! A queue that has stood too long is shed by the queue itself: [`Queue::codel`](crate::Queue::codel).

mod builder;
mod layer;
mod tally;
mod throttle;
mod worker;

pub use builder::ShedBuilder;
pub use layer::{Backlog, Measure, ShedHandle, ShedLayer, ShedPermit};
pub use throttle::{Throttle, ThrottleBuilder, ThrottleFuture, ThrottleLayer, Throttled};

use std::hash::{BuildHasher, RandomState};

/// A seed that is another in each process.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0u64)
}
