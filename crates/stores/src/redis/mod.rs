//! Redis and Valkey as a shared store: standalone, behind Sentinel, or as a Cluster.
//!
//! | to find | look in |
//! |---|---|
//! | the store | `store.rs` |
//! | charges of one slot, and of several slots of a Cluster | `named.rs`, `crossing.rs` |
//! | an estimate of the server's clock | `clock.rs` |
//! | addresses of stores | `url.rs`, `query.rs` |
//! | the arithmetic that Redis runs | `lua/`, assembled in `script.rs` |
//! | arguments and replies of scripts | `encode.rs`, `decode.rs` |
//! | names of states | `key.rs`, `escape.rs` |
//! | connections, Sentinel, Cluster, failures | `link/` |
//! | checks of a store for settings that would harm limits | `checkup/` |

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

/// Makes the current thread use connections of other threads, instead of opening its own. For threads that call rarely.
pub fn borrow_connections() {
    link::borrow_connections();
}
