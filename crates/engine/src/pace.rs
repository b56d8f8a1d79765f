//! Messages that would come with each request, and come from time to time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::Time;

/// When a message may be written next, and how many were left out since the last.
#[derive(Debug, Default)]
pub struct MessagePace {
    next: AtomicU64,
    left_out: AtomicU64,
}

impl MessagePace {
    /// Says whether a message may be written now, and if so how many were left out before it.
    pub fn turn(&self, now: Time, pause_nanos: u64) -> Option<u64> {
        let (now, next) = (now.as_nanos(), self.next.load(Relaxed));
        let after = now.saturating_add(pause_nanos);
        // Of callers at the same instant one writes.
        if now >= next && self.next.compare_exchange(next, after, Relaxed, Relaxed).is_ok() {
            return Some(self.left_out.swap(0, Relaxed));
        }
        self.left_out.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_from_time_to_time() {
        let pace = MessagePace::default();
        let turns = [5, 5, 9, 14, 15, 16, 99].map(|now| pace.turn(Time::from_nanos(now), 10));
        assert_eq!(turns, [Some(0), None, None, None, Some(3), None, Some(1)]);
    }
}
