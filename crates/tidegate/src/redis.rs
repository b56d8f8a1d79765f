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

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use tidegate_stores::redis::{Address, CallError, OpenError, RedisStore, Target, TargetError, Why};
pub use tidegate_stores::{
    Breaker, Call, CallTimes, Cause, Certainty, Health, Lease, Leased, Leasing, Nature, NodeHealth, PermitCharge,
    PermitStore, Store, StoreError, Totals,
};

use futures_util::future::join_all;
use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::{
    CapacityError, Charge, Clock, Decision, Key, KeyError, Limit, MemoryStore, Namespace, Op, Purpose,
};
use tidegate_stores::{Debit, LastStates};

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
    local: Arc<Local>,
}

/// What answers in this process when Redis does not answer.
#[derive(Debug)]
struct Local {
    states: MemoryStore,
    last: Arc<LastStates>,
    clock: Clock,
    /// Whether a task debits what Redis does not know of.
    debits: AtomicBool,
}

/// What is answered when Redis does not answer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fallback {
    /// The same limit goes on in this process from the last state that Redis reported. What it lets pass for calls that did
    /// not reach Redis is counted there when it is back.
    Continue,
    /// Everything passes.
    Allow,
    /// Everything is denied, with the hint to ask again in a second.
    Deny,
    /// This limit holds in this process alone, from the start of the outage.
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
    /// A limiter on the Redis at this address. While that does not answer, each process goes on by itself with the same limit,
    /// from the last state that Redis reported; see [`RedisLimiter::fallback`] for another choice.
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
        let clock = Clock::system();
        let states = MemoryStore::builder().clock(clock.clone()).build()?;
        let local = Local { states, last: Arc::default(), clock, debits: AtomicBool::new(false) };
        Ok(RedisLimiter { store, limit, fallback: Fallback::Continue, local: Arc::new(local) })
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
        let charge = Charge::new(own_key(key.as_ref())?, &self.limit, Op::Take(units)).within(&CALLERS);
        if self.fallback == Fallback::Continue && self.local.last.holds(&charge) {
            return Ok(self.fall_back(&charge, true));
        }
        match self.ask(&charge).await {
            Err(error) if error.is_overload() && matches!(self.fallback, Fallback::Continue | Fallback::Local(_)) => {
                Err(AskError::Overloaded(error))
            }
            Err(error) => Ok(self.fall_back(&charge, error.was_not_applied())),
            Ok(decision) => Ok(decision),
        }
    }

    /// Does anything to a key, without a fallback: debits, refunds, peeks and resets, or takes of those who want to know of
    /// each failure.
    ///
    /// # Errors
    /// If the key is empty or too long, or Redis does not answer.
    pub async fn decide(&self, key: impl AsRef<[u8]>, op: Op) -> Result<Decision, AskError> {
        let charge = Charge::new(own_key(key.as_ref())?, &self.limit, op).within(&CALLERS);
        Ok(self.ask(&charge).await?)
    }

    async fn ask(&self, charge: &Charge<'_>) -> Result<Decision, StoreError> {
        let (charges, sent) = (std::slice::from_ref(charge), self.local.clock.now());
        let decisions = self.store.charge(&Call::default(), charges).await?;
        self.local.last.learn(charges, &decisions, sent, self.local.clock.now());
        // There is one for each charge.
        Ok(decisions.first().copied().unwrap_or_else(|| Decision::refused(&self.limit, RETRY)))
    }

    /// Answers without Redis. What was taken here cannot be given back there.
    fn fall_back(&self, charge: &Charge<'_>, owes: bool) -> Decision {
        let local = &self.local;
        match &self.fallback {
            Fallback::Allow => Decision::untaken(&self.limit),
            Fallback::Deny => Decision::refused(&self.limit, RETRY),
            Fallback::Local(limit) => local.states.decide(charge.key, limit, charge.op).withdrawn(),
            Fallback::Continue => {
                let decision = local.last.decide(charge, 1, owes, local.clock.now());
                if local.last.owes() && !local.debits.swap(true, Ordering::SeqCst) {
                    tokio::spawn(debit_until_done(self.store.clone(), Arc::downgrade(local)));
                }
                decision.withdrawn()
            }
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

/// Debits what Redis does not know of, once it is back. It ends when nothing is owed, or with the last limiter.
async fn debit_until_done(store: RedisStore, local: Weak<Local>) {
    loop {
        tokio::time::sleep(DEBIT_PAUSE).await;
        let Some(local) = local.upgrade() else { return };
        let one = async |mut debit: Debit| {
            let sent = local.clock.now();
            let answer = store.charge(&Call::default(), &[debit.charge()]).await;
            debit.end(&answer, sent, local.clock.now());
        };
        join_all(local.last.debits(DEBITS_MAX, local.clock.now()).into_iter().map(one)).await;
        if local.last.owes() {
            continue;
        }
        local.debits.store(false, Ordering::SeqCst);
        // Something may be owed since, by a caller who found this task there.
        if !local.last.owes() || local.debits.swap(true, Ordering::SeqCst) {
            return;
        }
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

/// Pause between looks whether Redis is back.
const DEBIT_PAUSE: Duration = Duration::from_millis(100);

/// Debits that are under way at a time.
const DEBITS_MAX: usize = 256;
