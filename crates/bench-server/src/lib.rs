//! What the benches of the server share: the processes that they measure, and bare servers to compare with.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "not shipped: it should stop at the first surprise"
)]

mod bare;
mod process;
mod redis_server;
mod statistics;

pub use bare::{Serve, serve};
pub use process::{Half, Process, free_ports, on, output, wait_for};
pub use redis_server::RedisServer;
pub use statistics::{median, mix};
