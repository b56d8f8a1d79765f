//! A bucket into which units are poured and which leaks 1/T unit a nanosecond. What would overflow is denied.

use tidegate_core::Op;

use super::ratio::Ratio;
use super::{Answer, Model, Numbers, Verdict, nanos};

pub(crate) struct LeakyBucket {
    capacity: u64,
    interval: u64,
    /// The level in the bucket, and when it stood there. An empty bucket stands at no instant.
    level: Option<(Ratio, u64)>,
}

impl LeakyBucket {
    pub(crate) fn new(numbers: Numbers) -> LeakyBucket {
        LeakyBucket { capacity: numbers.units, interval: numbers.interval(), level: None }
    }

    fn units(&self, units: impl Into<i128>) -> Ratio {
        Ratio::new(0, self.interval).whole(units)
    }

    /// Debits pile up above the rim, up to this level.
    fn brim(&self) -> Ratio {
        self.units(2 * i128::from(self.capacity) - 1)
    }

    fn leaked(&self, now: u64) -> Ratio {
        match self.level {
            None => self.units(0),
            Some((level, at)) => {
                let leak = Ratio::new(i128::from(now) - i128::from(at), self.interval);
                (level - leak).max(self.units(0))
            }
        }
    }
}

impl Model for LeakyBucket {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        let leaked = self.leaked(now);
        let level = leaked.min(self.brim());
        let (verdict, poured) = match op {
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Peek | Op::Take(0) | Op::Debit(0) | Op::Refund(0, _) => (Verdict::Allow, level),
            Op::Take(cost) if cost > self.capacity => (Verdict::Never, level),
            Op::Take(cost) if level + self.units(cost) > self.units(self.capacity) => {
                let above = level + self.units(cost) - self.units(self.capacity);
                (Verdict::After(nanos(above.numerator)), level)
            }
            Op::Take(cost) => (Verdict::Allow, level + self.units(cost)),
            Op::Debit(cost) => (Verdict::Allow, (level + self.units(cost)).min(self.brim())),
            Op::Refund(cost, None) => (Verdict::Allow, (level - self.units(cost)).max(self.units(0))),
            Op::Refund(cost, Some(receipt)) => {
                // What was below the receipt's units leaks first: they are out at the receipt's instant.
                let left = Ratio::new(i128::from(receipt.to_bits()) - i128::from(now), self.interval);
                let scooped = self.units(cost).min(left.max(self.units(0)));
                (Verdict::Allow, (level - scooped).max(self.units(0)))
            }
            Op::Reset => (Verdict::Allow, self.units(0)),
        };
        // Looking writes nothing; all else writes a level that differs from the one that leaked by itself.
        if !matches!(op, Op::Peek | Op::Take(0)) && poured != leaked {
            self.level = Some((poured, now));
        }
        let empty_in = nanos(poured.numerator);
        let free = self.units(self.capacity) - poured;
        Answer {
            verdict,
            limit: self.capacity,
            remaining: nanos(free.floor().max(0)),
            reset_after: empty_in,
            receipt: Some(now + empty_in),
        }
        .for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        (self.capacity, self.interval) = (numbers.units, numbers.interval());
        // The time until it is empty stays the same, so the level is another one.
        self.level = self.level.map(|(level, at)| (Ratio::new(level.numerator, self.interval), at));
    }
}
