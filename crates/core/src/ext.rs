//! Extension traits for limits, charges, states and decisions: for the engine and the stores, not for users; `tidegate`
//! does not re-export them.

use std::time::Duration;

use crate::{Arguments, Arithmetic, Charge, Decision, Disagreement, Found, Limit, Receipt, Report, Time};

/// A limit as remote stores use it, and callers that continue from a reported state.
pub trait LimitExt {
    /// Returns the arithmetic of the limit.
    fn arithmetic(&self) -> Arithmetic;

    /// Parses a state that a script wrote, as of `now`, or returns `None` if it is invalid.
    ///
    /// Lua has no whole numbers of 64 bits, so an instant is written as text of all its nanoseconds. The state of a window
    /// is its units with the second of its end behind them, and of a calendar's with its name: whole numbers, which take
    /// Redis little space.
    fn read_state(&self, text: &str, now: Time) -> Option<[u64; 3]>;

    /// Returns whether the state is a few words, so that a store can report it and a caller can continue from it.
    fn can_be_copied(&self) -> bool;

    /// Returns the receipt for a refund while other nodes may hold leases of at most this length. A lease of a bucket
    /// taken later builds on the debt of these units: the debt may fall only so far that no lease ends after it.
    fn receipt_before_leases(&self, receipt: Receipt, longest: Duration) -> Receipt;

    /// Returns one of `parts` equal parts of this limit: rate, burst and units divided, rounded down, at least one
    /// unit. Its state is that of this limit, divided likewise.
    #[must_use]
    fn divided(&self, parts: u64) -> Limit;
}

/// A charge as scripts take it.
pub trait ChargeExt {
    /// Returns the letter of the operation in the scripts.
    fn letter(&self) -> &'static str;

    /// Returns the numbers that the script takes after the letter. For a calendar they are the windows around an
    /// instant, which must be near the store's time.
    fn arguments(&self, around: Time) -> Arguments;
}

/// A state that a caller continues from without storing it.
pub trait StateExt: Sized {
    /// Returns the state of a key with `used` units taken at `now`, and nothing before.
    #[must_use]
    fn with_used(limit: &Limit, used: u64, now: Time) -> Self;

    /// Returns this state with `part` of `whole` of its units, rounded up. The instant of a bucket stays: its units
    /// take longer to come back under a limit that was divided too.
    #[must_use]
    fn scaled(&self, part: u64, whole: u64) -> Self;

    /// Returns the most units of the current window that this state counts at `now`: the debt of a bucket, rounded up,
    /// the units of a window or log, or those of a counter without its previous window.
    fn counted(&self, limit: &Limit, now: Time) -> u64;
}

/// Constructors of decisions, for stores.
pub trait DecisionsExt: Sized {
    /// Returns the decisions about charges that a script decided at `now`, from the states that it found for each, with
    /// the states that it left behind. `taken` is whether the script allowed a single charge, or denied no charge with
    /// a veto.
    ///
    /// # Errors
    /// Fails if the arithmetic decides differently from the script.
    fn of_found(charges: &[Charge<'_>], now: Time, found: &[Found], taken: bool) -> Result<Self, Disagreement>;

    /// Returns the decision about a charge that a script decided at `now` after `earlier` equal ones, which passed.
    /// `found` is the state before all of them.
    ///
    /// # Errors
    /// Fails if the arithmetic decides differently from the script.
    fn of_joined(charge: &Charge<'_>, now: Time, found: Found, earlier: u64, taken: bool)
    -> Result<Self, Disagreement>;

    /// Returns the same decisions with the state that the store reports for each charge's key.
    #[must_use]
    fn reporting(self, reports: Vec<Option<Report>>) -> Self;

    /// Returns each decision with whether its charge may veto.
    fn with_vetoes(&self) -> &[(Decision, bool)];
}
