//! Fixed window: units per window, windows aligned to the epoch. See `spec/fixed_window.md`.

use super::Words;
use crate::decision::{Answer, Decision, Op, Receipt};
use crate::{Key, Namespace, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    pub(crate) stagger: bool,
    /// Nanoseconds by which a key's windows start after the epoch's: below `window`.
    phase: u64,
}

impl FixedWindow {
    pub(crate) fn new(limit: u64, window: u64) -> FixedWindow {
        FixedWindow { limit, window, stagger: false, phase: 0 }
    }

    /// The same window, for this key: with `stagger`, windows of different keys end at different instants.
    #[inline]
    pub(crate) fn for_key(&self, namespace: &Namespace, key: Key<'_>) -> FixedWindow {
        if !self.stagger {
            return *self;
        }
        let scaled = u128::from(namespace.spread(key)) * u128::from(self.window);
        self.with_phase(u64::try_from(scaled >> 64).unwrap_or(0))
    }

    pub(crate) fn with_phase(&self, phase: u64) -> FixedWindow {
        FixedWindow { phase, ..*self }
    }

    pub(crate) fn phase(&self) -> u64 {
        self.phase
    }

    /// The end of the window that `now` lies in.
    pub(crate) fn end(&self, now: u64) -> u64 {
        now + self.window - (now + self.window - self.phase) % self.window
    }

    /// The window that counts, by its end, and the units in it.
    fn current(&self, state: [u64; 2], now: Time) -> (u64, u64) {
        let [end, count] = state;
        let end_now = self.end(now.as_nanos());
        if end <= now.as_nanos() {
            (end_now, 0)
        } else if self.is_ahead(&state, now) {
            // A clock that jumped back must not lock the key out until it catches up.
            (end_now, count)
        } else {
            // The same window; or the caller's instant is stale: it counts as the start of the state's own window.
            (end.max(end_now), count)
        }
    }
}

impl Words<2> for FixedWindow {
    #[inline]
    fn is_ahead(&self, [end, _]: &[u64; 2], now: Time) -> bool {
        end.saturating_sub(self.end(now.as_nanos())) > self.window
    }

    #[inline]
    fn decide(&self, state: &mut [u64; 2], now: Time, op: Op) -> Decision {
        let (end, before) = self.current(*state, now);
        let jumped = self.is_ahead(state, now);
        let mut count = before;
        let now = now.as_nanos();
        let start = end.saturating_sub(self.window);
        let mut answer = Answer::Allow;
        match op {
            Op::Take(units) | Op::Ask(units) if units > self.limit => answer = Answer::DenyAlways,
            Op::Take(units) if units > 0 && count.saturating_add(units) > self.limit => {
                answer = Answer::DenyFor(end - now);
            }
            Op::Ask(units) if count.saturating_add(units) > self.limit => answer = Answer::DenyFor(end - now),
            Op::Take(units) => count += units,
            Op::Debit(units) => count = count.max(count.saturating_add(units).min(2 * self.limit)),
            Op::Refund(units, receipt) => {
                if receipt.is_none_or(|receipt| (start..end).contains(&receipt.0)) {
                    count = count.saturating_sub(units);
                }
            }
            Op::Ask(_) | Op::Peek | Op::Reset => {}
        }
        // What changes nothing writes nothing, and a window that was emptied is still the latest one.
        match op {
            Op::Peek | Op::Ask(_) | Op::Take(0) => {}
            Op::Reset => {
                *state = [0, 0];
                return self.decide(state, Time::from_nanos(now), Op::Peek);
            }
            _ if count != before || jumped => *state = [end, count],
            _ => {}
        }
        Decision {
            answer,
            limit: self.limit,
            room: self.limit.saturating_sub(count),
            unit: 1,
            reset_after: if count == 0 { start.saturating_sub(now) } else { end - now },
            receipt: Receipt(now.max(start)),
        }
    }
}
