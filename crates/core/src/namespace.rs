//! Namespaces: the rule and limit that a state belongs to.

use std::borrow::Cow;
use std::fmt;

use crate::Key;
use crate::hash;

/// The purpose of states. States of different purposes never meet, whatever their names are.
///
/// Each purpose is the first byte of its namespaces, which shared stores keep: the numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Purpose {
    /// A limit of a rule.
    Rule = b'r',
    /// The penalties that a rule imposes.
    Penalty = b'p',
    /// The keys of a rule that an operator blocked.
    Block = b'd',
    /// Whether any key of a store is blocked.
    AnyBlock = b'b',
    /// Limits that requests bring for their descriptors.
    RequestLimit = b'o',
    /// Limits that callers bring with each key.
    Caller = b'i',
    /// Permits that the program itself acquires, as a layer does.
    Layer = b'l',
    /// The nodes that use a store.
    Nodes = b'n',
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Purpose; 8] = [
        Purpose::Rule,
        Purpose::Penalty,
        Purpose::Block,
        Purpose::AnyBlock,
        Purpose::RequestLimit,
        Purpose::Caller,
        Purpose::Layer,
        Purpose::Nodes,
    ];

    const fn bytes(self) -> &'static [u8] {
        match self {
            Purpose::Rule => b"r",
            Purpose::Penalty => b"p",
            Purpose::Block => b"d",
            Purpose::AnyBlock => b"b",
            Purpose::RequestLimit => b"o",
            Purpose::Caller => b"i",
            Purpose::Layer => b"l",
            Purpose::Nodes => b"n",
        }
    }
}

/// The rule and limit that a state belongs to: a purpose and names, hashed once, when a policy is compiled.
///
/// No namespace is a prefix of another one followed by a key, so the joined bytes of a namespace and a key identify
/// both.
#[derive(Clone)]
pub struct Namespace {
    bytes: Cow<'static, [u8]>,
    hash: u128,
    /// The hash that all nodes agree on, of these bytes so far: hashing continues with the bytes of a key.
    spread: u64,
    /// The source of keys; 0 for none in particular.
    source: u32,
}

impl Namespace {
    /// Returns the namespace of callers that keep their keys apart themselves. It has no purpose and no bytes.
    #[inline]
    #[must_use]
    pub const fn root() -> &'static Namespace {
        static ROOT: Namespace = Namespace::borrowed(&[]);
        &ROOT
    }

    /// Returns the namespace of a purpose without names.
    #[must_use]
    pub const fn of(purpose: Purpose) -> Namespace {
        Namespace::borrowed(purpose.bytes())
    }

    /// Returns the namespace of a purpose and names. Each name is preceded by its length, so that distinct lists of
    /// names of the same length give distinct namespaces.
    #[must_use]
    pub fn named(purpose: Purpose, names: &[&str]) -> Namespace {
        let mut bytes = purpose.bytes().to_vec();
        for name in names {
            push_length(&mut bytes, name.len());
            bytes.extend_from_slice(name.as_bytes());
        }
        Namespace::from_bytes(&bytes)
    }

    /// Returns the namespace of bytes that [`Namespace::as_bytes`] returned.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Namespace {
        Namespace {
            hash: hash::unkeyed(bytes),
            spread: hash::spread_begin(bytes),
            bytes: bytes.to_vec().into(),
            source: 0,
        }
    }

    const fn borrowed(bytes: &'static [u8]) -> Namespace {
        Namespace {
            bytes: Cow::Borrowed(bytes),
            hash: hash::unkeyed(bytes),
            spread: hash::spread_begin(bytes),
            source: 0,
        }
    }

    /// Returns this namespace with a source of keys, such as the address of a client: sources must not crowd each other
    /// out of a full store. It is the same namespace: all sources count on the same keys. 0 is no source in particular.
    #[must_use]
    pub fn asked_by(&self, source: u32) -> Namespace {
        Namespace { source, ..self.clone() }
    }

    /// Returns the source of keys that was set by [`Namespace::asked_by`].
    #[inline]
    #[must_use]
    pub fn source(&self) -> u32 {
        self.source
    }

    /// Returns the purpose, or `None` for [`Namespace::root`].
    #[must_use]
    pub fn purpose(&self) -> Option<Purpose> {
        let first = *self.bytes.first()?;
        Purpose::ALL.into_iter().find(|purpose| *purpose as u8 == first)
    }

    /// Returns the bytes of the purpose and the names, with which the names of states in shared stores begin.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns an unkeyed hash, the same on every node and in every version. Operators choose the names behind it, so
    /// nobody gains from a collision, and by chance two of a million names collide once in 10²⁶ policies.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.hash
    }

    /// Returns a hash of the namespace and a key that all nodes agree on, to spread keys evenly.
    #[must_use]
    pub fn spread(&self, key: Key<'_>) -> u64 {
        hash::spread_end(hash::spread_on(self.spread, key.as_bytes()))
    }
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn push_length(bytes: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
}

/// Compares the bytes: the hashes follow from them.
impl PartialEq for Namespace {
    fn eq(&self, other: &Namespace) -> bool {
        self.hash == other.hash && self.bytes == other.bytes
    }
}

impl Eq for Namespace {}

impl fmt::Debug for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Namespace({})", self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreed_hash;

    #[test]
    fn bytes_and_hashes_never_change() {
        let bytes = Purpose::ALL.map(|purpose| (purpose as u8, purpose.bytes()[0]));
        assert_eq!(bytes, b"rpdboiln".map(|byte| (byte, byte)));
        let rule = Namespace::named(Purpose::Rule, &["api", "per_user", ""]);
        assert_eq!(rule.as_bytes(), b"r\x03api\x08per_user\x00");
        assert_eq!(rule.hash(), 0xe4ca_4af1_d421_40c4_76da_810c_a571_f635);
        assert_eq!(Namespace::of(Purpose::Caller).hash(), 0xf847_a929_1fe4_4b20_79b9_4b7e_69db_a7f2);
        assert_eq!(Namespace::root().hash(), 0x24cb_f909_db30_ccaf_fc5c_0161_04ef_2fb9);
    }

    #[test]
    fn a_key_is_spread_as_one_text_with_its_namespace() {
        let (names, key) = (Namespace::named(Purpose::Rule, &["api", "x"]), Key::new("ann").unwrap());
        assert_eq!(names.spread(key), agreed_hash(b"r\x03api\x01xann"));
        assert_eq!(Namespace::root().spread(key), agreed_hash(b"ann"));
    }

    #[test]
    fn purposes_and_names_make_distinct_namespaces() {
        let mut all: Vec<Namespace> = Purpose::ALL.map(Namespace::of).to_vec();
        let long = "x".repeat(300);
        for names in [&["a", "bc"][..], &["ab", "c"], &["abc"], &["", "abc"], &[&long, "a"], &[&long]] {
            all.extend([Purpose::Rule, Purpose::Penalty].map(|purpose| Namespace::named(purpose, names)));
        }
        for (number, one) in all.iter().enumerate() {
            assert!(Purpose::ALL.contains(&one.purpose().unwrap()));
            for other in &all[..number] {
                assert!(one != other && one.hash() != other.hash(), "{one:?} {other:?}");
            }
        }
    }
}
