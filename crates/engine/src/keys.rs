//! The engine's own namespaces, and the bytes of the keys of one request.

use std::ops::Range;

use tidegate_core::{Key, KeyError, Limit, Namespace, Phase, Purpose, agreed_hash};
use tidegate_policy::{KeyMade, Question, Rule, append_key};

use crate::error::RequestError;

/// Keys of limits that callers bring, in the server and in programs alike, so that both count the same.
pub(crate) static CALLERS: Namespace = Namespace::of(Purpose::Caller);
/// Keys of limits that requests bring for their descriptors.
pub(crate) static REQUEST_LIMITS: Namespace = Namespace::of(Purpose::RequestLimit);
/// Permits that the program asks for by itself, as a layer does.
pub(crate) static LAYERS: Namespace = Namespace::of(Purpose::Layer);
/// Its only key is blocked for as long as any other key of the store is.
pub(crate) static ANY_BLOCK: Namespace = Namespace::of(Purpose::AnyBlock);

/// Returns the offset of a caller's key's windows from those aligned to the epoch.
#[must_use]
pub fn caller_phase(key: &[u8], limit: &Limit) -> Phase {
    key_of(key).map(|key| limit.phase(&CALLERS, key)).unwrap_or_default()
}

/// Whether limits count in a namespace that a caller brought.
pub(crate) fn is_of_caller(namespace: &Namespace) -> bool {
    matches!(namespace.purpose(), Some(Purpose::Caller | Purpose::RequestLimit))
}

/// The key of these bytes: an empty list is the only key of its namespace.
pub(crate) fn key_of(bytes: &[u8]) -> Result<Key<'_>, KeyError> {
    if bytes.is_empty() { Ok(Key::ALL) } else { Key::new(bytes) }
}

/// The hash tag of a rule's key; empty if it has none. It is the rule's own and a hash of the key, in sixteen hexadecimal
/// digits: the key itself, which clients choose, could have a brace that ends the tag.
pub(crate) fn hash_tag(rule: &Rule, key: &[u8]) -> Vec<u8> {
    let tag = rule.hash_tag.as_ref();
    tag.map(|tag| format!("{tag}:{:016x}", agreed_hash(key)).into_bytes()).unwrap_or_default()
}

/// Room for the keys of most requests, made at once.
const KEYS_BYTES: usize = 128;

/// The keys of a request, one after the other, and their hash tags.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<u8>);

impl Keys {
    pub(crate) fn with_room() -> Keys {
        Keys(Vec::with_capacity(KEYS_BYTES))
    }

    /// What was appended there.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.0.get(range.clone()).unwrap_or_default()
    }

    /// The key that was appended there.
    pub(crate) fn key(&self, range: &Range<usize>) -> Result<Key<'_>, RequestError> {
        key_of(self.bytes(range)).map_err(RequestError::Key)
    }

    /// Appends the key that a rule counts a request on.
    pub(crate) fn push(&mut self, rule: &Rule, question: &Question<'_>) -> (KeyMade, Range<usize>) {
        let start = self.0.len();
        let made = rule.key(question, &mut self.0);
        (made, start..self.0.len())
    }

    /// Appends the hash tag of a rule's key, if it has one.
    pub(crate) fn push_tag(&mut self, rule: &Rule, key: &Range<usize>) -> Range<usize> {
        let start = self.0.len();
        if rule.hash_tag.is_some() {
            let tag = hash_tag(rule, &self.0[key.clone()]);
            self.0.extend_from_slice(&tag);
        }
        start..self.0.len()
    }

    /// Appends the key of a limit that the request brings: its domain and all entries.
    pub(crate) fn push_own(&mut self, question: &Question<'_>) -> Range<usize> {
        let start = self.0.len();
        let _ = append_key(&mut self.0, |parts| {
            parts.push(question.domain.as_bytes());
            for entry in question.entries {
                parts.push(entry.key.as_bytes());
                parts.push(entry.value.as_bytes());
            }
            KeyMade::Whole
        });
        start..self.0.len()
    }
}
