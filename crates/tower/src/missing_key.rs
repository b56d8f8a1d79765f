//! Requests that do not tell what they are counted by.

use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::{Key, KeyError};

use crate::key::NoKey;
use crate::refusal::Reason;

/// What becomes of a request without a key: nothing was found that it counts on, or it is empty or too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// All of them count as one.
    #[default]
    Share,
    /// It passes, and is not counted: right where another layer limits those without a key. A key that is too long is
    /// refused, since whoever sent it chose it.
    Skip,
    /// It is refused with 400 (INVALID_ARGUMENT for gRPC).
    Deny,
}

/// Who a request counts as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    Key(Key<'a>),
    /// One of all without a key.
    Nobody,
    Skipped,
    Denied(Reason),
}

/// Why somebody with too long a key is refused.
const TOO_LONG: Reason = Reason::KeyTooLong { max: KEY_BYTES_MAX };

#[inline]
pub(crate) fn named(bytes: Option<&[u8]>, missing: MissingKey) -> Named<'_> {
    match (bytes.map(Key::new), missing) {
        (Some(Ok(key)), _) => Named::Key(key),
        (_, MissingKey::Share) => Named::Nobody,
        (Some(Err(KeyError::TooLong { .. })), _) => Named::Denied(TOO_LONG),
        (_, MissingKey::Deny) => Named::Denied(Reason::NoKey),
        (_, MissingKey::Skip) => Named::Skipped,
    }
}

/// The same for what an extractor found.
#[inline]
pub(crate) fn named_by(found: Result<&[u8], NoKey>, missing: MissingKey) -> Named<'_> {
    match found {
        Ok(bytes) => named(Some(bytes), missing),
        Err(NoKey::Missing) => named(None, missing),
        Err(NoKey::TooLong) if missing == MissingKey::Share => Named::Nobody,
        Err(NoKey::TooLong) => Named::Denied(TOO_LONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_tells_nothing_is_skipped() {
        let long = [b'x'; 4097];
        for bytes in [None, Some(&b""[..])] {
            assert_eq!(named(bytes, MissingKey::Share), Named::Nobody);
            assert_eq!(named(bytes, MissingKey::Skip), Named::Skipped);
            assert_eq!(named(bytes, MissingKey::Deny), Named::Denied(Reason::NoKey));
        }
        assert_eq!(named(Some(&long), MissingKey::Share), Named::Nobody);
        assert_eq!(named(Some(&long), MissingKey::Skip), Named::Denied(TOO_LONG));
        assert_eq!(named(Some(&long), MissingKey::Deny), Named::Denied(TOO_LONG));
        assert_eq!(named(Some(&long[1..]), MissingKey::Deny), Named::Key(Key::new(&long[1..]).unwrap()));
    }
}
