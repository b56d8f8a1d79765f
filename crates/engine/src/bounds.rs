//! Every bound of the crate in one place, each with its reason.

use std::time::Duration;

use crate::log_limiter::LogRate;

/// Most descriptors in a request: each is looked up separately, and all are answered in one reply. Envoy configurations
/// with many actions send more than 64.
pub const DESCRIPTORS_MAX: usize = 128;

/// Most entries in a descriptor: matching looks at each of them.
pub const ENTRIES_MAX: usize = 64;

/// Most limits that are charged for one request, over all its descriptors: each takes a lock and is answered.
pub const CHARGES_MAX: usize = 512;

/// One bound for costs that requests state and for costs that expressions of rules compute.
pub use tidegate_policy::bounds::COST_MAX;

/// The longest text that an expression in a key reads.
pub(crate) use tidegate_policy::bounds::EXPRESSION_TEXT_MAX;

const _: () = assert!(COST_MAX.checked_mul(CHARGES_MAX as u64).is_some(), "a sum over all limits must not overflow");

/// Most bytes of a key that a caller brings with its limit or its permit: one more byte keeps it apart from the keys of
/// rules.
pub const OWN_KEY_BYTES_MAX: usize = tidegate_core::bounds::KEY_BYTES_MAX - 1;

/// Most keys of a batch: as many as the memory store decides together.
pub use tidegate_core::bounds::BATCH_KEYS_MAX;

/// Bytes for keys that a batch keeps allocated when it is cleared: full batches of common keys fit, and a connection
/// that once sent long ones frees the rest.
pub const BATCH_ROOM_BYTES: usize = 2048;

/// Most shards of counters: each takes two cache lines for every rule, and more threads than this seldom contend.
pub const COUNTER_SHARDS_MAX: usize = 16;

/// Most series that metrics keep for values of entries, over all rules: further values are counted together.
pub const SERIES_MAX: usize = 1_000;

/// Most rules whose counts and modes are kept after a configuration without them: names that are new in each
/// configuration must not pile up.
pub const RULES_GONE_MAX: usize = 10_000;

/// Longest value of an entry, in bytes, that gets a series of its own: metrics repeat it on each page, several times.
pub const SERIES_VALUE_BYTES_MAX: usize = 256;

/// Time to wait for a client that is denied because a store does not answer: most stores are back within seconds, and
/// nobody knows when.
pub const FAILURE_RETRY: Duration = Duration::from_secs(1);

/// Most permits of a key: each is an entry of one sorted set in Redis, whose commands are still fast then.
pub const PERMIT_LIMIT_MAX: u64 = 1_000_000;

/// Shortest lease of a permit: a shorter one would end before its holder has the answer.
pub const PERMIT_LEASE_MIN: Duration = Duration::from_millis(1);

/// Longest lease of a permit that can be configured. The permit of a dead holder stays taken for so long; a holder that
/// works longer renews.
pub const PERMIT_LEASE_MAX: Duration = Duration::from_secs(86_400);

/// Longest lease for callers, unless configured otherwise: permits that a caller hoards are free again by then.
pub const PERMIT_LEASE_CEILING: Duration = Duration::from_secs(3_600);

/// Most parts in which the share of an address is expressed: one such part of all permits is still a few hundred.
pub const PERMIT_SHARE_PARTS_MAX: u32 = 1_000;

/// Bytes of permits whose release is to be retried, for each store: some ten thousand with common keys. The leases of
/// further ones end by themselves.
pub const RELEASES_BYTES_MAX: usize = 4 << 20;

/// Longest name of a permit, in bytes: 128 bits in hex have 32 letters, a UUID has 36.
pub const PERMIT_ID_BYTES_MAX: usize = 64;

/// Time to wait for a client that finds no room for a permit: with so many permits, leases end all the time.
pub const PERMIT_ROOM_RETRY: Duration = Duration::from_secs(1);

/// Longest time for which a request may queue: a client that must wait longer should ask again.
pub const SHAPE_WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Longest time for which a key can be blocked, in seconds: the longest period of a rate.
pub const PENALTY_SECONDS_MAX: u64 = 100 * 365 * 86_400;

/// Pause before a connection that is being made is checked again.
pub const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// How often a node checks whether any key of a shared store was blocked, in nanoseconds: a block on another node takes
/// effect within twice this time.
pub const BLOCKED_LOOK_NANOS: u64 = 500_000_000;

/// How long a denial by a shared store is reused at most. So a reset, a refund or a raised limit on another node takes
/// effect within this time.
pub const DENIAL_KNOWN_MAX: Duration = Duration::from_secs(1);

/// Denials that are remembered for each shared store: about 10 MB. A flood of more keys only asks the store more often.
pub const DENIALS_MAX: usize = 1 << 16;

/// Longest key, in bytes, that leases or replicas are kept for. Longer ones are decided exactly, so that a flood of
/// long keys fills no memory.
pub const EASED_KEY_BYTES_MAX: usize = 256;

/// Keys of each shared store that leases are kept for. With two leases and a denial a key takes about 700 bytes, of
/// which its name takes 100: less than 50 MB for all. Further keys are decided exactly.
pub const LEASED_KEYS_MAX: usize = 1 << 16;

/// Longest lease. The units leased by a node that died are lost until they would have come back, and units that others
/// reset still count as spent: this must end soon, even if the limit is per day.
pub const LEASE_MAX: Duration = Duration::from_secs(10);

/// Shortest lease: five times the time budget of a call, or it could end before it has arrived. A limit that needs
/// shorter ones is decided exactly.
pub const LEASE_MIN: Duration = Duration::from_millis(50);

/// Divisor of a bucket's span for the longest lease. Leased units count as spent at the lease's end, so after idle
/// times this part of the burst becomes available later.
pub const LEASE_SHARE: u64 = 6;

/// Divisor of a bucket's span for the shortest lease. Even for a key that spends fast that is enough for many requests,
/// and it takes little of the burst.
pub const LEASE_SHARE_MIN: u64 = 400;

/// Divisor of a limit for the largest slice: four nodes can hold slices, and a node that died loses little.
pub const SLICE_SHARE: u64 = 4;

/// Units that a lease should last for: each call to the store then serves so many requests, unless the slice is kept
/// small.
pub const SLICE_USES: u64 = 64;

/// Divisor of a limit's rate below which a key spends slowly on a node: that many nodes can, and the bucket stays full.
pub const SLOW_SHARE: u64 = 16;

/// First slice of a key without history. Most keys need no more.
pub const SLICE_FIRST_MAX: u64 = 16;

/// Factor by which slices grow or shrink in one step: an estimate from a moment's rate may be wrong.
pub const SLICE_STEP: u64 = 8;

/// Most sizes that are tried in one call: repeated halves, down to the smallest slice that is worth a call.
pub const SLICE_SIZES_MAX: usize = 8;

/// Time that an empty bucket takes to regain the smallest slice. Nodes ask this often for a denied key, rather than for
/// each unit; and a unit may be handed out so late.
pub const SLICE_WAIT: Duration = Duration::from_millis(250);

/// The smallest slice of a slow limit, as far as it comes back before a denial is forgotten: otherwise nodes would ask
/// for each unit.
pub const SLICE_LEAST: u64 = 8;

/// Divisor of a bucket's span for the time to regain the smallest slice, at most: the bucket must not fill up
/// meanwhile.
pub const SLICE_WAIT_SHARE: u64 = 16;

/// Most calls that a request waits for to get its share of a lease, before it asks the store itself.
pub const LEASE_ROUNDS_MAX: usize = 4;

/// How long a request waits for another one's lease from a store without a time budget: the longest budget.
pub(crate) const LANDING_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause between pushes of asynchronously admitted units. For this time nodes do not know of each other's units; ten
/// calls a second for each active key are few for a store that handles a hundred thousand.
pub const SYNC_PAUSE: Duration = Duration::from_millis(100);

/// Divisor of a limit's remaining units: a node that has admitted more than this part of them asynchronously pushes at
/// the next [`SYNC_PAUSE`], otherwise once a second. Several nodes together stay below what remains.
pub const SYNC_SHARE: u64 = 64;

/// Keys of each shared store that replicas are kept for, at about 300 bytes each. Further keys are decided exactly.
pub const REPLICAS_MAX: usize = 1 << 16;

/// How long an unused replica is kept.
pub const REPLICA_IDLE_MAX: Duration = Duration::from_secs(10);

/// How long a replica decides after its first push without an answer, which is a few pushes: after that its store is
/// asked, and if that fails, the failure choice of the rule decides.
pub const REPLICA_ALONE_MAX: Duration = Duration::from_secs(3);

/// How often a node announces itself to the others that use a store.
pub const NODE_PAUSE: Duration = Duration::from_secs(1);

/// How long an announcement lasts: two may be lost before a node counts as gone.
pub const NODE_LEASE: Duration = Duration::from_secs(3);

/// Calls that background work has in progress at the same time: far fewer than a connection takes.
pub const BACKGROUND_CALLS_MAX: usize = 256;

/// Log lines about failures of one store: often enough to be noticed, and too few to fill the log.
pub const STORE_FAILURE_LINES: LogRate = LogRate { lines: 1, period: Duration::from_secs(10) };

/// Most limits in the headers of one response: proxies refuse heads of more than some kilobytes. The strictest are
/// shown.
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

/// Bytes of the smallest ring that denials are kept in: several of the longest entries. With less memory for all, threads
/// share rings.
pub const EXPLAIN_RING_BYTES_MIN: usize = 128 << 10;

/// Divisor of a ring's bytes for the table of its latest entries, in which a key that is denied again is found.
pub const EXPLAIN_RECENT_SHARE: usize = 16;

/// Most limits in the explanation of one denial, the strictest: few rules deny a request at the same time.
pub const EXPLAIN_LIMITS_MAX: usize = 8;

/// Most rules in an explanation of a request. A domain with more shows those that come nearest to matching.
pub const EXPLAIN_RULES_MAX: usize = 100;

/// Rules that are compared with a request before other requests of the thread have their turn: about 100 µs.
pub const EXPLAIN_RULES_AT_ONCE: usize = 1_000;
