//! How many calls a link leaves unanswered, and how fast answers come.

use std::time::Duration;

use tokio::time::Instant;

use super::bounds::{PACE_ANSWERS_MIN, PACE_SPAN, UNANSWERED_FIRST, UNANSWERED_MAX};

/// The most calls that may be unanswered: as many as the server answers within half the budget, so that queues stand in
/// the node, where their end is known, and not in a socket.
///
/// It is halved when an answer took longer, and one more after each full round in which none did. Calls that were under
/// way when it was halved say nothing new: they belong to the round that halved it.
#[derive(Debug)]
pub(super) struct Window {
    most: usize,
    /// The number of the first call of the next round.
    next_round: u64,
    /// Whether calls had to wait for it in this round: a window that nobody fills does not grow.
    was_full: bool,
}

impl Window {
    pub(super) fn new() -> Window {
        Window { most: UNANSWERED_FIRST, next_round: 0, was_full: false }
    }

    pub(super) fn has_room(&self, unanswered: usize) -> bool {
        unanswered < self.most
    }

    /// A call has to wait.
    pub(super) fn is_full(&mut self) {
        self.was_full = true;
    }

    /// The call of this number was answered, while the next one to be sent has that number.
    pub(super) fn answered(&mut self, number: u64, next: u64, was_slow: bool) {
        if number < self.next_round {
            return;
        }
        if was_slow {
            self.most = (self.most / 2).max(1);
        } else if self.was_full {
            self.most = (self.most + 1).min(UNANSWERED_MAX);
        }
        (self.next_round, self.was_full) = (next, false);
    }
}

/// How fast answers come while calls wait.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since when answers are counted, and how many came.
    counting: Option<(Instant, u32)>,
    /// The time of past spans and the answers in them, of which older ones count less and less. A server that paused once
    /// does not seem slow: its pause is one span among others.
    nanos: u64,
    answers: u64,
}

impl Pace {
    /// So many answers came; `waits` if calls wait for their turn, so that the server is what sets the pace.
    pub(super) fn answered(&mut self, count: u32, now: Instant, waits: bool) {
        let (since, so_far) = self.counting.unwrap_or((now, 0));
        let (span, all) = (now.saturating_duration_since(since), so_far.saturating_add(count));
        self.counting = waits.then_some((since, all));
        if !waits || span < PACE_SPAN {
            return;
        }
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.nanos = (self.nanos - self.nanos / 4).saturating_add(span);
        self.answers = (self.answers - self.answers / 4).saturating_add(u64::from(all));
        self.counting = Some((now, 0));
    }

    /// How long it takes until so many calls were answered; nothing before enough is known.
    pub(super) fn time_for(&self, calls: usize) -> Duration {
        if self.answers < PACE_ANSWERS_MIN {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.nanos.saturating_mul(calls as u64) / self.answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_halved_once_a_round_and_grows_by_one() {
        let mut window = Window::new();
        assert!(window.has_room(63) && !window.has_room(64));
        // Three slow answers of one round, then those that were under way meanwhile.
        (0..3).for_each(|number| window.answered(number, 64, true));
        assert_eq!(window.most, 32);
        (3..64).for_each(|number| window.answered(number, 96, false));
        assert_eq!(window.most, 32);
        window.is_full();
        window.answered(64, 100, false);
        assert_eq!(window.most, 33, "a full round");
        window.answered(100, 140, false);
        assert_eq!(window.most, 33, "nobody had to wait");
        for round in 1..20 {
            window.answered(140 * round, 140 * (round + 1), true);
        }
        assert!(window.has_room(0) && !window.has_room(1), "one call is always let go");
        let mut window = Window::new();
        for round in 0..10_000 {
            window.is_full();
            window.answered(round, round + 1, false);
        }
        assert_eq!(window.most, UNANSWERED_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pace_is_that_of_answers_while_calls_wait() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        assert_eq!(pace.time_for(1_000), Duration::ZERO, "nothing is known");
        let at = |millis| start + Duration::from_millis(millis);
        pace.answered(1, at(0), true);
        pace.answered(99, at(10), true);
        assert_eq!(pace.time_for(100), Duration::from_millis(10));
        pace.answered(500, at(11), false);
        pace.answered(0, at(1_000), true);
        // 7.5 ms and 75 answers of before are left.
        pace.answered(25, at(1_010), true);
        assert_eq!(pace.time_for(100), Duration::from_micros(17_500), "idle times do not count");
        let mut pace = Pace::default();
        pace.answered(1, at(0), true);
        pace.answered(14, at(50), true);
        assert_eq!(pace.time_for(100), Duration::ZERO, "too few answers to tell");
    }
}
