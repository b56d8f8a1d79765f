//! The bytes of one entry: first the numbers, which a later denial in the same second replaces, then texts.

use std::time::Duration;

use tidegate_core::{Retry, Time};

use crate::outcome::{Answer, Denial};

/// What an entry says of a denial as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) at: Time,
    /// Denials in the second of the entry, as far as they are known to it.
    pub(crate) count: u64,
    pub(crate) denial: Denial,
    /// Limits that denied and are not in the entry.
    pub(crate) left_out: u8,
}

/// The numbers of one limit that denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) denial: Denial,
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) cost: u64,
    /// Whether this process decided because the store did not answer.
    pub(crate) local: bool,
}

/// The names of one limit that denied, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names<'a> {
    /// Empty for a limit that the request brought.
    pub(crate) rule: &'a str,
    /// Empty for a rule without a limit.
    pub(crate) limit: &'a str,
    pub(crate) store: &'a str,
    /// A hash of the names of the parts of the key.
    pub(crate) shape: u64,
    pub(crate) key: &'a [u8],
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) head: Head,
    pub(crate) policy: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) limits: Vec<(Numbers, Names<'a>)>,
}

const HEAD_BYTES: usize = 19;
const NUMBERS_BYTES: usize = 43;

impl Numbers {
    /// What a limit said when it denied these units; `None` if it did not deny.
    pub(crate) fn of(answer: &Answer, cost: u64, local: bool) -> Option<Numbers> {
        let decision = answer.decision();
        Some(Numbers {
            denial: answer.denial()?,
            limit: decision.map(|decision| decision.limit()),
            remaining: decision.map(|decision| decision.remaining()),
            reset: decision.map(|decision| decision.reset_after()),
            retry: answer.retry(),
            cost,
            local,
        })
    }

    fn to_bytes(self) -> [u8; NUMBERS_BYTES] {
        let (kind, wait) = match self.retry {
            None => (0, Duration::ZERO),
            Some(Retry::Never) => (1, Duration::ZERO),
            Some(Retry::After(wait)) => (2, wait),
            Some(Retry::Unknown(wait)) => (3, wait),
        };
        let has = |value: Option<u64>, bit: u8| if value.is_some() { bit } else { 0 };
        let reset = self.reset.map(nanos);
        let flags = has(self.limit, 1) | has(self.remaining, 2) | has(reset, 4) | if self.local { 8 } else { 0 };
        let mut bytes = [0; NUMBERS_BYTES];
        let numbers = [self.limit, self.remaining, reset, Some(nanos(wait)), Some(self.cost)];
        let (marks, rest) = bytes.split_at_mut(3);
        marks.copy_from_slice(&[number_of(self.denial), flags, kind]);
        for (place, number) in rest.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.unwrap_or_default().to_le_bytes());
        }
        bytes
    }

    fn read(reader: &mut Reader<'_>) -> Option<Numbers> {
        let [denial, flags, kind] = *reader.array()?;
        let [limit, remaining, reset] = [reader.number()?, reader.number()?, reader.number()?];
        let (wait, cost) = (Duration::from_nanos(reader.number()?), reader.number()?);
        let some = |value: u64, bit: u8| (flags & bit != 0).then_some(value);
        Some(Numbers {
            denial: denial_of(denial)?,
            limit: some(limit, 1),
            remaining: some(remaining, 2),
            reset: some(reset, 4).map(Duration::from_nanos),
            retry: match kind {
                0 => None,
                1 => Some(Retry::Never),
                2 => Some(Retry::After(wait)),
                _ => Some(Retry::Unknown(wait)),
            },
            cost,
            local: flags & 8 != 0,
        })
    }
}

impl Head {
    fn to_bytes(self, limits: u8) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let (numbers, marks) = bytes.split_at_mut(16);
        numbers[..8].copy_from_slice(&self.at.as_nanos().to_le_bytes());
        numbers[8..].copy_from_slice(&self.count.to_le_bytes());
        marks.copy_from_slice(&[number_of(self.denial), self.left_out, limits]);
        bytes
    }
}

/// Appends an entry.
pub(crate) fn write<'a>(
    head: Head,
    (policy, domain): (&str, &str),
    numbers: &[Numbers],
    names: impl Iterator<Item = Names<'a>>,
    bytes: &mut Vec<u8>,
) {
    bytes.extend_from_slice(&head.to_bytes(u8::try_from(numbers.len()).unwrap_or(u8::MAX)));
    numbers.iter().for_each(|numbers| bytes.extend_from_slice(&numbers.to_bytes()));
    text(bytes, policy.as_bytes());
    text(bytes, domain.as_bytes());
    for names in names {
        [names.rule, names.limit, names.store].iter().for_each(|name| text(bytes, name.as_bytes()));
        bytes.extend_from_slice(&names.shape.to_le_bytes());
        text(bytes, names.key);
    }
}

/// Replaces the numbers of an entry by those of another denial of the same keys, and counts it.
pub(crate) fn rewrite(head: Head, numbers: &[Numbers], entry: &mut [u8]) {
    let count = entry.get(8..16).and_then(|count| count.try_into().ok()).map_or(0, u64::from_le_bytes);
    let head = Head { count: count.saturating_add(head.count), ..head };
    let head = head.to_bytes(u8::try_from(numbers.len()).unwrap_or(u8::MAX));
    let new = head.into_iter().chain(numbers.iter().flat_map(|one| one.to_bytes()));
    entry.iter_mut().zip(new).for_each(|(place, byte)| *place = byte);
}

/// Reads an entry.
pub(crate) fn read(bytes: &[u8]) -> Option<Entry<'_>> {
    let mut reader = Reader(bytes);
    let (at, count) = (Time::from_nanos(reader.number()?), reader.number()?);
    let [denial, left_out, limits] = *reader.array()?;
    let head = Head { at, count, denial: denial_of(denial)?, left_out };
    let numbers: Vec<Numbers> = (0..limits).map(|_| Numbers::read(&mut reader)).collect::<Option<_>>()?;
    let (policy, domain) = (reader.text()?, reader.text()?);
    let mut all = Vec::with_capacity(numbers.len());
    for numbers in numbers {
        let [rule, limit, store] = [reader.text()?, reader.text()?, reader.text()?];
        let (shape, key) = (reader.number()?, reader.bytes()?);
        all.push((numbers, Names { rule, limit, store, shape, key }));
    }
    Some(Entry { head, policy, domain, limits: all })
}

/// Appends bytes after their length. Names and keys have no more than 64 kB.
fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.get(..usize::from(length)).unwrap_or(text));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(*self.array()?));
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const DENIALS: [Denial; 6] =
    [Denial::Overloaded, Denial::StoreFailure, Denial::CostFailed, Denial::OverLimit, Denial::Penalty, Denial::Blocked];

fn number_of(denial: Denial) -> u8 {
    denial as u8
}

fn denial_of(number: u8) -> Option<Denial> {
    DENIALS.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        for (number, denial) in (0..).zip(DENIALS) {
            assert_eq!((number_of(denial), denial_of(number)), (number, Some(denial)));
        }
        let wait = Duration::from_millis(1_500);
        let over = Numbers {
            denial: Denial::OverLimit,
            limit: Some(u64::MAX),
            remaining: Some(0),
            reset: Some(Duration::ZERO),
            retry: Some(Retry::Unknown(wait)),
            cost: 7,
            local: true,
        };
        let blocked = Numbers {
            denial: Denial::Blocked,
            limit: None,
            remaining: None,
            reset: None,
            retry: Some(Retry::Never),
            ..over
        };
        let head = Head { at: Time::from_nanos(5), count: 1, denial: Denial::Blocked, left_out: 2 };
        let names = [
            Names { rule: "per \"user\"", limit: "burst", store: "default", shape: 9, key: b"\0\x01\xff" },
            Names { rule: "", limit: "", store: "", shape: 0, key: b"" },
        ];
        let mut bytes = Vec::new();
        write(head, ("hash", "api"), &[over, blocked], names.into_iter(), &mut bytes);
        let limits = vec![(over, names[0]), (blocked, names[1])];
        let expected = Entry { head, policy: "hash", domain: "api", limits };
        assert_eq!(read(&bytes), Some(expected.clone()));
        let later = Numbers { retry: Some(Retry::After(wait)), local: false, ..over };
        rewrite(Head { at: Time::from_nanos(6), ..head }, &[later, blocked], &mut bytes);
        let head = Head { at: Time::from_nanos(6), count: 2, ..head };
        let limits = vec![(later, names[0]), (blocked, names[1])];
        assert_eq!(read(&bytes), Some(Entry { head, limits, ..expected }));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "{end}");
        }
    }
}
