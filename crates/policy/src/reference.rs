//! The configuration reference, as Markdown made of the JSON Schema.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::json_schema::SCHEMA;

/// Sections in the order in which a reader needs them, and their titles. What is not here is told where it is used.
const SECTIONS: [(&str, &str); 22] = [
    ("Domain", "Domain"),
    ("Rule", "Rule"),
    ("Match", "Match"),
    ("Entries", "Entries"),
    ("Value", "Value"),
    ("But", "Value with exceptions"),
    ("PathCase", "Path case"),
    ("KeyPart", "Part of a key"),
    ("Missing", "Missing part"),
    ("Action", "Action"),
    ("ToldAs", "Told as"),
    ("Limit", "Limit"),
    ("Numbers", "Numbers of a limit"),
    ("Mode", "Mode"),
    ("OnStoreFailure", "Store failure"),
    ("Consistency", "Consistency"),
    ("Response", "Response"),
    ("Headers", "Headers"),
    ("Metrics", "Metrics"),
    ("Store", "Store"),
    ("ClientAddress", "Client address"),
    ("AddressHeader", "Address header"),
];

/// The configuration reference, a table for each kind of value.
pub(crate) fn markdown() -> String {
    let mut page = String::from("# Configuration reference\n\n");
    page.push_str("Made from the schema by `tidegate schema --markdown`. Do not edit it by hand.\n\n");
    page.push_str("A configuration is one YAML file or several. At its top:\n\n");
    fields(&mut page, &SCHEMA);
    for (name, title) in SECTIONS {
        let Some(schema) = SCHEMA.pointer(&format!("/$defs/{name}")) else { continue };
        let _ = write!(page, "\n## {title}\n\n{}\n\n", description(schema));
        match choices(schema) {
            Some(choices) => forms(&mut page, choices),
            None => fields(&mut page, schema),
        }
    }
    page
}

fn fields(page: &mut String, schema: &Value) {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    page.push_str("| field | type | default | |\n|---|---|---|---|\n");
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        let default = match field.get("default") {
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
            None if required.contains(&name.as_str()) => "required".to_owned(),
            None => String::new(),
        };
        let _ = writeln!(page, "| `{name}` | {} | {default} | {} |", kind(field), cell(description(field)));
    }
}

/// What a value may be, where there is a choice.
fn forms(page: &mut String, choices: &[Value]) {
    page.push_str("| write | |\n|---|---|\n");
    for choice in choices {
        let written = match (choice.get("const"), choice.get("properties").and_then(Value::as_object)) {
            (Some(Value::String(name)), _) => format!("`{name}`"),
            (_, Some(properties)) => {
                let entries = properties.iter().map(|(name, value)| format!("`{name}:` {}", kind(value)));
                entries.collect::<Vec<_>>().join(", ")
            }
            _ => kind(choice),
        };
        let _ = writeln!(page, "| {written} | {} |", cell(description(choice)));
    }
}

/// The type of a value in words, with a link where it has a section.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        return match SECTIONS.iter().find(|(section, _)| *section == name) {
            Some((_, title)) => format!("[{}](#{})", title.to_lowercase(), title.to_lowercase().replace(' ', "-")),
            None => SCHEMA.pointer(&format!("/$defs/{name}")).map(kind).unwrap_or_default(),
        };
    }
    if let Some(choices) = choices(schema) {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => "text".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("array") => format!("list of {}", schema.get("items").map(kind).unwrap_or_default()),
        Some("object") => format!("map of {}", schema.get("additionalProperties").map(kind).unwrap_or_default()),
        _ => "anything".to_owned(),
    }
}

fn choices(schema: &Value) -> Option<&Vec<Value>> {
    schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array)
}

fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// A bar would end the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
