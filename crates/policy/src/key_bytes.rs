//! The bytes of a key: its parts, each after its length, or their digest if they are too long.

use crate::bounds::KEY_BYTES_KEPT_MAX;
use crate::rule::KeyMade;

/// The prefix of a digest. No key of parts starts with it, because no part is as long as that length.
pub(crate) const DIGEST: [u8; 2] = [0xff, 0xfe];

/// The key of all requests that lack a part. No key of parts and no digest starts with it.
pub(crate) const SHARED: [u8; 2] = [0xff, 0xff];

const _: () = assert!(KEY_BYTES_KEPT_MAX < 0xff00, "no length may start like a digest");

/// Collects the parts of a key, in order.
#[derive(Debug)]
pub struct KeyParts<'b>(Taken<'b>);

#[derive(Debug)]
enum Taken<'b> {
    AsTheyAre {
        bytes: &'b mut Vec<u8>,
        /// The maximum length of all bytes.
        end: usize,
        is_too_long: bool,
    },
    Digested(&'b mut blake3::Hasher),
}

impl KeyParts<'_> {
    /// Adds a part. Distinct lists of parts give distinct keys.
    pub fn push(&mut self, part: &[u8]) {
        match &mut self.0 {
            Taken::AsTheyAre { bytes, end, is_too_long } => match u16::try_from(part.len()) {
                Ok(length) if bytes.len() + size_of_val(&length) + part.len() <= *end => {
                    bytes.extend_from_slice(&length.to_be_bytes());
                    bytes.extend_from_slice(part);
                }
                _ => *is_too_long = true,
            },
            Taken::Digested(hasher) => {
                hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
            }
        }
    }

    /// Adds bytes that mark their end themselves.
    pub(crate) fn push_fixed(&mut self, fixed: &[u8]) {
        match &mut self.0 {
            Taken::AsTheyAre { bytes, end, is_too_long } => match bytes.len() + fixed.len() <= *end {
                true => bytes.extend_from_slice(fixed),
                false => *is_too_long = true,
            },
            Taken::Digested(hasher) => {
                hasher.update(fixed);
            }
        }
    }
}

/// Appends a key to `bytes`. `parts` adds its parts; it is called a second time if they are longer than
/// [`KEY_BYTES_KEPT_MAX`] in total, to make the key from their digest. Appends nothing if `parts` does not return
/// [`KeyMade::Whole`].
pub fn append_key(bytes: &mut Vec<u8>, parts: impl Fn(&mut KeyParts<'_>) -> KeyMade) -> KeyMade {
    let start = bytes.len();
    let end = start.saturating_add(KEY_BYTES_KEPT_MAX);
    let mut kept = KeyParts(Taken::AsTheyAre { bytes: &mut *bytes, end, is_too_long: false });
    let made = parts(&mut kept);
    let is_too_long = matches!(kept.0, Taken::AsTheyAre { is_too_long: true, .. });
    if made != KeyMade::Whole || is_too_long {
        bytes.truncate(start);
    }
    match made {
        KeyMade::Whole if is_too_long => append_digest(bytes, parts),
        made => made,
    }
}

#[cold]
fn append_digest(bytes: &mut Vec<u8>, parts: impl Fn(&mut KeyParts<'_>) -> KeyMade) -> KeyMade {
    let mut hasher = blake3::Hasher::new();
    let made = parts(&mut KeyParts(Taken::Digested(&mut hasher)));
    if made == KeyMade::Whole {
        bytes.extend_from_slice(&DIGEST);
        bytes.extend_from_slice(hasher.finalize().as_bytes());
    }
    made
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = b"before".to_vec();
        let made = append_key(&mut bytes, |key| {
            parts.iter().for_each(|part| key.push(part));
            KeyMade::Whole
        });
        assert_eq!((made, &bytes[..6]), (KeyMade::Whole, &b"before"[..]));
        bytes.split_off(6)
    }

    #[test]
    fn a_long_key_becomes_its_digest() {
        let value = vec![b'x'; KEY_BYTES_KEPT_MAX];
        let kept = key(&[&value[2..]]);
        assert_eq!((kept.len(), &kept[..2]), (KEY_BYTES_KEPT_MAX, &998_u16.to_be_bytes()[..]));
        // As the specification of names has it: all nodes and versions must agree.
        let text = [&999_u64.to_be_bytes()[..], &value[1..], &3_u64.to_be_bytes(), b"abc"].concat();
        let digest = [&DIGEST[..], blake3::hash(&text).as_bytes()].concat();
        assert_eq!(key(&[&value[1..], b"abc"]), digest);
    }

    #[test]
    fn distinct_long_parts_give_distinct_keys() {
        let long = vec![b'x'; 100_000];
        let mut other = long.clone();
        other[99_999] = b'y';
        let cases: [&[&[u8]]; 8] = [
            &[&long],
            &[&other],
            &[&long[1..]],
            &[&long, b""],
            &[b"", &long],
            &[&long[1..], b"x"],
            &[b"x", &long[1..]],
            &[&long[..50_000], &long[50_000..]],
        ];
        let keys: HashSet<Vec<u8>> = cases.iter().map(|parts| key(parts)).collect();
        assert_eq!(keys.len(), cases.len());
        assert!(keys.iter().all(|key| key.len() == 34 && key.starts_with(&DIGEST)));
    }
}
