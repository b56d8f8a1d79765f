//! HTTP over real sockets, on a clock that stands still.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod admin;
mod auth;
mod bad_input;
mod bench;
mod check;
mod doors;
mod explain;
mod life;
mod operate;
mod permits;
mod stores;
mod top;
