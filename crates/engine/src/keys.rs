//! The bytes of keys: what they begin with, and those of one request, one after the other.

use std::ops::Range;

use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::{Key, KeyError, agreed_hash};
use tidegate_policy::{KeyMade, Question, Rule};
use tidegate_stores::redis::CALLERS_KEY;

use crate::error::RequestError;

/// What keys begin with, so that those of different purposes never meet.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Rule = b'r' as isize,
    Penalty = b'p' as isize,
    Blocked = b'd' as isize,
    /// One key for all, of a shared store.
    AnyBlocked = b'b' as isize,
    OwnLimit = b'o' as isize,
    Inline = CALLERS_KEY as isize,
    /// Permits that the program asks for by itself, as a layer does.
    Layer = b'l' as isize,
}

impl Purpose {
    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    /// Whether a key is one that the program asks for by itself.
    pub(crate) fn is_of_layer(key: &[u8]) -> bool {
        key.first() == Some(&Purpose::Layer.byte())
    }

    /// Whether a key counts for a limit that a caller brought.
    pub(crate) fn is_of_caller(key: &[u8]) -> bool {
        let callers = [Purpose::Inline.byte(), Purpose::OwnLimit.byte()];
        key.first().is_some_and(|purpose| callers.contains(purpose))
    }
}

/// Begins a key: its purpose and a namespace stand before its parts.
pub(crate) fn begin_key(bytes: &mut Vec<u8>, purpose: Purpose, namespace: &[u8]) {
    bytes.push(purpose.byte());
    bytes.extend_from_slice(namespace);
}

/// A whole key, of parts that stand elsewhere.
pub(crate) fn whole_key(purpose: Purpose, namespace: &[u8], parts: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + namespace.len() + parts.len());
    begin_key(&mut bytes, purpose, namespace);
    bytes.extend_from_slice(parts);
    bytes
}

/// Room for the keys of most requests, made at once.
const KEYS_BYTES: usize = 128;

/// The keys of a request, one after the other, with the parts that they are made of.
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
        Key::new(self.bytes(range)).map_err(RequestError::Key)
    }

    /// Appends what keys of a rule are made of.
    pub(crate) fn push_parts(&mut self, rule: &Rule, question: &Question<'_>) -> (KeyMade, Range<usize>) {
        let start = self.0.len();
        let made = rule.key(question, &mut self.0);
        (made, start..self.0.len())
    }

    /// Appends a key of parts that stand there already.
    pub(crate) fn push(
        &mut self,
        purpose: Purpose,
        namespace: &[u8],
        parts: &Range<usize>,
    ) -> Result<Range<usize>, RequestError> {
        let start = self.0.len();
        begin_key(&mut self.0, purpose, namespace);
        self.0.extend_from_within(parts.clone());
        Key::new(&self.0[start..]).map_err(RequestError::Key)?;
        Ok(start..self.0.len())
    }

    /// Appends the hash tag of a rule's key, if it has one: the rule's own and a hash of the parts, in sixteen hexadecimal
    /// digits. The parts themselves, which clients choose, could have a brace that ends the tag.
    pub(crate) fn push_tag(&mut self, rule: &Rule, parts: &Range<usize>) -> Range<usize> {
        let start = self.0.len();
        if let Some(tag) = &rule.hash_tag {
            let hash = agreed_hash(&self.0[parts.clone()]);
            self.0.extend_from_slice(tag.as_bytes());
            self.0.extend_from_slice(format!(":{hash:016x}").as_bytes());
        }
        start..self.0.len()
    }

    /// Appends the key of a limit that the request brings: its domain and all entries.
    pub(crate) fn push_own(&mut self, question: &Question<'_>) -> Result<Range<usize>, RequestError> {
        let start = self.0.len();
        begin_key(&mut self.0, Purpose::OwnLimit, &[]);
        self.push_part(question.domain)?;
        for entry in question.entries {
            self.push_part(entry.key)?;
            self.push_part(entry.value)?;
        }
        Key::new(&self.0[start..]).map_err(RequestError::Key)?;
        Ok(start..self.0.len())
    }

    /// Appends a part of a key, with its length before it.
    fn push_part(&mut self, part: &str) -> Result<(), RequestError> {
        let too_long = RequestError::Key(KeyError::TooLong { length: part.len(), max: KEY_BYTES_MAX });
        match u16::try_from(part.len()) {
            Ok(length) if part.len() <= KEY_BYTES_MAX => self.0.extend_from_slice(&length.to_be_bytes()),
            _ => return Err(too_long),
        }
        self.0.extend_from_slice(part.as_bytes());
        Ok(())
    }
}
