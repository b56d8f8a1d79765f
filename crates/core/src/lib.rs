//! The core of Tidegate: limits, their algorithms, and a store for their state in this process.
//!
//! | to find | look in |
//! |---|---|
//! | an algorithm's arithmetic, pure | `algorithm/` |
//! | operations and decisions | `charge.rs`, `decision.rs` |
//! | several charges at once, all or none | `transaction.rs` |
//! | the rule and limit that a state belongs to, and its key | `namespace.rs`, `key.rs` |
//! | the numbers of a limit, and their checks | `limit/`, `rate.rs`, `bounds.rs` |
//! | windows of days, weeks, months and years in a time zone | `calendar/` |
//! | the keyed table, its locks and its memory | `memory/` |
//! | interfaces for the engine and remote stores, not for users | `ext.rs`, `remote.rs` |
//! | the limiters and semaphores of Rust users | `limiter.rs`, `direct.rs`, `semaphore.rs`, `leased.rs` |
//! | leased permits, pure | `permits.rs` |
//! | a count of permits whose limit changes | `permit_counter.rs` |
//! | the only place where time is read | `clock.rs` |
//! | the keys that occur most often | `heavy.rs` |
//! | adaptive concurrency limits | `adaptive/` |
//! | load shedding | `shed/` |
//! | fair queueing | `fair/` |

pub mod adaptive;
pub mod bounds;
pub mod fair;
pub mod shed;

mod algorithm;
mod calendar;
mod charge;
mod clock;
mod decision;
mod dice;
mod direct;
mod ext;
mod hash;
mod heavy;
mod key;
mod leased;
mod limit;
mod limiter;
mod memory;
mod namespace;
mod permit_counter;
mod permits;
mod rate;
mod remote;
mod semaphore;
mod sync;
mod time;
mod transaction;

pub use algorithm::{State, decide};
pub use calendar::{Calendar, CalendarError, CalendarPeriod, CalendarWindow};
pub use charge::{Charge, ChargeError, Consistency, Decisions, Placement, Report, check_charges};
pub use clock::{Clock, FakeClock, SystemClock};
pub use decision::{Decision, Op, Receipt, Retry, Strictness, Verdict};
pub use dice::Dice;
pub use direct::DirectLimiter;
pub use ext::{ChargeExt, DecisionsExt, LimitExt, StateExt};
#[doc(hidden)]
pub use hash::agreed_hash;
pub use heavy::{HeavyBy, HeavyHitters, KeyCounts, KeyHasher};
pub use key::{Key, KeyBuf, KeyError};
pub use leased::{LeasedSemaphore, NoRoom, PermitOwner};
pub use limit::{Algorithm, Identity, Limit, LimitError, LimitNumbers, Phase, UnknownAlgorithm};
pub use limiter::{Limiter, LimiterBuilder};
pub use memory::{CapacityError, MemoryStore, MemoryStoreBuilder, Snapshot, Spent};
pub use namespace::{Namespace, Purpose};
pub use permit_counter::{PermitCounter, Released};
pub use permits::{Holders, PermitOp, Permits};
pub use rate::Rate;
pub use remote::{ARGUMENTS_MAX, Argument, Arguments, Arithmetic, Disagreement, Found, FromLog, LogVerdict};
pub use semaphore::{Busy, Permit, Semaphore, SemaphoreError};
pub use time::Time;
