//! The built server with Redis as the store that several of them share: what passes, and what happens when Redis fails.
//!
//! | to find | look in |
//! |---|---|
//! | the server, Redis, proxies that lose replies | `crates/testkit` |
//! | servers with rules | `fleet.rs` |
//! | those who ask, one by one and many at once | `ask.rs`, `load.rs` |
//! | many callers that wait for their answers | `callers.rs` |
//! | exactly the limit passes, whoever asks, and however many | `exact.rs`, `overload.rs` |
//! | never more permits than the limit, and none that a dead holder keeps | `permits.rs` |
//! | slices of a limit, and counting after the answer | `eased.rs` |
//! | what one node does, others see | `admin.rs` |
//! | the heaviest keys and the blocks of all nodes | `crowd.rs` |
//! | several stores in one rule | `layouts.rs` |
//! | Redis away under load: how much passes | `outage.rs` |
//! | Redis absent, restarted, slow, without its reply | `absent.rs`, `restart.rs`, `slow.rs`, `lost.rs` |
//! | a primary killed, slots that move, Sentinels that switch | `cluster.rs`, `sentinel.rs` |
//! | clocks that jump | `clock.rs` |
//! | wrong passwords, rights, types | `bad.rs` |
//! | what `tidegate store check` says of servers | `store_check.rs` |
//!
//! Real redis-server processes run on loopback: `make peers` installs them. What takes longer than ten seconds is in
//! `make soak`.

// clippy.toml allows it in test functions, not in those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absent;
mod admin;
mod ask;
mod bad;
mod callers;
mod clock;
mod cluster;
mod crowd;
mod eased;
mod exact;
mod fleet;
mod layouts;
mod load;
mod lost;
mod outage;
mod overload;
mod permits;
mod restart;
mod sentinel;
mod slow;
mod store_check;
