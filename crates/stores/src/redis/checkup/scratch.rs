//! Keys for a moment, which no limit uses.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;

use super::super::link::{DirectConnection, Primary, Why, slot};
use super::super::store::PREFIX;
use super::super::url::Target;

/// How many hash tags are tried for one whose slot a node has. A node with a single slot is found after 16,384 on average.
const TAGS_MAX: u32 = 1 << 18;

/// The keys that were used at a node. All have one slot.
pub(super) struct Scratch {
    stem: String,
    used: Vec<Vec<u8>>,
}

impl Scratch {
    /// Chooses names under the prefix of a store: no namespace is called `/check`, and nobody else draws the same number.
    pub(super) fn new(target: &Target, primary: &Primary) -> Scratch {
        let prefix = target.prefix().unwrap_or(PREFIX);
        let tag = primary.slots.as_deref().and_then(tag_within).unwrap_or_default();
        let number = RandomState::new().hash_one(std::process::id());
        Scratch { stem: format!("{prefix}{{{tag}}}/check:{number:016x}:"), used: Vec::new() }
    }

    /// Returns a key, which is deleted in the end.
    pub(super) fn key(&mut self, name: &str) -> Vec<u8> {
        let key = format!("{}{name}", self.stem).into_bytes();
        if !self.used.contains(&key) {
            self.used.push(key.clone());
        }
        key
    }

    /// Deletes all keys that were used.
    pub(super) async fn delete(&mut self, connection: &mut DirectConnection) -> Result<(), Why> {
        let used = std::mem::take(&mut self.used);
        let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(used.iter().map(Vec::as_slice)).collect();
        if words.len() > 1 {
            connection.ask(&words).await?;
        }
        Ok(())
    }
}

/// Returns a hash tag whose slot is within these.
fn tag_within(slots: &[RangeInclusive<u16>]) -> Option<String> {
    let has = |tag: &String| slots.iter().any(|range| range.contains(&slot(tag.as_bytes())));
    (0..TAGS_MAX).map(|number| format!("{number:x}")).find(has)
}
