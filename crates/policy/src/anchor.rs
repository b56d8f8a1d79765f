//! Anchors: by which of its conditions a rule is looked up. The index asks each request only for the anchors it has.

use crate::matching::{Entries, Matching, Named};
use crate::network::Network;
use crate::pattern::{Glob, Pattern, Set};
use crate::schema::PathCase;

/// Something that a request has whenever a rule applies to it. Those that cost less to look up come first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Anchor {
    /// Exactly these keys of entries in this order, and these values of some of them.
    Sequence(Box<[Known]>),
    Exact(Place, Box<[u8]>),
    Prefix(Place, Box<[u8]>),
    Suffix(Place, Box<[u8]>),
    Network(Network),
    Present(Place),
    Always,
}

/// The key of an entry, and its value if that is known.
pub(crate) type Known = (Box<str>, Option<Box<[u8]>>);

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    Entry(Box<str>),
    Header(Box<str>),
    Cookie(Box<str>),
    Query(Box<str>),
    Method,
    Host,
    Path,
    /// The path without the difference between capital and small letters.
    FoldedPath,
}

/// The ways to look a rule up: of each, a request has at least one anchor whenever the rule applies to it.
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
