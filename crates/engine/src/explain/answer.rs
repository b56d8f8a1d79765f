//! Answers about a denial.

use serde::{Deserialize, Serialize};
use tidegate_core::Retry;
use tidegate_policy::ShownPart;

use super::entry::{self, Names, Numbers};
use super::id::DecisionId;
use super::ring::Kept;
use crate::active::Active;
use crate::engine::Engine;
use crate::outcome::Denial;

/// Why a request was denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explained {
    /// The id of the denial.
    pub decision: Box<str>,
    /// When the request was denied, in nanoseconds since the epoch by the clock of the node. Of several denials that share
    /// an id it is the last one, and so are the numbers.
    pub at_ns: u64,
    /// The name of the node that denied.
    pub node: Box<str>,
    /// The hash of the configuration that decided.
    pub policy_hash: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The gravest reason.
    pub denial: Denial,
    /// How many requests were denied for the same keys in the same second, as far as one thread of the node knows.
    pub denials: u64,
    /// The limits that denied, the strictest first.
    pub denied_by: Vec<ExplainedLimit>,
    /// Limits that denied and are not shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u8,
}

/// What one limit said when it denied a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExplainedLimit {
    /// The name of the rule; `None` if the request brought the limit.
    pub rule: Option<Box<str>>,
    /// The name of the limit; `None` if the rule has none, or the request brought it.
    pub policy: Option<Box<str>>,
    /// Why it denied.
    pub denial: Denial,
    /// The parts of the key.
    pub key: Vec<ShownPart>,
    /// Units that the request asked for.
    pub cost: u64,
    /// Units of the limit. `None` if the limit itself did not decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Units that were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// Units that were left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// After how many nanoseconds to retry. `None` if no wait helps.
    pub retry_after_ns: Option<u64>,
    /// Whether no wait helps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
    /// After how many nanoseconds the key is as if never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_after_ns: Option<u64>,
    /// The name of the store of the limit.
    pub store: Option<Box<str>>,
    /// Whether the node decided by itself because the store did not answer.
    pub local: bool,
}

/// Why a denial cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unexplained {
    /// The node keeps no denials.
    #[error("this node keeps no denials")]
    Off,
    /// The node never made this id.
    #[error("this node never made this id")]
    Unknown,
    /// The entry was overwritten.
    #[error("expired: newer denials have taken its place in memory")]
    Expired,
    /// Another node made the id, or this one before it was started again.
    #[error("from node {node}, or from one that was stopped since")]
    Foreign {
        /// The first digits of the name of that node.
        node: String,
    },
}

impl Engine {
    /// Explains a denial by this node, from memory.
    ///
    /// # Errors
    /// Fails if the id is not of this node, or too old.
    pub fn explain(&self, id: &DecisionId) -> Result<Explained, Unexplained> {
        let denials = self.denials.as_ref().ok_or(Unexplained::Off)?;
        if !denials.ids.is_own(id) {
            return Err(Unexplained::Foreign { node: id.node() });
        }
        let place = denials.ids.place(id).ok_or(Unexplained::Unknown)?;
        let bytes = match denials.rings.read(place).ok_or(Unexplained::Unknown)? {
            Kept::Entry(bytes) => bytes,
            Kept::Overwritten => return Err(Unexplained::Expired),
        };
        let entry = entry::read(&bytes).ok_or(Unexplained::Unknown)?;
        let active = self.active.load();
        let limit = |(numbers, names): &(Numbers, Names<'_>)| explained(&active, entry.domain, numbers, names);
        Ok(Explained {
            decision: id.to_string().into(),
            at_ns: entry.head.at.as_nanos(),
            node: (*denials.node).into(),
            policy_hash: entry.policy.into(),
            domain: entry.domain.into(),
            denial: entry.head.denial,
            denials: entry.head.count,
            denied_by: entry.limits.iter().map(limit).collect(),
            left_out: entry.head.left_out,
        })
    }

    /// Returns the name of this node, which the ids of its denials begin with; `None` if denials have no ids.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.denials.as_ref().map(|denials| &*denials.node)
    }
}

fn explained(active: &Active, domain: &str, numbers: &Numbers, names: &Names<'_>) -> ExplainedLimit {
    let Numbers { denial, limit, remaining, reset, retry, cost, local } = *numbers;
    let some = |name: &str| Some(name).filter(|name| !name.is_empty()).map(Box::from);
    ExplainedLimit {
        rule: some(names.rule),
        policy: some(names.limit),
        denial,
        key: shown_key(active, domain, names),
        cost,
        limit,
        used: limit.and_then(|limit| limit.checked_sub(remaining?)),
        remaining,
        retry_after_ns: match retry {
            Some(Retry::After(wait) | Retry::Unknown(wait)) => Some(entry::nanos(wait)),
            Some(Retry::Never) | None => None,
        },
        never: retry == Some(Retry::Never),
        reset_after_ns: reset.map(entry::nanos),
        store: some(names.store),
        local,
    }
}

/// The parts of a key. A rule that is gone, or makes its keys of other parts now, cannot tell which of them may be secret.
fn shown_key(active: &Active, domain: &str, names: &Names<'_>) -> Vec<ShownPart> {
    let key = names.key;
    if names.rule.is_empty() {
        return own_key(key).unwrap_or_else(|| vec![ShownPart::unreadable(key)]);
    }
    let is_it = |number: &usize| {
        let rule = active.policy.rules().get(*number);
        rule.is_some_and(|rule| *rule.domain == *domain && *rule.name == *names.rule)
    };
    let known = (0..active.policy.rules().len()).find(is_it);
    let known = known.filter(|number| active.key_shape_at(*number) == names.shape);
    match known.and_then(|number| active.policy.rules().get(number)) {
        Some(rule) => rule.shown_key(key),
        None if key.is_empty() => Vec::new(),
        None => vec![ShownPart::unreadable(key)],
    }
}

/// The entries in the key of a limit that a request brought; `None` if it is a digest of them.
fn own_key(mut key: &[u8]) -> Option<Vec<ShownPart>> {
    let mut parts = Vec::new();
    // The domain comes first.
    part(&mut key)?;
    while !key.is_empty() {
        let (name, value) = (part(&mut key)?, part(&mut key)?);
        parts.push(ShownPart {
            part: format!("entry:{name}").into(),
            value: value.into(),
            hidden: false,
            escaped: false,
        });
    }
    Some(parts)
}

/// Takes the first part of a key.
fn part<'a>(key: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = key.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *key = rest;
    str::from_utf8(text).ok()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}
