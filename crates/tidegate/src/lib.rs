#![doc = include_str!("../README.md")]

pub use tidegate_core::{
    Algorithm, Busy, CapacityError, Charge, ChargeError, Clock, Decision, Decisions, DirectLimiter, FakeClock,
    Identity, Key, KeyBuf, KeyError, LeasedSemaphore, Limit, LimitError, Limiter, LimiterBuilder, MemoryStore,
    MemoryStoreBuilder, Namespace, NoRoom, Op, Permit, PermitOp, Permits, Purpose, Rate, Receipt, Retry, Semaphore,
    SemaphoreError, Snapshot, Spent, State, SystemClock, Time, UnknownAlgorithm, Verdict, adaptive, bounds, decide,
    fair, shed,
};

#[cfg(feature = "redis")]
pub mod redis;

/// Limits as layers for axum, tonic and hyper.
#[cfg(feature = "tower")]
pub use tidegate_tower as tower;
