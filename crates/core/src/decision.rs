//! What is asked of a limit, and what it answers.

use std::cmp::Reverse;
use std::time::Duration;

use crate::Limit;

/// What to do to a key's state.
///
/// Closed on purpose: every algorithm and every store has to do each of them, so the compiler asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes this many units if they fit; 0 units peek.
    Take(u64),
    /// Counts what has already happened, whether it fits or not: at most one further limit beyond the limit.
    Debit(u64),
    /// Gives units back to where the receipt says they were taken. It is void when they would have come back by now.
    /// Without a receipt it takes the oldest units of a log, or those of the current window.
    Refund(u64, Option<Receipt>),
    /// Tells whether this many units would pass, and takes none. Of 0 units it tells whether no more than the limit
    /// was used, as debits can.
    Ask(u64),
    /// Looks and writes nothing.
    Peek,
    /// Forgets the key.
    Reset,
}

impl Op {
    /// The same question without taking or giving anything.
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

    /// Whether it may take from a key's state.
    #[inline]
    pub(crate) fn may_shrink(self) -> bool {
        matches!(self, Op::Refund(..) | Op::Reset)
    }

    /// Whether it may add to a key's state.
    #[inline]
    pub(crate) fn may_charge(self) -> bool {
        matches!(self, Op::Take(1..) | Op::Debit(1..))
    }
}

/// Where units were taken, to give them back there. It means something only to the key and limit it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt(pub(crate) u64);

impl Receipt {
    /// The receipt as a number, to carry it over a wire.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The receipt that [`Receipt::to_bits`] told.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Receipt {
        Receipt(bits)
    }

    /// The receipt of an instant that much earlier.
    pub(crate) fn earlier(self, time: Duration) -> Receipt {
        Receipt(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// May it pass?
///
/// Closed on purpose: there is no third answer, and callers need no arm for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allow,
    /// No, and when to ask again.
    Deny(Retry),
}

/// When to ask again.
///
/// Closed on purpose: a caller that has handled these has handled all, without an arm that guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Exactly then it is allowed, if nobody else spends in between; a nanosecond earlier it is not.
    After(Duration),
    /// Never: the cost exceeds the whole limit.
    Never,
    /// A hint only: the state is approximate.
    Unknown(Duration),
}

impl Retry {
    /// When to ask again after several denials: the longest of them. Never is longer than any wait.
    #[must_use]
    pub fn longest(retries: impl Iterator<Item = Retry>) -> Option<Retry> {
        retries.max_by_key(|retry| match retry {
            Retry::Never => (1, Duration::ZERO),
            Retry::After(wait) | Retry::Unknown(wait) => (0, *wait),
        })
    }
}

/// How strict an answer is. Less is stricter: a denial, then the fewest remaining, then the latest reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strictness {
    is_allowed: bool,
    remaining: u64,
    reset_after: Reverse<Duration>,
}

impl Strictness {
    /// That of an answer with these numbers.
    #[must_use]
    pub const fn new(is_allowed: bool, remaining: u64, reset_after: Duration) -> Strictness {
        Strictness { is_allowed, remaining, reset_after: Reverse(reset_after) }
    }
}

/// A limit's answer to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub(crate) answer: Answer,
    pub(crate) limit: u64,
    /// What is free, in `unit`s of it: whole units are divided out only when somebody asks for them.
    pub(crate) room: u64,
    pub(crate) unit: u64,
    pub(crate) reset_after: u64,
    pub(crate) receipt: Receipt,
}

/// A verdict in nanoseconds: turning them into a `Duration` divides, which the hot path need not pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allow,
    /// It alone would pass, but it was not taken because of another.
    AllowAlone,
    DenyFor(u64),
    DenyAlways,
    DenyAbout(u64),
}

impl Decision {
    /// A place for a decision to be written to.
    pub(crate) const BLANK: Decision =
        Decision { answer: Answer::Allow, limit: 0, room: 0, unit: 1, reset_after: 0, receipt: Receipt(0) };

    /// An answer of nobody: it lets pass, and nothing was taken. For the engine, which must answer when a store cannot.
    #[doc(hidden)]
    #[must_use]
    pub fn untaken(limit: &Limit) -> Decision {
        Decision { answer: Answer::AllowAlone, limit: limit.units(), room: limit.units(), ..Decision::BLANK }
    }

    /// An answer of nobody that denies, and hints when to ask again. For callers who must answer when a store cannot.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(limit: &Limit, wait: Duration) -> Decision {
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Decision { answer: Answer::DenyAbout(wait), limit: limit.units(), reset_after: wait, ..Decision::BLANK }
    }

    /// Whether the request may pass.
    #[inline]
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self.answer, Answer::Allow | Answer::AllowAlone)
    }

    /// Whether the request may pass, and when to ask again if not.
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

    /// When to ask again; nothing if the request may pass.
    #[inline]
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        match self.verdict() {
            Verdict::Allow => None,
            Verdict::Deny(retry) => Some(retry),
        }
    }

    /// How long to wait before asking again, exact or as a hint; nothing if it may pass or never will.
    #[inline]
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.answer {
            Answer::DenyFor(nanos) | Answer::DenyAbout(nanos) => Some(Duration::from_nanos(nanos)),
            Answer::Allow | Answer::AllowAlone | Answer::DenyAlways => None,
        }
    }

    /// Units the limit lets pass: the burst or capacity of a bucket, the limit of a window.
    #[inline]
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whole units that would pass right now, after this charge.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.room / self.unit
    }

    /// The time until the key's state equals never seen; zero if it already does.
    #[inline]
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset_after)
    }

    /// The same answer of a charge that was not taken after all, because of another.
    #[doc(hidden)]
    #[must_use]
    pub fn withdrawn(&self) -> Decision {
        let answer = if self.answer == Answer::Allow { Answer::AllowAlone } else { self.answer };
        Decision { answer, ..*self }
    }

    /// The same denial after so much time, if nobody spent, gave back or reset meanwhile; nothing if it is over by then,
    /// or was none. What is left is told as it was, which is no more than there is.
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

    /// How strict the answer is, beside others.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn strictness(&self) -> Strictness {
        Strictness::new(self.is_allowed(), self.remaining(), self.reset_after())
    }

    /// The same answer with so many units remaining, at most the limit: for those who know of units that the store counts
    /// as spent, such as those of a lease.
    #[doc(hidden)]
    #[must_use]
    pub fn with_remaining(&self, units: u64) -> Decision {
        Decision { room: units.min(self.limit).saturating_mul(self.unit), ..*self }
    }

    /// The same answer, with a reset that is so much nearer.
    #[doc(hidden)]
    #[must_use]
    pub fn with_reset_nearer(&self, elapsed: Duration) -> Decision {
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Decision { reset_after: self.reset_after.saturating_sub(elapsed), ..*self }
    }

    /// Where the units of an allowed take or a debit were taken, for a refund; nothing if they were not taken. Of a look
    /// it means nothing: there is nothing to refund.
    #[inline]
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        (self.answer == Answer::Allow).then_some(self.receipt)
    }
}
