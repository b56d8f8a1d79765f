//! Locks over arithmetic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic under it. What it guards is whole then: the arithmetic panics nowhere, and calls
/// no foreign code but the clock, before it changes anything.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
