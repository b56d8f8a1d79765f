//! The format of the exchange between nodes: lines of JSON with short names. Other versions may write other fields: lines that
//! cannot be read are skipped.

use serde::{Deserialize, Serialize};
use tidegate_core::KeyCounts;
use tidegate_policy::ShownPart;
use tidegate_stores::NOTICE_BYTES_MAX;

use super::blocks::Operator;

/// The heaviest keys of a rule on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RuleNotice {
    #[serde(rename = "d")]
    pub(super) domain: Box<str>,
    #[serde(rename = "r")]
    pub(super) rule: Box<str>,
    /// What was seen of all its keys in the last minute, and in the last hour.
    #[serde(rename = "t")]
    pub(super) totals: [Counts; 2],
    #[serde(rename = "k")]
    pub(super) keys: Vec<KeyNotice>,
}

/// How often one key was seen in the last minute, and in the last hour: its parts, then the counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyNotice(pub(super) Vec<Part>, pub(super) Counts, pub(super) Counts);

/// Requests, denials and denials in shadow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts(u64, u64, u64);

impl From<KeyCounts> for Counts {
    fn from(counts: KeyCounts) -> Counts {
        Counts(counts.requests, counts.denials, counts.shadow_denials)
    }
}

impl From<Counts> for KeyCounts {
    fn from(counts: Counts) -> KeyCounts {
        KeyCounts { requests: counts.0, denials: counts.1, shadow_denials: counts.2 }
    }
}

/// A part of a key: its name, its value, and whether that is a hash (1) or escaped (2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part(Box<str>, Box<str>, u8);

impl From<ShownPart> for Part {
    fn from(part: ShownPart) -> Part {
        Part(part.part, part.value, u8::from(part.hidden) + 2 * u8::from(part.escaped))
    }
}

impl From<Part> for ShownPart {
    fn from(Part(part, value, marks): Part) -> ShownPart {
        ShownPart { part, value, hidden: marks & 1 > 0, escaped: marks & 2 > 0 }
    }
}

/// A key that stays denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockNotice {
    #[serde(rename = "d")]
    pub(super) domain: Box<str>,
    #[serde(rename = "r")]
    pub(super) rule: Box<str>,
    #[serde(rename = "s")]
    pub(super) shape: u64,
    /// In hexadecimal digits.
    #[serde(rename = "k")]
    pub(super) key: Box<str>,
    #[serde(rename = "o")]
    pub(super) is_of_operator: bool,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub(super) operator: Option<Operator>,
    #[serde(rename = "n")]
    pub(super) node: Box<str>,
    #[serde(rename = "at")]
    pub(super) since_ns: u64,
    /// How long it lasted when this was published.
    #[serde(rename = "l")]
    pub(super) left_ns: u64,
}

/// A key whose blocks were lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LiftedNotice {
    #[serde(rename = "d")]
    pub(super) domain: Box<str>,
    #[serde(rename = "r")]
    pub(super) rule: Box<str>,
    /// In hexadecimal digits.
    #[serde(rename = "k")]
    pub(super) key: Box<str>,
    #[serde(rename = "at")]
    pub(super) at_ns: u64,
}

/// One thing in a notice about blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OfBlocks {
    #[serde(rename = "lifted")]
    Lifted(LiftedNotice),
    #[serde(rename = "block")]
    Block(BlockNotice),
}

/// Writes things one after the other, each on a line of its own, into as few notices as they fit in, at most this many.
/// Returns the notices, and how many things found no room.
pub(super) fn write<T: Serialize>(things: &[T], notices_max: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut notices, mut left_out): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    for thing in things {
        // Numbers and text always are JSON.
        let mut line = serde_json::to_vec(thing).unwrap_or_default();
        line.push(b'\n');
        let may_begin = notices.len() < notices_max && line.len() <= NOTICE_BYTES_MAX;
        match notices.last_mut() {
            Some(last) if last.len() + line.len() <= NOTICE_BYTES_MAX => last.extend_from_slice(&line),
            _ if may_begin => notices.push(line),
            _ => left_out += 1,
        }
    }
    (notices, left_out)
}

/// Reads what a notice has, as far as it can be read.
pub(super) fn read<'de, T: Deserialize<'de> + 'de>(notice: &'de [u8]) -> impl Iterator<Item = T> + 'de {
    notice.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

pub(super) fn hex(bytes: &[u8]) -> Box<str> {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect::<String>().into()
}

pub(super) fn unhex(text: &str) -> Option<Box<[u8]>> {
    let digit = |byte: &u8| u8::try_from(char::from(*byte).to_digit(16)?).ok();
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(number: u64) -> KeyCounts {
        KeyCounts { requests: number, denials: number / 2, shadow_denials: number / 3 }
    }

    fn rule(name: &str, keys: usize) -> RuleNotice {
        let part =
            |value: String| ShownPart { part: "entry:a".into(), value: value.into(), hidden: false, escaped: true };
        let key = |number: usize| {
            let parts = vec![part(format!("{number}\n\"\u{1b}")).into()];
            KeyNotice(parts, counts(number as u64).into(), counts(7).into())
        };
        let totals = [counts(10).into(), counts(100).into()];
        RuleNotice { domain: "d".into(), rule: name.into(), totals, keys: (0..keys).map(key).collect() }
    }

    #[test]
    fn what_is_written_is_read() {
        let rules = [rule("a", 3), rule("b\n", 0)];
        let (notices, left_out) = write(&rules, 4);
        assert_eq!((notices.len(), left_out), (1, 0));
        assert_eq!(read::<RuleNotice>(&notices[0]).collect::<Vec<_>>(), rules);
        let part = ShownPart { part: "a".into(), value: "b".into(), hidden: true, escaped: false };
        assert_eq!(ShownPart::from(Part::from(part.clone())), part);
        assert_eq!(KeyCounts::from(Counts::from(counts(9))), counts(9));
    }

    #[test]
    fn notices_are_bounded() {
        let rules: Vec<RuleNotice> = (0..100).map(|number| rule(&format!("rule{number}"), 60)).collect();
        let (notices, left_out) = write(&rules, 4);
        assert_eq!(notices.len(), 4);
        assert!(notices.iter().all(|notice| notice.len() <= NOTICE_BYTES_MAX));
        let written: usize = notices.iter().map(|notice| read::<RuleNotice>(notice).count()).sum();
        assert_eq!((written + left_out, left_out > 0), (100, true));
        assert_eq!(write(&[rule("vast", 10_000)], 4), (vec![], 1));
    }

    #[test]
    fn what_others_write_is_left_out() {
        let notice =
            b"\n{}\nnull\n\xff\n{\"d\":\"d\",\"r\":\"r\",\"t\":[[1,0,0],[2,0,0]],\"k\":[],\"more\":[1]}\n{\"d\":1}";
        let all: Vec<RuleNotice> = read(notice).collect();
        assert_eq!(all.iter().map(|rule| &*rule.rule).collect::<Vec<_>>(), ["r"]);
        assert_eq!(read::<OfBlocks>(notice).count(), 0);
    }

    #[test]
    fn bytes_in_hexadecimal_digits() {
        assert_eq!((&*hex(b"\0\xff\x1a"), &*hex(b"")), ("00ff1a", ""));
        assert_eq!(unhex("00fF1a").as_deref(), Some(&b"\0\xff\x1a"[..]));
        for text in ["0", "0g", "+1", "é"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
