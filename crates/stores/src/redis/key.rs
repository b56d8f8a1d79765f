//! Names of states in Redis. This is the only place where they are made; `spec/names.md` describes them.
//!
//! A name can be read, and read back: distinct states never share one. Each piece is escaped such that what stands after it
//! cannot be part of it.

use std::io::Write as _;
use std::net::Ipv6Addr;

use tidegate_core::{Charge, Key, Limit, Namespace, Purpose};

use super::escape::{push_byte, push_decimal, push_escaped};

/// Bytes of most names beside their prefix, tag, namespace and key: marks around these pieces, the code of a calendar, an
/// address that is longer than its bytes. A name of more bytes moves once.
const ROOM: usize = 64;

/// The longest name that an engine asks for, in bytes: a prefix of 64, a tag of 1,041, and a namespace and key of 4,096 in all
/// that take three times as much if every byte is escaped. Whoever brings a longer namespace or tag has longer names.
#[cfg(test)]
pub(super) const NAME_BYTES_MAX: usize = 16 << 10;

/// The name of the state that a charge counts in: the prefix, the hash tag, the namespace, the code of algorithm and window,
/// and the key.
///
/// On a Cluster the tag in braces chooses the slot. An empty one makes the whole name count, and braces elsewhere are
/// escaped: nobody can choose a slot by choosing a key.
pub(super) fn name(prefix: &str, charge: &Charge<'_>) -> Vec<u8> {
    let mut name = begin(prefix, charge.placement.tag, charge.namespace, charge.key);
    push_code(&mut name, charge.limit);
    push_key(&mut name, charge.key.as_bytes());
    name
}

/// The name of the permits under a key.
pub(super) fn permits(prefix: &str, namespace: &Namespace, key: Key<'_>) -> Vec<u8> {
    let mut name = begin(prefix, b"", namespace, key);
    name.extend_from_slice(b"permits");
    push_key(&mut name, key.as_bytes());
    name
}

/// The names of the ends of notices under a topic, and of the notices: both in the slot of the topic.
pub(super) fn bulletin(prefix: &str, topic: &str) -> [Vec<u8>; 2] {
    [&b"}/bulletin:ends"[..], b"}/bulletin:notices"].map(|end| {
        let mut name = Vec::with_capacity(prefix.len() + topic.len() + ROOM);
        name.extend_from_slice(prefix.as_bytes());
        name.push(b'{');
        push_escaped(&mut name, topic.as_bytes(), b"");
        name.extend_from_slice(end);
        name
    })
}

/// The name up to the code, with room for the rest.
fn begin(prefix: &str, tag: &[u8], namespace: &Namespace, key: Key<'_>) -> Vec<u8> {
    let room = prefix.len() + tag.len() + namespace.as_bytes().len() + key.as_bytes().len() + ROOM;
    let mut name = Vec::with_capacity(room);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b'{');
    push_escaped(&mut name, tag, b"");
    name.push(b'}');
    push_namespace(&mut name, namespace);
    name.push(b':');
    name
}

/// Appends `domain:rule` or `domain:rule/limit`, with `/penalty:` or `/block:` before it where it belongs to one; for files of
/// envoyproxy/ratelimit `domain:`; the purpose alone where that has no names; and nothing for [`Namespace::root`].
fn push_namespace(name: &mut Vec<u8>, namespace: &Namespace) {
    let Some((_, names)) = namespace.as_bytes().split_first() else { return };
    let pushed = match namespace.purpose() {
        Some(Purpose::Rule) => push_names(name, b"", names),
        Some(Purpose::Penalty) => push_names(name, b"/penalty:", names),
        Some(Purpose::Block) => push_names(name, b"/block:", names),
        Some(Purpose::AnyBlock) => push_alone(name, b"/any_block", names),
        Some(Purpose::RequestLimit) => push_alone(name, b"/request", names),
        Some(Purpose::Caller) => push_alone(name, b"/caller", names),
        Some(Purpose::Layer) => push_alone(name, b"/layer", names),
        Some(Purpose::Nodes) => push_alone(name, b"/nodes", names),
        _ => None,
    };
    // Nobody makes such a namespace; if somebody does, it still has a name of its own.
    if pushed.is_none() {
        name.extend_from_slice(b"/=");
        push_escaped(name, namespace.as_bytes(), b":");
    }
}

fn push_alone(name: &mut Vec<u8>, purpose: &[u8], names: &[u8]) -> Option<()> {
    names.is_empty().then(|| name.extend_from_slice(purpose))
}

/// Appends the names of a domain, rule and limit; nothing is returned and written if the bytes are others.
fn push_names(name: &mut Vec<u8>, purpose: &[u8], names: &[u8]) -> Option<()> {
    let (domain, names) = split_name(names)?;
    let (rule, names) = split_name(names)?;
    let (limit, names) = if rule.is_empty() { (&[][..], names) } else { split_name(names)? };
    if domain.is_empty() || !names.is_empty() {
        return None;
    }
    name.extend_from_slice(purpose);
    push_escaped(name, domain, b":/");
    name.push(b':');
    push_escaped(name, rule, b":/");
    if !limit.is_empty() {
        name.push(b'/');
        push_escaped(name, limit, b":/");
    }
    Some(())
}

/// The first name of a namespace, as [`Namespace::named`] writes it, and what stands after it.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = split_length(bytes)?;
    rest.split_at_checked(length)
}

/// A length of seven bits a byte, the lowest first, in as few bytes as there can be, and what stands after it.
fn split_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut length = 0;
    for (number, byte) in bytes.iter().enumerate().take(3) {
        length |= usize::from(byte & 0x7f) << (7 * number);
        if byte & 0x80 == 0 {
            let is_least = number == 0 || *byte > 0;
            return is_least.then(|| (length, bytes.get(number + 1..).unwrap_or_default()));
        }
    }
    None
}

/// Appends what tells limits of one namespace and key apart: the algorithm, and the length of its window or its calendar.
fn push_code(name: &mut Vec<u8>, limit: &Limit) {
    name.extend_from_slice(limit.algorithm().code().as_bytes());
    match (limit.calendar(), limit.identity().window()) {
        // The only piece that has a colon is a time of day: `09:30` becomes `0930`.
        (Some(calendar), _) => {
            name.push(b';');
            name.extend(calendar.text().bytes().filter(|byte| *byte != b':'));
        }
        (None, 0) => {}
        (None, window) => push_span(name, window),
    }
}

/// The units of time of codes, the longest first.
const UNITS: [(u64, &[u8]); 7] = [
    (86_400_000_000_000, b"d"),
    (3_600_000_000_000, b"h"),
    (60_000_000_000, b"m"),
    (1_000_000_000, b"s"),
    (1_000_000, b"ms"),
    (1_000, b"us"),
    (1, b"ns"),
];

/// Appends a span of nanoseconds in the longest unit that it is a whole number of.
fn push_span(name: &mut Vec<u8>, nanos: u64) {
    if let Some((unit, text)) = UNITS.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit)) {
        push_decimal(name, nanos / unit);
        name.extend_from_slice(text);
    }
}

/// What stands before a key of a rule that is not made of its parts: no part is as long as these bytes would say.
const SHARED: &[u8] = &[0xff, 0xff];
const DIGEST: &[u8] = &[0xff, 0xfe];

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// Appends a key: nothing for [`Key::ALL`]; of parts each after a colon; a key of an Envoy file as a full stop and the unit,
/// then each entry as `:key:value`, or `:key=pattern` where all values share a count; `~missing` for requests that lack a part;
/// the digest of a long key in hexadecimal digits after `~`; any other one after an equals sign.
fn push_key(name: &mut Vec<u8>, key: &[u8]) {
    if key.is_empty() {
        return;
    }
    if key == SHARED {
        name.extend_from_slice(b"~missing");
        return;
    }
    if let Some(digest) = key.strip_prefix(DIGEST).filter(|digest| digest.len() == DIGEST_BYTES) {
        name.push(b'~');
        for byte in digest {
            // Writing to a list does not fail.
            let _ = write!(name, "{byte:02x}");
        }
        return;
    }
    if parts(key).all(|part| part.is_some()) {
        for part in parts(key).flatten() {
            name.push(b':');
            push_value(name, part, b":");
        }
        return;
    }
    let start = name.len();
    if push_entries(name, key).is_none() {
        name.truncate(start);
        name.push(b'=');
        push_value(name, key, b"");
    }
}

/// The parts of a key that each have their length before them; nothing in place of what is none.
fn parts(key: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(key);
    std::iter::from_fn(move || {
        let bytes = rest.filter(|bytes| !bytes.is_empty())?;
        let split = split_part(bytes);
        rest = split.map(|(_, rest)| rest);
        Some(split.map(|(part, _)| part))
    })
}

/// The first part of a key, and what stands after it.
fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// Appends the unit and the entries of a key of an Envoy file; nothing is returned if it is no such key.
fn push_entries(name: &mut Vec<u8>, key: &[u8]) -> Option<()> {
    let (unit, mut rest) = split_part(key)?;
    name.push(b'.');
    push_escaped(name, unit, b":=");
    while !rest.is_empty() {
        let (entry, after) = split_part(rest)?;
        let (kind, after) = after.split_first()?;
        let (value, after) = split_part(after)?;
        let sign = match kind {
            b'v' => b':',
            b'p' => b'=',
            _ => return None,
        };
        name.push(b':');
        push_escaped(name, entry, b":=");
        name.push(sign);
        push_value(name, value, b":");
        rest = after;
    }
    Some(())
}

/// Appends a value that stands until the next of `marks`: as an address in brackets if it looks like one, else as text.
fn push_value(name: &mut Vec<u8>, value: &[u8], marks: &[u8]) {
    if let Ok(octets) = <[u8; 4]>::try_from(value)
        && !is_text(value)
    {
        for (number, octet) in octets.into_iter().enumerate() {
            name.push(if number == 0 { b'[' } else { b'.' });
            push_decimal(name, u64::from(octet));
        }
        name.push(b']');
    } else if let Ok(octets) = <[u8; 16]>::try_from(value)
        && !is_text(value)
    {
        // Writing to memory does not fail.
        let _ = write!(name, "[{}]", Ipv6Addr::from(octets));
    } else if let Some((b'[', rest)) = value.split_first() {
        push_byte(name, b'[');
        push_escaped(name, rest, marks);
    } else {
        push_escaped(name, value, marks);
    }
}

/// Whether bytes of the length of an address are a text rather than that. Few addresses are texts without control
/// characters; those are shown as such.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(|character| character.is_ascii_control()))
}
