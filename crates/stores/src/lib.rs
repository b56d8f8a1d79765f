//! Stores of states: the contract that every store fulfils, and the stores.
//!
//! | to find | look in |
//! |---|---|
//! | the contract of stores, and optional abilities | `contract.rs` |
//! | errors | `error.rs` |
//! | what a store reports about itself | `health.rs` |
//! | the memory of this process | `memory.rs` |
//! | the states to continue from while a store is away | `last_states/` |
//! | Redis and Valkey | `redis/` |
//! | stores of users and tests | `other.rs` |
//! | any of them, dispatched statically | `any.rs` |

mod any;
mod clock_offset;
mod contract;
mod error;
mod health;
mod last_states;
mod memory;
mod other;
pub mod redis;

pub use any::AnyStore;
pub use clock_offset::ClockOffset;
pub use contract::{
    Bulletin, Call, Lease, Leased, Leasing, NOTICE_BYTES_MAX, NOTICES_MAX, Nature, Notice, PermitCharge, PermitStore,
    Posted, Posting, Store,
};
pub use error::{Cause, Certainty, StoreError};
pub use health::{Breaker, CALL_TIME_BOUNDS, CallTimes, Health, NodeHealth, Totals};
pub use last_states::{Debit, LAST_STATES_MAX, LastStates};
pub use memory::Memory;
pub use other::Other;
