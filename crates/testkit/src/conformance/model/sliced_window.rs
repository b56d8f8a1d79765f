//! A map from a slice's number to the units in it. A slice counts until the N slices after it are over too.

use std::collections::BTreeMap;

use tidegate_core::Op;

use super::{Answer, Model, Numbers, Verdict};

pub(crate) struct SlicedWindow {
    limit: u64,
    window: u64,
    slice: u64,
    slices: u64,
    counts: BTreeMap<u64, u64>,
}

type Counts = BTreeMap<u64, u64>;

impl SlicedWindow {
    pub(crate) fn new(numbers: Numbers) -> SlicedWindow {
        SlicedWindow {
            limit: numbers.units,
            window: numbers.window,
            slice: numbers.slice(),
            slices: numbers.slices,
            counts: Counts::new(),
        }
    }

    /// The first slice in which the units of slice `number` are out.
    fn out_in(&self, number: u64) -> u64 {
        number + self.slices + 1
    }

    fn live(&self, counts: &Counts, present: u64) -> Counts {
        counts.iter().map(|(n, c)| (*n, *c)).filter(|(number, _)| present < self.out_in(*number)).collect()
    }

    fn first_fit(&self, counts: &Counts, cost: u64) -> u64 {
        let fits = |present: &u64| self.live(counts, *present).values().sum::<u64>() + cost <= self.limit;
        counts.keys().map(|number| self.out_in(*number)).find(fits).unwrap()
    }
}

impl Model for SlicedWindow {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        if op == Op::Reset {
            self.counts.clear();
            return self.apply(now, Op::Peek);
        }
        let mut counts = self.counts.clone();
        let mut present = now / self.slice;
        let newest = counts.keys().max().copied().unwrap_or(0);
        let moved = newest > present && (newest - present) * self.slice > self.window;
        if moved {
            counts = Counts::from([(present, self.live(&counts, newest).values().sum())]);
            counts.retain(|_, units| *units > 0);
        } else {
            present = present.max(newest);
        }
        let live = self.live(&counts, present);
        let used: u64 = live.values().sum();
        let mut verdict = Verdict::Allow;
        let mut changed = moved && !matches!(op, Op::Peek | Op::Take(0));
        let mut added = 0;
        match op {
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Take(0) | Op::Peek => {}
            Op::Take(cost) if cost > self.limit => verdict = Verdict::Never,
            Op::Take(cost) if used + cost > self.limit => {
                verdict = Verdict::After(self.first_fit(&live, cost) * self.slice - now);
            }
            Op::Take(cost) => added = cost,
            Op::Debit(cost) => added = cost.min((2 * self.limit).saturating_sub(used)),
            Op::Refund(cost, receipt) => {
                let mut left = cost;
                let mut amended = counts.clone();
                for (number, units) in amended.iter_mut().filter(|(number, _)| present < self.out_in(**number)) {
                    if receipt.is_none_or(|receipt| receipt.to_bits() == self.out_in(*number) * self.slice) {
                        let given = left.min(*units);
                        *units -= given;
                        left -= given;
                    }
                }
                if amended != counts {
                    counts = amended;
                    changed = true;
                }
            }
            Op::Reset => {}
        }
        if added > 0 {
            counts = live;
            *counts.entry(present).or_insert(0) += added;
            changed = true;
        }
        let used: u64 = self.live(&counts, present).values().sum();
        let newest_start = counts.keys().max().map_or(0, |number| number * self.slice);
        let counting = counts.iter().filter(|(_, units)| **units > 0).map(|(number, _)| number);
        let last = counting.max().map_or(0, |number| self.out_in(*number) * self.slice);
        if changed {
            self.counts = counts;
        }
        Answer {
            verdict,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_after: if used == 0 { newest_start.saturating_sub(now) } else { last - now },
            receipt: Some(self.out_in(present) * self.slice),
        }
        .for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        self.limit = numbers.units;
    }
}
