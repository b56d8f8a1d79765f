//! Reads files of Tidegate part by part, so that an error hides no other one.

use serde::de::DeserializeOwned;

use super::assembly::{Assembly, Origin};
use super::problems::{Problems, at};
use super::shape::{Checked, Shape};
use crate::compile::child;
use crate::json::quote;
use crate::json_schema::SCHEMA;
use crate::schema::{ClientAddress, Response, Rule, Store};
use crate::yaml::{Kind, Node, Type, escape};

/// Adds a file to the assembly and reports its errors. Parts with errors are only kept to be checked further.
pub(crate) fn read(document: usize, root: &Node, assembly: &mut Assembly, problems: &mut Problems) {
    let file = assembly.file(document);
    Shape::new(&file, problems).check_fields(root, &SCHEMA, &[]);
    if let Some(node) = root.get("client_address") {
        let path = ["client_address"];
        let checked = Shape::new(&file, problems).check(node, "ClientAddress", &path, "/client_address".to_owned());
        if let Some(address) = part::<ClientAddress>(checked, assembly) {
            assembly.client_address(document, node.mark, address, problems);
        }
    }
    for (name, node) in entries(root, "stores", &file, problems) {
        let checked = Shape::new(&file, problems).check(node, "Store", &["stores", &name], child("/stores", &name));
        if let Some(store) = part::<Store>(checked, assembly) {
            assembly.store(document, node.mark, name, store, problems);
        }
    }
    let mut aside = Assembly::beside();
    for (name, node) in entries(root, "domains", &file, problems) {
        assembly.written += node.get("rules").map_or(0, |rules| rules.items().len());
        if assembly.domain(document, node.mark, &name, problems) {
            read_domain(document, &name, node, assembly, problems);
            continue;
        }
        assembly.lend(&mut aside);
        if aside.domain(document, node.mark, &name, problems) {
            read_domain(document, &name, node, &mut aside, problems);
        }
        assembly.lend(&mut aside);
    }
    assembly.keep_aside(aside);
}

fn read_domain(document: usize, name: &str, node: &Node, assembly: &mut Assembly, problems: &mut Problems) {
    let file = assembly.file(document);
    let schema = SCHEMA.pointer("/$defs/Domain").unwrap_or(&serde_json::Value::Null);
    Shape::new(&file, problems).check_fields(node, schema, &["domains", name]);
    let pointer = child("/domains", name);
    if let Some(response) = node.get("response") {
        let path = ["domains", name, "response"];
        let checked = Shape::new(&file, problems).check(response, "Response", &path, child(&pointer, "response"));
        if let Some(response) = part::<Response>(checked, assembly) {
            assembly.response(document, name, response, problems);
        }
    }
    let Some(rules) = node.get("rules") else { return };
    let Kind::List(items) = &rules.kind else {
        let hint = if rules.is_null() { "give it a value, or remove the line" } else { "it must be a list of rules" };
        let message = format!("`domains.{}.rules` is {}", quote(name), rules.describe());
        return problems.error(at(&file, rules.mark), message, hint);
    };
    for (index, item) in items.iter().enumerate() {
        let mut shape = Shape::new(&file, problems);
        shape.subject = subject(name, index, item);
        let checked = shape.check(item, "Rule", &[], format!("{pointer}/rules/{}", assembly.rules_of(name)));
        let is_good = checked.is_good;
        match part::<Rule>(checked, assembly) {
            Some(rule) => {
                let pointer = format!("/domains/{}/rules/{index}", escape(name));
                assembly.rule(name, rule, Origin { document, pointer, native: true, is_good });
            }
            None if is_good => {
                let message = "cannot read this rule";
                problems.error(at(&file, item.mark), message, "compare it with the configuration reference");
            }
            None => {}
        }
    }
}

/// Returns the start of messages about a rule: its name, or its number if it has none.
fn subject(domain: &str, index: usize, rule: &Node) -> String {
    match rule.get("name").map(|name| &name.kind) {
        Some(Kind::Scalar(scalar)) if scalar.kind == Type::Text => format!("rule `{}`: ", quote(&scalar.text)),
        _ => format!("rule {} of `{}`: ", index + 1, quote(domain)),
    }
}

/// Returns the entries of a map at the top of the file. Reports any other value.
fn entries<'a>(
    root: &'a Node,
    name: &str,
    file: &std::sync::Arc<str>,
    problems: &mut Problems,
) -> Vec<(String, &'a Node)> {
    let Some(node) = root.get(name) else { return Vec::new() };
    let Kind::Map(pairs) = &node.kind else {
        let hint = if node.is_null() { "give it a value, or remove the line" } else { "it must be a map of names" };
        problems.error(at(file, node.mark), format!("`{name}` is {}", node.describe()), hint);
        return Vec::new();
    };
    pairs.iter().map(|pair| (pair.key.text.to_string(), &pair.value)).collect()
}

/// Returns the good fields of a part, and marks the others as left out.
fn part<T: DeserializeOwned>(checked: Checked, assembly: &mut Assembly) -> Option<T> {
    let value = serde_json::from_value(checked.value?).ok()?;
    assembly.left_out.extend(checked.left_out);
    Some(value)
}
