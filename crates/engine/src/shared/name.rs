//! What a state is called in this process.
//!
//! Each decision spells the name of its state, on the stack mostly, and finds what is known by that. Only who keeps it has a
//! [`Name`] of its own.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use arrayvec::ArrayVec;
use tidegate_core::{Key, Limit};

/// The identity of a state: what the limit adds to it, the tag and the key. Two states never share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(Arc<[u8]>);

/// The bytes of a name.
pub(super) enum Spelling {
    Short(ArrayVec<u8, SHORT>),
    Long(Box<[u8]>),
}

/// Bytes before the tag: the limit's identity and the length of the tag.
const HEAD: usize = 16;

/// Bytes up to which a name is spelled on the stack: most are shorter, and a call has a few of them.
const SHORT: usize = 128;

impl Spelling {
    pub(super) fn new(limit: &Limit, tag: &[u8], key: Key<'_>) -> Spelling {
        let tag_length = tag.len() as u64;
        let parts: [&[u8]; 4] = [&limit.identity().to_be_bytes(), &tag_length.to_be_bytes(), tag, key.as_bytes()];
        let mut short = ArrayVec::new();
        match parts.iter().try_for_each(|part| short.try_extend_from_slice(part)) {
            Ok(()) => Spelling::Short(short),
            Err(_) => Spelling::Long(parts.concat().into()),
        }
    }
}

impl Deref for Spelling {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Spelling::Short(bytes) => bytes,
            Spelling::Long(bytes) => bytes,
        }
    }
}

impl Name {
    /// The name that is spelled like this.
    pub(super) fn of(spelling: &[u8]) -> Name {
        Name(spelling.into())
    }
}

/// The tag and the key of a name.
pub(super) fn parts(spelling: &[u8]) -> Option<(&[u8], Key<'_>)> {
    let (head, rest) = spelling.split_at_checked(HEAD)?;
    let (_, tag_length) = head.split_at_checked(HEAD / 2)?;
    let tag_length = usize::try_from(u64::from_be_bytes(tag_length.try_into().ok()?)).ok()?;
    let (tag, key) = rest.split_at_checked(tag_length)?;
    Some((tag, Key::new(key).ok()?))
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A map is asked by the spelling. Names are equal, ordered and hashed as their bytes are.
impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_name_tells_its_parts_and_differs_by_each() {
        let limits: [Limit; 2] =
            ["5/minute".parse().unwrap(), Limit::fixed_window(5, std::time::Duration::from_secs(1)).unwrap()];
        let mut names = Vec::new();
        for limit in &limits {
            for (tag, key) in [("", "ab"), ("a", "b"), ("", "b"), ("ab", "b")] {
                let name = Name::of(&Spelling::new(limit, tag.as_bytes(), Key::new(key).unwrap()));
                assert_eq!(parts(&name), Some((tag.as_bytes(), Key::new(key).unwrap())));
                names.push(name);
            }
        }
        for length in [SHORT - HEAD - 1, SHORT - HEAD, SHORT - HEAD + 1, 4096] {
            let key = "k".repeat(length);
            let name = Name::of(&Spelling::new(&limits[0], b"", Key::new(&key).unwrap()));
            assert_eq!(parts(&name), Some((&b""[..], Key::new(&key).unwrap())), "{length} bytes");
            names.push(name);
        }
        // A map finds them by their bytes.
        let map: HashMap<Name, usize> = names.iter().cloned().zip(0..).collect();
        assert!(names.iter().enumerate().all(|(number, name)| map.get(&name[..]) == Some(&number)));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 12);
    }
}
