//! The memory that the heaviest keys of all rules may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::bounds::TOP_BYTES_MAX;

/// What all rules have taken.
#[derive(Debug, Default)]
pub(super) struct Room(AtomicUsize);

#[cfg(test)]
impl Room {
    /// The bytes that all rules have taken.
    pub(super) fn taken(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What one rule has taken. It is given back when the rule is gone.
#[derive(Debug)]
pub(super) struct Memory {
    room: Arc<Room>,
    taken: AtomicUsize,
}

impl Memory {
    pub(super) fn of(room: &Arc<Room>) -> Memory {
        Memory { room: Arc::clone(room), taken: AtomicUsize::new(0) }
    }

    /// Takes bytes. Returns whether there were enough left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= TOP_BYTES_MAX);
        let is_taken = self.room.0.fetch_update(Relaxed, Relaxed, more).is_ok();
        if is_taken {
            self.taken.fetch_add(bytes, Relaxed);
        }
        is_taken
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.room.0.fetch_sub(*self.taken.get_mut(), Relaxed);
    }
}
