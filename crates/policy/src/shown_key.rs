//! Keys as administrators see them: part by part, with possible secrets hidden.
//!
//! Values of headers, cookies, query parameters and expressions are often session identifiers and tokens. A hash of them is
//! shown, which is the same on all nodes.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::key::Part;
use crate::key_bytes::{DIGEST, SHARED};
use crate::rule::Rule;

/// The key of requests that lack a part of the key of their rule.
pub const MISSING_KEY: &[u8] = &SHARED;

/// The context of the hashes of hidden values: no other use of BLAKE3 has the same hashes.
const HIDDEN: &str = "tidegate 2026-11-20 hidden parts of keys";

/// Bytes of the hash of a hidden value. By chance, two of four billion are alike.
const HIDDEN_BYTES: usize = 8;

/// A part of a key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShownPart {
    /// What it is: `address`, `method`, `host`, `path`, `expression`, or like `entry:user`, `header:x-user`. In place of all
    /// parts stands `missing` for requests that lack one, `digest` for a key of more than 1,000 bytes, or `key` for one that
    /// other parts made.
    pub part: Box<str>,
    /// Its value, or the hash of it.
    pub value: Box<str>,
    /// Whether the value is a hash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Whether the value is no valid UTF-8: then bytes that are not, and `%`, stand as `%` and two hexadecimal digits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escaped: bool,
}

impl ShownPart {
    /// Returns what is shown of a key whose parts are not known: they may have to be hidden.
    #[must_use]
    pub fn unreadable(key: &[u8]) -> ShownPart {
        hidden("key", key)
    }
}

impl Rule {
    /// Returns the parts of a key that this rule made, in the order of its `key`; none if it counts all requests as one.
    #[must_use]
    pub fn shown_key(&self, key: &[u8]) -> Vec<ShownPart> {
        // What blocks or does not limit makes no key, whatever the rule says.
        if key.is_empty() {
            return Vec::new();
        }
        if key == SHARED {
            return vec![visible("missing", String::new())];
        }
        if let Some(digest) = key.strip_prefix(&DIGEST) {
            return vec![visible("digest", hex(digest))];
        }
        self.shown_parts(key).unwrap_or_else(|| vec![ShownPart::unreadable(key)])
    }

    /// Returns the names of the parts of its key, in their order: rules of the same names make the same keys of a request.
    #[must_use]
    pub fn key_part_names(&self) -> Vec<Box<str>> {
        let mut before: Option<&[u8]> = None;
        let mut names = Vec::with_capacity(self.key.len());
        for part in &self.key {
            match part {
                Part::Fixed(fixed) => before = Some(fixed),
                part => names.push(part.name(before.take())),
            }
        }
        names
    }

    fn shown_parts(&self, mut key: &[u8]) -> Option<Vec<ShownPart>> {
        let mut shown = Vec::with_capacity(self.key.len());
        let mut names = self.key_part_names().into_iter();
        for part in &self.key {
            if let Part::Fixed(fixed) = part {
                key = key.strip_prefix(&**fixed)?;
                continue;
            }
            let (length, rest) = key.split_first_chunk::<2>()?;
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let name = names.next()?;
            shown.push(match part {
                part if part.may_be_secret() => hidden(&name, value),
                Part::Address { v4_length, v6_length } => address(&name, value, *v4_length, *v6_length)?,
                _ => plain(&name, value),
            });
            key = rest;
        }
        key.is_empty().then_some(shown)
    }
}

impl Part {
    /// Whether its value may be known to the client alone.
    fn may_be_secret(&self) -> bool {
        match self {
            Part::Header(_) | Part::Cookie(_) | Part::Query(_) | Part::Expression(_) => true,
            Part::Address { .. } | Part::Method | Part::Host | Part::Path(_) => false,
            Part::Entry(_) | Part::EntryAt(_) | Part::Fixed(_) => false,
        }
    }

    /// What it is called, given the fixed bytes before it.
    fn name(&self, before: Option<&[u8]>) -> Box<str> {
        match self {
            Part::Address { .. } => "address".into(),
            Part::Method => "method".into(),
            Part::Host => "host".into(),
            Part::Path(_) => "path".into(),
            Part::Entry(name) => format!("entry:{name}").into(),
            Part::EntryAt(place) => match before.and_then(entry_name) {
                Some(name) => format!("entry:{name}").into(),
                None => format!("entry_at:{place}").into(),
            },
            Part::Header(name) => format!("header:{name}").into(),
            Part::Cookie(name) => format!("cookie:{name}").into(),
            Part::Query(name) => format!("query:{name}").into(),
            Part::Expression(_) => "expression".into(),
            Part::Fixed(_) => "fixed".into(),
        }
    }
}

/// The name of the entry whose value follows the fixed bytes of a key of an Envoy file, which end with that name and a `v`.
fn entry_name(fixed: &[u8]) -> Option<&str> {
    let mut rest = fixed;
    let mut name = None;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let (text, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        name = Some(text);
        rest = match after.split_first() {
            Some((b'v' | b'p', after)) => after,
            _ => after,
        };
    }
    str::from_utf8(name?).ok()
}

fn visible(part: &str, value: String) -> ShownPart {
    ShownPart { part: part.into(), value: value.into(), hidden: false, escaped: false }
}

fn plain(part: &str, value: &[u8]) -> ShownPart {
    match str::from_utf8(value) {
        Ok(text) => visible(part, text.to_owned()),
        Err(_) => ShownPart { escaped: true, ..visible(part, escaped(value)) },
    }
}

/// What a client chose, and nobody else may have to know.
fn hidden(part: &str, value: &[u8]) -> ShownPart {
    let mut hasher = blake3::Hasher::new_derive_key(HIDDEN);
    let digest = hasher.update(value).finalize();
    let value = hex(digest.as_bytes().get(..HIDDEN_BYTES).unwrap_or_default());
    ShownPart { hidden: true, ..visible(part, value) }
}

/// An address, or the network that it was cut to.
fn address(part: &str, value: &[u8], v4_length: u8, v6_length: u8) -> Option<ShownPart> {
    let (address, length, whole) = match (<[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
        (Ok(octets), _) => (IpAddr::from(octets), v4_length, 32),
        (_, Ok(octets)) => (IpAddr::from(octets), v6_length, 128),
        _ => return None,
    };
    let value = if length == whole { address.to_string() } else { format!("{address}/{length}") };
    Some(visible(part, value))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Text in which what is no UTF-8, and `%`, stands as `%` and two digits, so that it can be read back.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        text += &chunk.valid().replace('%', "%25");
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
#[path = "shown_key_tests.rs"]
mod tests;
