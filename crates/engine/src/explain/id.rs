//! The ids of denials. An id names its node, and hides how many denials there were.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::str::FromStr;

/// The id of a denial, like `3f7a2c01-8h2kq0vj4m5xw9dyt1ze`. The digits before the hyphen are the first of the name of its
/// node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecisionId {
    node: u32,
    check: NonZeroU32,
    /// The place of its entry, hidden by a mask that follows from the check.
    masked: u64,
}

/// A text that is not the id of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a denial, which has 8 hexadecimal digits, a hyphen and 20 letters and digits")]
pub struct BadDecisionId;

/// The alphabet of Crockford's base 32: no letter is taken for a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Hexadecimal digits of the node.
const NODE_DIGITS: usize = 8;

/// Digits of 5 bits for the 96 bits after the node.
const PLACE_DIGITS: usize = 20;

impl DecisionId {
    /// Returns the first digits of the name of the node that denied.
    #[must_use]
    pub fn node(&self) -> String {
        format!("{:08x}", self.node)
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.masked) << 32 | u128::from(self.check.get());
        let mut digits = [0; PLACE_DIGITS];
        for (number, digit) in digits.iter_mut().rev().enumerate() {
            let index = usize::try_from(bits >> (5 * number) & 31).unwrap_or_default();
            *digit = ALPHABET.get(index).copied().unwrap_or_default();
        }
        write!(formatter, "{:08x}-{}", self.node, str::from_utf8(&digits).unwrap_or_default())
    }
}

impl FromStr for DecisionId {
    type Err = BadDecisionId;

    fn from_str(text: &str) -> Result<DecisionId, BadDecisionId> {
        let (node, place) = text.split_once('-').ok_or(BadDecisionId)?;
        let is_node = node.len() == NODE_DIGITS && node.bytes().all(|byte| byte.is_ascii_hexdigit());
        let node = u32::from_str_radix(node, 16).ok().filter(|_| is_node).ok_or(BadDecisionId)?;
        if place.len() != PLACE_DIGITS {
            return Err(BadDecisionId);
        }
        let mut bits = 0_u128;
        for byte in place.bytes().map(|byte| byte.to_ascii_lowercase()) {
            let value = ALPHABET.iter().position(|digit| *digit == byte).ok_or(BadDecisionId)?;
            bits = bits << 5 | value as u128;
        }
        // Twenty digits have four bits more.
        let masked = u64::try_from(bits >> 32).map_err(|_| BadDecisionId)?;
        let check = u32::try_from(bits & u128::from(u32::MAX)).ok().and_then(NonZeroU32::new).ok_or(BadDecisionId)?;
        Ok(DecisionId { node, check, masked })
    }
}

/// Makes ids of places, and finds the places of ids, with the secrets of a node.
#[derive(Debug)]
pub(crate) struct Ids {
    node: u32,
    checks: RandomState,
    masks: RandomState,
}

impl Ids {
    pub(crate) fn new(node: u32) -> Ids {
        Ids { node, checks: RandomState::new(), masks: RandomState::new() }
    }

    pub(crate) fn id(&self, place: u64) -> DecisionId {
        let check = self.check(place);
        DecisionId { node: self.node, check, masked: place ^ self.mask(check) }
    }

    /// Whether an id names this node.
    pub(crate) fn is_own(&self, id: &DecisionId) -> bool {
        id.node == self.node
    }

    /// The place of an id that this node made; `None` if it did not make it.
    pub(crate) fn place(&self, id: &DecisionId) -> Option<u64> {
        let place = id.masked ^ self.mask(id.check);
        (self.is_own(id) && self.check(place) == id.check).then_some(place)
    }

    fn check(&self, place: u64) -> NonZeroU32 {
        let hash = self.checks.hash_one(place) >> 32;
        NonZeroU32::MIN | u32::try_from(hash).unwrap_or_default()
    }

    fn mask(&self, check: NonZeroU32) -> u64 {
        self.masks.hash_one(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_written() {
        let ids = Ids::new(0x3f);
        for place in [0, 1, 77, u64::from(u32::MAX), u64::MAX] {
            let id = ids.id(place);
            let text = id.to_string();
            assert_eq!((text.len(), &text[..9]), (29, "0000003f-"), "{text}");
            assert_eq!(text.parse(), Ok(id));
            assert_eq!(text.to_ascii_uppercase().parse(), Ok(id));
            assert_eq!(ids.place(&id), Some(place));
            assert_eq!(id.node(), "0000003f");
        }
        assert_ne!(ids.id(1).masked ^ ids.id(2).masked, 3, "places cannot be compared");
    }

    #[test]
    fn ids_that_this_node_did_not_make() {
        let (ids, others) = (Ids::new(7), Ids::new(8));
        let id = others.id(5);
        assert!(ids.place(&id).is_none() && !ids.is_own(&id));
        // The same name in another process.
        assert_eq!(Ids::new(8).place(&id), None);
        let text = ids.id(5).to_string();
        for wrong in ["", "-", &text[1..], &text[..28], &format!("{text}0"), &text.replace('-', "_"), &"é".repeat(15)]
        {
            assert_eq!(wrong.parse::<DecisionId>(), Err(BadDecisionId), "{wrong}");
        }
        assert_eq!("+000003f-00000000000000000001".parse::<DecisionId>(), Err(BadDecisionId));
        assert_eq!("0000003f-00000000000000000000".parse::<DecisionId>(), Err(BadDecisionId));
        assert_eq!("0000003f-zzzzzzzzzzzzzzzzzzzz".parse::<DecisionId>(), Err(BadDecisionId));
    }
}
