//! The name of a state in this process.
//!
//! Each decision builds the name of its state, mostly on the stack, and looks up the state by it. Only maps own a
//! [`Name`].

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use arrayvec::ArrayVec;
use tidegate_core::{Charge, Key, Namespace};

use crate::keys::key_of;

/// The identity of a state: what the limit adds to it, the tag, the namespace and the key. Two states never share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name(Arc<[u8]>);

/// The bytes of a name.
pub(super) enum Spelling {
    Short(ArrayVec<u8, SHORT>),
    Long(Box<[u8]>),
}

/// What a name was spelled from.
pub(super) struct Parts<'a> {
    pub(super) tag: &'a [u8],
    pub(super) namespace: Namespace,
    pub(super) key: Key<'a>,
}

/// Bytes of a length.
const LENGTH: usize = size_of::<u32>();

/// Bytes up to which a name is spelled on the stack: most are shorter, and a call has a few of them.
const SHORT: usize = 128;

impl Spelling {
    pub(super) fn new(charge: &Charge<'_>) -> Spelling {
        let (tag, namespace) = (charge.placement.tag, charge.namespace.as_bytes());
        // Both are far shorter than that.
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
        let identity = charge.limit.identity().to_bits().to_be_bytes();
        let parts: [&[u8]; 6] = [&identity, &length(tag), &length(namespace), tag, namespace, charge.key.as_bytes()];
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

    /// What it was spelled from.
    pub(super) fn parts(&self) -> Option<Parts<'_>> {
        parts(&self.0)
    }
}

/// What a name was spelled from.
pub(super) fn parts(spelling: &[u8]) -> Option<Parts<'_>> {
    let (_, rest) = spelling.split_at_checked(size_of::<u128>())?;
    let (tag_length, rest) = split_length(rest)?;
    let (namespace_length, rest) = split_length(rest)?;
    let (tag, rest) = rest.split_at_checked(tag_length)?;
    let (namespace, key) = rest.split_at_checked(namespace_length)?;
    Some(Parts { tag, namespace: Namespace::from_bytes(namespace), key: key_of(key).ok()? })
}

fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    Some((usize::try_from(u32::from_be_bytes(*length)).ok()?, rest))
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

    use tidegate_core::{Limit, Op, Placement, Purpose};

    use super::*;

    /// Bytes before the tag: the limit's identity, and the lengths of tag and namespace.
    const HEAD: usize = size_of::<u128>() + 2 * LENGTH;

    #[test]
    fn a_name_tells_its_parts_and_differs_by_each() {
        let limits: [Limit; 2] =
            ["5/minute".parse().unwrap(), Limit::fixed_window(5, std::time::Duration::from_secs(1)).unwrap()];
        let spaces = [Namespace::named(Purpose::Rule, &["a", "b"]), Namespace::of(Purpose::Caller)];
        let mut names = Vec::new();
        let mut check = |limit: &Limit, tag: &str, namespace: &Namespace, key: &str| {
            let placement = Placement { tag: tag.as_bytes(), ..Placement::default() };
            let charge = Charge::new(key_of(key.as_bytes()).unwrap(), limit, Op::Peek);
            let name = Name::of(&Spelling::new(&charge.within(namespace).placed(placement)));
            let parts = name.parts().unwrap();
            assert_eq!((parts.tag, &parts.namespace, parts.key), (tag.as_bytes(), namespace, charge.key));
            names.push(name);
        };
        for limit in &limits {
            for namespace in &spaces {
                for (tag, key) in [("", "ab"), ("a", "b"), ("", "b"), ("ab", "b"), ("", "")] {
                    check(limit, tag, namespace, key);
                }
            }
        }
        for length in [SHORT - HEAD - 2, SHORT - HEAD - 1, SHORT - HEAD, 4096] {
            check(&limits[0], "", &spaces[1], &"k".repeat(length));
        }
        // A map finds them by their bytes.
        let map: HashMap<Name, usize> = names.iter().cloned().zip(0..).collect();
        assert!(names.iter().enumerate().all(|(number, name)| map.get(&name[..]) == Some(&number)));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 24);
    }
}
