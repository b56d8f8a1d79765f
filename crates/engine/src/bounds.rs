//! Every bound of the crate in one place, each with its reason.

use std::time::Duration;

/// Most descriptors in a request: each of them is looked up by itself, and all are answered in one reply.
pub const DESCRIPTORS_MAX: usize = 64;

/// Most entries in a descriptor: matching looks at each of them.
pub const ENTRIES_MAX: usize = 64;

/// Most limits that one request is held against, over all its descriptors: each of them takes a lock and is answered.
pub const CHARGES_MAX: usize = 512;

/// One bound for what requests say and for what expressions of rules make of it.
pub use tidegate_policy::bounds::COST_MAX;

const _: () = assert!(COST_MAX.checked_mul(CHARGES_MAX as u64).is_some(), "a sum over all limits must not overflow");

/// A batch has as many keys as the memory store decides at once.
pub use tidegate_core::bounds::BATCH_KEYS_MAX;

/// Bytes for keys that a batch keeps when it is cleared: full batches of common keys fit, and a connection that once sent
/// long ones gives the rest back.
pub const BATCH_ROOM_BYTES: usize = 2048;

/// Most places that threads count in: each takes two cache lines for every rule, and more threads than this seldom meet.
pub const COUNTER_SHARDS_MAX: usize = 16;

/// Most series that metrics keep for values of entries, over all rules: beyond it they are counted together.
pub const SERIES_MAX: usize = 1_000;

/// Most rules that are remembered after a configuration without them, with their counts and modes: names that are made
/// anew for each configuration must not pile up.
pub const RULES_GONE_MAX: usize = 10_000;

/// Longest value of an entry, in bytes, that gets a series of its own: metrics repeat it on each page, several times.
pub const SERIES_VALUE_BYTES_MAX: usize = 256;

/// How long who is denied because a store does not answer is told to wait: stores mostly come back within seconds, and
/// nobody knows when.
pub const FAILURE_RETRY: Duration = Duration::from_secs(1);

/// Longest time for which a key can be blocked: the longest period of a rate.
pub const PENALTY_SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// How often a node looks whether any key of a shared store was blocked, in nanoseconds: so long may a block on another
/// node go unnoticed.
pub const BLOCKED_LOOK_NANOS: u64 = 500_000_000;
