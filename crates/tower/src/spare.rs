//! Numbers that live for as long as the process does, and are used again.
//!
//! A permit that owned what it is counted in would be counted twice, as a permit and as an owner: two locked operations more
//! for each request, more than a third of what a layer costs. So permits point to numbers that are never freed. What a layer that is
//! gone leaves to those who are still in is spare when the last of them has left, and goes to the next layer that is made.

use std::sync::Mutex;

use crate::lock::lock;

/// What nobody uses now. There is never more of it than was used at once.
pub(crate) struct Spare<T: 'static>(Mutex<Vec<&'static T>>);

impl<T> Spare<T> {
    pub(crate) const fn new() -> Spare<T> {
        Spare(Mutex::new(Vec::new()))
    }

    /// Something that was used before, as it was left, or else something new.
    pub(crate) fn take_or(&self, make: impl FnOnce() -> T) -> &'static T {
        let used = lock(&self.0).pop();
        used.unwrap_or_else(|| Box::leak(Box::new(make())))
    }

    /// Nobody uses it any more.
    pub(crate) fn put(&self, spare: &'static T) {
        lock(&self.0).push(spare);
    }
}
