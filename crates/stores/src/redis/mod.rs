//! Redis and Valkey as the store of a fleet: standalone, behind Sentinel, or as a Cluster.
//!
//! | to find | look in |
//! |---|---|
//! | where a store is, and how to reach it | `url` |
//! | carrying a script call to the right node, and what is known when it fails | `link/` |

#[allow(dead_code, unused_imports, reason = "the store that calls scripts through it is not there yet")]
mod link;
mod url;

pub use link::{Breaker, CallError, Health, NodeHealth, OpenError, Totals, Why};
pub use url::{Address, Target, TargetError};
