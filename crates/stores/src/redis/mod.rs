//! Redis and Valkey as the store of a fleet: standalone, behind Sentinel, or as a Cluster.
//!
//! | to find | look in |
//! |---|---|
//! | the arithmetic that Redis runs | `lua/`, put together in `script.rs` |
//! | what scripts are given, and what they reply | `encode.rs`, `decode.rs` |

mod decode;
mod encode;
mod script;

#[cfg(test)]
mod conformance;

pub use decode::ReplyError;
