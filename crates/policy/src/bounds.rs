//! Bounds of configurations and JSON, each with its reason.

use std::time::Duration;

use tidegate_core::bounds::KEY_BYTES_MAX;

/// Maximum length of the name of a domain, rule or limit in bytes. Three names precede each key, and all of it must fit into
/// 4,096 bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// Maximum length of a key in bytes that is stored as it is. Longer keys are counted under their digest: no store keeps names
/// of many kilobytes, and a longer value must not evade a limit.
pub const KEY_BYTES_KEPT_MAX: usize = 1000;

/// Bytes for the length of a name in a namespace.
const NAME_LENGTH_BYTES: usize = 2;

const _: () = assert!(
    1 + 3 * (NAME_LENGTH_BYTES + NAME_BYTES_MAX) + KEY_BYTES_KEPT_MAX <= KEY_BYTES_MAX,
    "the longest names leave room for a key after the byte for the purpose"
);

/// Maximum number of rules of all domains. A rule takes about a kilobyte, and a reload reads all of them.
pub const RULES_MAX: usize = 100_000;

/// Maximum number of domains. Each has its own index; the largest configurations have a domain for each tenant.
pub const DOMAINS_MAX: usize = 10_000;

/// Maximum number of stores. Each has its own memory.
pub const STORES_MAX: usize = 16;

/// Maximum number of limits of a rule: a request charges all of them at once, and a transaction holds 16 charges.
pub const LIMITS_MAX: usize = 8;

/// Maximum number of parts of a key. All of them are looked up for each request.
pub const KEY_PARTS_MAX: usize = 16;

/// Maximum number of conditions of one kind (entries, headers and so on) of a rule: in the worst case, a request is compared
/// with each of them.
pub const CONDITIONS_MAX: usize = 32;

/// Maximum length of a pattern or value in bytes: longer than any path or token that is written by hand.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// Maximum number of `*` in a pattern: each may search the whole value once.
pub const STARS_MAX: usize = 16;

/// Maximum number of values or exceptions in one condition: as many as there may be rules, because a list can replace them.
pub const VALUES_MAX: usize = 100_000;

/// Maximum number of values and patterns of all rules: a reload holds them in addition to the current ones.
pub const VALUES_TOTAL_MAX: usize = 1_000_000;

/// Maximum number of networks in a list: a large cloud has about as many, and a lookup is still fast.
pub const NETWORKS_MAX: usize = 10_000;

/// Maximum number of names in `replaces` and in `metrics.by_entries`: each is looked up in every request that matches.
pub const NAMES_MAX: usize = 16;

/// Maximum size of the metadata of a rule as JSON in bytes: it is sent to Envoy with each response.
pub const METADATA_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a penalty: a year is as good as forever, and a wrong unit is noticed.
pub const PENALTY_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Maximum jitter of `Retry-After`: beyond it, clients that have to wait a second would have given up.
pub const RETRY_JITTER_MAX: Duration = Duration::from_secs(3600);

/// Maximum length of a host name in bytes: the maximum of DNS.
pub const HOST_BYTES_MAX: usize = 255;

/// Maximum number of addresses of `X-Forwarded-For` or `Forwarded` that are read: nobody has more proxies, and a client must
/// not cause work with a long list.
pub const FORWARDED_ADDRESSES_MAX: usize = 64;

/// Maximum length of an expression in bytes: evaluation is linear in it.
pub const EXPRESSION_BYTES_MAX: usize = 1024;

/// Maximum nesting of brackets and operators in an expression: parser and interpreter are recursive.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// Maximum length of a text in an expression in bytes: comparing and searching are linear in it.
pub const EXPRESSION_TEXT_MAX: usize = 8192;

/// Maximum number of additions in an expression: each may copy all texts so far, about a megabyte in total.
pub const EXPRESSION_JOINS_MAX: usize = 16;

/// Maximum memory of a regular expression in bytes: matching is linear in its size.
pub const REGEX_BYTES_MAX: usize = 64 << 10;

/// Maximum number of entries of a map in an expression, such as headers: the map is made for each request.
pub const EXPRESSION_MAP_MAX: usize = 256;

/// Maximum number of units of a request to rules: as its cost, as the result of an expression, or as a refund by an
/// administrator. Every JSON parser keeps whole numbers up to this exactly, and a sum over all limits of a request fits into
/// 64 bits. A larger `hits_addend` of Envoy is refused. The HTTP API applies it to limits of requests too. `CL.THROTTLE`,
/// `tidegate decide` and the engine's calls for limits of callers accept any quantity, because they add nothing up.
pub const COST_MAX: u64 = 1 << 53;

/// Maximum number of fields of a JSON object and of items of a list: the maximum number of descriptors of a request, and twice
/// that of entries of a descriptor. The search for a field is linear.
pub const JSON_FIELDS_MAX: usize = 128;

/// Maximum number of characters of a value that an error repeats, so that messages stay short.
pub const QUOTE_CHARS_MAX: usize = 60;

/// Minimum number of units of a limit that can be leased: several nodes must get two each.
pub const LEASED_UNITS_MIN: u64 = 8;

/// Minimum time that a bucket takes to refill if it can be leased: a lease lasts a small part of it, but longer than a few
/// calls.
pub const LEASED_SPAN_MIN: Duration = Duration::from_millis(300);

/// Minimum length of a window that can be leased: a lease ends with it.
pub const LEASED_WINDOW_MIN: Duration = Duration::from_millis(50);

/// Maximum number of parts that a limit is divided into while its store does not answer. In a larger fleet, each node has one
/// unit.
pub const SHARE_PARTS_MAX: u64 = 1_000;

/// Keys of a store for each key that is expected to reach a limit that keeps a log: `check` warns if there is room for fewer
/// full logs.
pub const KEYS_A_FULL_LOG: usize = 10;

/// Maximum number of values that the description of a condition lists.
pub const MISMATCH_VALUES_MAX: usize = 8;

/// Maximum number of characters of a condition, or of what a request has in its place, in an explanation.
pub const MISMATCH_CHARS_MAX: usize = 200;
