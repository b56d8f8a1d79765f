//! A bucket of tokens, full at first, refilled by 1/T token a nanosecond.

use tidegate_core::Op;

use super::ratio::Ratio;
use super::{Answer, Model, Numbers, Verdict, nanos};

pub(crate) struct TokenBucket {
    capacity: u64,
    interval: u64,
    /// The tokens and the instant at which there were that many; nothing for a full bucket.
    tokens: Option<(Ratio, u64)>,
}

impl TokenBucket {
    pub(crate) fn new(numbers: Numbers) -> TokenBucket {
        TokenBucket { capacity: numbers.units, interval: numbers.interval(), tokens: None }
    }

    fn one(&self) -> Ratio {
        Ratio::new(self.interval, self.interval)
    }

    fn full(&self) -> Ratio {
        self.one().whole(self.capacity)
    }

    /// Debits overdraw the bucket by at most one token less than its capacity.
    fn least(&self) -> Ratio {
        self.one().whole(1 - i128::from(self.capacity))
    }

    /// The tokens there are at `now`, before any bound below.
    fn refilled(&self, now: u64) -> Ratio {
        match self.tokens {
            None => self.full(),
            Some((tokens, at)) => {
                (tokens + Ratio::new(i128::from(now) - i128::from(at), self.interval)).min(self.full())
            }
        }
    }

    /// The time in which so many tokens come.
    fn time_of(&self, tokens: Ratio) -> u64 {
        nanos(tokens.numerator)
    }
}

impl Model for TokenBucket {
    fn apply(&mut self, now: u64, op: Op) -> Answer {
        let mut verdict = Verdict::Allow;
        let before = self.refilled(now);
        let mut tokens = before.max(self.least());
        match op {
            Op::Ask(_) => unreachable!("asking is held equal to taking by a property of its own"),
            Op::Peek | Op::Take(0) => {}
            Op::Take(cost) if cost > self.capacity => verdict = Verdict::Never,
            Op::Take(cost) => {
                let cost = self.one().whole(cost);
                if cost <= tokens {
                    tokens = tokens - cost;
                } else {
                    verdict = Verdict::After(self.time_of(cost - tokens));
                }
            }
            Op::Debit(cost) => tokens = (tokens - self.one().whole(cost)).max(self.least()),
            Op::Refund(cost, receipt) => {
                // The bucket is full again at the receipt's instant, as far as the receipt's units are concerned.
                let missing = receipt.map_or(self.full() - tokens, |receipt| {
                    Ratio::new(i128::from(receipt.to_bits()) - i128::from(now), self.interval)
                });
                let given = self.one().whole(cost).min(missing).max(self.one().whole(0));
                tokens = (tokens + given).min(self.full());
            }
            Op::Reset => tokens = self.full(),
        }
        // Looking writes nothing, nor does what leaves the tokens as they are.
        if tokens != before && !matches!(op, Op::Peek | Op::Take(0)) {
            self.tokens = Some((tokens, now));
        }
        let missing = self.time_of(self.full() - tokens);
        Answer {
            verdict,
            limit: self.capacity,
            remaining: nanos(tokens.floor().max(0)),
            reset_after: missing,
            receipt: Some(now + missing),
        }
        .for_op(op)
    }

    fn change(&mut self, numbers: Numbers) {
        let full = self.full().numerator;
        (self.capacity, self.interval) = (numbers.units, numbers.interval());
        if let Some((tokens, at)) = self.tokens {
            // The time until the bucket is full stays the same.
            let missing = Ratio::new(full - tokens.numerator, self.interval);
            self.tokens = Some((self.full() - missing, at));
        }
    }
}
