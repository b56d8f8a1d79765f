//! The generic cell rate algorithm as the textbook has it: a cell that arrives at `now` conforms if
//! `TAT ≤ now + τ`; then `TAT = max(TAT, now) + T`. A cost of c is c cells that arrive together.

use tidegate_core::Op;

use super::{Answer, Model, Numbers, Verdict, nanos};

pub(crate) struct Gcra {
    burst: i128,
    interval: i128,
    tat: Option<i128>,
}

impl Gcra {
    pub(crate) fn new(numbers: Numbers) -> Gcra {
        Gcra { burst: numbers.units.into(), interval: numbers.interval().into(), tat: None }
    }

    /// τ: a burst is one cell on time and the others early.
    fn tolerance(&self) -> i128 {
        (self.burst - 1) * self.interval
    }

    fn latest(&self, now: i128) -> i128 {
        now + (2 * self.burst - 1) * self.interval
    }
}

impl Model for Gcra {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        let now = i128::from(now);
        let before = self.tat.map_or(now, |tat| tat.max(now));
        let mut tat = before.min(self.latest(now));
        let mut verdict = Verdict::Allow;
        match op {
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Peek | Op::Take(0) => {}
            Op::Take(cost) => {
                // The last of the cells finds the others before it.
                let last = tat + (i128::from(cost) - 1) * self.interval;
                if i128::from(cost) > self.burst {
                    verdict = Verdict::Never;
                } else if last > now + self.tolerance() {
                    verdict = Verdict::After(nanos(last - (now + self.tolerance())));
                } else {
                    tat = last + self.interval;
                }
            }
            Op::Debit(cost) => tat = (tat + i128::from(cost) * self.interval).min(self.latest(now)),
            Op::Refund(cost, receipt) => {
                let outstanding = receipt.map_or(tat, |receipt| i128::from(receipt.to_bits())) - now;
                let given = (i128::from(cost) * self.interval).min(outstanding.max(0));
                tat = (tat - given).max(now);
            }
            Op::Reset => tat = now,
        }
        // Looking writes nothing, nor does what leaves the TAT as it is.
        if tat != before && !matches!(op, Op::Peek | Op::Take(0)) {
            self.tat = Some(tat);
        }
        Answer {
            verdict,
            limit: nanos(self.burst),
            remaining: nanos(((now + self.burst * self.interval - tat) / self.interval).max(0)),
            reset_after: nanos(tat - now),
            receipt: Some(nanos(tat)),
        }
        .for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        (self.burst, self.interval) = (numbers.units.into(), numbers.interval().into());
    }
}
