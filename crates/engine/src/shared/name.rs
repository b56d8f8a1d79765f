//! What a state is called in this process.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tidegate_core::{Key, Limit};

/// The identity of a state: what the limit adds to it, the tag and the key. Two states never share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(Arc<[u8]>);

/// Bytes before the tag: the limit's identity and the length of the tag.
const HEAD: usize = 16;

/// Bytes up to which a name is put together on the stack.
const SHORT: usize = 256;

impl Name {
    pub(super) fn new(limit: &Limit, tag: &[u8], key: Key<'_>) -> Name {
        let tag_length = tag.len() as u64;
        let parts: [&[u8]; 4] = [&limit.identity().to_be_bytes(), &tag_length.to_be_bytes(), tag, key.as_bytes()];
        // Most are short, and need one allocation only.
        let mut bytes = ArrayVec::<u8, SHORT>::new();
        match parts.iter().try_for_each(|part| bytes.try_extend_from_slice(part)) {
            Ok(()) => Name(bytes.as_slice().into()),
            Err(_) => Name(parts.concat().into()),
        }
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
        for length in [SHORT - HEAD - 1, SHORT - HEAD, SHORT - HEAD + 1, 4096] {
            let key = "k".repeat(length);
            let name = Name::new(&limits[0], b"", Key::new(&key).unwrap());
            assert_eq!(name.parts(), Some((&b""[..], Key::new(&key).unwrap())), "{length} bytes");
            names.push(name);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 12);
    }
}
