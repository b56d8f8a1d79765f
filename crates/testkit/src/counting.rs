//! Counting of allocations, for tests that must see none, or know how large they are.
//!
//! ```
//! use tidegate_testkit::counting::{Counting, allocations, held_bytes, sizes};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(allocations(|| drop(Box::new(1))), 1);
//! let (number, bytes) = held_bytes(|| Box::new(1_u64));
//! assert_eq!((*number, bytes), (1, 8));
//! assert_eq!(sizes(|| drop((Box::new(1_u8), vec![0_u8; 100]))), [1, 100]);
//! ```
#![allow(unsafe_code, reason = "an allocator is unsafe to write")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocations of a thread whose sizes are kept: an allocator cannot allocate a list of them.
const KEPT: usize = 256;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    static SIZES: [Cell<usize>; KEPT] = const { [const { Cell::new(0) }; KEPT] };
    /// Bytes that were allocated and not freed. Below zero on a thread that frees what another one allocated.
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts the allocations of each thread. A test program makes it its global allocator.
pub struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let number = ALLOCATED.with(|allocated| allocated.replace(allocated.get() + 1));
        SIZES.with(|sizes| sizes[place(number)].set(layout.size()));
        HELD_BYTES.set(HELD_BYTES.get() + layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD_BYTES.set(HELD_BYTES.get() - layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the number of allocations that this thread has made, if [`Counting`] is the global allocator.
pub fn allocated() -> u64 {
    ALLOCATED.get()
}

/// Where the size of an allocation is kept.
fn place(number: u64) -> usize {
    usize::try_from(number % KEPT as u64).unwrap_or_default()
}

/// Returns the bytes of each allocation that this thread makes while something runs. Panics if there are more than 256.
pub fn sizes(run: impl FnOnce()) -> Vec<usize> {
    let before = allocated();
    run();
    let made = before..allocated();
    assert!(made.end - made.start <= KEPT as u64, "the sizes of {made:?} are not kept");
    let sizes = SIZES.with(|sizes| sizes.each_ref().map(Cell::get));
    made.map(|number| sizes[place(number)]).collect()
}

/// Returns the number of allocations that this thread makes while something runs.
pub fn allocations(run: impl FnOnce()) -> u64 {
    let before = allocated();
    run();
    allocated() - before
}

/// Returns what something makes, and how many bytes more this thread holds with it than before.
pub fn held_bytes<T>(make: impl FnOnce() -> T) -> (T, isize) {
    let before = HELD_BYTES.get();
    let made = make();
    (made, HELD_BYTES.get() - before)
}
