//! Clients that were turned away before they could ask: all are counted, and some are logged. Anybody who reaches a port
//! can be turned away as often as they like, and must not fill a disk with that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_core::Time;

use crate::bounds::REFUSALS_LOGGED_A_SECOND;

/// Those of one kind.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    count: AtomicU64,
    logged: Mutex<Logged>,
}

#[derive(Debug, Default)]
struct Logged {
    /// The second of the last line, since the epoch.
    second: u64,
    /// Lines of that second.
    lines: u32,
    /// Those that had no line since the last one.
    left_out: u64,
}

impl Refusals {
    /// Counts one. If a line may be written of it, tells how many had none since the last one.
    pub(crate) fn count(&self, now: Time) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let second = now.as_nanos() / 1_000_000_000;
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.second != second {
            (logged.second, logged.lines) = (second, 0);
        }
        if logged.lines >= REFUSALS_LOGGED_A_SECOND {
            logged.left_out += 1;
            return None;
        }
        logged.lines += 1;
        Some(std::mem::take(&mut logged.left_out))
    }

    /// How many there were.
    pub(crate) fn total(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lines_a_second_and_none_is_forgotten() {
        let refusals = Refusals::default();
        let at = |second: u64| refusals.count(Time::from_nanos(second * 1_000_000_000 + 5));
        let lines = |second| (0..100).filter_map(|_| at(second)).collect::<Vec<_>>();
        assert_eq!(lines(7), [0, 0, 0]);
        assert_eq!(lines(8), [97, 0, 0]);
        assert_eq!(at(9), Some(97));
        assert_eq!(refusals.total(), 201);
    }
}
