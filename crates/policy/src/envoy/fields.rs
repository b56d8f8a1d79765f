//! The keys of files of envoyproxy/ratelimit, their places and types.

use std::fmt::Display;
use std::sync::Arc;

use tidegate_core::Algorithm;

use crate::json::quote;
use crate::load::{Problems, at, suggest};
use crate::yaml::{Kind, Mark, Node, Pair, Scalar, Type};

pub(super) const ROOT_KEYS: &[&str] = &["domain", "descriptors"];
pub(super) const DESCRIPTOR_KEYS: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "algorithm",
    "burst",
    "count_denied",
];
pub(super) const RATE_LIMIT_KEYS: &[&str] =
    &["unit", "requests_per_unit", "unlimited", "name", "replaces", "algorithm", "burst", "count_denied"];
pub(super) const REPLACES_KEYS: &[&str] = &["name"];

/// Reads the fields of maps and reports problems.
pub(super) struct Fields<'a> {
    pub(super) file: &'a Arc<str>,
    pub(super) problems: &'a mut Problems,
}

impl Fields<'_> {
    /// Reports unknown keys as errors. A known key in a place where it has no effect is a warning, because the reference
    /// server accepts it.
    pub(super) fn check_keys(&mut self, node: &Node, here: &[&str], place: &str) {
        let everywhere = || [ROOT_KEYS, DESCRIPTOR_KEYS, RATE_LIMIT_KEYS].concat();
        for Pair { key, mark, .. } in node.pairs() {
            if here.contains(&&*key.text) {
                continue;
            }
            if key.kind != Type::Text {
                let message = format!("a key {place} is {}", key.describe());
                self.error(*mark, message, format!("keys must be text: {}", suggest(&key.text, here.iter().copied())));
            } else if everywhere().contains(&&*key.text) {
                let message = format!("`{}` has no effect {place}", key.text);
                let hint = format!("move it to {}, or remove it", home(&key.text));
                self.problems.warning(at(self.file, *mark), message, hint);
            } else {
                let message = format!("unknown key `{}` {place}", quote(&key.text));
                self.error(*mark, message, suggest(&key.text, here.iter().copied()));
            }
        }
    }

    /// Returns text. Whole numbers and booleans are taken as written, like the reference server does.
    pub(super) fn text(&mut self, node: &Node, name: &str) -> Option<String> {
        let node = node.get(name)?;
        match &node.kind {
            Kind::Scalar(Scalar { kind: Type::Null, .. }) => None,
            Kind::Scalar(Scalar { kind: Type::Float(_), text }) => {
                let message = format!("`{name}` is the number {}", quote(text));
                self.error(node.mark, message, format!("put it in quotes: \"{}\"", quote(text)));
                None
            }
            Kind::Scalar(scalar) => Some(scalar.text.to_string()),
            _ => {
                self.error(node.mark, format!("`{name}` is {}", node.describe()), "it must be text");
                None
            }
        }
    }

    /// Returns a flag. The words of YAML 1.1 for true and false are accepted.
    pub(super) fn flag(&mut self, node: &Node, name: &str) -> bool {
        let Some(node) = node.get(name) else { return false };
        let value = match &node.kind {
            Kind::Scalar(scalar) => match (scalar.kind, &*scalar.text) {
                (Type::Null, _) => Some(false),
                (Type::Bool(value), _) => Some(value),
                (_, "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON") => Some(true),
                (_, "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF") => Some(false),
                _ => None,
            },
            _ => None,
        };
        value.unwrap_or_else(|| {
            self.error(node.mark, format!("`{name}` is {}", node.describe()), "it must be `true` or `false`");
            false
        })
    }

    /// Returns a whole number of 32 bits, or 0 if the field is missing.
    pub(super) fn number(&mut self, node: &Node, name: &str) -> u32 {
        let Some(node) = node.get(name).filter(|node| !node.is_null()) else { return 0 };
        let value = match &node.kind {
            Kind::Scalar(scalar) => whole_number(scalar),
            _ => None,
        };
        value.unwrap_or_else(|| {
            let hint = format!("it must be a whole number from 0 to {}, without quotes", u32::MAX);
            self.error(node.mark, format!("`{name}` is {}", node.describe()), hint);
            0
        })
    }

    pub(super) fn algorithm(&mut self, node: &Node) -> Option<Algorithm> {
        let written = self.text(node, "algorithm")?;
        let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == written);
        if found.is_none() {
            let mark = node.get("algorithm").map_or(node.mark, |node| node.mark);
            let message = format!("`algorithm` is `{}`, which is not known", quote(&written));
            self.error(mark, message, suggest(&written, Algorithm::ALL.map(Algorithm::name)));
        }
        found
    }

    pub(super) fn burst(&mut self, node: &Node) -> Option<u64> {
        node.get("burst").filter(|node| !node.is_null())?;
        Some(self.number(node, "burst").into())
    }

    pub(super) fn error(&mut self, mark: Mark, message: impl Display, hint: impl Display) {
        self.problems.error(at(self.file, mark), message, hint);
    }
}

/// Reads a number of YAML 1.1: digits may be grouped by `_`, and a leading 0 means octal.
fn whole_number(scalar: &Scalar) -> Option<u32> {
    let octal =
        scalar.text.len() > 1 && scalar.text.starts_with('0') && scalar.text.bytes().all(|b| b.is_ascii_digit());
    match scalar.kind {
        Type::Integer(_) if octal => u32::from_str_radix(&scalar.text, 8).ok(),
        Type::Integer(value) => u32::try_from(value).ok(),
        Type::Text if scalar.text.contains('_') && scalar.text.starts_with(|first: char| first.is_ascii_digit()) => {
            scalar.text.replace('_', "").parse().ok()
        }
        _ => None,
    }
}

/// Returns the place where a key has an effect.
fn home(key: &str) -> &'static str {
    if ROOT_KEYS.contains(&key) {
        "the top of the file"
    } else if DESCRIPTOR_KEYS.contains(&key) {
        "the descriptor"
    } else {
        "`rate_limit`"
    }
}
