//! The code that the tests of several crates of Tidegate share.
//!
//! | to find | look in | feature |
//! |---|---|---|
//! | the suite for everything that decides charges, and literal models | `conformance` | `conformance` |
//! | the suite on any store | `conformance/store` | `stores` |
//! | Redis alone, behind Sentinels, as a Cluster; certificates; a proxy that loses replies | `servers` | `servers` |
//! | `tidegate serve` as a process, an HTTP client for it, other processes | `tidegate`, `http`, `process` | `servers` |
//! | waiting, free ports, files of the repository | `wait`, `ports`, `repository` | `servers` |
//! | authorities that sign certificates | `authority` | `servers` |
//! | log lines | `logs` | `logs` |
//! | axum and tonic on loopback, tenants that share a service, tasks on paused time | `loopback`, `tenants`, `tasks` | `layers` |
//! | allocations | `counting` | |
//! It is a dev-dependency of other crates and is not published. Everything here panics if something it needs is
//! missing, as tests should.
//! what it needs is missing.
//! # Which tests can use which parts
//! # Which tests can use what
//!
//! Without the feature `stores` the kit depends on `tidegate-core` and on no other crate of Tidegate, so that each of them can
//! use it:
//!
//! - **Integration tests** (`crates/*/tests`) can use everything.
//! - **Unit tests** (in `crates/*/src`) can use everything too, but in `tidegate-core`: there Cargo builds the crate a second
//!   time for its unit tests, and its types are not those that the kit knows. They can use what takes no type of the core,
//!   such as `counting`.
//!
//! The feature `stores` brings types of `tidegate-stores`, so that only integration tests and other crates can use it. Elsewhere the
//! kit defines a small trait, such as `conformance::Subject`, and tests implement it.
//!
//! Each feature brings its dependencies, so that the tests of the core build no server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "in a test a panic is the answer")]

#[cfg(feature = "servers")]
pub mod authority;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod counting;
#[cfg(feature = "servers")]
pub mod http;
#[cfg(feature = "logs")]
pub mod logs;
#[cfg(feature = "layers")]
pub mod loopback;
#[cfg(feature = "servers")]
pub mod ports;
#[cfg(feature = "servers")]
pub mod process;
#[cfg(feature = "servers")]
pub mod repository;
#[cfg(feature = "servers")]
pub mod servers;
#[cfg(feature = "layers")]
pub mod tasks;
#[cfg(feature = "layers")]
pub mod tenants;
#[cfg(feature = "servers")]
pub mod tidegate;
#[cfg(feature = "servers")]
pub mod wait;
