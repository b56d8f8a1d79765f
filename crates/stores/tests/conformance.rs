//! The conformance suite on stores as the engine asks them: the memory of this process, and the same behind a box, as stores
//! of users are. Those on Redis are in `src/redis/conformance.rs`, since it takes their scripts to set the clock.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::sync::Arc;

use tidegate_core::{Clock, MemoryStore};
use tidegate_stores::{AnyStore, Memory, Other};
use tidegate_testkit::conformance::store::check;

fn memory(clock: Clock) -> Memory {
    Memory::new(MemoryStore::builder().keys(1_000).log_entries(100_000).clock(clock).build().unwrap())
}

#[test]
fn the_memory_of_this_process() {
    check(|clock| AnyStore::from(memory(clock)), 60);
}

#[test]
fn a_store_that_was_made_elsewhere() {
    check(|clock| AnyStore::from(Other::new(Arc::new(memory(clock)))), 60);
}
