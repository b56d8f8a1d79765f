//! Literal, exact models of the eight algorithms and of permits, written from the pages in `spec/` and in another form than
//! the code: a bucket holds a fraction of tokens, a window is a map from its number to a count, a log is a list of charges.
//! They are slow and plain on purpose.

pub mod calendar;
pub mod calendar_window;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod permits;
mod ratio;
mod sliced_window;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

pub use permits::PermitModel;

use calendar::Civil;

use std::time::Duration;

use tidegate_core::{Algorithm, Decision, Limit, Op, Rate, Receipt, Retry};

/// The numbers of a limit, spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The burst, capacity or limit.
    pub units: u64,
    /// The window, or the period of a bucket's rate, in nanoseconds; of a calendar its usual length.
    pub window: u64,
    /// The units a period of a bucket.
    pub rate: u64,
    /// The slices of a sliced window, or the choice of a calendar, from 1.
    pub slices: u64,
}

impl Numbers {
    /// The numbers of a bucket: `rate` units a period of nanoseconds, at most `units` at once.
    pub fn bucket(algorithm: Algorithm, rate: u64, period: u64, units: u64) -> Numbers {
        Numbers { algorithm, units, window: period, rate, slices: 1 }
    }

    /// The numbers of a window of nanoseconds.
    pub fn window(algorithm: Algorithm, units: u64, window: u64) -> Numbers {
        Numbers { algorithm, units, window, rate: 1, slices: 1 }
    }

    /// The numbers of a sliced window of nanoseconds.
    pub fn sliced(units: u64, window: u64, slices: u64) -> Numbers {
        Numbers { slices, ..Numbers::window(Algorithm::SlicedWindow, units, window) }
    }

    /// Makes the limit.
    pub fn limit(&self) -> Limit {
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
            Algorithm::CalendarWindow => Limit::calendar_window(self.units, Civil::any(self.slices - 1).calendar()),
            other => panic!("{other} has no model"),
        }
        .unwrap()
    }

    /// Makes the model of a key that was never seen.
    pub fn model(&self) -> Box<dyn Model> {
        match self.algorithm {
            Algorithm::FixedWindow => Box::new(fixed_window::FixedWindow::new(*self)),
            Algorithm::SlidingLog => Box::new(sliding_log::SlidingLog::new(*self)),
            Algorithm::SlidingCounter => Box::new(sliding_counter::SlidingCounter::new(*self)),
            Algorithm::SlicedWindow => Box::new(sliced_window::SlicedWindow::new(*self)),
            Algorithm::TokenBucket => Box::new(token_bucket::TokenBucket::new(*self)),
            Algorithm::LeakyBucket => Box::new(leaky_bucket::LeakyBucket::new(*self)),
            Algorithm::Gcra => Box::new(gcra::Gcra::new(*self)),
            Algorithm::CalendarWindow => {
                Box::new(calendar_window::CalendarWindow::new(self.units, Civil::any(self.slices - 1)))
            }
            other => panic!("{other} has no model"),
        }
    }

    /// Returns whether the algorithm is one of the buckets.
    pub fn is_bucket(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra)
    }

    /// Returns the emission interval T of a bucket, in nanoseconds.
    pub fn interval(&self) -> u64 {
        self.window.div_ceil(self.rate)
    }

    /// Returns the length of a slice, in nanoseconds.
    pub fn slice(&self) -> u64 {
        self.window.div_ceil(self.slices)
    }

    /// Returns the time in which the whole limit comes back, in nanoseconds: that of a burst, or the window.
    pub fn span(&self) -> u64 {
        if self.is_bucket() { self.units * self.interval() } else { self.window }
    }

    /// Returns the most units that the specification admits in an interval of this length that excludes its first instant.
    pub fn worst_case(&self, length: u64) -> u64 {
        match self.algorithm {
            Algorithm::FixedWindow | Algorithm::CalendarWindow => 2 * self.units,
            Algorithm::SlidingCounter => 2 * self.units - 1,
            Algorithm::SlidingLog | Algorithm::SlicedWindow => self.units,
            _ => self.units + (length - 1) / self.interval(),
        }
    }

    /// Returns the longest time that a key may stay denied after a clock jumped back by `jump`, from the first charge after
    /// the jump on, in nanoseconds: the formula of `spec/README.md`.
    pub fn lockout(&self, jump: u64) -> u64 {
        let window = self.window;
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => self.span(),
            Algorithm::FixedWindow => window + jump.min(window),
            Algorithm::SlidingLog => window + jump.min(window),
            Algorithm::SlidingCounter => 2 * window + jump.min(window),
            Algorithm::SlicedWindow => (self.slices + 1) * self.slice() + jump.min(window),
            other => panic!("{other} has no model"),
        }
    }
}

/// Returns the most units in any interval `(end − length, end]`. `admitted` has instants and the units admitted then.
pub fn most_in_trailing(admitted: &[(u64, u64)], length: u64) -> u64 {
    let within = |end: u64| admitted.iter().filter(move |(at, _)| *at <= end && end - *at < length);
    admitted.iter().map(|(end, _)| within(*end).map(|(_, units)| units).sum()).max().unwrap_or(0)
}

/// A decision in plain numbers, whose times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it may pass.
    pub verdict: Verdict,
    /// The units of the limit.
    pub limit: u64,
    /// The units that would pass now.
    pub remaining: u64,
    /// The time until the key equals one that was never seen.
    pub reset_after: u64,
    /// The receipt, if units were taken.
    pub receipt: Option<u64>,
}

/// Whether a charge may pass, and when to ask again, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass.
    Allow,
    /// The cost exceeds the whole limit.
    Never,
    /// It may pass after this time.
    After(u64),
    /// It may pass after about this time. No exact store answers this.
    Unknown(u64),
}

impl Answer {
    /// Returns the numbers of a decision about an operation.
    pub fn of(op: Op, decision: &Decision) -> Answer {
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

    /// Returns whether the charge may pass.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// Keeps the receipt only where units were taken.
    fn for_op(self, op: Op) -> Answer {
        let takes = matches!(op, Op::Take(1..) | Op::Debit(1..)) && self.is_allowed();
        Answer { receipt: self.receipt.filter(|_| takes), ..self }
    }
}

/// A key under a limit.
pub trait Model {
    /// Decides an operation at an instant in nanoseconds. `Op::Ask` is unknown to the models.
    fn apply(&mut self, now: u64, op: Op) -> Answer;

    /// Changes the numbers and keeps what was counted. The algorithm, window length and slices must stay.
    fn change(&mut self, numbers: Numbers);
}

/// Converts a number that fits by the arithmetic of the model.
fn nanos(number: i128) -> u64 {
    u64::try_from(number).unwrap()
}
