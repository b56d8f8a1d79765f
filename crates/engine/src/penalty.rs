//! Penalties: a key that stays denied until an instant, whatever its count.
//!
//! A penalty is kept as the state of a bucket that holds one unit: while that unit is missing, the key is denied, and
//! the time until it is back is the time that is left. So it needs no store of its own, and it expires by itself.

use std::time::Duration;

use tidegate_core::{Decision, Key, Limit, MemoryStore, Op, Rate};
use tidegate_policy::Rule;

use crate::bounds::PENALTY_SECONDS_MAX;
use crate::error::RequestError;
use crate::failure::guarded;
use crate::keys::{Purpose, whole_key};
use crate::store::{Backend, Placing, StoreError};

/// What may deny one key of a rule, whether it is in force or not.
///
/// A rule's own penalties and an operator's blocks are kept apart: no rule ends what an operator imposed, and a penalty is
/// never read as longer than its rule says, even after the clock of a shared store was set back.
#[derive(Debug)]
pub(crate) struct Penalty<'t> {
    key: Vec<u8>,
    /// The limit to look with: what is left is cut to its period.
    look: Limit,
    placing: Placing<'t>,
}

/// What came of a look at a penalty or a change to it; or the store did not answer.
type Answered<T> = Result<Result<T, StoreError>, RequestError>;

impl<'t> Penalty<'t> {
    /// The one that a rule itself imposes for this long, on the key with these parts: one for all limits of the rule, so it
    /// has the namespace of the first.
    pub(crate) fn of_rule(
        rule: &Rule,
        length: Duration,
        parts: &[u8],
        tag: &'t [u8],
    ) -> Result<Penalty<'t>, RequestError> {
        let key = whole_key(Purpose::Penalty, namespace(rule), parts);
        Ok(Penalty { key, look: one_in(length)?, placing: Placing { tag, ..Placing::default() } })
    }

    /// The one that an operator may have imposed on the same key, for any time.
    pub(crate) fn by_operator(rule: &Rule, parts: &[u8], tag: &'t [u8]) -> Result<Penalty<'t>, RequestError> {
        let key = whole_key(Purpose::Blocked, namespace(rule), parts);
        Ok(Penalty { key, look: longest()?, placing: Placing { tag, ..Placing::default() } })
    }

    /// How long the key stays denied in the memory of this process; nothing if it does not.
    pub(crate) fn left_in(&self, store: &MemoryStore) -> Answered<Option<Duration>> {
        let key = self.key()?;
        Ok(guarded(|| store.decide(key, &self.look, Op::Peek)).map(|decision| left(&decision)))
    }

    /// How long the key stays denied; nothing if it does not.
    pub(crate) async fn left(&self, backend: &Backend) -> Answered<Option<Duration>> {
        let decision = backend.decide(self.key()?, &self.look, Op::Peek, self.placing).await;
        Ok(decision.map(|decision| left(&decision)))
    }

    /// Denies the key from now on for this long.
    pub(crate) async fn impose(&self, backend: &Backend, length: Duration) -> Answered<()> {
        Ok(backend.decide(self.key()?, &one_in(length)?, Op::Debit(1), self.placing).await.map(|_| ()))
    }

    /// Lets the key pass again.
    pub(crate) async fn lift(&self, backend: &Backend) -> Answered<()> {
        Ok(backend.decide(self.key()?, &self.look, Op::Reset, self.placing).await.map(|_| ()))
    }

    fn key(&self) -> Result<Key<'_>, RequestError> {
        Key::new(&self.key).map_err(RequestError::Key)
    }
}

/// Notes in a shared store that some key is blocked for this long, for nodes that would not look otherwise.
///
/// What is missing is added to what is there, so that of several nodes that note at a time none shortens what another
/// noted. Then it may last too long, which costs looks and denies nobody.
pub(crate) async fn note_any(backend: &Backend, length: Duration) -> Answered<()> {
    let any = Penalty { key: ANY_KEY.to_vec(), look: longest()?, placing: Placing::default() };
    let left = match any.left(backend).await? {
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
    Ok(backend.decide(any.key()?, &limit, Op::Debit(seconds), any.placing).await.map(|_| ()))
}

/// The key that is penalised as long as any other is blocked.
pub(crate) const ANY_KEY: [u8; 1] = [Purpose::AnyBlocked as u8];

/// The first bytes of the key of a rule's penalties, behind the purpose.
pub(crate) fn namespace(rule: &Rule) -> &[u8] {
    rule.limits.first().map_or(&[][..], |limit| &limit.namespace)
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
pub(crate) fn one_in(length: Duration) -> Result<Limit, RequestError> {
    Rate::new(1, length).and_then(|rate| Limit::gcra(rate, 1)).map_err(RequestError::Penalty)
}
