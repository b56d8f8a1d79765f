//! Atomics and waiting, so that a model checker can stand in for the real ones.

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};

/// Waits a moment for another thread to finish a few instructions: spins at first, then gives way, because the other
/// thread may have been descheduled in the middle of them.
pub(crate) struct Wait(u32);

impl Wait {
    const SPINS: u32 = 6;

    pub(crate) fn new() -> Wait {
        Wait(0)
    }

    #[cold]
    pub(crate) fn pause(&mut self) {
        #[cfg(shuttle)]
        return shuttle::thread::yield_now();
        #[cfg(not(shuttle))]
        if self.0 < Wait::SPINS {
            for _ in 0..1 << self.0 {
                std::hint::spin_loop();
            }
            self.0 += 1;
        } else {
            std::thread::yield_now();
        }
    }
}
