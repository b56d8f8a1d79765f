//! Slots of a Cluster: which one a key has, and what nodes say about who has them.

use super::super::url::Address;
use super::reply::Reply;

pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: that of what stands between the first `{` and the next `}`, if anything does, else of all of it.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % SLOTS
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = key.get(open + 1..)?;
    let close = rest.iter().position(|&byte| byte == b'}')?;
    rest.get(..close).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM: polynomial 0x1021, from zero, not reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        let [high, low] = crc.to_be_bytes();
        (u16::from(low) << 8) ^ CRC16_OF_BYTES[usize::from(high ^ byte)]
    })
}

const CRC16_OF_BYTES: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// A run of slots and the primary that has them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) primary: Address,
    pub(super) replicas: Vec<Address>,
}

/// Reads the reply to CLUSTER SLOTS. `asked` stands in where a node does not know its own address.
pub(super) fn ranges(reply: &Reply, asked: &Address) -> Option<Vec<Range>> {
    let Reply::Array(entries) = reply else { return None };
    let mut ranges = Vec::with_capacity(entries.len().min(usize::from(SLOTS)));
    for entry in entries {
        let Reply::Array(parts) = entry else { return None };
        let [Reply::Int(first), Reply::Int(last), primary, replicas @ ..] = parts.as_slice() else { return None };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        // A primary whose address nobody knows yet has slots that nobody can reach.
        let Some(primary) = node(primary, asked) else { continue };
        let replicas = replicas.iter().filter_map(|replica| node(replica, asked)).collect();
        ranges.push(Range { first, last, primary, replicas });
    }
    Some(ranges)
}

fn node(value: &Reply, asked: &Address) -> Option<Address> {
    let Reply::Array(parts) = value else { return None };
    let [host, Reply::Int(port), ..] = parts.as_slice() else { return None };
    let host = if *host == Reply::Nil { "" } else { host.text()? };
    known(host, u16::try_from(*port).ok()?, asked)
}

fn known(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match host {
        "?" => None,
        "" => Some(Address { host: asked.host.clone(), port }),
        host => Some(Address { host: host.to_owned(), port }),
    }
}

/// Reads where a call is sent by MOVED or ASK: `3999 127.0.0.1:6381`.
pub(super) fn redirection(details: &str, asked: &Address) -> Option<(u16, Address)> {
    let (slot, address) = details.split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    let slot = slot.parse().ok().filter(|&slot| slot < SLOTS)?;
    Some((slot, known(host, port.parse().ok()?, asked)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Address {
        Address { host: "me".to_owned(), port: 1 }
    }

    #[test]
    fn slots_are_those_of_redis() {
        // From CLUSTER KEYSLOT.
        for (key, expected) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}{bar}", 12_182),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar", 15_278),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn a_redirection_says_where() {
        let check = |details: &str| redirection(details, &asked()).map(|(slot, at)| format!("{slot} {at}"));
        assert_eq!(check("3999 127.0.0.1:6381").as_deref(), Some("3999 127.0.0.1:6381"));
        assert_eq!(check("0 ::1:6381").as_deref(), Some("0 [::1]:6381"));
        assert_eq!(check("5 :6381").as_deref(), Some("5 me:6381"));
        for nonsense in ["", "5", "5 6381", "16384 a:1", "5 a:70000", "x a:1", "5 ?:1"] {
            assert_eq!(check(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_map_names_primaries_and_replicas() {
        let text = |text: &str| Reply::Bulk(text.as_bytes().into());
        let node = |host: Reply, port| Reply::Array(vec![host, Reply::Int(port), text("id"), Reply::Array(vec![])]);
        let entry =
            |first, last, nodes: Vec<Reply>| Reply::Array([vec![Reply::Int(first), Reply::Int(last)], nodes].concat());
        let reply = Reply::Array(vec![
            entry(0, 5, vec![node(text("a"), 1), node(text("b"), 2), node(text("?"), 3)]),
            entry(6, 6, vec![node(Reply::Nil, 4)]),
            entry(7, 16_383, vec![node(text("?"), 5)]),
        ]);
        let read = ranges(&reply, &asked()).unwrap();
        let shown: Vec<_> = read.iter().map(|range| (range.first, range.last, range.primary.to_string())).collect();
        assert_eq!(shown, [(0, 5, "a:1".to_owned()), (6, 6, "me:4".to_owned())]);
        assert_eq!(read.first().map(|range| range.replicas.len()), Some(1));
        for nonsense in [
            Reply::Nil,
            Reply::Array(vec![Reply::Int(1)]),
            Reply::Array(vec![entry(5, 4, vec![node(text("a"), 1)])]),
            Reply::Array(vec![entry(0, 16_384, vec![node(text("a"), 1)])]),
            Reply::Array(vec![entry(0, -1, vec![node(text("a"), 1)])]),
            Reply::Array(vec![entry(0, 1, vec![])]),
        ] {
            assert_eq!(ranges(&nonsense, &asked()), None, "{nonsense:?}");
        }
    }
}
