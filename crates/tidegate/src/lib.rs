#![doc = include_str!("../README.md")]

pub use tidegate_core::{
    Algorithm, Busy, Calendar, CalendarError, CalendarPeriod, CalendarWindow, CapacityError, Charge, ChargeError,
    Clock, Consistency, Decision, Decisions, DirectLimiter, FakeClock, Identity, Key, KeyBuf, KeyError,
    LeasedSemaphore, Limit, LimitError, LimitNumbers, Limiter, LimiterBuilder, MemoryStore, MemoryStoreBuilder,
    Namespace, NoRoom, Op, Permit, PermitOp, Permits, Phase, Placement, Purpose, Rate, Receipt, Retry, Semaphore,
    SemaphoreError, Snapshot, Spent, State, SystemClock, Time, UnknownAlgorithm, Verdict, adaptive, bounds, decide,
    fair, shed,
};

#[cfg(feature = "redis")]
pub mod redis;

/// Limits as layers for axum, tonic and hyper.
#[cfg(feature = "tower")]
pub use tidegate_tower as tower;
