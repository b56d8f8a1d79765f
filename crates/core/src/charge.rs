//! Charges and decisions: the input and the output of a store.

use arrayvec::ArrayVec;

use crate::bounds::CHARGES_MAX;
use crate::{Decision, Key, Limit, Namespace, Op, Retry, State, Time};

/// A request to a store about one limit, unchanged on its way from the plan of a request to the store.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The rule and limit that it counts for.
    pub namespace: &'a Namespace,
    /// The key to count.
    pub key: Key<'a>,
    /// The limit to charge.
    pub limit: &'a Limit,
    /// The operation.
    pub op: Op,
    /// Whether a denial of this charge stops the other charges too; that of a shadow charge does not.
    pub veto: bool,
    /// Where a shared store keeps the state, and how closely nodes agree.
    pub placement: Placement<'a>,
}

/// How a shared store places a charge. A memory store ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement<'a> {
    /// The hash tag that chooses the slot on a Cluster; no tag if empty.
    pub tag: &'a [u8],
    /// How closely nodes agree. If the algorithm does not support it, the charge is decided exactly.
    pub consistency: Consistency,
}

/// How closely nodes that share a store agree on a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// The store decides each charge.
    #[default]
    Exact,
    /// Nodes take slices of the limit in advance and spend them locally. Never over-admits.
    Leased,
    /// Nodes count locally and exchange counts. May over-admit for a moment.
    Async,
}

impl<'a> Charge<'a> {
    /// Creates a charge of [`Namespace::root`] that may veto.
    #[must_use]
    pub fn new(key: Key<'a>, limit: &'a Limit, op: Op) -> Charge<'a> {
        Charge { namespace: Namespace::root(), key, limit, op, veto: true, placement: Placement::default() }
    }

    /// Creates a charge of [`Namespace::root`] that takes `units` and may veto.
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

    /// Returns this charge without a veto: its denial does not stop the other charges.
    #[must_use]
    pub fn shadow(self) -> Charge<'a> {
        Charge { veto: false, ..self }
    }

    /// Returns this charge as a question that takes and gives back nothing, without a veto.
    #[must_use]
    pub fn looking(self) -> Charge<'a> {
        Charge { op: self.op.looking(), veto: false, ..self }
    }

    /// Returns whether both charges count in the same state.
    #[must_use]
    pub fn shares_state_with(&self, other: &Charge<'_>) -> bool {
        self.key == other.key
            && self.limit.identity() == other.limit.identity()
            && self.namespace == other.namespace
            && self.placement.tag == other.placement.tag
    }
}

/// Checks whether charges can be decided together.
///
/// # Errors
/// Fails if there are too many, or two would count in the same state with different numbers.
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

/// The decisions about several charges, in their order.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    pub(crate) each: ArrayVec<(Decision, bool), CHARGES_MAX>,
    pub(crate) reports: Vec<Option<Report>>,
}

/// The state of a key that a store reports beside its decision, from which a caller can continue without the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The state of the key after the decision. For a log it holds the units in use, as if all were taken at that
    /// moment.
    pub state: State,
    /// The instant of the decision, by the store's clock.
    pub at: Time,
}

impl Report {
    /// Creates a report of a key's state after a decision at `at`.
    #[must_use]
    pub fn new(state: State, at: Time) -> Report {
        Report { state, at }
    }
}

impl Decisions {
    /// Returns whether every charge with a veto was allowed, so that all charges that fit were taken.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.vetoing().all(Decision::is_allowed)
    }

    /// Returns the decision about each charge: whether it alone would pass. If the whole was denied, nothing was taken
    /// for any charge, and no decision has a receipt.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> {
        self.each.iter().map(|(decision, _)| decision)
    }

    /// Returns the decision about the first charge.
    #[must_use]
    pub fn first(&self) -> Option<&Decision> {
        self.iter().next()
    }

    /// Returns the strictest decision among charges with a veto, or `None` if no charge has one.
    #[must_use]
    pub fn strictest(&self) -> Option<&Decision> {
        self.vetoing().min_by_key(|decision| decision.strictness())
    }

    /// Returns when to retry: the longest wait of the denials, or `None` if the whole is allowed.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        Retry::longest(self.vetoing().filter_map(Decision::retry))
    }

    /// Returns the state that the store reports for the key of a charge, or `None` if the store reports no states.
    #[must_use]
    pub fn report(&self, charge: usize) -> Option<&Report> {
        self.reports.get(charge)?.as_ref()
    }

    fn vetoing(&self) -> impl Iterator<Item = &Decision> {
        self.each.iter().filter(|(_, veto)| *veto).map(|(decision, _)| decision)
    }
}

/// Collects decisions, each with whether its charge may veto. Those beyond [`CHARGES_MAX`] are left out.
impl FromIterator<(Decision, bool)> for Decisions {
    fn from_iter<I: IntoIterator<Item = (Decision, bool)>>(each: I) -> Decisions {
        Decisions { each: each.into_iter().take(CHARGES_MAX).collect(), ..Decisions::default() }
    }
}

/// Why charges cannot be decided together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// There are more charges than one transaction takes.
    #[error("charges: {count} are too many for one request; use at most {CHARGES_MAX}")]
    TooMany {
        /// The number of charges.
        count: usize,
    },
    /// Two limits would count in the same state: they have the same algorithm, window length and key, but different
    /// numbers.
    #[error("charges[{charge}]: another {algorithm} limit counts on the same key; give each limit its own key prefix")]
    SharedState {
        /// The index of the later charge.
        charge: usize,
        /// The algorithm that both have.
        algorithm: &'static str,
    },
}

impl ChargeError {
    pub(crate) fn shared_state(number: usize, charge: &Charge<'_>) -> ChargeError {
        ChargeError::SharedState { charge: number, algorithm: charge.limit.algorithm().name() }
    }
}
