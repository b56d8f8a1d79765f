//! Penalties: a key that stays denied until an instant, whatever its count.
//!
//! A penalty is kept as the state of a bucket that holds one unit: while that unit is missing, the key is denied, and
//! the time until it is back is the time that is left. So it needs no store of its own, and it expires by itself.

use std::time::Duration;

use tidegate_core::{Decision, Key, Limit, LimitError, MemoryStore, Op, Rate};
use tidegate_policy::Rule;

use crate::bounds::PENALTY_SECONDS_MAX;
use crate::error::RequestError;
use crate::failure::guarded;
use crate::plan::Purpose;
use crate::store::{Backend, Placing, StoreError};

/// The penalty of one key of a rule, whether it is in force or not.
#[derive(Debug)]
pub(crate) struct Penalty<'t> {
    key: Vec<u8>,
    placing: Placing<'t>,
}

/// What came of a look at a penalty or a change to it; or the store did not answer.
type Answered<T> = Result<Result<T, StoreError>, RequestError>;

impl<'t> Penalty<'t> {
    /// That of the key with these parts: one for all limits of the rule, so it has the namespace of the first.
    pub(crate) fn of(rule: &Rule, parts: &[u8], tag: &'t [u8]) -> Penalty<'t> {
        let key = [&[Purpose::Penalty.byte()], namespace(rule), parts].concat();
        Penalty { key, placing: Placing { tag, ..Placing::default() } }
    }

    /// How long the key stays denied in the memory of this process; nothing if it does not.
    pub(crate) fn left_in(&self, store: &MemoryStore) -> Answered<Option<Duration>> {
        let (key, limit) = (self.key()?, longest()?);
        Ok(guarded(|| store.decide(key, &limit, Op::Peek)).map(|decision| left(&decision)))
    }

    /// How long the key stays denied; nothing if it does not.
    pub(crate) async fn left(&self, backend: &Backend) -> Answered<Option<Duration>> {
        let decision = backend.decide(self.key()?, &longest()?, Op::Peek, self.placing).await;
        Ok(decision.map(|decision| left(&decision)))
    }

    /// Denies the key from now on for this long.
    pub(crate) async fn impose(&self, backend: &Backend, length: Duration) -> Answered<()> {
        let limit = one_in(length).map_err(RequestError::Penalty)?;
        Ok(backend.decide(self.key()?, &limit, Op::Debit(1), self.placing).await.map(|_| ()))
    }

    /// Denies the key from now on for this long, or for as long as it was denied before if that is longer: a rule must
    /// not end what an operator imposed.
    pub(crate) async fn lengthen(&self, backend: &Backend, length: Duration) -> Answered<()> {
        match self.left(backend).await? {
            Ok(Some(left)) if left >= length => Ok(Ok(())),
            Ok(_) => self.impose(backend, length).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Lets the key pass again.
    pub(crate) async fn lift(&self, backend: &Backend) -> Answered<()> {
        Ok(backend.decide(self.key()?, &longest()?, Op::Reset, self.placing).await.map(|_| ()))
    }

    fn key(&self) -> Result<Key<'_>, RequestError> {
        Key::new(&self.key).map_err(RequestError::Key)
    }
}

/// Notes in a shared store that some key is blocked for this long, for nodes that would not look otherwise.
pub(crate) async fn note_any(backend: &Backend, length: Duration) -> Answered<()> {
    let any = Penalty { key: ANY_KEY.to_vec(), placing: Placing::default() };
    any.lengthen(backend, length).await
}

/// The key that is penalised as long as any other is blocked.
pub(crate) const ANY_KEY: [u8; 1] = [Purpose::AnyBlocked as u8];

/// The first bytes of the key of a rule's penalties, behind the purpose.
pub(crate) fn namespace(rule: &Rule) -> &[u8] {
    rule.limits.first().map_or(&[][..], |limit| &limit.namespace)
}

/// How long a key stays denied, by a look with the longest period there is: a shorter one would cut what is left to itself.
pub(crate) fn left(decision: &Decision) -> Option<Duration> {
    (decision.remaining() == 0).then(|| decision.reset_after())
}

/// The limit to look with.
pub(crate) fn longest() -> Result<Limit, RequestError> {
    one_in(Duration::from_secs(PENALTY_SECONDS_MAX)).map_err(RequestError::Penalty)
}

fn one_in(length: Duration) -> Result<Limit, LimitError> {
    Limit::gcra(Rate::new(1, length)?, 1)
}
