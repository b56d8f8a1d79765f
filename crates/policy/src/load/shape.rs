//! Whether a tree has the shape of the schema: every field that has not is told, each where it stands.

use std::sync::Arc;

use serde_json::Value;

use super::problems::{Problems, at, list, nearest, suggest};
use crate::json_schema::SCHEMA;
use crate::yaml::{Kind, Mark, Node, Pair, Scalar, Type, quote};

/// Checks trees of one file.
pub(crate) struct Shape<'a> {
    pub(crate) file: &'a Arc<str>,
    pub(crate) problems: &'a mut Problems,
    /// What messages begin with: the rule they are about.
    pub(crate) subject: String,
    /// The way from there to the value that is looked at.
    path: Vec<String>,
}

impl<'a> Shape<'a> {
    pub(crate) fn new(file: &'a Arc<str>, problems: &'a mut Problems) -> Shape<'a> {
        Shape { file, problems, subject: String::new(), path: Vec::new() }
    }

    /// Checks a value against a definition of the schema, and says whether it is good. `path` leads to it.
    pub(crate) fn check(&mut self, node: &Node, definition: &str, path: &[&str]) -> bool {
        let before = self.problems.errors();
        self.path = path.iter().map(|&part| part.to_owned()).collect();
        if let Some(schema) = SCHEMA.pointer(&format!("/$defs/{definition}")) {
            self.value(node, schema);
        }
        before == self.problems.errors()
    }

    /// Checks that a value is a map with known keys, and not what is in it.
    pub(crate) fn check_fields(&mut self, node: &Node, definition: &Value, path: &[&str]) -> bool {
        let before = self.problems.errors();
        self.path = path.iter().map(|&part| part.to_owned()).collect();
        match &node.kind {
            Kind::Map(pairs) => self.unknown_fields(pairs, definition),
            _ => self.mistyped(node, &[definition]),
        }
        before == self.problems.errors()
    }

    fn value(&mut self, node: &Node, schema: &Value) {
        let variants = variants(schema);
        // The number alone is no limit, and in quotes it is none either.
        if is_limit(schema)
            && matches!(&node.kind, Kind::Scalar(scalar) if !matches!(scalar.kind, Type::Text | Type::Null))
        {
            let message = format!("{} is {}", self.place(), node.describe());
            return self.error(node.mark, message, "write units and a period, like `100/minute`, or a map".to_owned());
        }
        // No type at all: anything will do.
        if variants.iter().any(|variant| variant.get("type").is_none()) {
            return;
        }
        let fitting: Vec<&Value> = variants.iter().copied().filter(|variant| fits(node, variant)).collect();
        match &node.kind {
            Kind::Scalar(scalar) if scalar.kind == Type::Text => self.text(node, scalar, &fitting, &variants),
            Kind::Scalar(_) if fitting.is_empty() => self.mistyped(node, &variants),
            Kind::Scalar(scalar) => self.number(node.mark, scalar, &fitting),
            Kind::List(items) => match fitting.as_slice() {
                [] => self.mistyped(node, &variants),
                [variant, ..] => self.items(items, variant),
            },
            Kind::Map(pairs) => match fitting.as_slice() {
                [] => self.mistyped(node, &variants),
                // Beside plain names, a map of one entry is one more of them.
                [variant] if only_field(variant).is_some() && variants.len() > 1 => self.one_of(node, pairs, &fitting),
                [variant] => self.fields(node, pairs, variant),
                several => self.one_of(node, pairs, several),
            },
        }
    }

    fn text(&mut self, node: &Node, scalar: &Scalar, fitting: &[&Value], variants: &[&Value]) {
        let names: Vec<&str> = fitting.iter().filter_map(|variant| variant.get("const")?.as_str()).collect();
        if fitting.is_empty() {
            self.mistyped(node, variants);
        } else if names.len() == fitting.len() && !names.contains(&&*scalar.text) {
            let maps: Vec<&str> = variants.iter().filter_map(|variant| only_field(variant)).collect();
            let hint = match nearest(&scalar.text, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None if maps.contains(&&*scalar.text) => format!("write `{}: …`, with a name", scalar.text),
                None if maps.is_empty() => format!("use one of {}", list(names.iter().copied())),
                None => format!("use one of {}, or a map with one of {}", list(names.iter().copied()), list(maps)),
            };
            self.error(node.mark, format!("{} is {}, which is not known", self.place(), node.describe()), hint);
        }
    }

    fn number(&mut self, mark: Mark, scalar: &Scalar, fitting: &[&Value]) {
        let Type::Integer(value) = scalar.kind else { return };
        let Some(variant) = fitting.first() else { return };
        let bound = |name: &str| variant.get(name).and_then(Value::as_u64).map(i128::from);
        let by_format = match variant.get("format").and_then(Value::as_str) {
            Some("uint32") => i128::from(u32::MAX),
            _ => i128::from(u64::MAX),
        };
        let (least, most) = (bound("minimum").unwrap_or(i128::MIN), bound("maximum").unwrap_or(by_format));
        if !(least..=most).contains(&value) {
            let message = format!("{} is {}", self.place(), scalar.describe());
            self.error(mark, message, format!("use a whole number from {least} to {most}"));
        }
    }

    fn items(&mut self, items: &[Node], variant: &Value) {
        let Some(schema) = variant.get("items") else { return };
        for (index, item) in items.iter().enumerate() {
            self.path.push(format!("[{index}]"));
            self.value(item, schema);
            self.path.pop();
        }
    }

    fn fields(&mut self, node: &Node, pairs: &[Pair], variant: &Value) {
        self.unknown_fields(pairs, variant);
        for pair in pairs {
            let known = variant.get("properties").and_then(|properties| properties.get(&*pair.key.text));
            let schema = known.or_else(|| variant.get("additionalProperties"));
            if let Some(schema) = schema {
                self.path.push(pair.key.text.to_string());
                self.value(&pair.value, schema);
                self.path.pop();
            }
        }
        let required = variant.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if node.get(name).is_none() {
                let hint = variant.get("properties").and_then(|properties| properties.get(name)).and_then(description);
                self.path.push(name.to_owned());
                let message = format!("{} is missing", self.place());
                self.path.pop();
                self.error(
                    node.mark,
                    message,
                    hint.map_or_else(|| "add it".to_owned(), |hint| format!("add it: {hint}")),
                );
            }
        }
    }

    fn unknown_fields(&mut self, pairs: &[Pair], variant: &Value) {
        if variant.get("additionalProperties") != Some(&Value::Bool(false)) {
            return;
        }
        let Some(properties) = variant.get("properties").and_then(Value::as_object) else { return };
        for pair in pairs.iter().filter(|pair| !properties.contains_key(&*pair.key.text)) {
            let inside = if self.path.is_empty() { String::new() } else { format!(" in {}", self.place()) };
            let message = format!("unknown field `{}`{inside}", quote(&pair.key.text));
            self.error(pair.mark, message, suggest(&pair.key.text, properties.keys().map(String::as_str)));
        }
    }

    /// A map of one entry whose key says what it is.
    fn one_of(&mut self, node: &Node, pairs: &[Pair], several: &[&Value]) {
        let names = several.iter().filter_map(|variant| only_field(variant));
        let [pair] = pairs else {
            let message = format!("{} is a map of {} entries", self.place(), pairs.len());
            return self.error(node.mark, message, format!("write one entry, with one of {}", list(names)));
        };
        match several.iter().find(|variant| only_field(variant) == Some(&*pair.key.text)) {
            Some(variant) => self.fields(node, pairs, variant),
            None => {
                let message = format!("unknown field `{}` in {}", quote(&pair.key.text), self.place());
                self.error(pair.mark, message, suggest(&pair.key.text, names.collect::<Vec<_>>()));
            }
        }
    }

    fn mistyped(&mut self, node: &Node, variants: &[&Value]) {
        let message = format!("{} is {}", self.place(), node.describe());
        let wants_text = variants.iter().any(|variant| type_of(variant) == "string" && variant.get("const").is_none());
        let hint = match &node.kind {
            Kind::Scalar(scalar) if scalar.kind == Type::Null => "give it a value, or remove the line".to_owned(),
            Kind::Scalar(scalar) if wants_text => format!("put it in quotes: \"{}\"", quote(&scalar.text)),
            _ => format!("it must be {}", wanted(variants)),
        };
        self.error(node.mark, message, hint);
    }

    fn error(&mut self, mark: Mark, message: String, hint: String) {
        self.problems.error(at(self.file, mark), format!("{}{message}", self.subject), hint);
    }

    /// The value that is looked at, as messages name it.
    fn place(&self) -> String {
        let mut place = String::new();
        for part in &self.path {
            if !place.is_empty() && !part.starts_with('[') {
                place.push('.');
            }
            place.push_str(&quote(part));
        }
        if place.is_empty() { "it".to_owned() } else { format!("`{place}`") }
    }
}

/// All that a value may be, with references followed and choices of choices flattened.
fn variants(schema: &Value) -> Vec<&Value> {
    let mut schema = schema;
    while let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#')) {
        match SCHEMA.pointer(name) {
            Some(definition) => schema = definition,
            None => break,
        }
    }
    match schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        Some(choices) => choices.iter().flat_map(variants).collect(),
        None => vec![schema],
    }
}

fn is_limit(schema: &Value) -> bool {
    schema.get("$ref").and_then(Value::as_str) == Some("#/$defs/Limit")
}

fn fits(node: &Node, variant: &Value) -> bool {
    match (&node.kind, type_of(variant)) {
        (Kind::List(_), name) => name == "array",
        (Kind::Map(_), name) => name == "object",
        (Kind::Scalar(scalar), name) => match scalar.kind {
            Type::Null => false,
            Type::Bool(_) => name == "boolean",
            Type::Integer(_) => name == "integer",
            Type::Float(_) => name == "number",
            Type::Text => name == "string",
        },
    }
}

fn type_of(variant: &Value) -> &str {
    variant.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The field of a map that has just one.
fn only_field(variant: &Value) -> Option<&str> {
    match variant.get("required")?.as_array()?.as_slice() {
        [only] => only.as_str(),
        _ => None,
    }
}

fn description(schema: &Value) -> Option<&str> {
    schema.get("description").and_then(Value::as_str)
}

fn wanted(variants: &[&Value]) -> String {
    let names: Vec<&str> = variants.iter().filter_map(|variant| variant.get("const")?.as_str()).collect();
    let mut kinds: Vec<String> = Vec::new();
    if !names.is_empty() {
        kinds.push(format!("one of {}", list(names)));
    }
    for variant in variants.iter().filter(|variant| variant.get("const").is_none()) {
        let kind = match type_of(variant) {
            "string" => "text".to_owned(),
            "integer" => "a whole number".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "array" => "a list".to_owned(),
            "object" => "a map".to_owned(),
            name => name.to_owned(),
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(" or ")
}
