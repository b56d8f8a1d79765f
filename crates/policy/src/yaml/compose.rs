//! From the parser's events to the tree: aliases are copied, merge keys merged, everything bounded.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::{Fault, Kind, Mark, Node, Pair, Scalar, Type};
use crate::json::quote;
use crate::load::bounds::{ALIAS_WEIGHT_MAX, DEPTH_MAX, NODE_WEIGHT, NODES_MAX};

/// The document of a file.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) root: Node,
    /// Duplicate keys of maps. The last one is kept in the tree.
    pub(crate) duplicates: Vec<Duplicate>,
}

/// A duplicate key.
#[derive(Debug)]
pub(crate) struct Duplicate {
    pub(crate) key: Arc<str>,
    pub(crate) mark: Mark,
    pub(crate) first: Mark,
}

/// Parses a text into a tree.
pub(crate) fn parse(text: &str) -> Result<Document, Fault> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut composer = Composer::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| fault(&error))?;
        composer.take(event, mark(&span.start))?;
    }
    let start = Mark { line: 1, column: 1 };
    let root = composer.root.unwrap_or(Node { mark: start, kind: Kind::Scalar(Scalar::plain("")) });
    Ok(Document { root, duplicates: composer.duplicates })
}

#[derive(Default)]
struct Composer {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    duplicates: Vec<Duplicate>,
    /// Whether the last scalar is a merge key if it is a key.
    merge_key: bool,
    nodes: usize,
    alias_weight: usize,
}

/// A collection that is not complete yet.
struct Open {
    mark: Mark,
    anchor: usize,
    content: Content,
    weight: usize,
    depth: usize,
}

enum Content {
    List(Vec<Node>),
    Map { pairs: Vec<Pair>, places: HashMap<Arc<str>, usize>, key: Option<Key>, merges: Vec<Node> },
}

/// A key without a value yet.
struct Key {
    scalar: Scalar,
    mark: Mark,
    /// Whether its value is merged into the map: it is `<<` without quotes.
    merges: bool,
}

struct Anchored {
    node: Node,
    weight: usize,
    depth: usize,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, mark: Mark) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = scalar(&text, style, tag.as_deref(), mark)?;
                self.merge_key = style == ScalarStyle::Plain && text == "<<";
                let weight = NODE_WEIGHT + text.len();
                self.add(Node { mark, kind: Kind::Scalar(scalar) }, anchor, weight, 1)
            }
            Event::SequenceStart(_, anchor, tag) => {
                core_tag(tag.as_deref(), mark)?;
                self.start(mark, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                core_tag(tag.as_deref(), mark)?;
                let (pairs, places, merges) = (Vec::new(), HashMap::new(), Vec::new());
                self.start(mark, anchor, Content::Map { pairs, places, key: None, merges })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, mark),
            _ => Ok(()),
        }
    }

    fn start(&mut self, mark: Mark, anchor: usize, content: Content) -> Result<(), Fault> {
        if let Some(Open { content: Content::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(bad_key(mark));
        }
        self.open.push(Open { mark, anchor, content, weight: NODE_WEIGHT, depth: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(Open { mark, anchor, content, weight, depth }) = self.open.pop() else { return Ok(()) };
        let kind = match content {
            Content::List(items) => Kind::List(items),
            Content::Map { pairs, places, merges, .. } => Kind::Map(merge(pairs, places, merges)?),
        };
        self.add(Node { mark, kind }, anchor, weight, depth + 1)
    }

    /// Copies the value of an anchor.
    fn alias(&mut self, anchor: usize, mark: Mark) -> Result<(), Fault> {
        let Some(Anchored { node, weight, depth }) = self.anchors.get(&anchor) else {
            return Err(Fault {
                mark,
                message: "an alias refers to a value that contains it".to_owned(),
                hint: "write the value instead",
            });
        };
        let (weight, depth) = (*weight, *depth);
        weigh(&mut self.alias_weight, weight, mark)?;
        let node = Node { mark, kind: node.kind.clone() };
        self.add(node, 0, weight, depth)
    }

    /// Adds a complete value to the open collection, or makes it the root.
    fn add(&mut self, node: Node, anchor: usize, weight: usize, depth: usize) -> Result<(), Fault> {
        let mark = node.mark;
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            let message = format!("more than {NODES_MAX} values in this file");
            return Err(Fault { mark, message, hint: "split it into several files" });
        }
        if depth + self.open.len() > DEPTH_MAX {
            return Err(too_deep(mark));
        }
        if anchor != 0 {
            // The copy for aliases costs as much as an alias.
            weigh(&mut self.alias_weight, weight, mark)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), weight, depth });
        }
        let Some(open) = self.open.last_mut() else { return self.set_root(node) };
        open.weight += weight;
        open.depth = open.depth.max(depth);
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { pairs, places, key, merges } => match (key.take(), node.kind) {
                (None, Kind::Scalar(scalar)) => *key = Some(Key { scalar, mark, merges: self.merge_key }),
                (None, _) => return Err(bad_key(mark)),
                (Some(Key { merges: true, .. }), kind) => merges.push(Node { mark, kind }),
                (Some(key), kind) => {
                    // A blank value has no visible location, so it gets that of its key.
                    let blank = matches!(&kind, Kind::Scalar(scalar) if scalar.kind == Type::Null);
                    let value = Node { mark: if blank { key.mark } else { mark }, kind };
                    let pair = Pair { key: key.scalar, mark: key.mark, value };
                    put(pairs, places, pair, &mut self.duplicates);
                }
            },
        }
        Ok(())
    }

    fn set_root(&mut self, node: Node) -> Result<(), Fault> {
        match &self.root {
            None => self.root = Some(node),
            // Generated files often end with a separator.
            Some(_) if node.is_null() => {}
            Some(_) => {
                return Err(Fault {
                    mark: node.mark,
                    message: "a second YAML document starts here".to_owned(),
                    hint: "move it to a file of its own",
                });
            }
        }
        Ok(())
    }
}

/// Counts a copy before it is made.
fn weigh(total: &mut usize, weight: usize, mark: Mark) -> Result<(), Fault> {
    *total = total.saturating_add(weight);
    if *total <= ALIAS_WEIGHT_MAX {
        return Ok(());
    }
    let message = format!("anchors and aliases expand to more than {ALIAS_WEIGHT_MAX} bytes");
    Err(Fault { mark, message, hint: "use fewer aliases" })
}

fn put(pairs: &mut Vec<Pair>, places: &mut HashMap<Arc<str>, usize>, pair: Pair, duplicates: &mut Vec<Duplicate>) {
    match places.get(&pair.key.text).and_then(|&place| pairs.get_mut(place)) {
        Some(first) => {
            duplicates.push(Duplicate { key: pair.key.text.clone(), mark: pair.mark, first: first.mark });
            first.value = pair.value;
        }
        None => {
            places.insert(pair.key.text.clone(), pairs.len());
            pairs.push(pair);
        }
    }
}

/// Merges the maps of `<<`: keys of the map itself take precedence, then those of the first merged map.
fn merge(mut pairs: Vec<Pair>, mut places: HashMap<Arc<str>, usize>, merges: Vec<Node>) -> Result<Vec<Pair>, Fault> {
    for node in merges {
        let mark = node.mark;
        let maps = match node.kind {
            Kind::List(items) => items,
            kind => vec![Node { mark, kind }],
        };
        for map in maps {
            let Kind::Map(merged) = map.kind else {
                let message = format!("`<<` is {}", map.describe());
                return Err(Fault { mark, message, hint: "it must be a map, or a list of maps" });
            };
            for pair in merged {
                if !places.contains_key(&pair.key.text) {
                    places.insert(pair.key.text.clone(), pairs.len());
                    pairs.push(pair);
                }
            }
        }
    }
    Ok(pairs)
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, mark: Mark) -> Result<Scalar, Fault> {
    core_tag(tag, mark)?;
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
    Ok(if style == ScalarStyle::Plain && !is_text { Scalar::plain(text) } else { Scalar::quoted(text) })
}

fn core_tag(tag: Option<&Tag>, mark: Mark) -> Result<(), Fault> {
    match tag {
        Some(tag) if tag.is_custom() && !(tag.handle().is_empty() && tag.suffix() == "!") => Err(Fault {
            mark,
            message: format!("unknown tag `{}{}`", quote(tag.handle()), quote(tag.suffix())),
            hint: "remove it",
        }),
        _ => Ok(()),
    }
}

fn fault(error: &ScanError) -> Fault {
    let mark = mark(error.marker());
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return too_deep(mark);
    }
    let message = format!("invalid YAML: {}", error.info());
    Fault { mark, message, hint: "check the indentation, quotes and brackets here and just before" }
}

fn too_deep(mark: Mark) -> Fault {
    let message = format!("maps and lists are nested deeper than {DEPTH_MAX}");
    Fault { mark, message, hint: "use fewer levels" }
}

fn bad_key(mark: Mark) -> Fault {
    Fault { mark, message: "a key is a map or a list".to_owned(), hint: "use text as key" }
}

fn mark(marker: &Marker) -> Mark {
    let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    Mark { line: number(marker.line()), column: number(marker.col()).saturating_add(1) }
}
