//! Keys: the identity that a limit counts on.

use crate::bounds::KEY_BYTES_MAX;

/// A key: between 1 and [`KEY_BYTES_MAX`] bytes, checked once, borrowed from the caller. Only [`Key::ALL`] has none.
///
/// Build keys of several parts with [`KeyBuf::from_parts`], so that `("a", "bc")` and `("ab", "c")` stay apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// The only key of a namespace that counts everything together. It has no bytes.
    pub const ALL: Key<'static> = Key(&[]);

    /// Creates a key from bytes or a string.
    ///
    /// # Errors
    /// Fails if it is empty or longer than [`KEY_BYTES_MAX`].
    #[inline]
    pub fn new<B: AsRef<[u8]> + ?Sized>(bytes: &'a B) -> Result<Key<'a>, KeyError> {
        let bytes = bytes.as_ref();
        match bytes.len() {
            0 => Err(KeyError::Empty),
            1..=KEY_BYTES_MAX => Ok(Key(bytes)),
            length => Err(KeyError::TooLong { length, max: KEY_BYTES_MAX }),
        }
    }

    /// Returns the bytes of the key.
    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// A key that owns its bytes, joined from several parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyBuf(Vec<u8>);

impl KeyBuf {
    /// Joins parts so that distinct lists of parts give distinct keys: each part is preceded by its length in two
    /// bytes.
    ///
    /// # Errors
    /// Fails if there are no parts, or the whole is longer than [`KEY_BYTES_MAX`].
    pub fn from_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Result<KeyBuf, KeyError> {
        let mut bytes = Vec::new();
        for part in parts {
            let part = part.as_ref();
            let length = bytes.len() + 2 + part.len();
            match u16::try_from(part.len()) {
                Ok(prefix) if length <= KEY_BYTES_MAX => bytes.extend_from_slice(&prefix.to_be_bytes()),
                _ => return Err(KeyError::TooLong { length, max: KEY_BYTES_MAX }),
            }
            bytes.extend_from_slice(part);
        }
        if bytes.is_empty() { Err(KeyError::Empty) } else { Ok(KeyBuf(bytes)) }
    }

    /// Borrows the key.
    #[must_use]
    pub fn as_key(&self) -> Key<'_> {
        Key(&self.0)
    }
}

/// Why bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is empty: every caller without an identity would share it.
    #[error("key: empty; a key has at least 1 byte (skip or refuse a request without an identity)")]
    Empty,
    /// The key is longer than the bound.
    #[error("key: {length} bytes are too long; a key has 1 to {max} bytes (hash longer identities first)")]
    TooLong {
        /// The length of the key in bytes.
        length: usize,
        /// The longest key in bytes, where some of the bound are used otherwise.
        max: usize,
    },
}
