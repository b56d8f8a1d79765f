//! Redis and Valkey as the store of a fleet: standalone, behind Sentinel, or as a Cluster.
//!
//! | to find | look in |
//! |---|---|
//! | what users hold | `store.rs` |
//! | charges of one slot, and of several slots of a Cluster | `named.rs`, `crossing.rs` |
//! | about what time it is there | `clock.rs` |
//! | addresses of stores | `url.rs`, `query.rs` |
//! | the arithmetic that Redis runs | `lua/`, put together in `script.rs` |
//! | what scripts are given, and what they reply | `encode.rs`, `decode.rs` |
//! | names of states | `key.rs`, `escape.rs` |
//! | connections, Sentinel, Cluster, failures | `link/` |
//! | what would hurt limits in a store | `checkup/` |

mod checkup;
mod clock;
mod crossing;
mod decode;
mod encode;
mod escape;
mod key;
mod link;
mod named;
mod query;
mod script;
mod store;
mod url;

#[cfg(test)]
mod bulletin_tests;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crossing_tests;
#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod permission_tests;
#[cfg(test)]
mod store_tests;

pub use checkup::{Checkup, Finding, Severity, Topic};
pub use decode::ReplyError;
pub use link::{CallError, OpenError, Why};
pub use store::RedisStore;
pub use url::{Address, Target, TargetError};

/// Lets the current thread use connections that other threads made, rather than make its own. For threads that ask rarely.
pub fn borrow_connections() {
    link::borrow_connections();
}
