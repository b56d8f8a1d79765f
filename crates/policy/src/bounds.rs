//! Every bound of what `compile` and `json` accept, each with its reason.

use std::time::Duration;

use tidegate_core::bounds::KEY_BYTES_MAX;

/// Longest name of a domain, a rule or a limit, in bytes. Three of them stand before each key, and a key of 4,096 bytes
/// needs room for what it is about.
pub const NAME_BYTES_MAX: usize = 1024;

/// Longest key of a rule or of a limit that a request brings, in bytes, that is kept as it is. Longer ones are counted under
/// their digest: no store keeps names of many kilobytes, and nobody escapes a limit by sending a longer value.
pub const KEY_BYTES_KEPT_MAX: usize = 1000;

/// Bytes of a name's length in a namespace.
const NAME_LENGTH_BYTES: usize = 2;

const _: () = assert!(
    1 + 3 * (NAME_LENGTH_BYTES + NAME_BYTES_MAX) + KEY_BYTES_KEPT_MAX <= KEY_BYTES_MAX,
    "the longest names leave room for a key, after the byte that tells what is counted"
);

/// Most rules of all domains together. A rule takes about a kilobyte, and a reload reads all of them.
pub const RULES_MAX: usize = 100_000;

/// Most domains: each has an index of its own, and a tenant each is what the largest have.
pub const DOMAINS_MAX: usize = 10_000;

/// Most stores: each has its own memory.
pub const STORES_MAX: usize = 16;

/// Most limits of a rule: a request charges all of them at once, and a transaction holds 16 charges.
pub const LIMITS_MAX: usize = 8;

/// Most parts of a key: all of them are looked up for each request, and stand in a key of 4,096 bytes.
pub const KEY_PARTS_MAX: usize = 16;

/// Most conditions of one kind (entries, headers and so on) of a rule: a request that meets all but the last is held
/// against each of them.
pub const CONDITIONS_MAX: usize = 32;

/// Longest pattern or value to be matched, in bytes: longer than any path or token that is matched by hand.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// Most stars in a pattern: each may search the whole value once.
pub const STARS_MAX: usize = 16;

/// Most values that `match` lists for one condition, or excepts from it: as many as there may be rules, for who keeps a
/// list instead.
pub const VALUES_MAX: usize = 100_000;

/// Most values and patterns of all rules together: a reload holds them beside those in use.
pub const VALUES_TOTAL_MAX: usize = 1_000_000;

/// Most networks of a list: a large cloud has about as many, and a lookup stays a short search.
pub const NETWORKS_MAX: usize = 10_000;

/// Most names in `replaces` and in `metrics.by_entries`: each is looked for in every request that the rule applies to.
pub const NAMES_MAX: usize = 16;

/// Longest metadata of a rule as JSON, in bytes: Envoy is sent it with each answer.
pub const METADATA_BYTES_MAX: usize = 64 << 10;

/// Longest penalty: a year is as good as for ever, and a slip in the unit is caught.
pub const PENALTY_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Longest jitter of `Retry-After`: beyond it, clients that were told to wait a second would be gone.
pub const RETRY_JITTER_MAX: Duration = Duration::from_secs(3600);

/// Longest host name that is looked at, in bytes: DNS knows none that is longer.
pub const HOST_BYTES_MAX: usize = 255;

/// Most addresses of `X-Forwarded-For` or `Forwarded` that are walked over: nobody has more proxies, and a client must
/// not make each request walk a long list.
pub const FORWARDED_ADDRESSES_MAX: usize = 64;

/// Longest expression, in bytes: evaluating one is linear in its length.
pub const EXPRESSION_BYTES_MAX: usize = 1024;

/// Deepest nesting of brackets and operators in an expression: parser and interpreter call themselves for each level.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// Longest text that an expression sees or makes, in bytes: comparing and searching are linear in it.
pub const EXPRESSION_TEXT_MAX: usize = 8192;

/// Most additions in an expression: each may copy all texts so far, which makes about a megabyte at the most.
pub const EXPRESSION_JOINS_MAX: usize = 16;

/// Most memory of a regular expression, in bytes: matching is linear in its size too.
pub const REGEX_BYTES_MAX: usize = 64 << 10;

/// Most entries of a map that an expression sees, such as headers: the map is made anew for each request.
pub const EXPRESSION_MAP_MAX: usize = 256;

/// Most units that a request to rules can ask for: it says so, an expression makes them, an administrator gives them back.
/// Up to this every reader of JSON keeps whole numbers as they are, and a sum over all limits of a request stays below 64
/// bits. Envoy's `hits_addend` can carry more, and is refused then. The HTTP API holds those to it who bring a limit too.
/// CL.THROTTLE takes any quantity, as redis-cell does, and so do `tidegate decide` and the engine's own calls for limits
/// that callers bring: nothing is summed up there.
pub const COST_MAX: u64 = 1 << 53;

/// Most fields of one JSON object and most items of one list: as many as a request may have descriptors, and twice the entries
/// of a descriptor. Finding a field looks at all of them.
pub const JSON_FIELDS_MAX: usize = 128;

/// Most characters of a value that an error repeats, so that it stays short whatever came in.
pub const QUOTE_CHARS_MAX: usize = 60;

/// Units that a limit has at least for slices of it to be leased: several nodes must find two each.
pub const LEASED_UNITS_MIN: u64 = 8;

/// How long a bucket takes to fill up at least for that: a lease lasts a small part of it, and longer than a few calls.
pub const LEASED_SPAN_MIN: Duration = Duration::from_millis(300);

/// The shortest window for that: a lease ends with it.
pub const LEASED_WINDOW_MIN: Duration = Duration::from_millis(50);

/// Most parts that a limit is divided into while its store does not answer: fleets of more nodes than that let every node
/// have one unit.
pub const SHARE_PARTS_MAX: u64 = 1_000;

/// Keys of a store for each one that is taken to use up a limit that keeps a log: with room for fewer full logs, `check`
/// warns.
pub const KEYS_A_FULL_LOG: usize = 10;
