//! Literal, exact models of the seven algorithms, written from the pages in `spec/` and in another form than the code:
//! a bucket holds a fraction of tokens, a window is a map from its number to a count, a log is a list of charges.
//! They are slow and plain on purpose.

#![allow(dead_code, reason = "each test uses its part of the models")]

pub(crate) mod calendar;
pub(crate) mod calendar_window;
mod fixed_window;
mod gcra;
pub(crate) mod history;
mod leaky_bucket;
mod ratio;
mod sliced_window;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

use std::time::Duration;

use tidegate_core::{Algorithm, Decision, Limit, Op, Rate, Receipt, Retry};

/// The numbers of a limit, spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) algorithm: Algorithm,
    /// The burst, capacity or limit.
    pub(crate) units: u64,
    /// The window, or the period of a bucket's rate, in nanoseconds.
    pub(crate) window: u64,
    /// Units a period, for buckets.
    pub(crate) rate: u64,
    /// For a sliced window.
    pub(crate) slices: u64,
}

impl Numbers {
    pub(crate) fn bucket(algorithm: Algorithm, rate: u64, period: u64, units: u64) -> Numbers {
        Numbers { algorithm, units, window: period, rate, slices: 1 }
    }

    pub(crate) fn window(algorithm: Algorithm, units: u64, window: u64) -> Numbers {
        Numbers { algorithm, units, window, rate: 1, slices: 1 }
    }

    pub(crate) fn sliced(units: u64, window: u64, slices: u64) -> Numbers {
        Numbers { slices, ..Numbers::window(Algorithm::SlicedWindow, units, window) }
    }

    pub(crate) fn limit(&self) -> Limit {
        let window = Duration::from_nanos(self.window);
        let rate = || Rate::from_nanos(self.rate, self.window).unwrap();
        match self.algorithm {
            Algorithm::FixedWindow => Limit::fixed_window(self.units, window),
            Algorithm::SlidingLog => Limit::sliding_log(self.units, window),
            Algorithm::SlidingCounter => Limit::sliding_counter(self.units, window),
            Algorithm::SlicedWindow => Limit::sliced_window_of(self.units, window, self.slices),
            Algorithm::TokenBucket => Limit::token_bucket(rate(), self.units),
            Algorithm::LeakyBucket => Limit::leaky_bucket(rate(), self.units),
            Algorithm::Gcra => Limit::gcra(rate(), self.units),
        }
        .unwrap()
    }

    pub(crate) fn model(&self) -> Box<dyn Model> {
        match self.algorithm {
            Algorithm::FixedWindow => Box::new(fixed_window::FixedWindow::new(*self)),
            Algorithm::SlidingLog => Box::new(sliding_log::SlidingLog::new(*self)),
            Algorithm::SlidingCounter => Box::new(sliding_counter::SlidingCounter::new(*self)),
            Algorithm::SlicedWindow => Box::new(sliced_window::SlicedWindow::new(*self)),
            Algorithm::TokenBucket => Box::new(token_bucket::TokenBucket::new(*self)),
            Algorithm::LeakyBucket => Box::new(leaky_bucket::LeakyBucket::new(*self)),
            Algorithm::Gcra => Box::new(gcra::Gcra::new(*self)),
        }
    }

    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra)
    }

    /// The emission interval T of a bucket, in nanoseconds.
    pub(crate) fn interval(&self) -> u64 {
        self.window.div_ceil(self.rate)
    }

    /// The length of a slice, in nanoseconds.
    pub(crate) fn slice(&self) -> u64 {
        self.window.div_ceil(self.slices)
    }

    /// The time in which a limit comes back as a whole: a burst's, or the window's.
    pub(crate) fn span(&self) -> u64 {
        if self.is_bucket() { self.units * self.interval() } else { self.window }
    }

    /// The worst case of the specification in an interval of this length that excludes its first instant.
    pub(crate) fn worst_case(&self, length: u64) -> u64 {
        match self.algorithm {
            Algorithm::FixedWindow => 2 * self.units,
            Algorithm::SlidingCounter => 2 * self.units - 1,
            Algorithm::SlidingLog | Algorithm::SlicedWindow => self.units,
            _ => self.units + (length - 1) / self.interval(),
        }
    }

    /// The longest that a key may stay shut after a clock jumped back by `jump`, from the first charge after it on:
    /// the formula of `spec/README.md`.
    pub(crate) fn lockout(&self, jump: u64) -> u64 {
        let window = self.window;
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => self.span(),
            Algorithm::FixedWindow => window + jump.min(window),
            Algorithm::SlidingLog => window + jump.min(window),
            Algorithm::SlidingCounter => 2 * window + jump.min(window),
            Algorithm::SlicedWindow => (self.slices + 1) * self.slice() + jump.min(window),
        }
    }
}

/// The most units that any interval `(end − length, end]` holds, of units with the instants they were admitted at.
pub(crate) fn most_in_trailing(admitted: &[(u64, u64)], length: u64) -> u64 {
    let within = |end: u64| admitted.iter().filter(move |(at, _)| *at <= end && end - *at < length);
    admitted.iter().map(|(end, _)| within(*end).map(|(_, units)| units).sum()).max().unwrap_or(0)
}

/// An answer in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_after: u64,
    /// Told only where units were taken.
    pub(crate) receipt: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    Never,
    After(u64),
    /// An exact store never answers this.
    Unknown(u64),
}

impl Answer {
    pub(crate) fn of(op: Op, decision: &Decision) -> Answer {
        let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap();
        let takes = matches!(op, Op::Take(1..) | Op::Debit(1..)) && decision.is_allowed();
        Answer {
            verdict: match decision.retry() {
                None => Verdict::Allow,
                Some(Retry::Never) => Verdict::Never,
                Some(Retry::After(wait)) => Verdict::After(nanos(wait)),
                Some(Retry::Unknown(wait)) => Verdict::Unknown(nanos(wait)),
            },
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after: nanos(decision.reset_after()),
            receipt: decision.receipt().filter(|_| takes).map(Receipt::to_bits),
        }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// Keeps the receipt only where units were taken.
    fn for_op(self, op: Op) -> Answer {
        let takes = matches!(op, Op::Take(1..) | Op::Debit(1..)) && self.is_allowed();
        Answer { receipt: self.receipt.filter(|_| takes), ..self }
    }
}

/// One key under one limit.
pub(crate) trait Model {
    fn apply(&mut self, now: u64, op: Op) -> Answer;

    /// Changes the numbers and keeps what was counted. The algorithm, window length and slices stay.
    fn change(&mut self, numbers: Numbers);
}

/// A number that the arithmetic of a model says fits.
fn nanos(number: i128) -> u64 {
    u64::try_from(number).unwrap()
}
