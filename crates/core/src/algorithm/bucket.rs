//! Token bucket, leaky bucket as a meter, and GCRA: one arithmetic under three names.
//!
//! The state is one instant, the theoretical arrival time (TAT): the bucket is full again, the meter empty, from then
//! on. What lies between now and the TAT is the debt. See `spec/gcra.md`.

use super::Words;
use crate::decision::{Answer, Decision, Op, Receipt};
use crate::{Rate, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    /// Nanoseconds a unit takes to come back.
    interval: u64,
    /// Units that may pass at once from idle.
    burst: u64,
    /// Nanoseconds a whole burst takes to come back.
    span: u64,
}

impl Bucket {
    /// `burst × interval` must not exceed [`SPAN_NANOS_MAX`](crate::bounds::SPAN_NANOS_MAX).
    pub(crate) fn new(rate: Rate, burst: u64) -> Bucket {
        Bucket::every(rate.interval(), burst)
    }

    pub(crate) fn every(interval: u64, burst: u64) -> Bucket {
        Bucket { interval, burst, span: interval.saturating_mul(burst) }
    }

    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    /// The most debt a state may hold. Debits reach almost one further burst beyond the burst; one interval less, so
    /// that after a clock jumped back one unit passes again within the time of one burst.
    #[inline]
    pub(crate) fn debt_max(&self) -> u64 {
        2 * self.span - self.interval
    }

    /// The time that `units` take to come back, or `None` if it is longer than that of a whole burst.
    #[inline]
    fn time_of(&self, units: u64) -> Option<u64> {
        if units > self.burst { None } else { Some(units * self.interval) }
    }

    #[inline(always)]
    fn answer(&self, answer: Answer, now: u64, debt: u64) -> Decision {
        Decision {
            answer,
            limit: self.burst,
            room: self.span.saturating_sub(debt),
            unit: self.interval,
            reset_after: debt,
            receipt: Receipt(now + debt),
        }
    }
}

impl Words<1> for Bucket {
    #[inline]
    fn is_ahead(&self, [tat]: &[u64; 1], now: Time) -> bool {
        tat.saturating_sub(now.as_nanos()) > self.debt_max()
    }

    #[inline]
    fn only_looks(&self, [tat]: &[u64; 1], now: Time, op: Op) -> bool {
        let debt = tat.saturating_sub(now.as_nanos());
        match op {
            Op::Peek | Op::Ask(_) | Op::Take(0) => true,
            // Not even one unit fits, and no clock has to be repaired.
            Op::Take(_) => debt > self.span - self.interval && debt <= self.debt_max(),
            Op::Debit(_) | Op::Refund(..) | Op::Reset => false,
        }
    }

    #[inline(always)]
    fn decide(&self, [tat]: &mut [u64; 1], now: Time, op: Op) -> Decision {
        let now = now.as_nanos();
        let before = tat.saturating_sub(now);
        let debt = before.min(self.debt_max());
        let (answer, debt) = match op {
            Op::Take(0) | Op::Peek => return self.answer(Answer::Allow, now, debt),
            Op::Ask(units) => {
                let answer = match self.time_of(units) {
                    None => Answer::DenyAlways,
                    Some(time) if debt + time <= self.span => Answer::Allow,
                    Some(time) => Answer::DenyFor(debt + time - self.span),
                };
                return self.answer(answer, now, debt);
            }
            Op::Take(units) => match self.time_of(units) {
                None => (Answer::DenyAlways, debt),
                Some(time) if debt + time <= self.span => (Answer::Allow, debt + time),
                Some(time) => (Answer::DenyFor(debt + time - self.span), debt),
            },
            Op::Debit(units) => {
                let time = units.saturating_mul(self.interval);
                (Answer::Allow, debt.saturating_add(time).min(self.debt_max()))
            }
            Op::Refund(units, receipt) => {
                // Units come back in the order they were taken; what has come back by now cannot come back twice.
                let outstanding = receipt.map_or(u64::MAX, |receipt| receipt.0.saturating_sub(now));
                let time = units.saturating_mul(self.interval).min(outstanding);
                (Answer::Allow, debt.saturating_sub(time))
            }
            Op::Reset => (Answer::Allow, 0),
        };
        // What changes nothing writes nothing: an instant that has passed for this caller may not have for a later one
        // that read the clock before.
        if debt != before {
            *tat = now + debt;
        }
        self.answer(answer, now, debt)
    }
}
