//! Things that lie in each other, such as prefixes and networks, sorted so that all around a point are found in a few
//! steps: however many there are and however many different lengths they have.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Something around points. Of two that have a point in common, one encloses the other and sorts before it; and what
/// sorts between something and a point in it lies in it too.
pub(crate) trait Around: Ord {
    type Point<'a>: Copy;

    /// How it sorts, seen from a point.
    fn compare(&self, point: Self::Point<'_>) -> Ordering;
    fn holds(&self, point: Self::Point<'_>) -> bool;
    fn encloses(&self, other: &Self) -> bool;
}

/// Things that may lie in each other, and the numbers of the rules that each stands for.
#[derive(Debug)]
pub(crate) struct Nested<T> {
    nodes: Box<[Node<T>]>,
}

#[derive(Debug)]
struct Node<T> {
    thing: T,
    /// The place of the smallest around it.
    around: Option<u32>,
    rules: Box<[u32]>,
}

impl<T> Default for Nested<T> {
    fn default() -> Nested<T> {
        Nested { nodes: Box::default() }
    }
}

impl<T: Around> Nested<T> {
    pub(crate) fn new(things: BTreeMap<T, Vec<u32>>) -> Nested<T> {
        let mut nodes: Vec<Node<T>> = Vec::with_capacity(things.len());
        // Those that may still enclose what comes, the smallest last.
        let mut open: Vec<u32> = Vec::new();
        for (thing, rules) in things {
            while let Some(last) = open.last() {
                if nodes.get(*last as usize).is_some_and(|node| node.thing.encloses(&thing)) {
                    break;
                }
                open.pop();
            }
            let around = open.last().copied();
            open.push(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
            nodes.push(Node { thing, around, rules: rules.into() });
        }
        Nested { nodes: nodes.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Tells the rules of all things around a point.
    #[inline]
    pub(crate) fn around(&self, point: T::Point<'_>, found: &mut impl FnMut(&[u32])) {
        let mut next = self.before(point);
        while let Some(node) = next {
            if node.thing.holds(point) {
                found(&node.rules);
            }
            next = node.around.and_then(|around| self.nodes.get(around as usize));
        }
    }

    /// Whether any thing is around a point.
    pub(crate) fn any_around(&self, point: T::Point<'_>) -> bool {
        let mut any = false;
        self.around(point, &mut |_| any = true);
        any
    }

    /// The last one that does not sort after a point: whatever is around the point is around that, or is it.
    fn before(&self, point: T::Point<'_>) -> Option<&Node<T>> {
        let after = self.nodes.partition_point(|node| node.thing.compare(point) != Ordering::Greater);
        self.nodes.get(after.checked_sub(1)?)
    }
}

/// The text that values begin with.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix(pub(crate) Box<[u8]>);

impl Around for Prefix {
    type Point<'a> = &'a [u8];

    fn compare(&self, point: &[u8]) -> Ordering {
        (*self.0).cmp(point)
    }

    fn holds(&self, point: &[u8]) -> bool {
        point.starts_with(&self.0)
    }

    fn encloses(&self, other: &Prefix) -> bool {
        other.0.starts_with(&self.0)
    }
}

/// The text that values end with, backwards.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Suffix(Box<[u8]>);

impl Suffix {
    pub(crate) fn new(text: &[u8]) -> Suffix {
        Suffix(text.iter().rev().copied().collect())
    }
}

impl Around for Suffix {
    type Point<'a> = &'a [u8];

    fn compare(&self, point: &[u8]) -> Ordering {
        self.0.iter().cmp(point.iter().rev())
    }

    fn holds(&self, point: &[u8]) -> bool {
        point.len() >= self.0.len() && self.0.iter().eq(point.iter().rev().take(self.0.len()))
    }

    fn encloses(&self, other: &Suffix) -> bool {
        other.0.starts_with(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found<T: Around>(nested: &Nested<T>, point: T::Point<'_>) -> Vec<u32> {
        let mut all = Vec::new();
        nested.around(point, &mut |rules| all.extend_from_slice(rules));
        all.sort_unstable();
        all
    }

    fn numbered<T: Ord>(things: impl Iterator<Item = T>) -> BTreeMap<T, Vec<u32>> {
        let mut map: BTreeMap<T, Vec<u32>> = BTreeMap::new();
        for (number, thing) in (0..).zip(things) {
            map.entry(thing).or_default().push(number);
        }
        map
    }

    proptest! {
        #[test]
        fn all_prefixes_and_suffixes_are_found(
            texts in prop::collection::vec("[abc]{0,4}", 0..40),
            value in "[abc]{0,6}",
        ) {
            let numbers = |holds: &dyn Fn(&str) -> bool| -> Vec<u32> {
                (0..).zip(&texts).filter(|(_, text)| holds(text)).map(|(number, _)| number).collect()
            };
            let prefixes = Nested::new(numbered(texts.iter().map(|text| Prefix(text.as_bytes().into()))));
            prop_assert_eq!(found(&prefixes, value.as_bytes()), numbers(&|text| value.starts_with(text)));
            let suffixes = Nested::new(numbered(texts.iter().map(|text| Suffix::new(text.as_bytes()))));
            prop_assert_eq!(found(&suffixes, value.as_bytes()), numbers(&|text| value.ends_with(text)));
        }
    }
}
