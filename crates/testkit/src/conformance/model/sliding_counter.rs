//! A map from a window's number to its count, and an estimate that is compared as a whole fraction.

use std::collections::BTreeMap;

use tidegate_core::Op;

use super::{Answer, Model, Numbers, Verdict, nanos};

#[derive(Clone)]
pub(crate) struct SlidingCounter {
    limit: i128,
    window: i128,
    counts: BTreeMap<i128, i128>,
    /// The window the counter stands in: the one of the latest change.
    standing: i128,
}

impl SlidingCounter {
    pub(crate) fn new(numbers: Numbers) -> SlidingCounter {
        SlidingCounter {
            limit: numbers.units.into(),
            window: numbers.window.into(),
            counts: BTreeMap::new(),
            standing: 0,
        }
    }

    fn count(&self, number: i128) -> i128 {
        self.counts.get(&number).copied().unwrap_or(0)
    }

    /// The counter as it counts at `now`, and whether its counts were moved.
    fn at(&self, now: i128) -> (SlidingCounter, bool) {
        let present = now / self.window;
        let mut turned = self.clone();
        if self.standing <= present {
            turned.standing = present;
        } else if self.standing > present + 1 {
            let by = self.standing - present;
            turned.counts = self.counts.iter().map(|(number, count)| (number - by, *count)).collect();
            turned.standing = present;
            return (turned, true);
        }
        (turned, false)
    }

    /// The estimate at `now` times the window: prev·(W − elapsed) + curr·W.
    fn estimate(&self, now: i128) -> i128 {
        let (counter, _) = self.at(now);
        let start = counter.standing * self.window;
        let elapsed = now.max(start) - start;
        counter.count(counter.standing - 1) * (self.window - elapsed) + counter.count(counter.standing) * self.window
    }

    fn fits(&self, now: i128, cost: i128) -> bool {
        self.estimate(now) + cost * self.window <= self.limit * self.window
    }

    /// The first instant at which the cost fits: looked for, not solved for. The estimate only falls.
    fn first_fit(&self, now: i128, cost: i128) -> i128 {
        let (mut shut, mut open) = (now, now + 4 * self.window);
        while open - shut > 1 {
            let middle = (shut + open) / 2;
            *(if self.fits(middle, cost) { &mut open } else { &mut shut }) = middle;
        }
        open
    }

    fn forget(&mut self) {
        self.counts.clear();
        self.standing = 0;
    }

    /// When nothing in it weighs any more.
    fn fresh_at(&self) -> Option<i128> {
        self.counts
            .iter()
            .filter(|(number, count)| **count > 0 && **number >= self.standing - 1)
            .map(|(number, _)| (number + 2) * self.window)
            .max()
    }

    fn add(&mut self, number: i128, units: i128) {
        *self.counts.entry(number).or_insert(0) += units;
        let standing = self.standing;
        self.counts.retain(|number, count| *count > 0 && *number >= standing - 1);
    }
}

impl Model for SlidingCounter {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        if op == Op::Reset {
            self.forget();
            return self.apply(now, Op::Peek);
        }
        let now = i128::from(now);
        let (mut counter, moved) = self.at(now);
        let current = counter.standing;
        let mut verdict = Verdict::Allow;
        let mut changed = false;
        let mut add = |number: i128, units: i128| {
            counter.add(number, units);
            changed |= units != 0;
        };
        match op {
            Op::Take(cost) if i128::from(cost) > self.limit => verdict = Verdict::Never,
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Take(0) | Op::Peek => {}
            Op::Take(cost) if self.fits(now, cost.into()) => add(current, cost.into()),
            Op::Take(cost) => verdict = Verdict::After(nanos(self.at(now).0.first_fit(now, cost.into()) - now)),
            Op::Debit(cost) => {
                let count = self.at(now).0.count(current);
                add(current, i128::from(cost).min((2 * self.limit - count).max(0)));
            }
            Op::Refund(cost, receipt) => {
                let number = receipt.map_or(current, |receipt| i128::from(receipt.to_bits()) / self.window);
                // Any other window is gone, or was never there on this clock.
                if number == current || number == current - 1 {
                    add(number, -i128::from(cost).min(self.at(now).0.count(number)));
                }
            }
            Op::Reset => {}
        }
        let answer = Answer {
            verdict,
            limit: nanos(self.limit),
            remaining: nanos(((self.limit * self.window - counter.estimate(now)).div_euclid(self.window)).max(0)),
            reset_after: nanos((counter.fresh_at().unwrap_or(current * self.window) - now).max(0)),
            receipt: Some(nanos(now.max(current * self.window))),
        };
        if changed || moved && !matches!(op, Op::Peek | Op::Take(0)) {
            *self = counter;
        }
        answer.for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        self.limit = numbers.units.into();
    }
}
