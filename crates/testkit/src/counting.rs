//! Counting of allocations, for tests that must see none.
//!
//! ```
//! use tidegate_testkit::counting::{Counting, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(allocations(|| drop(Box::new(1))), 1);
//! ```
#![allow(unsafe_code, reason = "an allocator is unsafe to write")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local!(static ALLOCATED: Cell<u64> = const { Cell::new(0) });

/// The system's allocator, which counts the allocations of each thread. A test program makes it its global allocator.
pub struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|allocated| allocated.set(allocated.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the number of allocations that this thread has made, if [`Counting`] is the global allocator.
pub fn allocated() -> u64 {
    ALLOCATED.get()
}

/// Returns the number of allocations that this thread makes while something runs.
pub fn allocations(run: impl FnOnce()) -> u64 {
    let before = allocated();
    run();
    allocated() - before
}
