//! The configuration as people write it: the one serde schema, from which its reference and its JSON Schema are made.
//!
//! Nothing here is checked beyond its type: `compile` turns it into a [`Policy`](crate::Policy) or says what is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A whole configuration. Several files are merged; each domain lives in one of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where counts are kept, by name. The store `default` is there without being named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stores: BTreeMap<String, Store>,
    /// How the address of the client is found.
    #[serde(skip_serializing_if = "is_default")]
    pub client_address: ClientAddress,
    /// Rules, by the domain that a request names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, Domain>,
}

/// A place that keeps counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// `memory:`, the memory of this process, or the URL of a Redis or Valkey for all nodes that share it, as `--store` of
    /// `tidegate serve` takes it: the page about shared stores lists the forms. Or the variable of the environment that
    /// holds it, like `$REDIS_URL`, so that no password stands in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "memory:"))]
    pub url: Option<String>,
    /// How many keys of each kind of algorithm are counted exactly; further ones are counted too strictly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// How many entries all sliding logs and sliced windows together can keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_entries: Option<u64>,
}

/// How the address of the client is found behind proxies. Headers of strangers are not believed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientAddress {
    /// How many proxies of your own stand in front: the address is that many from the right in the header.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub trusted_hops: u32,
    /// Networks of your own proxies: the address is the first from the right outside of them. Not with `trusted_hops`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_networks: Vec<String>,
    /// The header that your proxies write.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "x-forwarded-for"))]
    pub header: AddressHeader,
    /// Bits of an IPv6 address that tell clients apart: 64 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 64))]
    pub ipv6_prefix: Option<u8>,
    /// Bits of an IPv4 address that tell clients apart: 32 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 32))]
    pub ipv4_prefix: Option<u8>,
}

/// A header that carries addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

/// Rules that stand together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Domain {
    /// What its rules say in their answers unless they say otherwise.
    #[serde(skip_serializing_if = "is_default")]
    pub response: Response,
    /// Every rule that matches a request applies to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// Whom a rule counts, what counts, and what happens when it is too much.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name in answers, metrics and logs, and the name its counts are kept under: unique in its domain.
    pub name: String,
    /// Which requests it applies to: all if not said.
    #[serde(default, rename = "match", skip_serializing_if = "is_default")]
    pub matching: Match,
    /// What tells those apart that are counted apart. Without it there is one count for all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: OneOrMany<KeyPart>,
    /// What becomes of a request that lacks a part of the key: `skip` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "skip"))]
    pub missing: Option<Missing>,
    /// Whether `/v1/top` and `/v1/blocks` show the values of headers, cookies, query parameters and expressions in the key.
    /// By default they show a hash.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub show: bool,
    /// What it does: `limit` if not said.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "limit"))]
    pub action: Action,
    /// The limit. Use `limits` for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Several limits, such as one for bursts and one for the day: a request must fit all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// What Envoy is told of a rule that blocks: nothing if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_as: Option<ToldAs>,
    /// An expression for the units a request takes: what the caller asks for if not said, which is mostly 1. If it
    /// fails, the rule denies the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// An expression for what counts: true or a number of units. If it speaks of `response`, a request is let through
    /// or not by what was counted before, and counted when its response is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Whether a request that was denied counts as well, so that who does not stop stays denied.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub count_denied: bool,
    /// How long a key stays denied once it was denied, like `10m`.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub penalty: Option<String>,
    /// `shadow` counts and reports but denies nothing, `off` does not even count.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "enforce"))]
    pub mode: Mode,
    /// What happens when a shared store does not answer: the same limit in the memory of this process if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_store_failure: Option<OnStoreFailure>,
    /// What its answers say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub response: Response,
    /// The store that keeps its counts: `default` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default"))]
    pub store: Option<String>,
    /// How closely nodes that share a store agree: `exact` asks it each time, `leased` takes a slice of the limit in
    /// advance and never lets more pass, `async` decides at once and tells the others after, with an error.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "exact"))]
    pub consistency: Consistency,
    /// On a Redis Cluster, counts of the same tag and key have one slot: limits of this rule, and of others with this tag,
    /// are then decided at one instant. Without it each limit has its own slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_tag: Option<String>,
    /// Whether it denies only if every rule of this kind that applies to the request would deny.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = false))]
    pub quota: bool,
    /// Names of limits that do not apply where this rule does. A rule that blocks or does not limit goes by its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// What its metrics tell apart beside the rule.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metrics: Metrics,
    /// Anything that Envoy shall hand on as dynamic metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    /// What its counts are kept under, if that is not its name and key: so it is for rules from files of
    /// envoyproxy/ratelimit.
    #[serde(skip)]
    pub(crate) counted_by: Option<CountedBy>,
}

/// What the counts of a rule from a file of envoyproxy/ratelimit are kept under, whatever the rule is called: its domain, the
/// unit of its limit and all entries, so that adding or renaming rules resets no count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CountedBy {
    pub(crate) unit: &'static str,
    pub(crate) entries: Vec<CountedEntry>,
}

/// An entry on the way to a descriptor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CountedEntry {
    pub(crate) key: String,
    /// Its place among the entries, from 0, if the key stands there more than once.
    pub(crate) place: Option<u32>,
    /// The pattern that all its values are counted under together; each value by itself if there is none.
    pub(crate) pattern: Option<String>,
}

/// Which requests a rule applies to: those that meet all of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Entries of the descriptor.
    #[serde(skip_serializing_if = "is_default")]
    pub entries: Entries,
    /// HTTP methods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Value>,
    /// The host that was asked, without its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Value>,
    /// The path, without the query and the fragment. A path that servers read differently, like `/x/..%2flogin`, matches
    /// if it is like this in any of its forms; `except` leaves it out only if all of them are excepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Value>,
    /// Whether capital and small letters of a path are told apart, here and in the rule's key: `exact` if not said.
    #[serde(skip_serializing_if = "is_default")]
    pub path_case: PathCase,
    /// Headers by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub header: BTreeMap<String, Value>,
    /// Cookies by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cookie: BTreeMap<String, Value>,
    /// Parameters of the query by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, Value>,
    /// Networks that the client's address is in, like `10.0.0.0/8`.
    #[serde(skip_serializing_if = "is_default")]
    pub address: OneOrMany<String>,
    /// An expression that must be true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// Whether capital and small letters of a path are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathCase {
    /// `/LOGIN` and `/login` are two paths.
    #[default]
    Exact,
    /// They are one, as they are for servers that ignore the case of paths.
    Ignore,
}

/// Entries of a descriptor: a map of those it must have among others, or a list of exactly those it has, in order.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Entries {
    /// These, and any others.
    Among(BTreeMap<String, Value>),
    /// These and no others, in this order. Each is a map of one entry.
    Exactly(Vec<BTreeMap<String, Value>>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Among(BTreeMap::new())
    }
}

/// What a value must be: text, in which `*` stands for anything; or one of several.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// This text. `*` alone asks only that there is a value.
    Is(String),
    /// One of these.
    OneOf(Vec<String>),
    /// Like `is`, but like none of `except`.
    But(But),
}

/// A value with exceptions.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct But {
    /// What it must be.
    pub is: String,
    /// What it must not be.
    pub except: Arc<[String]>,
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyPart {
    /// The client's address, cut to the prefix of `client_address`.
    Address,
    /// The HTTP method.
    Method,
    /// The host.
    Host,
    /// The path.
    Path,
    /// An entry of the descriptor.
    Entry(String),
    /// The entry at this place of the descriptor, from 0, for descriptors that have a key twice.
    EntryAt(u32),
    /// A header.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A parameter of the query.
    Query(String),
    /// The text that an expression gives.
    Expression(String),
}

/// What becomes of a request that lacks a part of the key of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The rule does not count it. Where clients choose whether to send the part, they evade the rule by leaving it out.
    #[default]
    Skip,
    /// All such requests count as one.
    Share,
    /// The rule denies it.
    Deny,
}

/// What a rule does to a request it applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Counts it.
    #[default]
    Limit,
    /// Denies it.
    Block,
    /// Lets it pass and tells so. Rules beside it still apply.
    Unlimited,
}

/// How closely nodes that share a store agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// The store decides every request.
    #[default]
    Exact,
    /// A node takes a slice of the limit in advance and spends it by itself. Never more passes than the limit.
    Leased,
    /// A node decides by what it knows, and tells the store after.
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

/// What Envoy is told of a rule that blocks: a limit of 0 units. Files of envoyproxy/ratelimit have such limits, with a
/// `requests_per_unit` of 0.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToldAs {
    /// The period of that limit, like `minute` or `10s`.
    pub per: String,
    /// Its name in Envoy's `current_limit`: none if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A limit: `100/minute`, or an algorithm with its numbers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Limit {
    /// `100/minute` is gcra with a burst of 100.
    Rate(String),
    /// An algorithm with its numbers.
    Numbers(Box<Numbers>),
}

impl Limit {
    /// Its own name, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Limit::Numbers(numbers) => numbers.name.as_deref(),
            Limit::Rate(_) => None,
        }
    }

    /// The store that it names.
    pub(crate) fn store(&self) -> Option<&str> {
        match self {
            Limit::Numbers(numbers) => numbers.store.as_deref(),
            Limit::Rate(_) => None,
        }
    }
}

/// An algorithm with its numbers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Numbers {
    /// Its name in `RateLimit-Policy` and in Envoy's `current_limit`: the rule's name if not said, but for rules with a
    /// list of `entries`, which tell Envoy no name then, as envoyproxy/ratelimit does. Limits of one rule have different
    /// names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `gcra` (if not said), `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_counter`,
    /// `sliced_window` or `calendar_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "gcra"))]
    pub algorithm: Option<String>,
    /// Units and period, like `100/minute` or `5/10s`; or units alone, with `per_ns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateText>,
    /// The period of `rate` in nanoseconds, if that is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_ns: Option<u64>,
    /// Units that pass at once from idle, of `gcra`: those of the rate if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Units that pass at once from idle, of `token_bucket` and `leaky_bucket`: those of the rate if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// Units in a window, of the algorithms with windows, instead of `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The length of that window, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// Slices of a `sliced_window`: 60 if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 60))]
    pub slices: Option<u64>,
    /// Whether each key's `fixed_window` starts at an instant of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub stagger: Option<bool>,
    /// The period of a `calendar_window` whose units are in `limit`: `day`, `week`, `month` or `year`. With `rate` it is part
    /// of that, as in `10000/month`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// The time zone of a `calendar_window`, by its name in the IANA database, like `Europe/Berlin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "UTC"))]
    pub time_zone: Option<String>,
    /// When a `calendar_window` starts: of a day `HH:MM`, of a week a weekday, of a month 1 to 31 (its last day if it is
    /// shorter), of a year `MM-DD`. Without it at midnight, on `monday`, on the 1st, on `01-01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
    /// The store that keeps its counts: the rule's if not said. A local bucket in `memory:` before a shared limit spares
    /// the shared store what is denied anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

/// When a window of a calendar starts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Anchor {
    /// A day of the month.
    Day(u64),
    /// `06:00`, `monday`, `15` or `04-01`.
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

/// A rate as text, or its units alone.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RateText {
    /// `100/minute`.
    Text(String),
    /// Units in each `per_ns`.
    Units(u64),
}

/// Whether a rule denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It denies.
    #[default]
    Enforce,
    /// It counts and reports what it would deny.
    Shadow,
    /// It does nothing.
    Off,
}

/// What happens to a request when the store does not answer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// It passes.
    Allow,
    /// It is denied, with 503.
    Deny,
    /// It is decided in the memory of this process: the rule's limits go on there from the last state that the store reported.
    /// With a limit of its own that one counts from the start of the outage.
    Local(Local),
}

/// The limit that decides while the store does not answer: `500/hour`, an algorithm with its numbers, or a share of the
/// rule's own.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Local {
    /// A share of the rule's own limits.
    Share(Share),
    /// A limit of its own.
    Limit(Limit),
}

/// A share of the rule's own limits, which go on from the same share of the last state that the store reported.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// `auto`: the limits divided by the number of nodes that use the store; or a fixed share like `1/4`.
    pub share: String,
}

/// What the answers of a rule say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Response {
    /// Which headers tell of limits. Over HTTP `standard` if not said; over Envoy's protocol none, since Envoy
    /// writes its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// Whether clients learn nothing: no numbers, no names and no time to retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub hidden: Option<bool>,
    /// Whether a denial has a body of `application/problem+json`: true if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub problem: Option<bool>,
    /// Up to how much is added at random to `Retry-After`, like `5s`, so that not all come back at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_jitter: Option<String>,
}

/// A family of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Headers {
    /// `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11.
    Standard,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    Draft03,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds from now.
    Legacy,
    /// The same with `-Reset` in seconds since the epoch, as GitHub has it.
    LegacyEpoch,
    /// None but `Retry-After`.
    None,
}

/// What the metrics of a rule tell apart. The number of series is bounded: beyond it they are counted together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// The names of entries whose values get series of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_entries: Vec<String>,
    /// What the metrics that are named as in envoyproxy/ratelimit call the rule, level by level. If not said, this
    /// follows from a list of entries; without one it is the rule's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
}

/// One thing, or a list.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// Several.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// All of them.
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
