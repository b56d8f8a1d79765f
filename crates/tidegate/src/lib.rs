#![doc = include_str!("../README.md")]

/// Tests the example of the project's front page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;

pub use tidegate_core::{
    Algorithm, Busy, Calendar, CalendarError, CalendarPeriod, CalendarWindow, CapacityError, Charge, ChargeError,
    Clock, Consistency, Decision, Decisions, DirectLimiter, FakeClock, Identity, Key, KeyBuf, KeyError,
    LeasedSemaphore, Limit, LimitError, LimitNumbers, Limiter, LimiterBuilder, MemoryStore, MemoryStoreBuilder,
    Namespace, NoRoom, Op, Permit, PermitOp, PermitOwner, Permits, Phase, Placement, Purpose, Rate, Receipt, Report,
    Retry, Semaphore, SemaphoreError, Snapshot, Spent, State, SystemClock, Time, UnknownAlgorithm, Verdict, adaptive,
    decide, fair, shed,
};

/// Upper and lower bounds of the values that callers choose, each with its reason.
pub mod bounds {
    pub use tidegate_core::bounds::{
        ADAPTIVE_LIMIT_MAX, BATCH_KEYS_MAX, CALENDARS_MAX, CHARGES_MAX, FAIR_ITEMS_MAX, FLEET_MAX, INTERVAL_NANOS_MIN,
        KEY_BYTES_MAX, KEYS_DEFAULT, KEYS_MAX, LEASED_PERMITS_DEFAULT, LOAD_TIME_MAX, LOG_ENTRIES_MAX, LOG_LIMIT_MAX,
        LONG_WINDOW_MAX, PARTITIONS_MAX, PERMITS_MAX, QUANTUM_MAX, SLICES_DEFAULT, SLICES_MAX, SPAN_NANOS_MAX,
        WEIGHT_MAX, WINDOW_NANOS_MAX, WINDOW_SAMPLES_MIN_MAX,
    };
}

#[cfg(feature = "redis")]
pub mod redis;

/// Limits as layers for axum, tonic and hyper.
#[cfg(feature = "tower")]
pub use tidegate_tower as tower;
