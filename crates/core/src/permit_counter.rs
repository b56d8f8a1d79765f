//! A count of permits, their limit, and whether requests wait: in one word, so that all three change together.

use std::fmt;

use crate::LimitError;
use crate::bounds::PERMIT_COUNTER_MAX;
use crate::sync::{AtomicU64, Ordering};

/// Counts permits under a limit that may change at any moment. It takes no lock and has no queue, but supports one: the
/// owner of a queue, under a lock of its own, marks here that requests wait. While the mark is set, no newcomer
/// overtakes them, and a release reports that they must be served.
///
/// ```
/// use tidegate_core::PermitCounter;
///
/// let permits = PermitCounter::new(2)?;
/// assert_eq!(permits.try_acquire(), Some(1));
/// assert_eq!(permits.try_acquire(), Some(2));
/// permits.set_limit(1);
/// permits.release();
/// assert_eq!(permits.try_acquire(), None); // One is still in use.
/// # Ok::<(), tidegate::LimitError>(())
/// ```
pub struct PermitCounter(AtomicU64);

/// The result of releasing a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Nothing else is to be done.
    Done,
    /// Requests wait: the caller must take the lock of the queue and serve them.
    Waited,
    /// It was the last permit of a closed counter, which is unused from now on.
    Last,
}

/// The word, taken apart: the lower half counts permits in use, the upper half is the limit below a mark that requests
/// wait. A closed counter has no limit and the mark, so that a release checks a single bit.
#[derive(Clone, Copy)]
struct Parts {
    in_use: u64,
    limit: u64,
    waited_for: bool,
}

const LIMIT_SHIFT: u32 = 32;
const WAITED_FOR: u64 = 1 << 63;
const IN_USE_MAX: u64 = (1 << LIMIT_SHIFT) - 1;

impl Parts {
    fn of(word: u64) -> Parts {
        Parts {
            in_use: word & IN_USE_MAX,
            limit: (word & !WAITED_FOR) >> LIMIT_SHIFT,
            waited_for: word & WAITED_FOR != 0,
        }
    }

    fn word(self) -> u64 {
        let mark = if self.waited_for { WAITED_FOR } else { 0 };
        mark | (self.limit << LIMIT_SHIFT) | self.in_use
    }

    fn one_more(self) -> Parts {
        Parts { in_use: (self.in_use + 1).min(IN_USE_MAX), ..self }
    }

    fn has_room(self) -> bool {
        self.in_use < self.limit
    }

    fn is_closed(self) -> bool {
        self.limit == 0
    }
}

impl PermitCounter {
    /// Creates a counter without permits in use.
    ///
    /// # Errors
    /// Fails if the limit is zero or too large.
    pub fn new(limit: u64) -> Result<PermitCounter, LimitError> {
        match limit {
            0 => Err(LimitError::Zero { field: "limit" }),
            1..=PERMIT_COUNTER_MAX => {
                Ok(PermitCounter(AtomicU64::new(Parts { in_use: 0, limit, waited_for: false }.word())))
            }
            value => Err(LimitError::TooLarge { field: "limit", value, max: PERMIT_COUNTER_MAX }),
        }
    }

    /// Takes a permit if one is free and no request waits. Returns the number in use, including this one.
    #[inline]
    #[must_use = "a permit that was taken must be released"]
    pub fn try_acquire(&self) -> Option<u64> {
        self.acquire_if(|parts| parts.has_room() && !parts.waited_for)
    }

    /// Takes a permit for a waiting request. Call it under the lock of the queue.
    #[must_use = "a permit that was taken must be released"]
    pub fn try_acquire_for_waiting(&self) -> Option<u64> {
        self.acquire_if(Parts::has_room)
    }

    /// Takes a permit whether or not one is free, for a limit in shadow mode. Returns the number in use.
    pub fn acquire_anyway(&self) -> u64 {
        self.acquire_if(|_| true).unwrap_or(IN_USE_MAX)
    }

    /// Takes a permit if one is free and no request waits, else sets the mark that requests wait, atomically. Call it
    /// under the lock of the queue, and join the queue if it returns `None`.
    #[must_use = "a permit that was taken must be released"]
    pub fn acquire_or_wait(&self) -> Option<u64> {
        let before = self.update(|parts| {
            if parts.has_room() && !parts.waited_for { parts.one_more() } else { Parts { waited_for: true, ..parts } }
        });
        (before.has_room() && !before.waited_for).then(|| before.one_more().in_use)
    }

    /// Releases a permit.
    #[inline]
    #[must_use = "waiting requests must be served"]
    pub fn release(&self) -> Released {
        let before = self.update(|parts| Parts { in_use: parts.in_use.saturating_sub(1), ..parts });
        match (before.waited_for, before.is_closed(), before.in_use) {
            (false, ..) => Released::Done,
            (true, false, _) => Released::Waited,
            (true, true, 1) => Released::Last,
            (true, true, _) => Released::Done,
        }
    }

    /// Closes the counter. From then on it may only be used to release permits: no permit may be taken or waited for,
    /// and the limit, which is now 0, may not be changed. Returns `true` if no permit is in use; otherwise the last
    /// release returns [`Released::Last`].
    ///
    /// So a counter can live while permits are in use, without each of them keeping it alive:
    ///
    /// ```
    /// use tidegate_core::{PermitCounter, Released};
    ///
    /// let permits = PermitCounter::new(2)?;
    /// assert_eq!((permits.try_acquire(), permits.try_acquire()), (Some(1), Some(2)));
    /// assert!(!permits.close());
    /// assert_eq!((permits.release(), permits.release()), (Released::Done, Released::Last));
    /// # Ok::<(), tidegate::LimitError>(())
    /// ```
    #[must_use = "if no permit is in use, only this result shows that the counter can be reused"]
    pub fn close(&self) -> bool {
        self.update(|parts| Parts { limit: 0, waited_for: true, ..parts }).in_use == 0
    }

    /// Reopens a closed counter whose last permit has been released.
    ///
    /// # Errors
    /// Fails if the limit is zero or too large.
    pub fn reopen(&self, limit: u64) -> Result<(), LimitError> {
        self.0.store(PermitCounter::new(limit)?.parts().word(), Ordering::Release);
        Ok(())
    }

    /// Clears the mark that requests wait. Call it under the lock of the queue.
    pub fn nobody_waits(&self) {
        self.update(|parts| Parts { waited_for: false, ..parts });
    }

    /// Sets the limit, clamped to 1 and the largest one. Permits in use stay. Returns `true` if requests wait: the
    /// caller must then take the lock of the queue and serve them.
    #[must_use = "waiting requests must be served"]
    pub fn set_limit(&self, limit: u64) -> bool {
        self.update(|parts| Parts { limit: limit.clamp(1, PERMIT_COUNTER_MAX), ..parts }).waited_for
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.parts().limit
    }

    /// Returns the number of permits in use. It exceeds the limit if that was lowered.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.parts().in_use
    }

    fn parts(&self) -> Parts {
        Parts::of(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    fn acquire_if(&self, may: impl Fn(Parts) -> bool) -> Option<u64> {
        let next = |word| {
            let parts = Parts::of(word);
            may(parts).then(|| parts.one_more().word())
        };
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next)
            .ok()
            .map(|word| Parts::of(word).one_more().in_use)
    }

    /// Changes the word, and returns what it was before.
    #[inline]
    fn update(&self, change: impl Fn(Parts) -> Parts) -> Parts {
        let next = |word| Some(change(Parts::of(word)).word());
        let (Ok(before) | Err(before)) = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        Parts::of(before)
    }
}

impl fmt::Debug for PermitCounter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { in_use, limit, waited_for } = self.parts();
        let mut shown = formatter.debug_struct("PermitCounter");
        shown.field("in_use", &in_use).field("limit", &limit).field("waited_for", &waited_for).finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_overtakes_who_waits() {
        let permits = PermitCounter::new(1).unwrap();
        assert_eq!(permits.acquire_or_wait(), Some(1));
        assert_eq!(permits.acquire_or_wait(), None);
        assert_eq!(permits.release(), Released::Waited);
        assert_eq!(permits.try_acquire(), None);
        assert_eq!(permits.acquire_or_wait(), None);
        assert_eq!(permits.try_acquire_for_waiting(), Some(1));
        assert_eq!(permits.try_acquire_for_waiting(), None);
        permits.nobody_waits();
        assert_eq!(permits.release(), Released::Done);
        assert_eq!(permits.try_acquire(), Some(1));
    }

    #[test]
    fn a_limit_that_falls_lets_nobody_in_until_there_is_room() {
        let permits = PermitCounter::new(3).unwrap();
        for _ in 0..3 {
            assert!(permits.try_acquire().is_some());
        }
        assert!(!permits.set_limit(2));
        assert_eq!(permits.release(), Released::Done);
        assert_eq!((permits.try_acquire(), permits.in_use()), (None, 2));
        assert_eq!(permits.release(), Released::Done);
        assert_eq!(permits.try_acquire(), Some(2));
        assert_eq!(permits.acquire_anyway(), 3);
        assert!(!permits.set_limit(0));
        assert_eq!((permits.limit(), permits.in_use()), (1, 3));
        assert!(!permits.set_limit(u64::MAX));
        assert_eq!((permits.limit(), permits.in_use()), (PERMIT_COUNTER_MAX, 3));
    }

    #[test]
    fn what_was_never_taken_gives_nothing_back() {
        let permits = PermitCounter::new(1).unwrap();
        assert_eq!(permits.release(), Released::Done);
        assert_eq!((permits.in_use(), permits.limit()), (0, 1));
    }

    #[test]
    fn a_counter_that_is_closed_lets_nobody_in_and_tells_its_last() {
        let permits = PermitCounter::new(2).unwrap();
        assert!(permits.try_acquire().is_some() && permits.try_acquire().is_some());
        assert!(!permits.close());
        assert_eq!((permits.release(), permits.in_use()), (Released::Done, 1));
        assert_eq!((permits.try_acquire(), permits.try_acquire_for_waiting()), (None, None));
        assert_eq!(permits.release(), Released::Last);
        assert_eq!(permits.release(), Released::Done, "it was never taken");
        permits.reopen(1).unwrap();
        assert_eq!((permits.try_acquire(), permits.try_acquire()), (Some(1), None));
        assert_eq!(permits.release(), Released::Done);
        assert!(permits.close(), "nobody is in");
    }

    #[test]
    fn bad_limits_are_refused() {
        for (limit, expected) in [
            (0, "limit: 0 is too small; use at least 1"),
            (u64::MAX, "limit: 18446744073709551615 is too large; use at most 2147483647"),
        ] {
            assert_eq!(PermitCounter::new(limit).unwrap_err().to_string(), expected);
        }
    }
}
