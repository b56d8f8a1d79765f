//! The built server with real peers: Envoy, nginx, Caddy, Redis' own tools, and clients in Python and Node.js.
//!
//! | to find | look in |
//! |---|---|
//! | processes that end with their test | `process.rs` |
//! | the server, and where things are | `tidegate.rs` |
//! | a small HTTP client and an application to stand behind proxies | `http.rs` |
//! | pages of examples/ and docs/ whose commands are run | `readme.rs`, `guide.rs` |
//! | scripts that use a client as its users do | `clients/` |
//! | what the server tells of itself: traces and logs | `telemetry.rs` |
//! | everything else | tests, by the name of the peer |
//!
//! `make peers` installs what they need. To accept changed snapshots: `INSTA_UPDATE=always cargo test -p tidegate-cli`.

// clippy.toml allows it in test functions, not in those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod caddy;
mod curl;
mod drain;
mod envoy;
mod examples;
mod grpc_python;
mod guide;
mod http;
mod nginx;
mod open_files;
mod process;
mod readme;
mod redis_clients;
mod refusals;
mod reload;
mod start;
mod telemetry;
mod tidegate;
