//! Limits that several processes share through Redis or Valkey. With the feature `redis`, on a Tokio runtime.
//!
//! ```no_run
//! use tidegate::redis::RedisLimiter;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = RedisLimiter::open("redis://localhost:6379", "100/minute".parse()?)?;
//! let decision = limiter.check("user:42").await?;
//! if !decision.is_allowed() {
//!     println!("come back in {:?}", decision.retry_after());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The address may be `redis://`, `rediss://` (TLS), `redis+unix://`, `redis+sentinel://` or `redis+cluster://`; see
//! [`Target`]. Nothing is connected before the first question, so a program starts while Redis is absent. A question takes
//! 10 ms at most unless the address says otherwise (`?timeout=50ms`); without an answer by then, the [`Fallback`] answers.
//! If Redis fails again and again it is left alone and probed, and the fallback answers at once.

use std::sync::Arc;
use std::time::Duration;

pub use tidegate_stores::redis::{Address, CallError, OpenError, RedisStore, Target, TargetError, Why};
pub use tidegate_stores::{
    Breaker, Call, CallTimes, Cause, Certainty, Health, Lease, Leased, Leasing, Nature, NodeHealth, PermitCharge,
    PermitStore, Store, StoreError, Totals,
};

use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::{CapacityError, Charge, Decision, Key, KeyError, Limit, MemoryStore, Namespace, Op, Purpose};

/// Keys of limits that callers bring, in servers and in programs alike.
static CALLERS: Namespace = Namespace::of(Purpose::Caller);

/// One limit for many keys, shared by all processes that ask the same Redis with the same limit. Clones share connections.
///
/// It counts together with those who bring the same limit to a Tidegate server on that Redis, as with `CL.THROTTLE`.
#[derive(Clone, Debug)]
pub struct RedisLimiter {
    store: RedisStore,
    limit: Limit,
    fallback: Fallback,
    local: Arc<MemoryStore>,
}

/// What is answered when Redis does not answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fallback {
    /// Everything passes.
    Allow,
    /// Everything is denied, with the hint to ask again in a second.
    Deny,
    /// This limit holds in the memory of this process alone.
    Local(Limit),
}

/// Why a limiter could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] TargetError),
    /// A file that it names cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system has no memory for the fallback.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
}

/// Why Redis did not decide.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The key is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Redis did not answer, or refused.
    #[error(transparent)]
    Store(StoreError),
    /// This process is overloaded and could not ask Redis in time. Redis is not at fault, so no fallback decides.
    #[error("{0}; ask again later")]
    Overloaded(StoreError),
}

impl From<StoreError> for AskError {
    fn from(error: StoreError) -> AskError {
        if error.is_overload() { AskError::Overloaded(error) } else { AskError::Store(error) }
    }
}

impl RedisLimiter {
    /// A limiter on the Redis at this address. While that does not answer, each process holds the same limit by itself;
    /// see [`RedisLimiter::fallback`] for another choice.
    ///
    /// # Errors
    /// If the address cannot be read, or a file that it names cannot be used.
    pub fn open(address: &str, limit: Limit) -> Result<RedisLimiter, LimiterError> {
        Ok(RedisLimiter::on(RedisStore::open(&address.parse()?)?, limit)?)
    }

    /// One of several limiters over one store. Limiters with the same algorithm and window length there count the same
    /// keys together: give the keys of different purposes different prefixes.
    ///
    /// # Errors
    /// If the system has no memory for the fallback.
    pub fn on(store: RedisStore, limit: Limit) -> Result<RedisLimiter, CapacityError> {
        let local = Arc::new(MemoryStore::builder().build()?);
        Ok(RedisLimiter { store, limit, fallback: Fallback::Local(limit), local })
    }

    /// What is answered when Redis does not answer.
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> RedisLimiter {
        self.fallback = fallback;
        self
    }

    /// Takes one unit if it fits. If Redis does not answer, the fallback does, and its decision has no receipt.
    ///
    /// # Errors
    /// If the key is empty or too long, or this process is overloaded and the fallback is a limit.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Decision, AskError> {
        self.check_n(key, 1).await
    }

    /// Takes `units` if they all fit; 0 looks only. If Redis does not answer, the fallback does, and its decision has no
    /// receipt.
    ///
    /// # Errors
    /// If the key is empty or too long, or this process is overloaded and the fallback is a limit.
    pub async fn check_n(&self, key: impl AsRef<[u8]>, units: u64) -> Result<Decision, AskError> {
        let key = key.as_ref();
        match self.decide(key, Op::Take(units)).await {
            Err(AskError::Overloaded(error)) if matches!(self.fallback, Fallback::Local(_)) => {
                Err(AskError::Overloaded(error))
            }
            Err(AskError::Store(_) | AskError::Overloaded(_)) => Ok(self.fall_back(Key::new(key)?, units)),
            decided => decided,
        }
    }

    /// Does anything to a key, without a fallback: debits, refunds, peeks and resets, or takes of those who want to know of
    /// each failure.
    ///
    /// # Errors
    /// If the key is empty or too long, or Redis does not answer.
    pub async fn decide(&self, key: impl AsRef<[u8]>, op: Op) -> Result<Decision, AskError> {
        let charge = Charge::new(own_key(key.as_ref())?, &self.limit, op).within(&CALLERS);
        let decisions = self.store.charge(&Call::default(), &[charge]).await?;
        // There is one for each charge.
        Ok(decisions.first().copied().unwrap_or_else(|| Decision::refused(&self.limit, RETRY)))
    }

    fn fall_back(&self, key: Key<'_>, units: u64) -> Decision {
        match &self.fallback {
            Fallback::Allow => Decision::untaken(&self.limit),
            Fallback::Deny => Decision::refused(&self.limit, RETRY),
            // What was taken here cannot be given back there.
            Fallback::Local(limit) => self.local.decide(key, limit, Op::Take(units)).withdrawn(),
        }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The store behind the limiter: how it does ([`RedisStore::health`]), other limits, several charges at once, permits.
    #[must_use]
    pub fn store(&self) -> &RedisStore {
        &self.store
    }
}

/// A key as servers take it from callers, whose namespace is a byte long.
fn own_key(key: &[u8]) -> Result<Key<'_>, KeyError> {
    match key.len() {
        length if length >= KEY_BYTES_MAX => Err(KeyError::TooLong { length, max: KEY_BYTES_MAX - 1 }),
        _ => Key::new(key),
    }
}

/// When to ask again if nobody can say.
const RETRY: Duration = Duration::from_secs(1);
