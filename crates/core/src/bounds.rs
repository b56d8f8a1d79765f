//! Every bound of the crate in one place, each with its reason.

use std::time::Duration;

/// Nanoseconds in a second, for readable arithmetic.
pub const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// One year of 365 days, in nanoseconds.
pub const YEAR_NANOS: u64 = 365 * 86_400 * NANOS_PER_SECOND;

/// Longest key, in bytes. Hashing a key is linear in its length, so a caller must not be able to make it arbitrarily
/// long.
pub const KEY_BYTES_MAX: usize = 4096;

/// Shortest time between two units, in nanoseconds: 10 M units a second. Below it, rounding the emission interval up
/// to whole nanoseconds would cost more than 1 % of the rate.
pub const INTERVAL_NANOS_MIN: u64 = 100;

/// Longest period of a rate and longest time a full bucket takes to refill (burst × interval): 100 years.
/// Twice this plus any instant still fits in 64 bits.
pub const SPAN_NANOS_MAX: u64 = 100 * YEAR_NANOS;

/// Longest window: ten years. The window length shares one word with the algorithm's tag in a state's identity.
pub const WINDOW_NANOS_MAX: u64 = 10 * YEAR_NANOS;

/// Largest limit of a sliding log: it keeps one entry per charge, and reads all of them to compute when to retry.
pub const LOG_LIMIT_MAX: u64 = 10_000;

/// Most slices of a sliced window: finer ones cost more memory than a log would.
pub const SLICES_MAX: u64 = 1_000;

/// Slices of a sliced window, unless set otherwise.
pub const SLICES_DEFAULT: u64 = 60;

/// Most different calendars in one process: they are never freed. A few dozen are usual; this many take a few megabytes.
pub const CALENDARS_MAX: usize = 4_096;

/// Most charges in one transaction. Decisions are kept inline, and the locks taken stay few.
pub const CHARGES_MAX: usize = 16;

/// Most keys of a batch that are decided together: as many as a processor fetches from memory in parallel. Longer lists
/// are split.
pub const BATCH_KEYS_MAX: usize = 16;

/// Keys that a memory store is sized for, unless set otherwise: about 31 bytes each are touched only as keys arrive.
pub const KEYS_DEFAULT: usize = 100_000;

/// Most permits of a key of a semaphore: added to the mark of a slot in use, they stay below that of a lock.
pub const PERMITS_MAX: u64 = u32::MAX as u64;

/// Most leased permits held at the same time over all keys, unless set otherwise: up to about 60 MB, allocated as they
/// are acquired.
pub const LEASED_PERMITS_DEFAULT: usize = 1 << 18;

/// Number of locks that the keys of leased permits are spread over, so that threads seldom contend.
pub const LEASED_SHARDS: usize = 16;

/// Most keys a memory store can be sized for.
pub const KEYS_MAX: usize = 1 << 32;

/// Log entries in a block: with the link to the next block they fill two cache lines.
pub const BLOCK_ENTRIES: usize = 7;

/// Most log entries a memory store can be sized for: a block's number takes 28 bits.
pub const LOG_ENTRIES_MAX: usize = BLOCK_ENTRIES * ((1 << 28) - 2);

/// Log entries up to which a limiter has room for the whole log of every key: 18 MB, touched only as they are used.
pub const WHOLE_LOGS_ENTRIES_MAX: usize = 1_000_000;

/// Largest limit of a permit counter: it shares one word with the count and a mark.
pub const PERMIT_COUNTER_MAX: u64 = (1 << 31) - 1;

/// Largest adaptive limit: the most permits of a semaphore, and exact as a float.
pub const ADAPTIVE_LIMIT_MAX: u64 = PERMITS_MAX;

/// Most samples in the long-term average of an adaptive limit: with more, a sample would hardly move it.
pub const LONG_WINDOW_MAX: u64 = 1_000_000;

/// Most samples that a window of an adaptive limit may wait for: with more, it would hardly ever end.
pub const WINDOW_SAMPLES_MIN_MAX: u64 = 1_000_000;

/// Longest ramp, interval, window or timeout in limits and shedders that adapt to load: yesterday's load says nothing
/// about now.
pub const LOAD_TIME_MAX: Duration = Duration::from_secs(86_400);

/// Most partitions of a limit: each admission looks at all of them.
pub const PARTITIONS_MAX: usize = 64;

/// Buckets of a client's throttle: its window moves in steps of a sixtieth.
pub const THROTTLE_BUCKETS: usize = 60;

/// Largest capacity of a fleet, equal to the largest adaptive limit.
pub const FLEET_MAX: u64 = ADAPTIVE_LIMIT_MAX;

/// Largest weight of a tenant in a fair queue: a turn of the heaviest tenant is at most 10,000 turns of the lightest.
pub const WEIGHT_MAX: u64 = 10_000;

/// Largest quantum, and largest cost of an item, in a fair queue: times the largest weight it fits 64 bits by far.
pub const QUANTUM_MAX: u64 = 1_000_000_000;

/// Most items in a fair queue, and most tenants.
pub const FAIR_ITEMS_MAX: usize = 1 << 24;
