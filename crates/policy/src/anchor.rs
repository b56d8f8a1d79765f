//! Anchors: the condition by which a rule is looked up. The index only looks up the anchors that a request has.

use crate::matching::{Entries, Matching, Named};
use crate::network::Network;
use crate::pattern::{Glob, Pattern, Set};
use crate::schema::PathCase;

/// A property of every request that a rule matches. Those that are cheaper to look up come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Anchor {
    /// The exact list of keys of entries, with the values of some of them.
    Sequence(Box<[Known]>),
    Exact(Place, Box<[u8]>),
    Prefix(Place, Box<[u8]>),
    Suffix(Place, Box<[u8]>),
    Network(Network),
    Present(Place),
    Always,
}

/// The key of an entry, with its value if known.
pub(crate) type Known = (Box<str>, Option<Box<[u8]>>);

/// The part of a request that has a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    Entry(Box<str>),
    Header(Box<str>),
    Cookie(Box<str>),
    Query(Box<str>),
    Method,
    Host,
    Path,
    /// The path in lower case.
    FoldedPath,
}

/// Returns the ways to look up a rule. A request that the rule matches has at least one anchor of each way.
pub(crate) fn ways(matching: &Matching) -> Vec<Vec<Anchor>> {
    let mut ways = vec![vec![Anchor::Always]];
    match &matching.entries {
        Entries::Among(all) => ways.extend(all.iter().map(|named| way(&named.value, || entry(named)))),
        Entries::Exactly(all) => {
            ways.push(vec![sequence(all)]);
            ways.extend(all.iter().map(|named| way(&named.value, || entry(named))));
        }
    }
    let path = match matching.path_case {
        PathCase::Exact => Place::Path,
        PathCase::Ignore => Place::FoldedPath,
    };
    let values = [(&matching.method, Place::Method), (&matching.host, Place::Host), (&matching.path, path)];
    for (pattern, place) in values {
        ways.extend(pattern.iter().map(|pattern| way(pattern, || place.clone())));
    }
    ways.extend(matching.headers.iter().map(|named| way(&named.value, || Place::Header(named.name.clone()))));
    ways.extend(matching.cookies.iter().map(|named| way(&named.value, || Place::Cookie(named.name.clone()))));
    ways.extend(matching.query.iter().map(|named| way(&named.value, || Place::Query(named.name.clone()))));
    if !matching.networks.is_empty() {
        ways.push(matching.networks.iter().copied().map(Anchor::Network).collect());
    }
    ways
}

fn entry(named: &Named) -> Place {
    Place::Entry(named.name.clone())
}

fn sequence(all: &[Named]) -> Anchor {
    Anchor::Sequence(all.iter().map(|named| (named.name.clone(), named.value.exact().map(Box::from))).collect())
}

fn way(pattern: &Pattern, place: impl Fn() -> Place) -> Vec<Anchor> {
    match pattern {
        Pattern::Is(glob) | Pattern::But(glob, _) => vec![of_glob(glob, place())],
        Pattern::OneOf(Set { exact, globs }) => {
            let exact = exact.iter().map(|value| Anchor::Exact(place(), value.clone()));
            exact.chain(globs.iter().map(|glob| of_glob(glob, place()))).collect()
        }
    }
}

fn of_glob(glob: &Glob, place: Place) -> Anchor {
    match glob {
        Glob::Exact(value) => Anchor::Exact(place, value.clone()),
        Glob::Prefix(prefix) => Anchor::Prefix(place, prefix.clone()),
        Glob::Suffix(suffix) => Anchor::Suffix(place, suffix.clone()),
        Glob::Parts { prefix, .. } if !prefix.is_empty() => Anchor::Prefix(place, prefix.clone()),
        Glob::Parts { suffix, .. } if !suffix.is_empty() => Anchor::Suffix(place, suffix.clone()),
        Glob::Parts { .. } | Glob::Any => Anchor::Present(place),
    }
}
