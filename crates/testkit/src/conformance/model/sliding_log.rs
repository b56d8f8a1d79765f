//! A list of charges, each with its instant.

use tidegate_core::Op;

use super::{Answer, Model, Numbers, Verdict};

pub(crate) struct SlidingLog {
    limit: u64,
    window: u64,
    charges: Vec<(u64, u64)>,
}

impl SlidingLog {
    pub(crate) fn new(numbers: Numbers) -> SlidingLog {
        SlidingLog { limit: numbers.units, window: numbers.window, charges: Vec::new() }
    }

    fn newest(charges: &[(u64, u64)]) -> u64 {
        charges.iter().map(|(at, _)| *at).max().unwrap_or(0)
    }

    fn is_live(&self, charged_at: u64, now: u64) -> bool {
        now < charged_at + self.window
    }

    fn units(&self, charges: &[(u64, u64)], now: u64) -> u64 {
        charges.iter().filter(|(at, _)| self.is_live(*at, now)).map(|(_, units)| units).sum()
    }

    fn first_fit(&self, charges: &[(u64, u64)], cost: u64) -> u64 {
        let mut ends: Vec<u64> = charges.iter().map(|(at, _)| at + self.window).collect();
        ends.sort_unstable();
        ends.into_iter().find(|end| self.units(charges, *end) + cost <= self.limit).unwrap()
    }
}

impl Model for SlidingLog {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        if op == Op::Reset {
            self.charges.clear();
            return self.apply(now, Op::Peek);
        }
        let mut charges = self.charges.clone();
        let newest = SlidingLog::newest(&charges);
        let moved = newest > now + self.window;
        if moved {
            charges = vec![(now, self.units(&charges, newest))];
            charges.retain(|(_, units)| *units > 0);
        }
        let instant = now.max(SlidingLog::newest(&charges));
        let used = self.units(&charges, instant);
        let live: Vec<(u64, u64)> = charges.iter().copied().filter(|(at, _)| self.is_live(*at, instant)).collect();
        let mut verdict = Verdict::Allow;
        let mut changed = moved && !matches!(op, Op::Peek | Op::Take(0));
        let mut added = 0;
        match op {
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Take(0) | Op::Peek => {}
            Op::Take(cost) if cost > self.limit => verdict = Verdict::Never,
            Op::Take(cost) if used + cost > self.limit => {
                verdict = Verdict::After(self.first_fit(&live, cost) - now);
            }
            Op::Take(cost) => added = cost,
            Op::Debit(cost) => added = cost.min((2 * self.limit).saturating_sub(used)),
            Op::Refund(cost, receipt) => {
                let mut left = cost;
                let mut amended = charges.clone();
                for (at, units) in amended.iter_mut().filter(|(at, _)| self.is_live(*at, instant)) {
                    if receipt.is_none_or(|receipt| receipt.to_bits() == *at + self.window) {
                        let given = left.min(*units);
                        *units -= given;
                        left -= given;
                    }
                }
                if amended != charges {
                    charges = amended;
                    changed = true;
                }
            }
            Op::Reset => {}
        }
        if added > 0 {
            charges = live;
            charges.push((instant, added));
            changed = true;
        }
        let used = self.units(&charges, instant);
        let latest = SlidingLog::newest(&charges);
        let last = charges.iter().filter(|(_, units)| *units > 0).map(|(at, _)| at + self.window).max().unwrap_or(0);
        if changed {
            self.charges = charges;
        }
        Answer {
            verdict,
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_after: if used == 0 { latest.saturating_sub(now) } else { last - now },
            receipt: Some(instant + self.window),
        }
        .for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        self.limit = numbers.units;
    }
}
