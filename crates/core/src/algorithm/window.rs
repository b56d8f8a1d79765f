//! Units in windows that do not overlap: what a fixed window and a calendar window share.

use super::Words;
use crate::Time;
use crate::decision::{Answer, Decision, Op, Receipt};

/// Windows that follow each other. The words of a state are the end of a window and the units in it.
pub(crate) trait Windows {
    /// Units in each window.
    fn limit(&self) -> u64;

    /// The window that counts at an instant, given what the state remembers.
    fn current(&self, state: [u64; 2], now: Time) -> Current;
}

/// The window that counts, and the units in it.
pub(crate) struct Current {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) count: u64,
    /// Whether the count comes from a window so late that the clock must have jumped back.
    pub(crate) jumped: bool,
}

impl<W: Windows> Words<2> for W {
    #[inline]
    fn is_ahead(&self, state: &[u64; 2], now: Time) -> bool {
        self.current(*state, now).jumped
    }

    #[inline]
    fn decide(&self, state: &mut [u64; 2], now: Time, op: Op) -> Decision {
        let Current { start, end, count: before, jumped } = self.current(*state, now);
        let (mut count, limit) = (before, self.limit());
        let now = now.as_nanos();
        let mut answer = Answer::Allow;
        match op {
            Op::Take(units) | Op::Ask(units) if units > limit => answer = Answer::DenyAlways,
            Op::Take(units) if units > 0 && count.saturating_add(units) > limit => {
                answer = Answer::DenyFor(end - now);
            }
            Op::Ask(units) if count.saturating_add(units) > limit => answer = Answer::DenyFor(end - now),
            Op::Take(units) => count += units,
            Op::Debit(units) => count = count.max(count.saturating_add(units).min(2 * limit)),
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
            limit,
            room: limit.saturating_sub(count),
            unit: 1,
            reset_after: if count == 0 { start.saturating_sub(now) } else { end - now },
            receipt: Receipt(now.max(start)),
        }
    }
}
