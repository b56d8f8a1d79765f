//! Atomics and waiting, which the model checker replaces by its own.

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(shuttle))]
use std::thread::yield_now;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
#[cfg(shuttle)]
use shuttle::thread::yield_now;

/// Waits a moment for another thread to finish a few instructions: spins at first, then yields, because the other
/// thread may have been descheduled in the middle of them.
pub(crate) struct Wait {
    rounds: u32,
}

/// Rounds of spinning, each twice as long as the one before.
const SPIN_ROUNDS: u32 = if cfg!(shuttle) { 0 } else { 6 };

impl Wait {
    pub(crate) fn new() -> Wait {
        Wait { rounds: 0 }
    }

    #[cold]
    pub(crate) fn pause(&mut self) {
        if self.rounds < SPIN_ROUNDS {
            for _ in 0..1 << self.rounds {
                std::hint::spin_loop();
            }
            self.rounds += 1;
        } else {
            yield_now();
        }
    }
}
