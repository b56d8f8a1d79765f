//! When the next call may go: one word, so that a call with none before it needs no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::Time;

use crate::bounds::SHAPE_CATCH_UP;
use crate::runtime_clock::between;

/// An instant, with a bit above it that is set while calls wait. While it is set, only holders of the queue's lock
/// change the word.
pub(super) struct Pace(AtomicU64);

/// Above all instants.
const WAITED_FOR: u64 = Time::MAX.as_nanos() + 1;

impl Pace {
    /// The next call may go at any time.
    pub(super) fn new() -> Pace {
        Pace(AtomicU64::new(Time::default().as_nanos()))
    }

    /// Lets a call of duration `takes` go, if it is time and none waits.
    #[inline]
    pub(super) fn try_go(&self, now: Time, takes: Duration) -> bool {
        let mut free = self.0.load(Ordering::Relaxed);
        // With the mark it is later than any instant.
        while free <= now.as_nanos() {
            let next = after(Time::from_nanos(free), now, takes).as_nanos();
            match self.0.compare_exchange_weak(free, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => free = other,
            }
        }
        false
    }

    /// Marks that calls wait: from now on only holders of the lock let calls go. The caller holds the lock.
    pub(super) fn is_waited_for(&self) {
        self.0.fetch_or(WAITED_FOR, Ordering::Relaxed);
    }

    /// Clears the mark. The caller holds the lock.
    pub(super) fn nobody_waits(&self) {
        self.0.fetch_and(!WAITED_FOR, Ordering::Relaxed);
    }

    /// When the next call may go.
    pub(super) fn free(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::Relaxed) & !WAITED_FOR)
    }

    /// Lets a waiting call go. The caller holds the lock.
    pub(super) fn go(&self, now: Time, takes: Duration) {
        self.0.store(after(self.free(), now, takes).as_nanos() | WAITED_FOR, Ordering::Relaxed);
    }
}

/// When the next call may go after one that goes now. Counted from when this call was due, not from when its timer
/// fired: else each call would be a little later than the one before, and a fast rate would never be reached.
fn after(free: Time, now: Time, takes: Duration) -> Time {
    let due = if between(free, now) <= SHAPE_CATCH_UP { free } else { now };
    due.plus(takes)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn threads_together_keep_the_pace() {
        let pace = Pace::new();
        let goes =
            || (0..=1_000).map(|now| (0..).take_while(|_| pace.try_go(at(now), MILLISECOND)).count()).sum::<usize>();
        let gone: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(goes)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(gone, 1_001);
    }

    #[test]
    fn nobody_overtakes_who_waits() {
        let pace = Pace::new();
        assert!(pace.try_go(at(0), MILLISECOND) && !pace.try_go(at(0), MILLISECOND));
        pace.is_waited_for();
        assert!(!pace.try_go(at(9), MILLISECOND));
        assert_eq!(pace.free(), at(1));
        pace.go(at(2), MILLISECOND);
        assert_eq!(pace.free(), at(2), "it was due one millisecond before");
        assert!(!pace.try_go(at(9), MILLISECOND));
        pace.nobody_waits();
        assert!(pace.try_go(at(9), MILLISECOND));
        assert_eq!(pace.free(), at(10), "what is later than the timers are is lost");
    }
}
