//! Requests through rules to outcomes, on a clock that stands still.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

mod bench;
mod life;
mod penalties;
mod permits;
mod rules;
mod shadow;
mod stores;
mod together;
mod unwind;
