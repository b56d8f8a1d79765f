//! Prefixes and suffixes of values. All that match a value are found by a binary search over their lengths, with one lookup in
//! a hash table for each step.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;

/// The end of a value that an affix is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Front,
    Back,
}

impl End {
    /// Returns the bytes of a value at this end.
    #[inline]
    fn of(self, value: &[u8], length: usize) -> Option<&[u8]> {
        match self {
            End::Front => value.get(..length),
            End::Back => value.get(value.len().checked_sub(length)?..),
        }
    }
}

/// Prefixes or suffixes, with the numbers of their rules.
#[derive(Debug, Default)]
pub(crate) struct Affixes {
    end: End,
    /// All lengths, ascending.
    lengths: Box<[usize]>,
    /// Every affix and every text that the search visits on the path to one, with the index of the longest affix in it.
    marks: HashMap<Box<[u8]>, Option<u32>, RandomState>,
    nodes: Box<[Node]>,
}

#[derive(Debug)]
struct Node {
    /// The index of the longest other affix of this one.
    within: Option<u32>,
    rules: Box<[u32]>,
}

impl Affixes {
    pub(crate) fn new(end: End, affixes: BTreeMap<Box<[u8]>, Vec<u32>>) -> Affixes {
        let lengths: BTreeSet<usize> = affixes.keys().map(|affix| affix.len()).collect();
        let lengths: Box<[usize]> = lengths.into_iter().collect();
        let mut by_length: Vec<(Box<[u8]>, Vec<u32>)> = affixes.into_iter().collect();
        by_length.sort_by_key(|(affix, _)| affix.len());
        let places: HashMap<&[u8], u32, RandomState> =
            by_length.iter().zip(0..).map(|((affix, _), place)| (&**affix, place)).collect();
        // The longest affix among those of at most this length that a text has.
        let longest = |text: &[u8], most: usize| {
            let shorter = lengths.iter().rev().filter(|length| **length <= most);
            shorter.filter_map(|length| places.get(end.of(text, *length)?).copied()).next()
        };
        let mut marks: HashMap<Box<[u8]>, Option<u32>, RandomState> = HashMap::default();
        let mut within = Vec::with_capacity(by_length.len());
        for (affix, _) in &by_length {
            within.push(affix.len().checked_sub(1).and_then(|most| longest(affix, most)));
            search(&lengths, |length| {
                let Some(mark) = end.of(affix, length) else { return false };
                if !marks.contains_key(mark) {
                    marks.insert(mark.into(), longest(mark, length));
                }
                true
            });
        }
        drop(places);
        let rules = by_length.into_iter().map(|(_, rules)| rules.into());
        let nodes = within.into_iter().zip(rules).map(|(within, rules)| Node { within, rules }).collect();
        Affixes { end, lengths, marks, nodes }
    }

    /// Calls `found` with the rules of all affixes of a value.
    #[inline]
    pub(crate) fn of(&self, value: &[u8], found: &mut impl FnMut(&[u32])) {
        let mut longest = None;
        search(&self.lengths, |length| {
            let mark = self.end.of(value, length).and_then(|text| self.marks.get(text));
            longest = mark.copied().unwrap_or(longest);
            mark.is_some()
        });
        while let Some(node) = longest.and_then(|place| self.nodes.get(place as usize)) {
            found(&node.rules);
            longest = node.within;
        }
    }
}

/// Searches the lengths: continues with longer ones if `is_mark`, else with shorter ones.
#[inline]
fn search(lengths: &[usize], mut is_mark: impl FnMut(usize) -> bool) {
    let mut rest = lengths;
    while let Some((shorter, [length, longer @ ..])) = rest.split_at_checked(rest.len() / 2) {
        rest = if is_mark(*length) { longer } else { shorter };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_prefixes_and_suffixes_are_found(
            texts in prop::collection::vec("[ab]{0,7}", 0..40),
            value in "[ab]{0,9}",
        ) {
            let mut map: BTreeMap<Box<[u8]>, Vec<u32>> = BTreeMap::new();
            for (number, text) in (0..).zip(&texts) {
                map.entry(text.as_bytes().into()).or_default().push(number);
            }
            for end in [End::Front, End::Back] {
                let mut found = Vec::new();
                Affixes::new(end, map.clone()).of(value.as_bytes(), &mut |rules| found.extend_from_slice(rules));
                found.sort_unstable();
                let holds = |text: &str| match end {
                    End::Front => value.starts_with(text),
                    End::Back => value.ends_with(text),
                };
                let expected: Vec<u32> =
                    (0..).zip(&texts).filter(|(_, text)| holds(text)).map(|(number, _)| number).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
