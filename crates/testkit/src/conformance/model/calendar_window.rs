//! A map from a window's name to the units in it. Only the latest window is remembered.

use std::collections::BTreeMap;

use tidegate_core::Op;

use super::calendar::{Civil, Window};
use super::{Answer, Model, Numbers, Verdict};

/// The counts of one key.
pub struct CalendarWindow {
    limit: u64,
    civil: Civil,
    counts: BTreeMap<u32, u64>,
}

impl CalendarWindow {
    /// A key that was never seen.
    pub fn new(limit: u64, civil: Civil) -> CalendarWindow {
        CalendarWindow { limit, civil, counts: BTreeMap::new() }
    }

    /// What counts at `now`: the window, its units, and whether they were moved to it.
    fn counting(&self, now: u64) -> (Window, u64, bool) {
        let present = self.civil.window_at(now);
        match self.counts.last_key_value() {
            Some((&latest, &count)) if latest > present.name => {
                let next = self.civil.next(present);
                if latest == next.name { (next, count, false) } else { (present, count, true) }
            }
            _ => (present, self.counts.get(&present.name).copied().unwrap_or(0), false),
        }
    }
}

impl Model for CalendarWindow {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        if op == Op::Reset {
            self.counts.clear();
            return self.apply(now, Op::Peek);
        }
        let (Window { start, end, name }, before, moved) = self.counting(now);
        let mut verdict = Verdict::Allow;
        let after = match op {
            Op::Take(cost) | Op::Ask(cost) if cost > self.limit => {
                verdict = Verdict::Never;
                before
            }
            Op::Take(cost) if cost > 0 && before + cost > self.limit => {
                verdict = Verdict::After(end - now);
                before
            }
            Op::Ask(cost) if before + cost > self.limit => {
                verdict = Verdict::After(end - now);
                before
            }
            Op::Take(cost) => before + cost,
            Op::Debit(cost) => before.max(before.saturating_add(cost).min(2 * self.limit)),
            Op::Refund(cost, Some(receipt)) if receipt.to_bits() >= start && receipt.to_bits() < end => {
                before.saturating_sub(cost)
            }
            Op::Refund(cost, None) => before.saturating_sub(cost),
            Op::Ask(_) | Op::Refund(..) | Op::Peek | Op::Reset => before,
        };
        if after != before || moved && !matches!(op, Op::Peek | Op::Take(0) | Op::Ask(_)) {
            self.counts = BTreeMap::from([(name, after)]);
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
