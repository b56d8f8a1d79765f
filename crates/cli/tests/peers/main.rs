//! The built server with real peers: Envoy, nginx, Caddy, Redis' own tools, and clients in Python and Node.js.
//!
//! | to find | look in |
//! |---|---|
//! | the server, other processes, a small HTTP client, an application to put behind proxies | `crates/testkit` |
//! | pages of examples/ and docs/ whose commands are run | `readme.rs`, `guide.rs` |
//! | scripts that use a client as its users do | `clients/`, `clients.rs` |
//! | what the server tells of itself: traces and logs; how much it logs | `telemetry.rs`; `logs.rs` |
//! | everything else | tests, by the name of the peer |
//!
//! `make peers` installs what they need. To accept changed snapshots: `INSTA_UPDATE=always cargo test -p tidegate-cli`.

// clippy.toml allows it in test functions, not in those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod caddy;
mod clients;
mod curl;
mod drain;
mod envoy;
mod examples;
mod explain;
mod grpc_python;
mod guide;
mod logs;
mod nginx;
mod open_files;
mod paths;
mod readme;
mod redis_clients;
mod refusals;
mod reload;
mod start;
mod telemetry;
mod tls;
