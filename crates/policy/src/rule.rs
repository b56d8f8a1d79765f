//! Compiled rules, which are valid by construction.

use std::num::NonZeroU64;
use std::time::Duration;

use tidegate_core::{Limit, Namespace};

use crate::expression::Expression;
use crate::key::Part;
use crate::matching::Matching;
use crate::request::Shown;
use crate::schema;

pub use schema::{Action, Headers, Missing, Mode};
pub use tidegate_core::Consistency;

/// The index of a rule in its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(crate) u32);

impl RuleId {
    /// Returns the index in [`Policy::rules`](crate::Policy::rules).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    /// The domain.
    pub domain: Box<str>,
    /// The name, unique in its domain.
    pub name: Box<str>,
    /// The effect on requests that it matches.
    pub action: Action,
    /// Whether it is enforced, by the configuration. The mode can be changed at run time.
    pub mode: Mode,
    /// What to do with a request that lacks a part of its key.
    pub missing: Missing,
    /// Whether lists of keys show values of its key that may be secret.
    pub show: bool,
    /// The limits: at least one with [`Action::Limit`], else none.
    pub limits: Box<[RuleLimit]>,
    /// The limit that is reported to Envoy for a rule that blocks.
    pub report_as: Option<ReportAs>,
    /// Whether denied requests are counted too.
    pub count_denied: bool,
    /// How long a key stays denied after a denial.
    pub penalty: Option<Duration>,
    /// What to do when its store does not answer. With `None`, the kind of the store decides.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The namespace of its penalties, shared by all its limits.
    pub penalties: Namespace,
    /// The namespace of keys that an administrator blocked.
    pub blocks: Namespace,
    /// The contents of responses.
    pub response: ResponseOptions,
    /// How closely nodes that share a store agree.
    pub consistency: Consistency,
    /// The tag that, with the key, chooses the slot of its counts on a Redis Cluster. With `None`, each limit has its own slot.
    pub hash_tag: Option<Box<str>>,
    /// Whether it denies a request only if all rules with this flag that match would deny it.
    pub quota: bool,
    /// Names of limits that do not apply to requests that it matches.
    pub replaces: Box<[Box<str>]>,
    /// Keys of entries whose values have their own series in metrics.
    pub metric_entries: Box<[Box<str>]>,
    /// Dynamic metadata for Envoy.
    pub metadata: Option<serde_json::Value>,
    /// The name in metrics of envoyproxy/ratelimit, one item for each level: `key` or `key_value` for a rule from a file of
    /// that server, else the name of the rule.
    pub metric_path: Box<[Box<str>]>,
    pub(crate) matching: Matching,
    pub(crate) key: Box<[Part]>,
    pub(crate) cost: Option<Box<Expression>>,
    pub(crate) count: Option<Box<Expression>>,
}

/// One limit of a rule.
#[derive(Debug)]
pub struct RuleLimit {
    /// The name in responses.
    pub name: Box<str>,
    /// Whether the name is reported to Envoy. Rules that match a list of entries, like those of envoyproxy/ratelimit, report
    /// only a name that was set.
    pub is_named_to_envoy: bool,
    /// The limit.
    pub limit: Limit,
    /// The units and the period that are reported.
    pub shown: Shown,
    /// The namespace of its states. Rules in files of envoyproxy/ratelimit share one for each domain, because their keys
    /// contain all entries.
    pub namespace: Namespace,
    /// The index of its store in [`Policy::stores`](crate::Policy::stores).
    pub store: usize,
}

/// The limit that is reported to Envoy for a rule that blocks: 0 units in a period.
#[derive(Debug)]
pub struct ReportAs {
    /// The name, or empty for none.
    pub name: Box<str>,
    /// 0 units in the period.
    pub shown: Shown,
}

/// What to do when a store does not answer.
#[derive(Clone, Copy, Debug)]
pub enum OnStoreFailure {
    /// Admits the request.
    Allow,
    /// Denies the request.
    Deny,
    /// Decides in the memory of the process.
    Local(Local),
}

/// The limit that applies in the memory of the process while a store does not answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Local {
    /// A share of the limits of the rule, continued from the last state that the store reported.
    Share(Share),
    /// Another limit, which starts empty with the outage.
    Limit(Limit),
}

/// The share of a limit for one node while a store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// The whole limit.
    Whole,
    /// The limit divided by the number of nodes that use the store.
    Auto,
    /// The limit divided by this number.
    OneOf(NonZeroU64),
}

/// The contents of the responses of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseOptions {
    /// The headers that report limits, or `None` for the default of the protocol.
    pub headers: Option<Headers>,
    /// Whether the limit is hidden from clients.
    pub hidden: bool,
    /// Whether a denial has a body of type `application/problem+json`, or `None` for the default.
    pub problem: Option<bool>,
    /// The maximum of the random time that is added to `Retry-After`.
    pub retry_jitter: Duration,
}

/// When a rule counts a request, and the number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Takes these units now.
    Now(u64),
    /// Takes nothing, but denies the request if these units would not fit.
    Look(u64),
    /// Counts when the response is known. Until then, denies the request if these units would not fit.
    Later(u64),
    /// The cost is unknown, because its expression failed or gave more than [`COST_MAX`](crate::bounds::COST_MAX) units. The
    /// request must not be admitted.
    Failed,
}

/// The result of making the key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum KeyMade {
    /// The key was appended.
    Whole,
    /// The request lacks a part, and such requests are not counted together. Nothing was appended.
    Missing,
    /// A text is too long for an expression in the key. Nothing was appended. The request must not pass uncounted.
    TooLong,
}
