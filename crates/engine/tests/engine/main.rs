//! Requests through rules to outcomes, on a clock that stands still. `shared.rs` starts a real redis-server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod bench;
mod crowd;
mod explain;
mod flood;
mod life;
mod own_stores;
mod paths;
mod penalties;
mod permits;
mod rules;
mod shadow;
mod shared;
mod stores;
mod together;
mod unwind;
