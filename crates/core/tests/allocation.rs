//! A decision allocates nothing.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod shapes;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use tidegate_core::{Charge, DirectLimiter, Key, MemoryStore, Op, Semaphore};

use shapes::every_shape;

/// The system's allocator, counting what this thread asks of it.
struct Counting;

thread_local!(static ASKED: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    run();
    ASKED.get() - before
}

#[test]
fn decisions_allocate_nothing() {
    assert_eq!(allocations(|| drop(Box::new(1))), 1, "the counter counts");
    let store = MemoryStore::builder().keys(100).build().unwrap();
    let semaphore = Semaphore::new(2).unwrap();
    let names: Vec<String> = (0..500).map(|number| format!("user:{number}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name).unwrap()).collect();
    let limits = every_shape(5, Duration::from_millis(1));
    let direct = limits.map(|limit| DirectLimiter::new(limit).unwrap());
    let mut decisions = Vec::with_capacity(keys.len());
    let made = allocations(|| {
        for key in &keys {
            for (limit, direct) in limits.iter().zip(&direct) {
                let taken = store.decide(*key, limit, Op::Take(1));
                store.decide(*key, limit, Op::Debit(9));
                store.decide(*key, limit, Op::Refund(1, taken.receipt()));
                store.decide(*key, limit, Op::Peek);
                store.decide(*key, limit, Op::Reset);
                direct.check();
            }
            let charges = limits.each_ref().map(|limit| Charge::take(*key, limit, 1));
            assert_eq!(store.charge(&charges).unwrap().iter().len(), 5);
            drop(semaphore.try_acquire(*key));
        }
        for limit in &limits {
            decisions.clear();
            store.decide_batch(&keys, limit, Op::Take(1), &mut decisions);
        }
    });
    assert_eq!(made, 0);
}
