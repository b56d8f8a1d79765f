//! The breaker of a node: after failures no call is sent until a probe succeeds.
//!
//! It counts in atomics that threads update without waiting: where two meet, a call may fall out of a window. That moves
//! the opening by a call and nothing else.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::health::Breaker;

use super::bounds::{BREAKER_CALLS_MIN, BREAKER_WINDOW, FAILURES_IN_ROW_MAX};

const CLOSED: u8 = 0;
const PROBING: u8 = 1;
const OPEN: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Circuit {
    state: AtomicU8,
    failures_in_row: AtomicU32,
    window_start_nanos: AtomicU64,
    window_calls: AtomicU32,
    window_failures: AtomicU32,
}

impl Circuit {
    pub(super) fn state(&self) -> Breaker {
        match self.state.load(Relaxed) {
            CLOSED => Breaker::Closed,
            PROBING => Breaker::Probing,
            _ => Breaker::Open,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Relaxed) == CLOSED
    }

    /// So many calls were answered, `now` after the node was made.
    pub(super) fn succeeded(&self, now: Duration, count: u32) {
        // Only a change is written: threads that succeed do not take this line from each other more than needed.
        if self.failures_in_row.load(Relaxed) != 0 {
            self.failures_in_row.store(0, Relaxed);
        }
        self.roll(now);
        self.window_calls.fetch_add(count, Relaxed);
    }

    /// So many calls were not answered. Says whether the breaker opened by that.
    pub(super) fn failed(&self, now: Duration, count: u32) -> bool {
        let and_before = |counter: &AtomicU32| counter.fetch_add(count, Relaxed).saturating_add(count);
        let in_row = and_before(&self.failures_in_row);
        self.roll(now);
        let (calls, failures) = (and_before(&self.window_calls), and_before(&self.window_failures));
        let most_fail = calls >= BREAKER_CALLS_MIN && failures.saturating_mul(2) >= calls;
        (in_row >= FAILURES_IN_ROW_MAX || most_fail)
            && self.state.compare_exchange(CLOSED, OPEN, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn probe_begins(&self) {
        let _ = self.state.compare_exchange(OPEN, PROBING, Relaxed, Relaxed);
    }

    pub(super) fn probe_failed(&self) {
        let _ = self.state.compare_exchange(PROBING, OPEN, Relaxed, Relaxed);
    }

    /// A probe succeeded. Says whether the breaker closed by it.
    pub(super) fn close(&self) -> bool {
        self.failures_in_row.store(0, Relaxed);
        self.window_calls.store(0, Relaxed);
        self.window_failures.store(0, Relaxed);
        self.state.swap(CLOSED, Relaxed) != CLOSED
    }

    /// Starts a new window when the last one is over.
    fn roll(&self, now: Duration) {
        let now_nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let start = self.window_start_nanos.load(Relaxed);
        let over = Duration::from_nanos(now_nanos.saturating_sub(start)) >= BREAKER_WINDOW;
        if over && self.window_start_nanos.compare_exchange(start, now_nanos, Relaxed, Relaxed).is_ok() {
            self.window_calls.store(0, Relaxed);
            self.window_failures.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a history of answers (`+`) and failures (`-`), a millisecond apart, and says after how many it opened.
    fn opens_after(history: &str) -> Option<usize> {
        let circuit = Circuit::default();
        for (index, answer) in history.chars().enumerate() {
            let now = Duration::from_secs(100) + Duration::from_millis(index as u64);
            if answer == '+' {
                circuit.succeeded(now, 1);
            } else if circuit.failed(now, 1) {
                return Some(index + 1);
            }
        }
        assert_eq!(circuit.state(), Breaker::Closed, "{history}");
        None
    }

    #[test]
    fn opens_after_failures_in_a_row() {
        assert_eq!(opens_after("-----"), Some(5));
        assert_eq!(opens_after("+++-----"), Some(8));
        assert_eq!(opens_after("----+----+----"), None);
    }

    #[test]
    fn opens_when_half_of_the_calls_fail() {
        assert_eq!(opens_after(&"-+".repeat(9)), None, "too few to tell");
        assert_eq!(opens_after(&"+-".repeat(10)), Some(20));
        assert_eq!(opens_after(&"++-".repeat(200)), None, "a third is not half");
    }

    #[test]
    fn a_window_forgets_the_one_before() {
        // 600 answers fill the first window; in the second one half fail.
        let history = "+".repeat(600) + &"+-".repeat(300);
        let opened = opens_after(&history).unwrap();
        assert!((1_000..=1_030).contains(&opened), "{opened}");
    }

    #[test]
    fn a_probe_closes_it_and_forgets() {
        let circuit = Circuit::default();
        let now = Duration::from_secs(1);
        assert!((0..5).any(|_| circuit.failed(now, 1)));
        circuit.probe_begins();
        assert_eq!(circuit.state(), Breaker::Probing);
        circuit.probe_failed();
        assert_eq!(circuit.state(), Breaker::Open);
        assert!(circuit.close() && !circuit.close());
        assert!(!circuit.failed(now, 1), "the failures from before do not count");
    }
}
