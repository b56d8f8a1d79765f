//! The operations on a limit, and its decisions.

use std::cmp::Reverse;
use std::time::Duration;

use crate::Limit;

/// An operation on a key's state.
///
/// Exhaustive on purpose: every algorithm and every store must implement each of them, and the compiler checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes this many units if they fit; 0 units peek.
    Take(u64),
    /// Counts units that are already used, whether they fit or not: at most one further limit beyond the limit.
    Debit(u64),
    /// Gives units back to where the receipt was issued. It has no effect once they would have come back by themselves.
    /// Without a receipt it gives back the oldest units of a log, or those of the current window.
    Refund(u64, Option<Receipt>),
    /// Returns whether this many units would pass, without taking them. With 0 units it returns whether at most the
    /// limit is used, since debits can exceed it.
    Ask(u64),
    /// Reads the state and writes nothing.
    Peek,
    /// Forgets the key.
    Reset,
}

impl Op {
    /// Returns this operation as a question that takes and gives back nothing.
    ///
    /// ```
    /// use tidegate_core::Op;
    ///
    /// assert_eq!(Op::Take(3).looking(), Op::Ask(3));
    /// assert_eq!(Op::Take(0).looking(), Op::Peek, "which never denies, as to take nothing does");
    /// assert_eq!(Op::Refund(3, None).looking(), Op::Peek);
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub const fn looking(self) -> Op {
        match self {
            Op::Take(units @ 1..) | Op::Ask(units) => Op::Ask(units),
            Op::Take(0) | Op::Debit(_) | Op::Refund(..) | Op::Peek | Op::Reset => Op::Peek,
        }
    }

    /// Whether the operation may remove units from a key's state.
    #[inline]
    pub(crate) fn may_shrink(self) -> bool {
        matches!(self, Op::Refund(..) | Op::Reset)
    }

    /// Whether the operation may add units to a key's state.
    #[inline]
    pub(crate) fn may_charge(self) -> bool {
        matches!(self, Op::Take(1..) | Op::Debit(1..))
    }
}

/// Where units were taken, to refund them there. It is valid only for the key and limit of its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(pub(crate) u64);

impl Receipt {
    /// Returns the receipt as a number, to send it over a wire.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Creates a receipt from the number that [`Receipt::to_bits`] returned.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Receipt {
        Receipt(bits)
    }

    /// The receipt of an instant that much earlier.
    pub(crate) fn earlier(self, time: Duration) -> Receipt {
        Receipt(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Whether a request may pass.
///
/// Exhaustive on purpose: callers need no arm for a third answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may pass.
    Allow,
    /// The request may not pass, and when to retry.
    Deny(Retry),
}

/// When to retry after a denial.
///
/// Exhaustive on purpose: a caller that handles these has handled all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After exactly this time the request is allowed if nobody else spends in between; a nanosecond earlier it is not.
    After(Duration),
    /// Never: the cost exceeds the whole limit.
    Never,
    /// About after this time: the state is approximate.
    Unknown(Duration),
}

impl Retry {
    /// Returns the longest wait of several denials. [`Retry::Never`] is longer than any wait.
    #[must_use]
    pub fn longest(retries: impl Iterator<Item = Retry>) -> Option<Retry> {
        retries.max_by_key(|retry| match retry {
            Retry::Never => (1, Duration::ZERO),
            Retry::After(wait) | Retry::Unknown(wait) => (0, *wait),
        })
    }
}

/// How strict a decision is. Less is stricter: a denial, then the fewest remaining units, then the latest reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strictness {
    is_allowed: bool,
    remaining: u64,
    reset_after: Reverse<Duration>,
}

impl Strictness {
    /// Returns the strictness of a decision with these numbers.
    #[must_use]
    pub const fn new(is_allowed: bool, remaining: u64, reset_after: Duration) -> Strictness {
        Strictness { is_allowed, remaining, reset_after: Reverse(reset_after) }
    }
}

/// A limit's decision about one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub(crate) answer: Answer,
    pub(crate) limit: u64,
    /// The free room in units of `unit`: divided into whole units only when a caller asks for them.
    pub(crate) room: u64,
    pub(crate) unit: u64,
    pub(crate) reset_after: u64,
    pub(crate) receipt: Receipt,
}

/// A verdict in nanoseconds: converting to `Duration` divides, which the hot path avoids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allow,
    /// The charge alone would pass, but was not taken because of another.
    AllowAlone,
    DenyFor(u64),
    DenyAlways,
    DenyAbout(u64),
}

impl Decision {
    /// A placeholder to write a decision to.
    pub(crate) const BLANK: Decision =
        Decision { answer: Answer::Allow, limit: 0, room: 0, unit: 1, reset_after: 0, receipt: Receipt(0) };

    /// Returns a decision that allows without taking anything, for when a store cannot answer.
    #[doc(hidden)]
    #[must_use]
    pub fn untaken(limit: &Limit) -> Decision {
        Decision { answer: Answer::AllowAlone, limit: limit.units(), room: limit.units(), ..Decision::BLANK }
    }

    /// Returns a decision that denies, with `wait` as a hint when to retry, for when a store cannot answer.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(limit: &Limit, wait: Duration) -> Decision {
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Decision { answer: Answer::DenyAbout(wait), limit: limit.units(), reset_after: wait, ..Decision::BLANK }
    }

    /// Returns whether the request may pass.
    #[inline]
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.answer, Answer::Allow | Answer::AllowAlone)
    }

    /// Returns whether the request may pass, and when to retry if not.
    #[inline]
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.answer {
            Answer::Allow | Answer::AllowAlone => Verdict::Allow,
            Answer::DenyFor(nanos) => Verdict::Deny(Retry::After(Duration::from_nanos(nanos))),
            Answer::DenyAlways => Verdict::Deny(Retry::Never),
            Answer::DenyAbout(nanos) => Verdict::Deny(Retry::Unknown(Duration::from_nanos(nanos))),
        }
    }

    /// Returns when to retry, or `None` if the request may pass.
    #[inline]
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        match self.verdict() {
            Verdict::Allow => None,
            Verdict::Deny(retry) => Some(retry),
        }
    }

    /// Returns how long to wait before a retry, exactly or as a hint, or `None` if the request may pass or never will.
    #[inline]
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.answer {
            Answer::DenyFor(nanos) | Answer::DenyAbout(nanos) => Some(Duration::from_nanos(nanos)),
            Answer::Allow | Answer::AllowAlone | Answer::DenyAlways => None,
        }
    }

    /// Returns the limit in units: the burst or capacity of a bucket, the limit of a window.
    #[inline]
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the whole units that would pass right now, after this charge.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.room / self.unit
    }

    /// Returns the time until the key's state equals that of a key never seen; zero if it already does.
    #[inline]
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset_after)
    }

    /// Returns this decision for a charge that was not taken after all, because of another charge.
    #[doc(hidden)]
    #[must_use]
    pub fn withdrawn(&self) -> Decision {
        let answer = if self.answer == Answer::Allow { Answer::AllowAlone } else { self.answer };
        Decision { answer, ..*self }
    }

    /// Returns this denial as it is `elapsed` later, if nobody spends, refunds or resets meanwhile, or `None` if it is
    /// over by then or was no denial. The remaining units stay as they were, which is at most what there is.
    #[doc(hidden)]
    #[must_use]
    pub fn aged(&self, elapsed: Duration) -> Option<Decision> {
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let left = |nanos: u64| nanos.checked_sub(elapsed).filter(|left| *left > 0);
        let answer = match self.answer {
            Answer::DenyFor(nanos) => Answer::DenyFor(left(nanos)?),
            Answer::DenyAbout(nanos) => Answer::DenyAbout(left(nanos)?),
            Answer::DenyAlways => Answer::DenyAlways,
            Answer::Allow | Answer::AllowAlone => return None,
        };
        Some(Decision { answer, reset_after: self.reset_after.saturating_sub(elapsed), ..*self })
    }

    /// Returns how strict this decision is compared with others.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        Strictness::new(self.is_allowed(), self.remaining(), self.reset_after())
    }

    /// Returns this decision with `units` remaining, at most the limit: for callers that hold units which the store
    /// counts as spent, such as those of a lease.
    #[doc(hidden)]
    #[must_use]
    pub fn with_remaining(&self, units: u64) -> Decision {
        Decision { room: units.min(self.limit).saturating_mul(self.unit), ..*self }
    }

    /// Returns this decision with a reset that is nearer by `elapsed`.
    #[doc(hidden)]
    #[must_use]
    pub fn with_reset_nearer(&self, elapsed: Duration) -> Decision {
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Decision { reset_after: self.reset_after.saturating_sub(elapsed), ..*self }
    }

    /// Returns where the units of an allowed take or a debit were taken, for a refund, or `None` if none were. The
    /// receipt of a peek is meaningless: there is nothing to refund.
    #[inline]
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        (self.answer == Answer::Allow).then_some(self.receipt)
    }
}
