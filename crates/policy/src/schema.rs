//! The configuration as it is written: the serde types from which the reference and the JSON Schema are generated.
//!
//! Only types are checked here: [`compile`](crate::compile) checks the values and makes a [`Policy`](crate::Policy).

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_core::bounds::{KEYS_MAX, LOG_ENTRIES_MAX};

use crate::bounds::FORWARDED_ADDRESSES_MAX;

/// A whole configuration. Several files are merged. A domain must be in one file, unless `--merge-domains` is set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Stores for counts, by name. The store `default` always exists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stores: BTreeMap<String, Store>,
    /// How to find the address of the client behind proxies.
    #[serde(skip_serializing_if = "is_default")]
    pub client_address: ClientAddress,
    /// Rules, by domain. A request names its domain.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, Domain>,
}

/// A store for counts: memory of the process, or a Redis or Valkey server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// The URL of the store: `memory:` for the memory of the process, or the URL of a Redis or Valkey server that several
    /// nodes share, in the same form as `--store` of `tidegate serve`. An environment variable like `$REDIS_URL` keeps
    /// passwords out of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "memory:"))]
    pub url: Option<String>,
    /// The number of keys that a store in memory counts exactly, for each kind of algorithm. Keys beyond it may be denied
    /// early.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = KEYS_MAX))]
    pub keys: Option<u64>,
    /// The number of log entries that a store in memory has room for: those of all `sliding_log` and `sliced_window` limits
    /// together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = LOG_ENTRIES_MAX))]
    pub log_entries: Option<u64>,
}

/// How to find the address of the client behind proxies. Without `trusted_hops` or `trusted_networks`, headers are ignored
/// and the peer of the connection is the client.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientAddress {
    /// The number of your own proxies in front: the client is the address at this position of the header, from the right.
    /// Cannot be combined with `trusted_networks`.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(range(min = 0, max = FORWARDED_ADDRESSES_MAX), extend("default" = 0))]
    pub trusted_hops: u32,
    /// The networks of your own proxies, like `10.0.0.0/8`: the client is the first address of the header, from the right,
    /// that is outside of them. The header is ignored unless the peer is inside. Cannot be combined with `trusted_hops`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_networks: Vec<String>,
    /// The header that your proxies set.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "x-forwarded-for"))]
    pub header: AddressHeader,
    /// The prefix length that IPv6 addresses are cut to before they are used in a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128), extend("default" = 64))]
    pub ipv6_prefix: Option<u8>,
    /// The prefix length that IPv4 addresses are cut to before they are used in a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32), extend("default" = 32))]
    pub ipv4_prefix: Option<u8>,
}

/// A header with the addresses of clients and proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// A named set of rules.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Domain {
    /// Defaults for `response` of all rules in the domain.
    #[serde(skip_serializing_if = "is_default")]
    pub response: Response,
    /// The rules. All rules that match a request apply to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// A rule: which requests it matches, the key they are counted by, the limits, and the effect of a denial.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name in responses, metrics and logs. Counts are stored under it. Must be unique in the domain.
    pub name: String,
    /// Conditions that a request must meet. Default: the rule matches every request of the domain.
    #[serde(default, rename = "match", skip_serializing_if = "is_default")]
    pub matching: Match,
    /// The parts of a request that form the key. Each distinct key has its own count. Without a key, all requests share one
    /// count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: OneOrMany<KeyPart>,
    /// What to do with a request that lacks a part of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "skip"))]
    pub missing: Option<Missing>,
    /// The effect of the rule on the requests that it matches.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "limit"))]
    pub action: Action,
    /// The limit, for a rule with one. Use `limits` for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Several limits, such as one for bursts and one for the day. A request must fit all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// The limit to report to Envoy for a rule with `action: block`. Default: no limit is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_as: Option<ReportAs>,
    /// An expression for the number of units that a request takes. Default: the cost in the request, or 1. If the expression
    /// fails, the rule denies the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// An expression for what is counted: `true` for the cost, `false` for nothing, or a number of units. An expression that
    /// uses `response` is evaluated when the response is reported; until then, the request is admitted or denied by
    /// previous counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Whether denied requests count too, so that a client that keeps trying stays denied.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub count_denied: bool,
    /// How long a key stays denied after a denial, whatever its count: a duration like `10m` or `1h30m`, at most `365d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub penalty: Option<String>,
    /// Whether the rule denies requests, only reports what it would deny, or is switched off.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "enforce"))]
    pub mode: Mode,
    /// What to do when a shared store does not answer. Default: the limits continue in the memory of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_store_failure: Option<OnStoreFailure>,
    /// The contents of responses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub response: Response,
    /// The store for the counts of this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default"))]
    pub store: Option<String>,
    /// How closely nodes that share a store agree: `exact` asks the store for each request, `leased` takes slices of the limit
    /// in advance and never exceeds it, `async` decides locally and updates the store afterwards, so that the limit can be
    /// exceeded.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "exact"))]
    pub consistency: Consistency,
    /// On a Redis Cluster, the hash tag for the slot: limits with the same tag and key are kept in one slot and decided
    /// atomically, also those of other rules. Default: each limit has its own slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_tag: Option<String>,
    /// Whether the rule denies a request only if all rules with `quota: true` that match it would deny it.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub quota: bool,
    /// Names of limits that do not apply to a request that this rule matches. A rule with `action: block` or
    /// `action: unlimited` is replaced by its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// Labels of the metrics of this rule.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metrics: Metrics,
    /// Any value, passed to Envoy as dynamic metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    /// The identity of the counts, where it is not the name and key: for rules from files of envoyproxy/ratelimit.
    #[serde(skip)]
    pub(crate) counted_by: Option<CountedBy>,
}

/// The identity of the counts of a rule from a file of envoyproxy/ratelimit: its domain, the unit of its limit and all
/// entries, but not its name, so that adding or renaming rules resets no count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CountedBy {
    pub(crate) unit: &'static str,
    pub(crate) entries: Vec<CountedEntry>,
}

/// An entry on the path to a descriptor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CountedEntry {
    pub(crate) key: String,
    /// The index among the entries, from 0, if several have this key.
    pub(crate) place: Option<u32>,
    /// The pattern whose values share one count. `None` counts each value by itself.
    pub(crate) pattern: Option<String>,
}

/// Conditions of a rule. A request must meet all of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Entries that the descriptor of the request must have.
    #[serde(skip_serializing_if = "is_default")]
    pub entries: Entries,
    /// The HTTP method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Value>,
    /// The requested host, without the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Value>,
    /// The path, without query and fragment. A path that servers interpret differently, like `/x/..%2flogin`, matches if any
    /// of its forms does; `except` excludes it only if it excludes all forms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Value>,
    /// Whether `path`, and the path in the key of the rule, are case-sensitive.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "exact"))]
    pub path_case: PathCase,
    /// Headers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub header: BTreeMap<String, Value>,
    /// Cookies, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cookie: BTreeMap<String, Value>,
    /// Query parameters, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, Value>,
    /// Networks of clients, like `10.0.0.0/8`. The address of the client must be in one of them.
    #[serde(skip_serializing_if = "is_default")]
    pub address: OneOrMany<String>,
    /// An expression that must be true. If it fails, the rule does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// Whether paths are case-sensitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathCase {
    /// Case-sensitive: `/LOGIN` and `/login` are different paths.
    #[default]
    Exact,
    /// Case-insensitive, for servers that ignore the case of paths.
    Ignore,
}

/// Entries of a descriptor: a map of entries that it must contain, or the list of all its entries in order.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Entries {
    /// Entries that the descriptor must contain, among any others.
    Among(BTreeMap<String, Value>),
    /// All entries of the descriptor, in this order. Each item is a map with one entry.
    Exactly(Vec<BTreeMap<String, Value>>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Among(BTreeMap::new())
    }
}

/// A pattern for a value: text in which `*` matches any characters, also none; or a list of such texts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// The pattern. `*` alone matches any value.
    Is(String),
    /// Several patterns. One of them must match.
    OneOf(Vec<String>),
    /// A pattern with exceptions.
    But(But),
}

/// A pattern for a value, with exceptions.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct But {
    /// The pattern that the value must match.
    pub is: String,
    /// Patterns that the value must not match.
    pub except: Arc<[String]>,
}

/// A part of a key: a property of the request that has its own count for each value.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyPart {
    /// The address of the client, cut to the prefix lengths of `client_address`.
    Address,
    /// The HTTP method.
    Method,
    /// The requested host, without the port.
    Host,
    /// The path, decoded.
    Path,
    /// The value of the entry with this key.
    Entry(String),
    /// The value of the entry at this index of the descriptor, from 0: for descriptors in which a key occurs twice.
    EntryAt(u32),
    /// The first value of the header with this name.
    Header(String),
    /// The first value of the cookie with this name.
    Cookie(String),
    /// The first value of the query parameter with this name.
    Query(String),
    /// The result of an expression: text, a whole number, or true or false.
    Expression(String),
}

/// What a rule does with a request that lacks a part of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Ignores the request. A client can then evade the rule by leaving the part out.
    #[default]
    Skip,
    /// Counts all such requests together, as one key.
    Share,
    /// Denies the request.
    Deny,
}

/// The effect of a rule on the requests that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Counts the request and denies it beyond the limit.
    #[default]
    Limit,
    /// Denies the request.
    Block,
    /// Admits the request and reports it as unlimited. Other rules still apply.
    Unlimited,
}

/// How closely nodes that share a store agree on a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Each request is decided by the store.
    #[default]
    Exact,
    /// A node takes slices of the limit in advance and decides by itself. The limit is never exceeded.
    Leased,
    /// A node decides by the counts that it knows, and updates the store afterwards. The limit can be exceeded.
    Async,
}

impl From<Consistency> for tidegate_core::Consistency {
    fn from(written: Consistency) -> tidegate_core::Consistency {
        match written {
            Consistency::Exact => tidegate_core::Consistency::Exact,
            Consistency::Leased => tidegate_core::Consistency::Leased,
            Consistency::Async => tidegate_core::Consistency::Async,
        }
    }
}

impl std::fmt::Display for Consistency {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Consistency::Exact => "exact",
            Consistency::Leased => "leased",
            Consistency::Async => "async",
        })
    }
}

/// The limit that is reported to Envoy for a rule with `action: block`: 0 units in a period. It equals
/// `requests_per_unit: 0` in files of envoyproxy/ratelimit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportAs {
    /// The period of the reported limit, like `minute` or `10s`.
    pub per: String,
    /// The name of the reported limit in `current_limit`. Default: no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A limit: a rate like `100/minute`, or an algorithm with its parameters.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Limit {
    /// A rate. `100/minute` is `gcra` with a burst of 100.
    Rate(String),
    /// An algorithm with its parameters.
    Numbers(Box<Numbers>),
}

impl Limit {
    /// Returns its own name, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Limit::Numbers(numbers) => numbers.name.as_deref(),
            Limit::Rate(_) => None,
        }
    }

    /// Returns the store that it names, if any.
    pub(crate) fn store(&self) -> Option<&str> {
        match self {
            Limit::Numbers(numbers) => numbers.store.as_deref(),
            Limit::Rate(_) => None,
        }
    }
}

/// An algorithm with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Numbers {
    /// The name in `RateLimit-Policy` and in `current_limit` of Envoy. Default: the name of the rule, but no name for Envoy if
    /// `entries` of the rule is a list, as in envoyproxy/ratelimit. Limits of one rule must have different names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The algorithm: `gcra`, `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_counter`,
    /// `sliced_window` or `calendar_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "gcra"))]
    pub algorithm: Option<String>,
    /// Units and period, like `100/minute` or `5/10s`; or the units as a number, with `per_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateText>,
    /// The period of `rate` in nanoseconds, if `rate` is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_ns: Option<u64>,
    /// The burst of `gcra`: units that an idle key may take at once. Default: the units of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The capacity of `token_bucket` and `leaky_bucket`: units that an idle key may take at once. Default: the units of the
    /// rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// Units in a window, for the algorithms with windows, instead of `rate`. Needs `window_ns` or `period`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The length of the window in nanoseconds, with `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// The number of slices of a `sliced_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 60))]
    pub slices: Option<u64>,
    /// Whether windows of `fixed_window` start at a different time for each key, so that not all keys reset at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub stagger: Option<bool>,
    /// The period of a `calendar_window` with `limit`: `day`, `week`, `month` or `year`. With `rate` it is part of the rate, as
    /// in `10000/month`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// The time zone of a `calendar_window`: a name of the IANA database like `Europe/Berlin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "UTC"))]
    pub time_zone: Option<String>,
    /// The start of a `calendar_window`: `HH:MM` of a day, the weekday of a week, the day 1 to 31 of a month (the last day of
    /// shorter months), `MM-DD` of a year. Default: `00:00`, `monday`, `1` or `01-01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// The store for the counts of this limit. Default: the store of the rule. A local limit in memory before a shared one
    /// saves the shared store the requests that are denied locally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// The start of a calendar window.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Anchor {
    /// The day of a month.
    Day(u64),
    /// A time of day, weekday, day of the month or date, like `06:00`, `monday`, `15` or `04-01`.
    Text(String),
}

impl std::fmt::Display for Anchor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Anchor::Day(day) => day.fmt(formatter),
            Anchor::Text(text) => formatter.write_str(text),
        }
    }
}

/// A rate as text, or its units as a number.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RateText {
    /// Units and period, like `100/minute`.
    Text(String),
    /// Units in each period of `per_ns`.
    Units(u64),
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Counts and denies.
    #[default]
    Enforce,
    /// Counts and reports what it would deny, but denies nothing.
    Shadow,
    /// Does not count and does not deny.
    Off,
}

/// What to do with a request when the store does not answer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// Admits the request.
    Allow,
    /// Denies the request, with status 503 over HTTP.
    Deny,
    /// Decides in the memory of the process: with a share of the limits of the rule, which continue from the last state that
    /// the store reported, or with another limit, which starts empty.
    Local(Local),
}

/// The limit that applies while the store does not answer: a rate like `500/hour`, an algorithm with its parameters, or a
/// share of the limits of the rule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Local {
    /// A share of the limits of the rule.
    Share(Share),
    /// Another limit.
    Limit(Limit),
}

/// A share of the limits of the rule, continued from the same share of the last state that the store reported.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// `auto` for the limits divided by the number of nodes that use the store, or a fixed share like `1/4`.
    pub share: String,
}

/// The contents of the responses of a rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Response {
    /// The headers that report limits. Default: `standard` over HTTP, `none` over the protocol of Envoy, which adds its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// Whether responses hide the limit from clients: no numbers, no names and no `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub hidden: Option<bool>,
    /// Whether a denial has a body of type `application/problem+json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub problem: Option<bool>,
    /// The maximum of a random time that is added to `Retry-After`, so that clients do not all retry at once: a duration like
    /// `5s`, at most `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_jitter: Option<String>,
}

/// A family of headers that report limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Headers {
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11.
    Standard,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    Draft03,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last in seconds from now.
    Legacy,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last as Unix time, as on GitHub.
    LegacyEpoch,
    /// No header but `Retry-After`.
    None,
}

/// Labels of the metrics of a rule. The number of series is bounded; values beyond it are counted together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Keys of entries. Each value of these entries has its own series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_entries: Vec<String>,
    /// The name of the rule in metrics of envoyproxy/ratelimit, one item for each level. Default: derived from `entries` if
    /// that is a list, else the name of the rule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
}

/// One value, or a list of values.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One value.
    One(T),
    /// A list of values.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// Returns all values.
    pub fn as_slice(&self) -> &[T] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> OneOrMany<T> {
        OneOrMany::Many(Vec::new())
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
