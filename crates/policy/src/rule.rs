//! A rule as it is asked: compiled from the schema, checked, unable to be wrong.

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

/// The number of a rule in its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(crate) u32);

impl RuleId {
    /// Its place in [`Policy::rules`](crate::Policy::rules).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// The domain it belongs to.
    pub domain: Box<str>,
    /// Unique in its domain.
    pub name: Box<str>,
    /// What it does.
    pub action: Action,
    /// Whether it denies, by the configuration; it may be switched while it runs.
    pub mode: Mode,
    /// What becomes of a request that lacks a part of its key.
    pub missing: Missing,
    /// Whether lists of keys show values of its key that may be secret.
    pub show: bool,
    /// At least one if the action is to limit, else none.
    pub limits: Box<[RuleLimit]>,
    /// What Envoy is told of a rule that blocks.
    pub told_as: Option<ToldAs>,
    /// Whether denied requests count too.
    pub count_denied: bool,
    /// How long a key stays denied after a denial.
    pub penalty: Option<Duration>,
    /// What happens when its store does not answer; if nothing is said, the store's nature decides.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The namespace of the penalties that it imposes: one for all its limits.
    pub penalties: Namespace,
    /// The namespace of its keys that an operator blocked.
    pub blocks: Namespace,
    /// What its answers say.
    pub response: ResponseOptions,
    /// How closely nodes that share a store agree.
    pub consistency: Consistency,
    /// What, beside its key, chooses the slot of its counts on a Redis Cluster; each limit has its own if nothing does.
    pub hash_tag: Option<Box<str>>,
    /// Whether it denies only if all such rules of a request would.
    pub quota: bool,
    /// Names of limits that do not apply where this rule does.
    pub replaces: Box<[Box<str>]>,
    /// Entries whose values get series of their own in metrics.
    pub metric_entries: Box<[Box<str>]>,
    /// For Envoy's dynamic metadata.
    pub metadata: Option<serde_json::Value>,
    /// What the reference server's metrics call it: `key1` is the first of them, and so on. For a rule from a file of
    /// that server these are `key` or `key_value` of each level; for others the rule's name alone.
    pub metric_path: Box<[Box<str>]>,
    pub(crate) matching: Matching,
    pub(crate) key: Box<[Part]>,
    pub(crate) cost: Option<Box<Expression>>,
    pub(crate) count: Option<Box<Expression>>,
}

/// One limit of a rule.
#[derive(Debug)]
pub struct RuleLimit {
    /// Its name in answers.
    pub name: Box<str>,
    /// Whether Envoy is told the name, and tells clients. Rules that match a list of entries, as those in files of the
    /// reference server do, tell only a name that was given.
    pub is_named_to_envoy: bool,
    /// The limit.
    pub limit: Limit,
    /// How it is told of: units and period.
    pub shown: Shown,
    /// Which rule and limit its states belong to. Rules in files of envoyproxy/ratelimit share that of their domain; their
    /// keys hold all entries.
    pub namespace: Namespace,
    /// The place of its store in [`Policy::stores`](crate::Policy::stores).
    pub store: usize,
}

/// What Envoy is told of a rule that blocks: a limit of no units.
#[derive(Debug)]
pub struct ToldAs {
    /// Its name; none is told if that is empty.
    pub name: Box<str>,
    /// No units in a period.
    pub shown: Shown,
}

/// What happens when a store does not answer.
#[derive(Clone, Copy, Debug)]
pub enum OnStoreFailure {
    /// The request passes.
    Allow,
    /// The request is denied.
    Deny,
    /// It is decided in the memory of this process.
    Local(Local),
}

/// What decides in the memory of this process while a store does not answer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Local {
    /// A share of the rule's own limit, going on from the last state that the store reported.
    Share(Share),
    /// This limit, from the start of the outage.
    Limit(Limit),
}

/// The share of a limit that one node holds while a store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// All of it.
    Whole,
    /// One of as many equal parts as nodes use the store.
    Auto,
    /// One of so many equal parts.
    OneOf(NonZeroU64),
}

/// What the answers of a rule say.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseOptions {
    /// Which headers, if the configuration says.
    pub headers: Option<Headers>,
    /// Whether clients learn nothing.
    pub hidden: bool,
    /// Whether a denial has a problem body, if the configuration says.
    pub problem: Option<bool>,
    /// The most that is added to `Retry-After`.
    pub retry_jitter: Duration,
}

/// When a rule counts a request, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Now, these units.
    Now(u64),
    /// Not now: whether these units would fit decides, and none are taken.
    Look(u64),
    /// When the response is known; until then whether these units would fit decides.
    Later(u64),
    /// Nobody knows: the expression for its cost fails, or gives more units than there may be. Such a request must not
    /// pass for the price of another.
    Failed,
}

/// What became of the key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum KeyMade {
    /// It was appended.
    Whole,
    /// The request lacks a part, and those that do share no count; nothing was appended.
    Missing,
    /// An expression would have to look at a longer text than it may; nothing was appended. Who sends that must not pass
    /// uncounted.
    TooLong,
}
