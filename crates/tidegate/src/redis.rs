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
//! [`Target`]. Nothing connects before the first call, so a program starts while Redis is down. A call takes at most 10
//! ms unless the address sets another time (`?timeout=50ms`); after that the [`Fallback`] decides. If Redis fails
//! repeatedly it is only probed, and the fallback decides at once until Redis answers.

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

/// The namespace of limits that callers bring, in servers and in programs alike.
static CALLERS: Namespace = Namespace::of(Purpose::Caller);

/// One limit for many keys, shared by all processes that use the same Redis with the same limit. Clones share
/// connections.
///
/// Callers that send the same limit to a Tidegate server on that Redis are counted too, as with `CL.THROTTLE`.
#[derive(Clone, Debug)]
pub struct RedisLimiter {
    store: RedisStore,
    limit: Limit,
    fallback: Fallback,
    local: Arc<Local>,
}

/// Decides in this process while Redis does not answer.
#[derive(Debug)]
struct Local {
    states: MemoryStore,
    last: Arc<LastStates>,
    clock: Clock,
    /// Whether a task is debiting Redis for units that were spent here.
    debits: AtomicBool,
}

/// The decision of a limiter while Redis does not answer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fallback {
    /// Continues the same limit in this process, from the last state that Redis reported. Units of calls that did not
    /// reach Redis are debited there when it answers again.
    Continue,
    /// Allows everything.
    Allow,
    /// Denies everything, with a `retry_after` of one second.
    Deny,
    /// Applies this limit in this process alone, from the start of the outage.
    Local(Limit),
}

/// Why a limiter cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] TargetError),
    /// A file that the address names cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no memory for the fallback.
    #[error(transparent)]
    Capacity(#[from] CapacityError),
}

/// Why a call returned no decision.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The key is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Redis did not answer, or refused the call.
    #[error(transparent)]
    Store(StoreError),
    /// This process is overloaded and could not ask Redis in time. Redis is not at fault, so no fallback decides.
    #[error("{0}; try again later")]
    Overloaded(StoreError),
}

impl From<StoreError> for AskError {
    fn from(error: StoreError) -> AskError {
        if error.is_overload() { AskError::Overloaded(error) } else { AskError::Store(error) }
    }
}

impl RedisLimiter {
    /// Opens a limiter on the Redis at this address. While Redis does not answer, each process continues with the same
    /// limit by itself, from the last state that Redis reported; see [`RedisLimiter::fallback`] for another choice.
    ///
    /// # Errors
    /// Fails if the address is invalid, or a file that it names cannot be used.
    pub fn open(address: &str, limit: Limit) -> Result<RedisLimiter, LimiterError> {
        Ok(RedisLimiter::on(RedisStore::open(&address.parse()?)?, limit)?)
    }

    /// Creates a limiter on a store that several limiters share. Limiters with the same algorithm and window length
    /// count the same keys together there: prefix the keys to keep different purposes apart.
    ///
    /// # Errors
    /// Fails if there is no memory for the fallback.
    pub fn on(store: RedisStore, limit: Limit) -> Result<RedisLimiter, CapacityError> {
        let clock = Clock::system();
        let states = MemoryStore::builder().clock(clock.clone()).build()?;
        let local = Local { states, last: Arc::default(), clock, debits: AtomicBool::new(false) };
        Ok(RedisLimiter { store, limit, fallback: Fallback::Continue, local: Arc::new(local) })
    }

    /// Sets what decides while Redis does not answer. Default: [`Fallback::Continue`].
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> RedisLimiter {
        self.fallback = fallback;
        self
    }

    /// Takes one unit if it fits. If Redis does not answer, the fallback decides, and its decision has no receipt.
    ///
    /// # Errors
    /// Fails if the key is empty or too long, or if this process is overloaded and the fallback is a limit.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Decision, AskError> {
        self.check_n(key, 1).await
    }

    /// Takes `units` if they all fit; 0 only looks. If Redis does not answer, the fallback decides, and its decision
    /// has no receipt.
    ///
    /// # Errors
    /// Fails if the key is empty or too long, or if this process is overloaded and the fallback is a limit.
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

    /// Applies any operation to a key, without a fallback: for debits, refunds, peeks and resets, and for callers that
    /// handle each failure themselves.
    ///
    /// # Errors
    /// Fails if the key is empty or too long, or if Redis does not answer.
    pub async fn decide(&self, key: impl AsRef<[u8]>, op: Op) -> Result<Decision, AskError> {
        let charge = Charge::new(own_key(key.as_ref())?, &self.limit, op).within(&CALLERS);
        Ok(self.ask(&charge).await?)
    }

    async fn ask(&self, charge: &Charge<'_>) -> Result<Decision, StoreError> {
        let (charges, sent) = (std::slice::from_ref(charge), self.local.clock.now());
        let decisions = self.store.charge(&Call::default(), charges).await?;
        self.local.last.learn(charges, &decisions, sent, self.local.clock.now());
        // There is one decision for each charge.
        Ok(decisions.first().copied().unwrap_or_else(|| Decision::refused(&self.limit, RETRY)))
    }

    /// Decides without Redis. Units taken here cannot be refunded there.
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

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the store of the limiter, for its health ([`RedisStore::health`]), other limits, several charges at
    /// once, and permits.
    #[must_use]
    pub fn store(&self) -> &RedisStore {
        &self.store
    }
}

/// Debits units that Redis does not know of, once it answers. Ends when nothing is owed, or with the last limiter.
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
        // A caller that saw this task running may have added a debt since.
        if !local.last.owes() || local.debits.swap(true, Ordering::SeqCst) {
            return;
        }
    }
}

/// The key in the form in which servers take it from callers, whose namespace takes one byte.
fn own_key(key: &[u8]) -> Result<Key<'_>, KeyError> {
    match key.len() {
        length if length >= KEY_BYTES_MAX => Err(KeyError::TooLong { length, max: KEY_BYTES_MAX - 1 }),
        _ => Key::new(key),
    }
}

/// `retry_after` of a denial by [`Fallback::Deny`].
const RETRY: Duration = Duration::from_secs(1);

/// Pause between checks whether Redis answers again.
const DEBIT_PAUSE: Duration = Duration::from_millis(100);

/// Most debits in progress at the same time.
const DEBITS_MAX: usize = 256;
