//! The descriptor that an entry matches among those of one level.
//!
//! The reference server looks for the exact value first, then for the first wildcard in the order of the file, then
//! for the key alone, and never tries another one. Rules express the same independently of each other: a wildcard excepts
//! the exact values and the wildcards before it, the key alone excepts all of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::Descriptor;
use crate::schema::{But, Value};

/// The values of one key at one level, in order.
#[derive(Default)]
struct Group<'a> {
    exact: Vec<&'a str>,
    wildcards: Vec<&'a str>,
}

/// Returns the pattern that the value of the entry must match for each descriptor of a level. Takes the comparisons from
/// `budget`, and returns `None` if that is not enough.
pub(super) fn values(descriptors: &[Descriptor], budget: &mut usize) -> Option<Vec<Value>> {
    let mut groups: HashMap<&str, Group<'_>> = HashMap::new();
    for descriptor in descriptors.iter().filter(|descriptor| !descriptor.value.is_empty()) {
        let group = groups.entry(&descriptor.key).or_default();
        let is_wildcard = descriptor.value.contains('*');
        if is_wildcard { &mut group.wildcards } else { &mut group.exact }.push(&descriptor.value);
    }
    let work = groups.values().map(Group::comparisons).fold(0, usize::saturating_add);
    *budget = budget.checked_sub(work)?;
    // Duplicates, which are errors, share their exceptions.
    let mut known: HashMap<(&str, &str), Value> = HashMap::new();
    let value_of = |descriptor: &Descriptor| {
        let except = groups.get(descriptor.key.as_str()).map_or_else(Vec::new, |group| group.before(&descriptor.value));
        let is = if descriptor.value.is_empty() { "*" } else { &descriptor.value };
        if except.is_empty() {
            Value::Is(is.to_owned())
        } else {
            let except: Arc<[String]> = except.into_iter().map(str::to_owned).collect();
            Value::But(But { is: is.to_owned(), except })
        }
    };
    let values = descriptors.iter().map(|descriptor| {
        let name = (descriptor.key.as_str(), descriptor.value.as_str());
        known.entry(name).or_insert_with(|| value_of(descriptor)).clone()
    });
    Some(values.collect())
}

impl<'a> Group<'a> {
    fn comparisons(&self) -> usize {
        let all = self.exact.len() + self.wildcards.len();
        all.saturating_add(all.saturating_mul(self.wildcards.len()))
    }

    /// Returns the values before this one that it could match too.
    fn before(&self, value: &str) -> Vec<&'a str> {
        if value.is_empty() {
            return self.exact.iter().chain(&self.wildcards).copied().collect();
        }
        if !value.contains('*') {
            return Vec::new();
        }
        let earlier = self.wildcards.iter().take_while(|wildcard| **wildcard != value);
        self.exact.iter().chain(earlier).copied().filter(|other| may_overlap(value, other)).collect()
    }
}

/// Whether a value may match both patterns, judged by their prefixes and suffixes. False only if none does.
pub(super) fn may_overlap(left: &str, right: &str) -> bool {
    // The parts before the first star and after the last one. Without a star, the whole text is both.
    let parts = |text: &str| match (text.find('*'), text.rfind('*')) {
        (Some(first), Some(last)) => (first, text.len() - last - 1, usize::MAX),
        _ => (text.len(), text.len(), text.len()),
    };
    let ((left_start, left_end, left_room), (right_start, right_end, right_room)) = (parts(left), parts(right));
    let (start, end) = (left_start.min(right_start), left_end.min(right_end));
    let (left, right) = (left.as_bytes(), right.as_bytes());
    left.get(..start) == right.get(..start)
        && left.get(left.len() - end..) == right.get(right.len() - end..)
        && left_start.max(left_end) <= right_room
        && right_start.max(right_end) <= left_room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(siblings: &[(&str, &str)], expected: &[&str]) {
        let descriptors: Vec<Descriptor> = siblings
            .iter()
            .map(|&(key, value)| Descriptor { key: key.to_owned(), value: value.to_owned(), ..Descriptor::default() })
            .collect();
        let shown: Vec<String> = values(&descriptors, &mut 1000)
            .unwrap()
            .iter()
            .map(|value| match value {
                Value::Is(is) => is.clone(),
                Value::But(But { is, except }) => format!("{is} but {}", except.join(" ")),
                Value::OneOf(_) => unreachable!(),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_exact_value_then_the_first_wildcard_then_the_key_alone() {
        check(&[("a", ""), ("b", "x")], &["*", "x"]);
        check(&[("a", ""), ("a", "x"), ("a", "x*"), ("a", "xy*")], &["* but x x* xy*", "x", "x* but x", "xy* but x*"]);
        check(&[("a", "x*"), ("a", "y*"), ("a", "*z"), ("a", "w")], &["x*", "y*", "*z but x* y*", "w"]);
        check(&[("a", "*"), ("a", "x*"), ("b", "x")], &["*", "x* but *", "x"]);
    }

    #[test]
    fn what_stands_twice_shares_what_it_excepts() {
        let named = |value: &str| Descriptor { key: "a".to_owned(), value: value.to_owned(), ..Descriptor::default() };
        let values = values(&[named("x"), named(""), named("")], &mut 1000).unwrap();
        let [_, Value::But(first), Value::But(second)] = values.as_slice() else { panic!("{values:?}") };
        assert!(Arc::ptr_eq(&first.except, &second.except));
    }

    #[test]
    fn only_what_cannot_match_both_is_left_out() {
        for (left, right, expected) in [
            ("ab*", "a*", true),
            ("ab*", "ac*", false),
            ("*x", "*yx", true),
            ("*x", "*y", false),
            ("a*b", "ab", true),
            ("a*b", "acc", false),
            ("xy*", "x", false),
            ("*", "", true),
            ("ä*", "ö*", false),
        ] {
            assert_eq!(may_overlap(left, right), expected, "{left} {right}");
            assert_eq!(may_overlap(right, left), expected, "{right} {left}");
        }
    }
}
