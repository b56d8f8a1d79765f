//! The layers that protect a service from within, on paused time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "in a test a panic is the answer")]

mod adaptive;
mod bodies;
mod concurrency;
mod contract;
mod extremes;
mod fair;
mod frameworks;
mod hostile;
mod learning;
mod priority;
mod queue;
mod runtimes;
mod served;
mod shape;
mod shed;
mod support;
