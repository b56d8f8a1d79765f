//! YAML as a tree with the location of each value.
//!
//! | to find | look in |
//! |---|---|
//! | the tree, pointers into it, JSON made of it | here |
//! | from the parser's events to the tree, aliases, merge keys, bounds | `compose.rs` |
//! | the types of plain scalars | `scalar.rs` |

mod compose;
mod scalar;

pub(crate) use compose::parse;
pub(crate) use scalar::{Scalar, Type};

/// A location in a text. Line and column count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value with its location.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) mark: Mark,
    pub(crate) kind: Kind,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

/// An entry of a map.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: Scalar,
    pub(crate) mark: Mark,
    pub(crate) value: Node,
}

/// A syntax error.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) mark: Mark,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

impl Node {
    /// Returns the value of a key, if this is a map with it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.pair(key).map(|pair| &pair.value)
    }

    /// Returns the entry of a key, if this is a map with it.
    pub(crate) fn pair(&self, key: &str) -> Option<&Pair> {
        self.pairs().iter().find(|pair| &*pair.key.text == key)
    }

    /// Returns the entries of a map; none for other values.
    pub(crate) fn pairs(&self) -> &[Pair] {
        match &self.kind {
            Kind::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// Returns the items of a list; none for other values.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.kind == Type::Null)
    }

    /// Returns the location of the value of a JSON pointer, or of the nearest value around it.
    pub(crate) fn locate(&self, pointer: &str) -> Mark {
        let mut node = self;
        for token in pointer.split('/').skip(1) {
            let token = unescape(token);
            let inner = match &node.kind {
                Kind::Scalar(_) => None,
                Kind::List(items) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
                Kind::Map(_) => node.get(&token),
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        node.mark
    }

    /// Converts it to JSON. Keys that are not text become text as written.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.to_json(),
            Kind::List(items) => items.iter().map(Node::to_json).collect(),
            Kind::Map(pairs) => pairs
                .iter()
                .map(|pair| (pair.key.text.to_string(), pair.value.to_json()))
                .collect::<serde_json::Value>(),
        }
    }

    /// Describes it in words: `x` in backticks, `the number 3`, `a list`.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.describe(),
            Kind::List(items) if items.is_empty() => "an empty list".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(pairs) if pairs.is_empty() => "an empty map".to_owned(),
            Kind::Map(_) => "a map".to_owned(),
        }
    }
}

/// Escapes a token of a JSON pointer.
pub(crate) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// Restores an escaped token of a JSON pointer.
pub(crate) fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}
