//! Every bound of the crate in one place, each with its reason.

use std::time::Duration;

use crate::log_limiter::LogRate;

/// Most descriptors in a request: each of them is looked up by itself, and all are answered in one reply. Configurations of
/// Envoy with many actions send more than 64.
pub const DESCRIPTORS_MAX: usize = 128;

/// Most entries in a descriptor: matching looks at each of them.
pub const ENTRIES_MAX: usize = 64;

/// Most limits that one request is held against, over all its descriptors: each of them takes a lock and is answered.
pub const CHARGES_MAX: usize = 512;

/// One bound for what requests say and for what expressions of rules make of it.
pub use tidegate_policy::bounds::COST_MAX;

/// The longest text that an expression in a key looks at.
pub(crate) use tidegate_policy::bounds::EXPRESSION_TEXT_MAX;

const _: () = assert!(COST_MAX.checked_mul(CHARGES_MAX as u64).is_some(), "a sum over all limits must not overflow");

/// Most bytes of a key that a caller brings with its limit or its permit: a byte stands before it that keeps it apart from
/// the keys of rules.
pub const OWN_KEY_BYTES_MAX: usize = tidegate_core::bounds::KEY_BYTES_MAX - 1;

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

/// Most permits of a key: each is an entry of one sorted set in Redis, which its own commands still handle in no time.
pub const PERMIT_LIMIT_MAX: u64 = 1_000_000;

/// Shortest lease of a permit: a shorter one would be over before its holder hears of it.
pub const PERMIT_LEASE_MIN: Duration = Duration::from_millis(1);

/// Longest lease of a permit that can be allowed. A holder that died keeps its place for so long; who works longer renews.
pub const PERMIT_LEASE_MAX: Duration = Duration::from_secs(86_400);

/// Longest lease that callers get unless it is said: what somebody hoards is free again by then.
pub const PERMIT_LEASE_CEILING: Duration = Duration::from_secs(3_600);

/// Most parts that the share of an address is counted in: one such part of the room is still a few hundred permits.
pub const PERMIT_SHARE_PARTS_MAX: u32 = 1_000;

/// Bytes of permits whose release is to be repeated, for each store: some ten thousand with common keys. Of those beyond it the
/// lease ends by itself.
pub const RELEASES_BYTES_MAX: usize = 4 << 20;

/// Longest name of a permit: 128 bits in hex have 32 letters, a UUID has 36.
pub const PERMIT_ID_BYTES_MAX: usize = 64;

/// How long who finds no room for a permit is told to wait: leases end all the time where there are so many.
pub const PERMIT_ROOM_RETRY: Duration = Duration::from_secs(1);

/// Longest time that a caller says it would wait for its turn: who would wait longer is better off asking again.
pub const SHAPE_WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Longest time for which a key can be blocked: the longest period of a rate.
pub const PENALTY_SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// Pause before a connection that is being made is looked at again.
pub const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// How often a node looks whether any key of a shared store was blocked, in nanoseconds: twice so long may a block
/// on another node go unnoticed.
pub const BLOCKED_LOOK_NANOS: u64 = 500_000_000;

/// How long a denial by a shared store answers for it at most. So a reset, a refund or a raised limit on another node is
/// seen within this time.
pub const DENIAL_KNOWN_MAX: Duration = Duration::from_secs(1);

/// Denials that are remembered of each shared store: about 10 MB of them. Who floods with more keys only asks the store
/// more often.
pub const DENIALS_MAX: usize = 1 << 16;

/// Bytes of a key that leases or replicas are kept for. Longer ones are decided exactly: who floods with long keys fills no
/// memory with them.
pub const EASED_KEY_BYTES_MAX: usize = 256;

/// Keys of each shared store that leases are kept for. With two leases and a denial a key takes about 700 bytes, of which its
/// name takes 100: all of them take less than 50 MB. Keys beyond them are decided exactly.
pub const LEASED_KEYS_MAX: usize = 1 << 16;

/// Longest lease. What a node that died had leased is lost until it would have come back, and what others reset is
/// still spent: that must end soon, even if the limit is per day.
pub const LEASE_MAX: Duration = Duration::from_secs(10);

/// Shortest lease: five times the budget of a call, or it could be over before it has arrived. A limit that needs shorter
/// ones is decided exactly.
pub const LEASE_MIN: Duration = Duration::from_millis(50);

/// The share of a bucket's span that a lease lasts at most. Leased units count as spent at the lease's end, so after idle
/// times this share of the burst comes later.
pub const LEASE_SHARE: u64 = 6;

/// The share of a bucket's span that a lease lasts at least. Of a key that spends fast even that is enough for many
/// requests, and it takes little of the burst.
pub const LEASE_SHARE_MIN: u64 = 400;

/// The share of a limit that one slice is at most: four nodes can hold some, and a node that died takes little along.
pub const SLICE_SHARE: u64 = 4;

/// Units that a lease should be long enough for: each call to the store then stands for so many requests, less what the
/// slice is kept small for.
pub const SLICE_USES: u64 = 64;

/// The share of a limit's rate up to which a key spends slowly on a node: as many nodes can, and the bucket stays full.
pub const SLOW_SHARE: u64 = 16;

/// First slice of a key that nothing is known of. Most keys need no more.
pub const SLICE_FIRST_MAX: u64 = 16;

/// How much slices grow or shrink at once: a guess from a moment's rate may be wrong.
pub const SLICE_STEP: u64 = 8;

/// Sizes that are asked for in one call: halves of halves, and the least one that is worth a call.
pub const SLICE_SIZES_MAX: usize = 8;

/// How long a bucket that is used up takes to get the least slice back. Nodes ask this often for a key that is denied,
/// rather than for each unit; and so late a unit may be handed out.
pub const SLICE_WAIT: Duration = Duration::from_millis(250);

/// The least slice of a slow limit, as far as it comes back before a denial is forgotten: nodes would ask for each unit.
pub const SLICE_LEAST: u64 = 8;

/// The share of a bucket's span that it takes to get the least slice back, at most: it must not fill up meanwhile.
pub const SLICE_WAIT_SHARE: u64 = 16;

/// Calls that a request waits for at most to get its share of a lease, before it asks the store itself.
pub const LEASE_ROUNDS_MAX: usize = 4;

/// How long a request waits for another one's lease of a store that names no budget: as long as the longest budget.
pub(crate) const LANDING_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause between pushes of what was admitted asynchronously. So long nodes do not know of each other's units; ten calls
/// a second for each key in use are few for a store that does a hundred thousand.
pub const SYNC_PAUSE: Duration = Duration::from_millis(100);

/// The share of what is left of a limit that a node lets pass asynchronously before it hurries to push: below it, it does so
/// once a second. Several nodes together stay below what is left.
pub const SYNC_SHARE: u64 = 64;

/// Keys of each shared store that replicas are kept for, at some 300 bytes each. Keys beyond them are decided exactly.
pub const REPLICAS_MAX: usize = 1 << 16;

/// How long a replica that nobody asks is kept.
pub const REPLICA_IDLE_MAX: Duration = Duration::from_secs(10);

/// How long a replica decides after the first of the pushes that got no answer, a few of them: after that its store is
/// asked, and if that fails, the rule chooses.
pub const REPLICA_ALONE_MAX: Duration = Duration::from_secs(3);

/// How often a node announces itself to the others that use a store.
pub const NODE_PAUSE: Duration = Duration::from_secs(1);

/// How long an announcement lasts: two may be lost before a node is taken for gone.
pub const NODE_LEASE: Duration = Duration::from_secs(3);

/// Calls that work in the background has under way at a time: far fewer than a connection takes.
pub const BACKGROUND_CALLS_MAX: usize = 256;

/// Lines about failures of one store: often enough to be noticed, and a log that nobody fills by asking.
pub const STORE_FAILURE_LINES: LogRate = LogRate { lines: 1, period: Duration::from_secs(10) };

/// Most limits that one answer's headers tell of: proxies refuse heads of more than some kilobytes. The strictest are
/// told.
pub const POLICIES_TOLD_MAX: usize = 16;

/// Memory for the heaviest keys of all rules. A rule with a key takes 12 kB for each serving thread and for its hour, and up to 150 kB
/// with long keys and denials. Rules whose first request comes when all is taken are not tracked.
pub const TOP_BYTES_MAX: usize = 64 << 20;

/// Shards that the threads of a rule count keys in. Each takes memory when a thread first counts in it, and more threads than this
/// seldom meet.
pub(crate) const TOP_SHARDS: usize = 16;

/// Shards that a thread tries to count a key in: its own may be locked by a reader.
pub(crate) const TOP_SHARDS_TRIED: usize = 4;

/// Most keys that are read of each table: more than any answer shows.
pub(crate) const TOP_KEYS_READ_MAX: usize = 128;

/// Most keys of a rule in one answer.
pub const TOP_KEYS_MAX: usize = 100;

/// Most rules in one answer about the heaviest keys, the busiest first: with all of them it could be megabytes.
pub const TOP_RULES_MAX: usize = 100;

/// Most keys of a rule that a node publishes.
pub(crate) const TOP_KEYS_PUBLISHED: usize = 64;

/// Most notices about the heaviest keys of a node: 256 kB in all.
pub(crate) const TOP_NOTICES_MAX: usize = 4;

/// Most nodes whose heaviest keys are in one answer: their notices take up to 16 MB.
pub(crate) const TOP_NODES_MAX: usize = 64;

/// How often a node publishes its heaviest keys.
pub const TOP_PAUSE: Duration = Duration::from_secs(5);

/// How long they count for others: two publications may fail.
pub const TOP_TTL: Duration = Duration::from_secs(16);

/// How often a node looks for notices of others. It bounds how late a node learns of a block.
pub const NOTICES_PAUSE: Duration = Duration::from_secs(1);

/// How long blocks of a node that is gone stay published: other nodes take them over by then.
pub const BLOCKS_TTL: Duration = Duration::from_secs(30);

/// Most blocks and penalties that a node lists, at about 300 bytes each. Beyond it, penalties that end soon are not listed; they stay
/// in force.
pub const BLOCKS_LISTED_MAX: usize = 4_096;

/// Most blocks and penalties in one answer.
pub const BLOCKS_TOLD_MAX: usize = 1_000;

/// Most lifted keys that a node remembers, so that blocks of them in notices of other nodes do not count.
pub(crate) const LIFTED_MAX: usize = 1_024;
