//! About what time it is in a store. Its scripts decide on its own clock; this one only says which windows of a calendar to
//! send along.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::{Clock, Time};

/// The clock of this machine, and how far that of the store is from it.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    machine: Clock,
    /// What to add to an instant of this machine, in nanoseconds; it wraps around below zero.
    offset: AtomicU64,
}

impl StoreClock {
    pub(super) fn about_now(&self) -> Time {
        Time::from_nanos(self.machine.now().as_nanos().wrapping_add(self.offset.load(Relaxed)))
    }

    /// Learns that it is another time in the store than was `believed`. Returns whether that makes a difference: if the store
    /// shows the same time and still refuses it, to ask once more would be in vain.
    pub(super) fn learn(&self, believed: Time, store: Time) -> bool {
        self.offset.store(store.as_nanos().wrapping_sub(self.machine.now().as_nanos()), Relaxed);
        believed != store
    }
}
