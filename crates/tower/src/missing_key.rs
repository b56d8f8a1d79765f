//! Requests without a key.

use tidegate_core::bounds::KEY_BYTES_MAX;
use tidegate_core::{Key, KeyError};

use crate::key::NoKey;
use crate::refusal::Reason;

/// How to treat a request without a key: none was found, or it is empty or too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// Counts all of them together, as one client.
    #[default]
    Share,
    /// Lets it pass uncounted, for when another layer limits such requests. A key that is too long is refused, since
    /// its sender chose it.
    Skip,
    /// Refuses it with 400 (INVALID_ARGUMENT for gRPC).
    Deny,
}

/// The client that a request is counted as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    Key(Key<'a>),
    /// The client of all requests without a key.
    Nobody,
    Skipped,
    Denied(Reason),
}

/// Why a request with too long a key is refused.
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

/// Applies [`MissingKey`] to the result of an extractor.
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
