//! What the engine and the stores need of limits, charges, states and decisions, and users do not: extension traits, which
//! `tidegate` does not re-export.

use std::time::Duration;

use crate::{Arguments, Arithmetic, Charge, Decision, Disagreement, Found, Limit, Receipt, Report, Time};

/// A limit as stores elsewhere see it, and those who go on from a state that a store reported.
pub trait LimitExt {
    /// Returns the arithmetic behind it.
    fn arithmetic(&self) -> Arithmetic;

    /// Reads a state as the scripts write it and had it at `now`; nothing if it is none.
    ///
    /// Lua has no whole numbers of 64 bits, so an instant is written as text of all its nanoseconds. The state of a window
    /// is its units with the second of its end behind them, and of a calendar's with its name: whole numbers, which take
    /// Redis little space.
    fn read_state(&self, text: &str, now: Time) -> Option<[u64; 3]>;

    /// Returns whether its state is a few words, so that a store reports it and somebody else can go on from it.
    fn can_be_copied(&self) -> bool;

    /// Returns the receipt to give units back with while others may hold leases of at most this length. A lease of a bucket
    /// that was taken later stands on the debt that these units made: it may only fall so far that no lease ends after it.
    fn receipt_before_leases(&self, receipt: Receipt, longest: Duration) -> Receipt;

    /// Returns one of `parts` equal parts of this limit: rate, burst and units divided, rounded down, at least one unit. Its
    /// state is that of this limit, divided likewise.
    #[must_use]
    fn divided(&self, parts: u64) -> Limit;
}

/// A charge as scripts take it.
pub trait ChargeExt {
    /// Returns the letter of its op in the scripts.
    fn letter(&self) -> &'static str;

    /// Returns the numbers that the script takes after the letter. Of a calendar they are the windows around an instant,
    /// which has to be near the store's.
    fn arguments(&self, around: Time) -> Arguments;
}

/// A state that somebody goes on from who does not keep it.
pub trait StateExt: Sized {
    /// Returns the state of a key of which `used` units were taken at `now`, and nothing before.
    #[must_use]
    fn with_used(limit: &Limit, used: u64, now: Time) -> Self;

    /// Returns this state with `part` of `whole` of its units, rounded up. The instant of a bucket stays: its units take
    /// longer to come back under a limit that was divided too.
    #[must_use]
    fn scaled(&self, part: u64, whole: u64) -> Self;

    /// Returns the most units of the current window that this state counts at `now`: the debt of a bucket, rounded up, the
    /// units of a window or log, those of a counter without its previous window.
    fn counted(&self, limit: &Limit, now: Time) -> u64;
}

/// Decisions as stores make them.
pub trait DecisionsExt: Sized {
    /// Returns the answers to charges that a script decided at `now`, from what it found for each of them, with the states
    /// that it left behind. `taken` is whether the script let a single charge pass, or did not find a vetoing one denied.
    ///
    /// # Errors
    /// If the arithmetic decides otherwise than the script did.
    fn of_found(charges: &[Charge<'_>], now: Time, found: &[Found], taken: bool) -> Result<Self, Disagreement>;

    /// Returns the answer to a charge that a script decided at `now` after this many equal ones, which passed. `found` is the
    /// state before all of them.
    ///
    /// # Errors
    /// If the arithmetic decides otherwise than the script did.
    fn of_joined(charge: &Charge<'_>, now: Time, found: Found, earlier: u64, taken: bool)
    -> Result<Self, Disagreement>;

    /// Returns the same answers with what the store reports of each charge's key.
    #[must_use]
    fn reporting(self, reports: Vec<Option<Report>>) -> Self;

    /// Returns each answer with whether its charge may veto.
    fn with_vetoes(&self) -> &[(Decision, bool)];
}
