//! The files of envoyproxy/ratelimit, loaded unchanged.
//!
//! | to find | look in |
//! |---|---|
//! | from a file to a tree of descriptors, with its problems | here; keys and their types in `fields.rs` |
//! | the order of descriptors at one level of the tree | `siblings.rs` |
//! | warnings of limits that no request reaches | `hidden.rs` |
//! | from the tree to rules | `rules.rs` |

mod fields;
mod hidden;
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

/// The descriptors of a domain.
pub(crate) type Tree = Vec<Descriptor>;

/// A descriptor, as written.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Descriptor {
    file: Arc<str>,
    document: usize,
    /// The JSON pointer to it in its document.
    pointer: String,
    mark: Mark,
    key: String,
    /// Empty if any value matches.
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

/// A `rate_limit`, as written.
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
    fields.check_keys(root, ROOT_KEYS, "at the top of the file");
    let errors = fields.problems.errors();
    let domain = fields.text(root, "domain").unwrap_or_default();
    if domain.is_empty() && errors == fields.problems.errors() {
        let mark = root.pair("domain").map_or(root.mark, |pair| pair.mark);
        fields.error(mark, "the file has no domain", "add `domain: …` at the top");
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
            // Descriptors of several files are siblings only now.
            let mut fields = Fields { file: &file, problems };
            report_duplicates(tree, before, &mut fields);
        }
    }
}

struct Reader<'a> {
    document: usize,
    fields: Fields<'a>,
    /// The number of limits, including bad ones.
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
        report_duplicates(&descriptors, 0, &mut self.fields);
        descriptors
    }

    fn descriptor(&mut self, node: &Node, pointer: String) -> Option<Descriptor> {
        let Kind::Map(_) = &node.kind else {
            let message = format!("an item of `descriptors` is {}", node.describe());
            self.fields.error(node.mark, message, "it must be a map with a `key`");
            return None;
        };
        self.fields.check_keys(node, DESCRIPTOR_KEYS, "in a descriptor");
        let errors = self.fields.problems.errors();
        let key = self.fields.text(node, "key").unwrap_or_default();
        if key.is_empty() && errors == self.fields.problems.errors() {
            let mark = node.pair("key").map_or(node.mark, |pair| pair.mark);
            self.fields.error(mark, "a descriptor has no key", "add `key: …`, the key of an entry");
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
            self.fields.error(mark, message, "remove it, or add a `*` to the value");
        }
        // A rule without a key would only be reported again.
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
        self.fields.check_keys(node, RATE_LIMIT_KEYS, "in `rate_limit`");
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
        // The fields of Tidegate may be beside `unit` or on the descriptor.
        for place in [descriptor, node] {
            limit.algorithm = self.fields.algorithm(place).or(limit.algorithm);
            limit.count_denied |= self.fields.flag(place, "count_denied");
            limit.burst = self.fields.burst(place).or(limit.burst);
        }
        // A rule with errors would only be reported again.
        if errors != self.fields.problems.errors() {
            return None;
        }
        let requests = node.get("requests_per_unit").filter(|node| !node.is_null());
        if requests.is_none() && !limit.unlimited {
            let message = "`rate_limit` has no `requests_per_unit`, which defaults to 0, so every request is denied";
            let hint = "add `requests_per_unit`, or set it to 0 to deny all";
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
                let message = format!("`unit` is `{}`, but `unlimited` is true", quote(&written));
                self.fields.error(mark, message, "remove one of them");
            }
            (true, None) => {}
            (false, Some(unit)) => limit.unit = unit,
            (false, None) if written.is_empty() => {
                let hint = format!("add `unit` with one of {}, or `unlimited: true`", list(UNITS));
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
            self.fields.check_keys(item, REPLACES_KEYS, "in `replaces`");
            let name = self.fields.text(item, "name").unwrap_or_default();
            if name.is_empty() {
                self.fields.error(item.mark, "an item of `replaces` has no name", "add the name of another limit");
            } else if own == Some(&name) {
                let message = format!("`replaces` names `{}`, which is the same limit", quote(&name));
                self.fields.error(item.mark, message, "use the name of another limit");
            } else {
                names.push(name);
            }
        }
        names
    }
}

/// Reports descriptors with the same key and value at one level, of those from index `start` on.
fn report_duplicates(descriptors: &[Descriptor], start: usize, fields: &mut Fields<'_>) {
    let mut seen: HashMap<(&str, &str), &Descriptor> = HashMap::new();
    for (index, descriptor) in descriptors.iter().enumerate() {
        let name = (descriptor.key.as_str(), descriptor.value.as_str());
        let Some(first) = seen.get(&name) else {
            seen.insert(name, descriptor);
            continue;
        };
        if index >= start {
            let value = if name.1.is_empty() { "no value".to_owned() } else { format!("value `{}`", quote(name.1)) };
            let message = format!("duplicate descriptor: key `{}` with {value}", quote(name.0));
            let hint = format!("the first is at {}; keep one", at(&first.file, first.mark));
            fields.error(descriptor.mark, message, hint);
        }
    }
}
