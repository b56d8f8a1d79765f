//! Penalties: a key that stays denied until an instant, whatever its count.
//!
//! A penalty is kept as the state of a bucket that holds one unit: while that unit is missing, the key is denied, and
//! the time until it is back is the time that is left. So it needs no store of its own, and it expires by itself.

use std::time::Duration;

use tidegate_core::{Charge, Decision, Key, Limit, MemoryStore, Namespace, Op, Placement, Rate, Time};
use tidegate_policy::{Rule, Share};
use tidegate_stores::Call;

use crate::bounds::PENALTY_SECONDS_MAX;
use crate::error::RequestError;
use crate::failure::guarded;
use crate::keys::ANY_BLOCK;
use crate::store::{Backend, ChargeFailure, StoreError};

/// What may deny one key of a rule, whether it is in force or not.
///
/// A rule's own penalties and an operator's blocks are kept apart: no rule ends what an operator imposed, and a penalty is
/// never read as longer than its rule says, even after the clock of a shared store was set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalty<'a> {
    namespace: &'a Namespace,
    key: Key<'a>,
    /// The limit to look with: what is left is cut to its period.
    look: Limit,
    tag: &'a [u8],
}

impl<'a> Penalty<'a> {
    /// The one that a rule itself imposes for this long, on a key of its own: one for all limits of the rule.
    pub(crate) fn of_rule(
        rule: &'a Rule,
        length: Duration,
        key: Key<'a>,
        tag: &'a [u8],
    ) -> Result<Penalty<'a>, RequestError> {
        Ok(Penalty { namespace: &rule.penalties, key, look: one_in(length)?, tag })
    }

    /// The one that an operator may have imposed on the same key, for any time.
    pub(crate) fn by_operator(rule: &'a Rule, key: Key<'a>, tag: &'a [u8]) -> Result<Penalty<'a>, RequestError> {
        Ok(Penalty { namespace: &rule.blocks, key, look: longest()?, tag })
    }

    /// A charge that looks whether the key stays denied.
    pub(crate) fn charge<'l>(&'l self, op: Op) -> Charge<'l> {
        self.under(&self.look, op)
    }

    /// How long the key stays denied in the memory of this process; nothing if it does not.
    pub(crate) fn left_in(&self, store: &MemoryStore) -> Result<Option<Duration>, StoreError> {
        guarded(|| store.decide_in(self.namespace, self.key, &self.look, Op::Peek)).map(|decision| left(&decision))
    }

    /// How long the key stays denied; nothing if it does not.
    pub(crate) async fn left(&self, backend: &Backend) -> Result<Option<Duration>, StoreError> {
        let decision = backend.decide(&Call::default(), &self.charge(Op::Peek)).await;
        decision.map(|decision| left(&decision))
    }

    /// Denies the key from now on for this long. Returns since when, by the clock of the store, if that tells.
    pub(crate) async fn impose(
        &self,
        backend: &Backend,
        length: Duration,
    ) -> Result<Result<Option<Time>, StoreError>, RequestError> {
        let limit = one_in(length)?;
        Ok(backend.decide_at(&Call::default(), &self.under(&limit, Op::Debit(1))).await.map(|(_, at)| at))
    }

    /// Denies the key from now on for this long; in this process alone if the store does not answer, which learns of it
    /// when it does. Returns since when; `None` if the key is not denied, on a node that is overloaded.
    pub(crate) async fn impose_or_go_on(
        &self,
        backend: &Backend,
        length: Duration,
    ) -> Result<Option<Option<Time>>, RequestError> {
        let limit = one_in(length)?;
        let charge = self.under(&limit, Op::Debit(1));
        let failure = match backend.charge(&Call::default(), &[charge]).await {
            Ok(decisions) => return Ok(Some(decisions.report(0).map(|report| report.at))),
            Err(failure) => failure,
        };
        if let (ChargeFailure::Unanswered(applied), Some(asked)) = (failure, backend.asked()) {
            asked.go_on(&charge, Share::Whole, applied);
            return Ok(Some(None));
        }
        Ok(None)
    }

    /// Lets the key pass again. Returns what is left of the penalty, and since when, by the clock of the store, if that tells.
    pub(crate) async fn lift(&self, backend: &Backend) -> Result<(Decision, Option<Time>), StoreError> {
        backend.decide_at(&Call::default(), &self.charge(Op::Reset)).await
    }

    fn under<'l>(&'l self, limit: &'l Limit, op: Op) -> Charge<'l> {
        let placement = Placement { tag: self.tag, ..Placement::default() };
        Charge::new(self.key, limit, op).within(self.namespace).placed(placement)
    }
}

/// Notes in a store that outlives this process that some key is blocked for this long, for those who would not look
/// otherwise.
///
/// What is missing is added to what is there, so that of several nodes that note at a time none shortens what another
/// noted. Then it may last too long, which costs looks and denies nobody.
pub(crate) async fn note_any(backend: &Backend, length: Duration) -> Result<Result<(), StoreError>, RequestError> {
    let any = Penalty { namespace: &ANY_BLOCK, key: Key::ALL, look: longest()?, tag: &[] };
    let left = match any.left(backend).await {
        Ok(left) => left.unwrap_or_default(),
        Err(error) => return Ok(Err(error)),
    };
    let missing = length.saturating_sub(left);
    let seconds = missing.as_secs() + u64::from(missing.subsec_nanos() > 0);
    if seconds == 0 {
        return Ok(Ok(()));
    }
    let by_seconds = Rate::per_second(1).and_then(|rate| Limit::gcra(rate, PENALTY_SECONDS_MAX));
    let limit = by_seconds.map_err(RequestError::Penalty)?;
    Ok(backend.decide(&Call::default(), &any.under(&limit, Op::Debit(seconds))).await.map(|_| ()))
}

/// How long a key stays denied.
pub(crate) fn left(decision: &Decision) -> Option<Duration> {
    (decision.remaining() == 0).then(|| decision.reset_after())
}

/// The limit to look with at what may have any length.
pub(crate) fn longest() -> Result<Limit, RequestError> {
    one_in(Duration::from_secs(PENALTY_SECONDS_MAX))
}

/// The limit whose state a penalty of this length is.
fn one_in(length: Duration) -> Result<Limit, RequestError> {
    Rate::new(1, length).and_then(|rate| Limit::gcra(rate, 1)).map_err(RequestError::Penalty)
}
