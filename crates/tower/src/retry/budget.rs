//! The bound on all retries together. Without a budget, a server that refuses half of its requests would get half as
//! many again, and soon refuse all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::DirectLimiter;

use crate::bounds::RETRIES_SAVED_MAX;

/// A share of all requests, plus a rate that is available however few requests there are.
#[derive(Debug)]
pub(super) struct Budget {
    /// The share that each request adds, in thousandths of a retry.
    share: u64,
    /// The saved retries, in thousandths of a retry.
    saved: AtomicU64,
    /// Retries that are available in any case.
    least: Option<DirectLimiter>,
}

const THOUSAND: u64 = 1_000;

impl Budget {
    /// Creates a budget; `share` is in thousandths.
    pub(super) fn new(share: u64, least: Option<DirectLimiter>) -> Budget {
        Budget { share, saved: AtomicU64::new(0), least }
    }

    /// Counts a request that is sent for the first time.
    pub(super) fn note_request(&self) {
        let more = |saved: u64| Some(saved.saturating_add(self.share).min(RETRIES_SAVED_MAX * THOUSAND));
        // The closure never gives up.
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes one retry, if there is one.
    pub(super) fn take(&self) -> bool {
        let less = |saved: u64| saved.checked_sub(THOUSAND);
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
            || self.least.as_ref().is_some_and(|least| least.check().is_allowed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_core::{FakeClock, Limit, Rate};

    use super::*;

    #[test]
    fn a_share_of_the_requests_and_no_more_than_can_be_saved() {
        let budget = Budget::new(100, None);
        assert!(!budget.take(), "nothing is saved yet");
        (0..25).for_each(|_| budget.note_request());
        assert_eq!([budget.take(), budget.take(), budget.take()], [true, true, false]);
        (0..1_000_000).for_each(|_| budget.note_request());
        let taken = (0..).take_while(|_| budget.take()).count();
        assert_eq!(taken as u64, RETRIES_SAVED_MAX);
    }

    #[test]
    fn a_few_in_any_case() {
        let clock = FakeClock::new();
        let limit = Limit::token_bucket(Rate::per_second(2).unwrap(), 2).unwrap();
        let budget = Budget::new(100, Some(DirectLimiter::with_clock(limit, clock.clone()).unwrap()));
        assert_eq!([budget.take(), budget.take(), budget.take()], [true, true, false]);
        clock.advance(Duration::from_millis(500));
        assert_eq!([budget.take(), budget.take()], [true, false]);
    }
}
