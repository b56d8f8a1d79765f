//! Patterns for values: text with `*`, one of several, or with exceptions.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::path::Forms;

/// A pattern for a value.
#[derive(Debug)]
pub(crate) enum Pattern {
    Is(Glob),
    OneOf(Set),
    /// The glob without the exceptions, which several rules may share.
    But(Glob, Arc<Set>),
}

/// A text in which `*` matches any characters, split at each `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Glob {
    Any,
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
    Suffix(Box<[u8]>),
    Parts { prefix: Box<[u8]>, middle: Box<[Box<[u8]>]>, suffix: Box<[u8]> },
}

/// A set of values and patterns.
#[derive(Debug, Default)]
pub(crate) struct Set {
    pub(crate) exact: HashSet<Box<[u8]>, RandomState>,
    pub(crate) globs: Vec<Glob>,
}

impl Pattern {
    #[inline]
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        match self {
            Pattern::Is(glob) => glob.matches(value),
            Pattern::OneOf(set) => set.contains(value),
            Pattern::But(glob, except) => glob.matches(value) && !except.contains(value),
        }
    }

    /// Whether a path matches: one of its forms does, and not all forms are exceptions.
    #[inline]
    pub(crate) fn matches_path(&self, forms: Forms<'_>) -> bool {
        let Some([decoded, unresolved]) = forms.odd else { return self.matches(forms.canonical) };
        let mut forms = [forms.canonical, decoded, unresolved].into_iter();
        match self {
            Pattern::Is(glob) => forms.any(|form| glob.matches(form)),
            Pattern::OneOf(set) => forms.any(|form| set.contains(form)),
            Pattern::But(glob, except) => {
                forms.clone().any(|form| glob.matches(form)) && !forms.all(|form| except.contains(form))
            }
        }
    }

    /// Whether all forms of a path match.
    pub(crate) fn matches_all_forms(&self, forms: Forms<'_>) -> bool {
        self.matches(forms.canonical) && forms.odd.into_iter().flatten().all(|form| self.matches(form))
    }

    /// Returns the only value that matches, if there is just one.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        match self {
            Pattern::Is(Glob::Exact(value)) | Pattern::But(Glob::Exact(value), _) => Some(value),
            _ => None,
        }
    }
}

impl Glob {
    pub(crate) fn new(text: &str) -> Glob {
        let text = text.as_bytes();
        let mut parts = text.split(|byte| *byte == b'*');
        let prefix: Box<[u8]> = parts.next().unwrap_or_default().into();
        let Some(suffix) = parts.next_back() else { return Glob::Exact(prefix) };
        let suffix: Box<[u8]> = suffix.into();
        let middle: Box<[Box<[u8]>]> = parts.filter(|part| !part.is_empty()).map(Box::from).collect();
        match (prefix.is_empty(), middle.is_empty(), suffix.is_empty()) {
            (true, true, true) => Glob::Any,
            (false, true, true) => Glob::Prefix(prefix),
            (true, true, false) => Glob::Suffix(suffix),
            _ => Glob::Parts { prefix, middle, suffix },
        }
    }

    #[inline]
    pub(crate) fn matches(&self, value: &[u8]) -> bool {
        match self {
            Glob::Any => true,
            Glob::Exact(exact) => **exact == *value,
            Glob::Prefix(prefix) => value.starts_with(prefix),
            Glob::Suffix(suffix) => value.ends_with(suffix),
            Glob::Parts { prefix, middle, suffix } => {
                let rest = value.strip_prefix(&**prefix).and_then(|rest| rest.strip_suffix(&**suffix));
                rest.is_some_and(|rest| contains_in_order(rest, middle))
            }
        }
    }
}

/// Whether a text contains all parts in order. The first occurrence of each part is as good as any later one.
fn contains_in_order(mut rest: &[u8], parts: &[Box<[u8]>]) -> bool {
    parts.iter().all(|part| match rest.windows(part.len()).position(|window| *window == **part) {
        Some(place) => {
            rest = rest.get(place + part.len()..).unwrap_or_default();
            true
        }
        None => false,
    })
}

impl Set {
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Set {
        let mut set = Set::default();
        for value in values {
            match Glob::new(value) {
                Glob::Exact(exact) => {
                    set.exact.insert(exact);
                }
                glob => set.globs.push(glob),
            }
        }
        set
    }

    #[inline]
    pub(crate) fn contains(&self, value: &[u8]) -> bool {
        self.exact.contains(value) || self.globs.iter().any(|glob| glob.matches(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_anything() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "anything", true),
            ("abc", "abc", true),
            ("abc", "ABC", false),
            ("/api/*", "/api/", true),
            ("/api/*", "/api", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("/users/*/orders/*", "/users/7/orders/9", true),
            ("/users/*/orders/*", "/users/7/orders", false),
            ("*b*b*", "ab", false),
            ("*b*b*", "abcb", true),
            ("*ab*ba*", "aba", false),
        ];
        for (pattern, value, expected) in cases {
            assert_eq!(Glob::new(pattern).matches(value.as_bytes()), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn exceptions_win() {
        let pattern = Pattern::But(Glob::new("a*"), Arc::new(Set::new(["abc", "*z"].into_iter())));
        assert!(pattern.matches(b"abd"));
        assert!(!pattern.matches(b"abc"));
        assert!(!pattern.matches(b"aaz"));
        assert!(!pattern.matches(b"b"));
    }

    /// Tries every way to share the value out among the stars.
    fn literal(pattern: &[u8], value: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|taken| literal(rest, &value[taken..])),
            Some((byte, rest)) => value.split_first().is_some_and(|(first, tail)| first == byte && literal(rest, tail)),
        }
    }

    proptest! {
        #[test]
        fn matching_is_as_the_literal_definition(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            prop_assert_eq!(Glob::new(&pattern).matches(value.as_bytes()), literal(pattern.as_bytes(), value.as_bytes()));
        }
    }
}
