//! Numbers that live as long as the process, and are reused.
//!
//! A permit that owned its counter would be counted twice, as a permit and as an owner: two more locked operations for
//! each request, more than a third of a layer's cost. So permits point to counters that are never freed. The counter of
//! a dropped layer becomes spare when the last permit is released, and the next new layer takes it.

use std::sync::Mutex;

use crate::lock::lock;

/// Values that are unused now. There are never more than were in use at once.
pub(crate) struct Spare<T: 'static>(Mutex<Vec<&'static T>>);

impl<T> Spare<T> {
    pub(crate) const fn new() -> Spare<T> {
        Spare(Mutex::new(Vec::new()))
    }

    /// Takes a spare value, in the state in which it was left, or makes a new one.
    pub(crate) fn take_or(&self, make: impl FnOnce() -> T) -> &'static T {
        let used = lock(&self.0).pop();
        used.unwrap_or_else(|| Box::leak(Box::new(make())))
    }

    /// Puts back a value that is no longer used.
    pub(crate) fn put(&self, spare: &'static T) {
        lock(&self.0).push(spare);
    }
}
