//! What a state is called in this process.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tidegate_core::{Key, Limit};

/// The identity of a state: what the limit adds to it, the tag and the key. Two states never share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(Arc<[u8]>);

/// Bytes before the tag: the limit's identity and the length of the tag.
const HEAD: usize = 16;

impl Name {
    pub(super) fn new(limit: &Limit, tag: &[u8], key: Key<'_>) -> Name {
        let tag_length = tag.len() as u64;
        let parts: [&[u8]; 4] = [&limit.identity().to_be_bytes(), &tag_length.to_be_bytes(), tag, key.as_bytes()];
        Name(parts.concat().into())
    }

    /// The tag and the key.
    pub(super) fn parts(&self) -> Option<(&[u8], Key<'_>)> {
        let (head, rest) = self.0.split_at_checked(HEAD)?;
        let (_, tag_length) = head.split_at_checked(HEAD / 2)?;
        let tag_length = usize::try_from(u64::from_be_bytes(tag_length.try_into().ok()?)).ok()?;
        let (tag, key) = rest.split_at_checked(tag_length)?;
        Some((tag, Key::new(key).ok()?))
    }
}

/// As bytes are hashed, so that a map can be asked by them.
impl Hash for Name {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_parts_and_differs_by_each() {
        let limits: [Limit; 2] =
            ["5/minute".parse().unwrap(), Limit::fixed_window(5, std::time::Duration::from_secs(1)).unwrap()];
        let mut names = Vec::new();
        for limit in &limits {
            for (tag, key) in [("", "ab"), ("a", "b"), ("", "b"), ("ab", "b")] {
                let name = Name::new(limit, tag.as_bytes(), Key::new(key).unwrap());
                assert_eq!(name.parts(), Some((tag.as_bytes(), Key::new(key).unwrap())));
                names.push(name);
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 8);
    }
}
