//! What is asked of a store, and what it answers: charges and decisions.

use arrayvec::ArrayVec;

use crate::bounds::CHARGES_MAX;
use crate::{Decision, Key, Limit, Namespace, Op, Retry, State, Time};

/// What is asked of a store for one limit: the same from the plan of a request to the store.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Which rule and limit it counts for.
    pub namespace: &'a Namespace,
    /// The key to count.
    pub key: Key<'a>,
    /// The limit to charge.
    pub limit: &'a Limit,
    /// What to do.
    pub op: Op,
    /// Whether its denial stops the other charges too; a shadow charge's does not.
    pub veto: bool,
    /// Where a store that several nodes share keeps the state, and how closely they agree.
    pub placement: Placement<'a>,
}

/// How a charge is put to a store that several nodes share. It makes no difference to one in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement<'a> {
    /// The hash tag that chooses its slot on a Cluster; none if empty.
    pub tag: &'a [u8],
    /// How closely nodes agree. Where the algorithm cannot do it, the charge is decided exactly.
    pub consistency: Consistency,
}

/// How closely nodes that share a store agree on a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// The store decides each charge.
    #[default]
    Exact,
    /// Nodes take slices of the limit in advance and spend them. Never too much passes.
    Leased,
    /// Nodes count on their own and exchange counts. Too much may pass for a moment.
    Async,
}

impl<'a> Charge<'a> {
    /// A charge of [`Namespace::root`] that may veto.
    #[must_use]
    pub fn new(key: Key<'a>, limit: &'a Limit, op: Op) -> Charge<'a> {
        Charge { namespace: Namespace::root(), key, limit, op, veto: true, placement: Placement::default() }
    }

    /// Takes `units`, and stops the whole if they do not fit.
    #[must_use]
    pub fn take(key: Key<'a>, limit: &'a Limit, units: u64) -> Charge<'a> {
        Charge::new(key, limit, Op::Take(units))
    }

    /// Returns this charge in a namespace.
    #[must_use]
    pub fn within(self, namespace: &'a Namespace) -> Charge<'a> {
        Charge { namespace, ..self }
    }

    /// Returns this charge with a placement.
    #[must_use]
    pub fn placed(self, placement: Placement<'a>) -> Charge<'a> {
        Charge { placement, ..self }
    }

    /// Returns this charge without a veto: its denial stops nothing.
    #[must_use]
    pub fn shadow(self) -> Charge<'a> {
        Charge { veto: false, ..self }
    }

    /// Returns this charge as a question that takes and gives nothing, without a veto.
    #[must_use]
    pub fn looking(self) -> Charge<'a> {
        Charge { op: self.op.looking(), veto: false, ..self }
    }

    /// Whether both count in one state.
    #[must_use]
    pub fn shares_state_with(&self, other: &Charge<'_>) -> bool {
        self.key == other.key
            && self.limit.identity() == other.limit.identity()
            && self.namespace == other.namespace
            && self.placement.tag == other.placement.tag
    }
}

/// Whether charges can be decided together.
///
/// # Errors
/// If there are too many, or two would count in one state under other numbers.
pub fn check_charges(charges: &[Charge<'_>]) -> Result<(), ChargeError> {
    if charges.len() > CHARGES_MAX {
        return Err(ChargeError::TooMany { count: charges.len() });
    }
    for (number, later) in charges.iter().enumerate() {
        let undoes = |earlier: &Charge<'_>| earlier.limit != later.limit && earlier.shares_state_with(later);
        if charges.iter().take(number).any(undoes) {
            return Err(ChargeError::shared_state(number, later));
        }
    }
    Ok(())
}

/// The answers to several charges, in their order.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    pub(crate) each: ArrayVec<(Decision, bool), CHARGES_MAX>,
    pub(crate) reports: Vec<Option<Report>>,
}

/// What a store reports of a key beside its decision, for those who go on from there without the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The state of the key after the decision. Of a log it is what was used, as if it was all taken then.
    pub state: State,
    /// When the store decided, by its own clock.
    pub at: Time,
}

impl Report {
    /// Returns a report of a key's state after a decision at `at`.
    #[must_use]
    pub fn new(state: State, at: Time) -> Report {
        Report { state, at }
    }
}

impl Decisions {
    /// Whether every charge that may veto was allowed, so that all that fit were taken.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.vetoing().all(Decision::is_allowed)
    }

    /// The answer to each charge: whether it alone would pass. If the whole was denied, nothing was taken for any of
    /// them, and none has a receipt.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.each.iter().map(|(decision, _)| decision)
    }

    /// The answer to the first charge.
    #[must_use]
    pub fn first(&self) -> Option<&Decision> {
        self.iter().next()
    }

    /// The strictest answer among those that may veto. Nothing if no charge may veto.
    #[must_use]
    pub fn strictest(&self) -> Option<&Decision> {
        self.vetoing().min_by_key(|decision| decision.strictness())
    }

    /// When to ask again: the longest of the denials. Nothing if it is allowed.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        Retry::longest(self.vetoing().filter_map(Decision::retry))
    }

    /// What the store reports of the key of a charge; nothing if it does not report states.
    #[must_use]
    pub fn report(&self, charge: usize) -> Option<&Report> {
        self.reports.get(charge)?.as_ref()
    }

    fn vetoing(&self) -> impl Iterator<Item = &Decision> {
        self.each.iter().filter(|(_, veto)| *veto).map(|(decision, _)| decision)
    }
}

/// Collects each decision with whether its charge may veto. Those beyond [`CHARGES_MAX`] are left out.
impl FromIterator<(Decision, bool)> for Decisions {
    fn from_iter<I: IntoIterator<Item = (Decision, bool)>>(each: I) -> Decisions {
        Decisions { each: each.into_iter().take(CHARGES_MAX).collect(), ..Decisions::default() }
    }
}

/// Why charges were not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// More charges than one transaction takes.
    #[error("charges: {count} are too many for one request; use at most {CHARGES_MAX}")]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// Two limits would count in one state: they have the same algorithm, window length and key, but other numbers.
    #[error("charges[{charge}]: another {algorithm} limit counts on the same key; give each its own, like a prefix")]
    SharedState {
        /// The number of the later charge, from 0.
        charge: usize,
        /// The algorithm they share.
        algorithm: &'static str,
    },
}

impl ChargeError {
    pub(crate) fn shared_state(number: usize, charge: &Charge<'_>) -> ChargeError {
        ChargeError::SharedState { charge: number, algorithm: charge.limit.algorithm().name() }
    }
}
