//! A map from a window's number to the units in it. Only the latest window is remembered.

use std::collections::BTreeMap;

use tidegate_core::Op;

use super::{Answer, Model, Numbers, Verdict};

pub(crate) struct FixedWindow {
    limit: u64,
    window: u64,
    counts: BTreeMap<u64, u64>,
}

impl FixedWindow {
    pub(crate) fn new(numbers: Numbers) -> FixedWindow {
        FixedWindow { limit: numbers.units, window: numbers.window, counts: BTreeMap::new() }
    }

    /// What counts at `now`: the number of the window, its units, and whether they were moved to it.
    fn counting(&self, now: u64) -> (u64, u64, bool) {
        let present = now / self.window;
        match self.counts.last_key_value() {
            Some((&latest, &count)) if latest > present + 1 => (present, count, true),
            Some((&latest, &count)) if latest == present + 1 => (latest, count, false),
            _ => (present, self.counts.get(&present).copied().unwrap_or(0), false),
        }
    }
}

impl Model for FixedWindow {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        if op == Op::Reset {
            self.counts.clear();
            return self.apply(now, Op::Peek);
        }
        let (number, before, moved) = self.counting(now);
        let (start, end) = (number * self.window, (number + 1) * self.window);
        let mut verdict = Verdict::Allow;
        let after = match op {
            Op::Take(cost) if cost > self.limit => {
                verdict = Verdict::Never;
                before
            }
            Op::Take(cost) if cost > 0 && before + cost > self.limit => {
                verdict = Verdict::After(end - now);
                before
            }
            Op::Take(cost) => before + cost,
            Op::Debit(cost) => before.max(before.saturating_add(cost).min(2 * self.limit)),
            Op::Refund(cost, Some(receipt)) if receipt.to_bits() >= start && receipt.to_bits() < end => {
                before.saturating_sub(cost)
            }
            Op::Refund(cost, None) => before.saturating_sub(cost),
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Refund(..) | Op::Peek | Op::Reset => before,
        };
        if after != before || moved && !matches!(op, Op::Peek | Op::Take(0)) {
            self.counts = BTreeMap::from([(number, after)]);
        }
        Answer {
            verdict,
            limit: self.limit,
            remaining: self.limit.saturating_sub(after),
            reset_after: if after == 0 { start.saturating_sub(now) } else { end - now },
            receipt: Some(now.max(start)),
        }
        .for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        self.limit = numbers.units;
    }
}
