//! The clock of a store, as far as its answers reveal it.

use std::time::Duration;

use tidegate_core::Time;

/// Answers after which an estimate is replaced by a worse one: clocks drift.
const USES_MAX: u32 = 8;

/// How far the clock of a store is ahead of the clock of this process.
#[derive(Clone, Copy, Debug)]
pub struct ClockOffset {
    /// Added to an instant of this process; it wraps around below zero.
    offset: u64,
    /// The duration of the call: the store's instant lies somewhere in it.
    call: u64,
    uses: u32,
}

impl ClockOffset {
    /// Estimates it from an answer that the store gave at `told`, to a call between two instants of this process.
    #[must_use]
    pub fn new(told: Time, sent: Time, learned: Time) -> ClockOffset {
        let call = nanos(since(sent, learned));
        let middle = sent.as_nanos() + call / 2;
        ClockOffset { offset: told.as_nanos().wrapping_sub(middle), call, uses: 0 }
    }

    /// Returns the tighter of two estimates, unless the older one is too old. If both cannot be right, the clock was set.
    #[must_use]
    pub fn or_newer(self, newer: ClockOffset) -> ClockOffset {
        // Each is wrong by half of its call at most.
        let apart = self.offset.wrapping_sub(newer.offset).cast_signed().unsigned_abs();
        let agree = apart <= self.call.saturating_add(newer.call) / 2;
        let keep = agree && self.call < newer.call && self.uses < USES_MAX;
        if keep { ClockOffset { uses: self.uses + 1, ..self } } else { newer }
    }

    /// Returns the store's instant at an instant of this process.
    #[must_use]
    pub fn at(&self, now: Time) -> Time {
        Time::from_nanos(now.as_nanos().wrapping_add(self.offset))
    }
}

/// The time from one instant to a later one; zero if it is not later.
pub(crate) fn since(earlier: Time, later: Time) -> Duration {
    Duration::from_nanos(later.as_nanos().saturating_sub(earlier.as_nanos()))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000_000_000_000;

    fn at(millis: u64) -> Time {
        Time::from_nanos(START + millis * 1_000_000)
    }

    fn of(told: u64, sent: u64, learned: u64) -> ClockOffset {
        ClockOffset::new(at(told), at(sent), at(learned))
    }

    #[test]
    fn the_tightest_of_the_last_answers_counts() {
        let tight = of(1_001, 0, 2);
        assert_eq!(tight.at(at(100)), at(1_100));
        let mut clock = tight;
        for _ in 0..USES_MAX {
            clock = clock.or_newer(of(2_000, 900, 1_000));
            assert_eq!(clock.at(at(100)), at(1_100));
        }
        assert_eq!(clock.or_newer(of(2_000, 900, 1_000)).at(at(0)), at(1_050), "in the end it is too old");
        assert_eq!(clock.or_newer(of(2_000, 1_000, 1_001)).call, 1_000_000);
        let behind = of(0, 1_000, 1_000);
        assert_eq!(behind.at(at(1_500)), at(500), "a clock that is behind");
    }

    #[test]
    fn a_clock_that_was_set_is_believed_at_once() {
        let tight = of(10_001, 0, 2);
        // As far apart as both estimates can be wrong, and a little more.
        for (told, offset) in [(11_002, 10_000), (11_005, 10_000), (11_006, 10_004), (10_999, 10_000), (10_998, 9_996)]
        {
            assert_eq!(tight.or_newer(of(told, 1_000, 1_004)).at(at(0)), at(offset), "{told}");
        }
        for told in [1_000, 3_601_000] {
            assert_eq!(tight.or_newer(of(told, 900, 1_000)).at(at(950)), at(told), "a jump");
        }
    }
}
