//! The files of envoyproxy/ratelimit, loaded unchanged.
//!
//! | to find | look in |
//! |---|---|
//! | from a file to a tree of descriptors, and what is wrong with it | here; keys and their types in `fields.rs` |
//! | what goes before what at one level of the tree | `siblings.rs` |
//! | from the tree to rules | `rules.rs` |

mod fields;
mod rules;
mod siblings;

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::Algorithm;

pub(crate) use rules::write_rules;

use crate::json::quote;
use crate::load::{Assembly, Problems, at, list, suggest};
use crate::yaml::{Kind, Mark, Node};
use fields::{DESCRIPTOR_KEYS, Fields, RATE_LIMIT_KEYS, REPLACES_KEYS, ROOT_KEYS};

/// All descriptors of a domain.
pub(crate) type Tree = Vec<Descriptor>;

/// A descriptor as the files have it.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Descriptor {
    file: Arc<str>,
    document: usize,
    /// Where it stands in its document.
    pointer: String,
    mark: Mark,
    key: String,
    /// Empty if any value will do.
    value: String,
    limit: Option<RateLimit>,
    shadow_mode: bool,
    quota_mode: bool,
    detailed_metric: bool,
    value_to_metric: bool,
    share_threshold: bool,
    metadata: Option<serde_json::Value>,
    descriptors: Vec<Descriptor>,
}

/// What `rate_limit` says.
#[derive(Debug, Default)]
struct RateLimit {
    mark: Mark,
    unlimited: bool,
    requests_per_unit: u32,
    /// In lower case.
    unit: &'static str,
    name: Option<String>,
    replaces: Vec<String>,
    algorithm: Option<Algorithm>,
    burst: Option<u64>,
    count_denied: bool,
}

const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

/// Adds the descriptors of a file to the tree of its domain.
pub(crate) fn read(document: usize, root: &Node, assembly: &mut Assembly, problems: &mut Problems) {
    let file = assembly.file(document);
    let mut fields = Fields { file: &file, problems };
    fields.check_keys(root, ROOT_KEYS, "the top of the file");
    let errors = fields.problems.errors();
    let domain = fields.text(root, "domain").unwrap_or_default();
    if domain.is_empty() && errors == fields.problems.errors() {
        let mark = root.pair("domain").map_or(root.mark, |pair| pair.mark);
        fields.error(mark, "this file has no domain", "write `domain: …` at its top");
    }
    let mut reader = Reader { document, fields, limits: 0 };
    let descriptors = reader.descriptors(root, "");
    assembly.written += reader.limits;
    if domain.is_empty() {
        return;
    }
    let mark = root.get("domain").map_or(root.mark, |node| node.mark);
    if assembly.domain(document, mark, &domain, problems) {
        let tree = assembly.trees.entry(domain).or_default();
        let before = tree.len();
        tree.extend(descriptors);
        if before > 0 {
            // Only now are those of several files beside each other.
            let mut fields = Fields { file: &file, problems };
            tell_duplicates(tree, before, &mut fields);
        }
    }
}

struct Reader<'a> {
    document: usize,
    fields: Fields<'a>,
    /// How many there are, also bad ones.
    limits: usize,
}

impl Reader<'_> {
    fn descriptors(&mut self, parent: &Node, pointer: &str) -> Vec<Descriptor> {
        let Some(node) = parent.get("descriptors").filter(|node| !node.is_null()) else { return Vec::new() };
        let Kind::List(items) = &node.kind else {
            let message = format!("`descriptors` is {}", node.describe());
            self.fields.error(node.mark, message, "it must be a list of maps, each with a `key`");
            return Vec::new();
        };
        let mut descriptors = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let pointer = format!("{pointer}/descriptors/{index}");
            descriptors.extend(self.descriptor(item, pointer));
        }
        tell_duplicates(&descriptors, 0, &mut self.fields);
        descriptors
    }

    fn descriptor(&mut self, node: &Node, pointer: String) -> Option<Descriptor> {
        let Kind::Map(_) = &node.kind else {
            let message = format!("an item of `descriptors` is {}", node.describe());
            self.fields.error(node.mark, message, "it must be a map with a `key`");
            return None;
        };
        self.fields.check_keys(node, DESCRIPTOR_KEYS, "a descriptor");
        let errors = self.fields.problems.errors();
        let key = self.fields.text(node, "key").unwrap_or_default();
        if key.is_empty() && errors == self.fields.problems.errors() {
            let mark = node.pair("key").map_or(node.mark, |pair| pair.mark);
            self.fields.error(mark, "a descriptor has no key", "write `key: …`, the key of the entry it is about");
        }
        let descriptor = Descriptor {
            file: self.fields.file.clone(),
            document: self.document,
            mark: node.mark,
            value: self.fields.text(node, "value").unwrap_or_default(),
            limit: self.rate_limit(node),
            shadow_mode: self.fields.flag(node, "shadow_mode"),
            quota_mode: self.fields.flag(node, "quota_mode"),
            detailed_metric: self.fields.flag(node, "detailed_metric"),
            value_to_metric: self.fields.flag(node, "value_to_metric"),
            share_threshold: self.fields.flag(node, "share_threshold"),
            metadata: self.metadata(node),
            descriptors: self.descriptors(node, &pointer),
            key,
            pointer,
        };
        if descriptor.share_threshold && !descriptor.value.contains('*') {
            let mark = node.get("share_threshold").map_or(node.mark, |node| node.mark);
            let message = "`share_threshold` is set, but the value has no `*`";
            self.fields.error(mark, message, "remove it, or write a `*` into the value");
        }
        // A rule without a key would only be found wrong once more.
        Some(descriptor).filter(|descriptor| !descriptor.key.is_empty())
    }

    fn metadata(&mut self, node: &Node) -> Option<serde_json::Value> {
        let node = node.get("metadata").filter(|node| !node.is_null())?;
        if !matches!(node.kind, Kind::Map(_)) {
            self.fields.error(node.mark, format!("`metadata` is {}", node.describe()), "it must be a map");
        }
        Some(node.to_json())
    }

    fn rate_limit(&mut self, descriptor: &Node) -> Option<RateLimit> {
        let node = descriptor.get("rate_limit").filter(|node| !node.is_null())?;
        self.limits += 1;
        let Kind::Map(_) = &node.kind else {
            let message = format!("`rate_limit` is {}", node.describe());
            self.fields.error(node.mark, message, "it must be a map with `unit` and `requests_per_unit`");
            return None;
        };
        let errors = self.fields.problems.errors();
        self.fields.check_keys(node, RATE_LIMIT_KEYS, "`rate_limit`");
        let name = self.fields.text(node, "name").filter(|name| !name.is_empty());
        let mut limit = RateLimit {
            mark: node.mark,
            unlimited: self.fields.flag(node, "unlimited"),
            requests_per_unit: self.fields.number(node, "requests_per_unit"),
            replaces: self.replaces(node, name.as_deref()),
            name,
            ..RateLimit::default()
        };
        self.unit(node, &mut limit);
        // Ours stand beside `unit` or on the descriptor.
        for place in [descriptor, node] {
            limit.algorithm = self.fields.algorithm(place).or(limit.algorithm);
            limit.count_denied |= self.fields.flag(place, "count_denied");
            limit.burst = self.fields.burst(place).or(limit.burst);
        }
        // A rule made of what is wrong would only be found wrong once more.
        if errors != self.fields.problems.errors() {
            return None;
        }
        let requests = node.get("requests_per_unit").filter(|node| !node.is_null());
        if requests.is_none() && !limit.unlimited {
            let message = "`rate_limit` has no `requests_per_unit`: that means 0, so every request is denied";
            let hint = "write how many may pass, or `requests_per_unit: 0` if none may";
            self.fields.problems.warning(at(self.fields.file, node.mark), message, hint);
        }
        Some(limit)
    }

    fn unit(&mut self, node: &Node, limit: &mut RateLimit) {
        let written = self.fields.text(node, "unit").unwrap_or_default();
        let mark = node.get("unit").map_or(node.mark, |node| node.mark);
        let known = UNITS.into_iter().find(|unit| unit.eq_ignore_ascii_case(&written));
        match (limit.unlimited, known) {
            (true, Some(_)) => {
                let message = format!("`unit` is `{}`, but the limit is unlimited", quote(&written));
                self.fields.error(mark, message, "remove one of them");
            }
            (true, None) => {}
            (false, Some(unit)) => limit.unit = unit,
            (false, None) if written.is_empty() => {
                let hint = format!("write `unit: …` with one of {}, or `unlimited: true`", list(UNITS));
                self.fields.error(mark, "`rate_limit` has no unit", hint);
            }
            (false, None) => {
                let message = format!("`unit` is `{}`, which is not known", quote(&written));
                self.fields.error(mark, message, suggest(&written, UNITS));
            }
        }
    }

    fn replaces(&mut self, node: &Node, own: Option<&str>) -> Vec<String> {
        let Some(list) = node.get("replaces").filter(|node| !node.is_null()) else { return Vec::new() };
        if !matches!(list.kind, Kind::List(_)) {
            let message = format!("`replaces` is {}", list.describe());
            self.fields.error(list.mark, message, "it must be a list of maps, each with a `name`");
        }
        let mut names = Vec::new();
        for item in list.items() {
            if !matches!(item.kind, Kind::Map(_)) {
                let message = format!("an item of `replaces` is {}", item.describe());
                self.fields.error(item.mark, message, "write `- name: …`");
                continue;
            }
            self.fields.check_keys(item, REPLACES_KEYS, "`replaces`");
            let name = self.fields.text(item, "name").unwrap_or_default();
            if name.is_empty() {
                self.fields.error(item.mark, "an item of `replaces` has no name", "write the name of another limit");
            } else if own == Some(&name) {
                let message = format!("`replaces` names `{}`, which is this limit itself", quote(&name));
                self.fields.error(item.mark, message, "write the name of another limit");
            } else {
                names.push(name);
            }
        }
        names
    }
}

/// Says which descriptors stand twice beside each other, of those from `start` on.
fn tell_duplicates(descriptors: &[Descriptor], start: usize, fields: &mut Fields<'_>) {
    let mut seen: HashMap<(&str, &str), &Descriptor> = HashMap::new();
    for (index, descriptor) in descriptors.iter().enumerate() {
        let name = (descriptor.key.as_str(), descriptor.value.as_str());
        let Some(first) = seen.get(&name) else {
            seen.insert(name, descriptor);
            continue;
        };
        if index >= start {
            let value = if name.1.is_empty() { "no value".to_owned() } else { format!("value `{}`", quote(name.1)) };
            let message = format!("the key `{}` with {value} stands twice at this level", quote(name.0));
            let hint = format!("the first is at {}; keep one", at(&first.file, first.mark));
            fields.error(descriptor.mark, message, hint);
        }
    }
}
