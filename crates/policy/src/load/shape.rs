//! Checks the fields and types of a tree by the schema. Reports every wrong field at its location and keeps the good ones,
//! so that their values are checked too.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::problems::{Problems, at, list, nearest, suggest};
use crate::compile::child;
use crate::json::quote;
use crate::json_schema::SCHEMA;
use crate::yaml::{Kind, Mark, Node, Pair, Scalar, Type};

/// Checks trees of one file.
pub(crate) struct Shape<'a> {
    pub(crate) file: &'a Arc<str>,
    pub(crate) problems: &'a mut Problems,
    /// The start of messages: the rule that they are about.
    pub(crate) subject: String,
    /// The pointer to the checked value, in the merged configuration.
    base: String,
    /// The path from there to the current value.
    path: Vec<Step>,
    /// The number of steps of the path that the base contains already: they are only for messages.
    in_base: usize,
    left_out: Vec<String>,
}

/// One step into a value.
enum Step {
    Key(String),
    Index(usize),
}

/// The result of checking a tree.
pub(crate) struct Checked {
    /// The parts that fit the schema, or `None` if the value as a whole does not. Bad items of lists and bad required fields
    /// are replaced by placeholders.
    pub(crate) value: Option<Value>,
    /// Whether there was no error.
    pub(crate) is_good: bool,
    /// Pointers to bad or missing values.
    pub(crate) left_out: Vec<String>,
}

impl<'a> Shape<'a> {
    pub(crate) fn new(file: &'a Arc<str>, problems: &'a mut Problems) -> Shape<'a> {
        Shape {
            file,
            problems,
            subject: String::new(),
            base: String::new(),
            path: Vec::new(),
            in_base: 0,
            left_out: Vec::new(),
        }
    }

    /// Checks a value by a definition of the schema. `path` leads to it in messages, `base` in the configuration.
    pub(crate) fn check(mut self, node: &Node, definition: &str, path: &[&str], base: String) -> Checked {
        let before = self.problems.errors();
        self.start(path);
        self.base = base;
        let value = match SCHEMA.pointer(&format!("/$defs/{definition}")) {
            Some(schema) => self.value(node, schema),
            None => None,
        };
        Checked { value, is_good: before == self.problems.errors(), left_out: self.left_out }
    }

    /// Checks that a value is a map with known keys, but not its values.
    pub(crate) fn check_fields(mut self, node: &Node, definition: &Value, path: &[&str]) {
        self.start(path);
        match &node.kind {
            Kind::Map(pairs) => self.unknown_fields(pairs, definition),
            _ => {
                self.mistyped(node, &[definition]);
            }
        }
    }

    fn start(&mut self, path: &[&str]) {
        self.path = path.iter().map(|&part| Step::Key(part.to_owned())).collect();
        self.in_base = self.path.len();
    }

    /// Returns the good parts of a value.
    fn value(&mut self, node: &Node, schema: &Value) -> Option<Value> {
        let value = self.good_value(node, schema);
        if value.is_none() {
            self.left_out.push(self.pointer());
        }
        value
    }

    fn good_value(&mut self, node: &Node, schema: &Value) -> Option<Value> {
        let variants = variants(schema);
        // Without a type, any value is good.
        if variants.iter().any(|variant| variant.get("type").is_none()) {
            return Some(node.to_json());
        }
        let fitting: Vec<&Value> = variants.iter().copied().filter(|variant| fits(node, variant)).collect();
        if fitting.is_empty() {
            return self.mistyped(node, &variants);
        }
        match (&node.kind, fitting.as_slice()) {
            (Kind::Scalar(scalar), _) if scalar.kind == Type::Text => self.text(node, scalar, &fitting, &variants),
            (Kind::Scalar(scalar), _) => self.number(node, scalar, &fitting),
            (Kind::List(items), [variant, ..]) => self.items(items, variant),
            // A map with one entry is one more of the plain names.
            (Kind::Map(pairs), [variant]) if only_field(variant).is_some() && variants.len() > 1 => {
                self.one_of(node, pairs, &fitting)
            }
            (Kind::Map(pairs), [variant]) => Some(self.fields(node, pairs, variant)),
            (Kind::Map(pairs), several) => match told_apart(pairs, several) {
                Some(variant) => Some(self.fields(node, pairs, variant)),
                None => self.one_of(node, pairs, several),
            },
            (Kind::List(_), []) => None,
        }
    }

    fn text(&mut self, node: &Node, scalar: &Scalar, fitting: &[&Value], variants: &[&Value]) -> Option<Value> {
        let names: Vec<&str> = fitting.iter().filter_map(|variant| variant.get("const")?.as_str()).collect();
        if names.len() < fitting.len() || names.contains(&&*scalar.text) {
            return Some(node.to_json());
        }
        let maps: Vec<&str> = variants.iter().filter_map(|variant| only_field(variant)).collect();
        let hint = match nearest(&scalar.text, names.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if maps.contains(&&*scalar.text) => format!("write `{{{}: …}}`", scalar.text),
            None if maps.contains(&"entry") => {
                let name = quote(&scalar.text);
                format!(
                    "write `{{entry: {name}}}` for an entry of the descriptor, or `{{header: {name}}}` for a header"
                )
            }
            None if maps.is_empty() => format!("use one of {}", list(names.iter().copied())),
            None => format!("use one of {}, or a map with one of {}", list(names.iter().copied()), list(maps)),
        };
        self.error(node.mark, format!("{} is {}, which is not known", self.place(), node.describe()), hint);
        None
    }

    fn number(&mut self, node: &Node, scalar: &Scalar, fitting: &[&Value]) -> Option<Value> {
        let (Type::Integer(value), Some(variant)) = (scalar.kind, fitting.first()) else { return Some(node.to_json()) };
        let (least, most) = range(variant);
        if (least..=most).contains(&value) {
            return Some(node.to_json());
        }
        let message = format!("{} is {}", self.place(), scalar.describe());
        self.error(node.mark, message, format!("use a whole number from {least} to {most}"));
        None
    }

    /// Returns a list in which bad items are replaced by placeholders, so that the others keep their indexes.
    fn items(&mut self, items: &[Node], variant: &Value) -> Option<Value> {
        let Some(schema) = variant.get("items") else { return Some(items.iter().map(Node::to_json).collect()) };
        let mut good = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            self.path.push(Step::Index(index));
            good.push(self.value(item, schema).unwrap_or_else(|| placeholder(schema)));
            self.path.pop();
        }
        Some(Value::Array(good))
    }

    fn fields(&mut self, node: &Node, pairs: &[Pair], variant: &Value) -> Value {
        self.unknown_fields(pairs, variant);
        let properties = variant.get("properties");
        let others = variant.get("additionalProperties").filter(|schema| **schema != Value::Bool(false));
        let mut good = Map::new();
        for pair in pairs {
            let known = properties.and_then(|properties| properties.get(&*pair.key.text));
            let Some(schema) = known.or(others) else { continue };
            self.path.push(Step::Key(pair.key.text.to_string()));
            if let Some(value) = self.value(&pair.value, schema) {
                good.insert(pair.key.text.to_string(), value);
            }
            self.path.pop();
        }
        let required = variant.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|name| !good.contains_key(*name)).collect::<Vec<_>>() {
            let schema = properties.and_then(|properties| properties.get(name));
            if node.get(name).is_none() {
                self.missing(node, name, schema.and_then(description));
            }
            good.insert(name.to_owned(), schema.map_or(Value::Null, placeholder));
        }
        Value::Object(good)
    }

    fn missing(&mut self, node: &Node, name: &str, hint: Option<&str>) {
        self.path.push(Step::Key(name.to_owned()));
        let message = format!("{} is missing", self.place());
        self.left_out.push(self.pointer());
        self.path.pop();
        self.error(node.mark, message, hint.map_or_else(|| "add it".to_owned(), |hint| format!("add it: {hint}")));
    }

    fn unknown_fields(&mut self, pairs: &[Pair], variant: &Value) {
        if variant.get("additionalProperties") != Some(&Value::Bool(false)) {
            return;
        }
        let Some(properties) = variant.get("properties").and_then(Value::as_object) else { return };
        let known = || properties.keys().map(String::as_str);
        for pair in pairs.iter().filter(|pair| !properties.contains_key(&*pair.key.text)) {
            let inside = if self.path.is_empty() { String::new() } else { format!(" in {}", self.place()) };
            let message = format!("unknown field `{}`{inside}", quote(&pair.key.text));
            let renamed = renamed(&pair.key.text).filter(|name| properties.contains_key(*name));
            let hint = match renamed {
                Some(name) => format!("it is now called `{name}`"),
                None if &*pair.key.text == "rules" && properties.contains_key("domains") => {
                    "write it under a domain: `domains: {NAME: {rules: …}}`".to_owned()
                }
                None => suggest(&pair.key.text, known().collect::<Vec<_>>()),
            };
            self.error(pair.mark, message, hint);
            // A misspelt field is not missing as well.
            let meant = renamed.or_else(|| nearest(&pair.key.text, known()));
            if let Some(meant) = meant.filter(|meant| !pairs.iter().any(|pair| *pair.key.text == **meant)) {
                self.left_out.push(child(&self.pointer(), meant));
            }
        }
    }

    /// Checks a map with one entry whose key selects the variant.
    fn one_of(&mut self, node: &Node, pairs: &[Pair], several: &[&Value]) -> Option<Value> {
        let names = several.iter().filter_map(|variant| only_field(variant));
        let [pair] = pairs else {
            let message = format!("{} is a map with {} entries", self.place(), pairs.len());
            self.error(node.mark, message, format!("write one entry, with one of {}", list(names)));
            return None;
        };
        match several.iter().find(|variant| only_field(variant) == Some(&*pair.key.text)) {
            Some(variant) => {
                let value = self.fields(node, pairs, variant);
                let inner = child(&self.pointer(), &pair.key.text);
                // Without its entry it is useless.
                (!self.left_out.contains(&inner)).then_some(value)
            }
            None => {
                let message = format!("unknown field `{}` in {}", quote(&pair.key.text), self.place());
                self.error(pair.mark, message, suggest(&pair.key.text, names.collect::<Vec<_>>()));
                None
            }
        }
    }

    /// Reports a value of the wrong type. A number or flag in place of text is kept as text: if that is invalid too, the error
    /// of the text is reported and not the missing quotes.
    fn mistyped(&mut self, node: &Node, variants: &[&Value]) -> Option<Value> {
        let message = format!("{} is {}", self.place(), node.describe());
        let of_type = |name: &str| {
            variants.iter().copied().find(|variant| type_of(variant) == name && variant.get("const").is_none())
        };
        let hint = match &node.kind {
            Kind::Scalar(scalar) if scalar.kind == Type::Null => "give it a value, or remove the line".to_owned(),
            Kind::Scalar(scalar) if of_type("string").is_some() => {
                let hint = format!("put it in quotes: \"{}\"", quote(&scalar.text));
                self.problems.fallback(at(self.file, node.mark), format!("{}{message}", self.subject), hint);
                return Some(Value::from(&*scalar.text));
            }
            Kind::Scalar(scalar) => match (of_type("integer"), of_type("boolean")) {
                (Some(variant), _) => whole_number_hint(scalar, range(variant)),
                (_, Some(_)) => flag_hint(&scalar.text),
                _ => format!("it must be {}", wanted(variants)),
            },
            Kind::List(_) => match variants.iter().find_map(|variant| only_list(variant)) {
                Some(name) => format!("it must be {}: write the list under `{name}`", wanted(variants)),
                None => format!("it must be {}", wanted(variants)),
            },
            _ => format!("it must be {}", wanted(variants)),
        };
        self.error(node.mark, message, hint);
        None
    }

    fn error(&mut self, mark: Mark, message: String, hint: String) {
        self.problems.error(at(self.file, mark), format!("{}{message}", self.subject), hint);
    }

    /// Returns the current value as messages name it.
    fn place(&self) -> String {
        let mut place = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => place.push_str(&format!("[{index}]")),
                Step::Key(key) => {
                    if !place.is_empty() {
                        place.push('.');
                    }
                    place.push_str(&quote(key));
                }
            }
        }
        if place.is_empty() { "this".to_owned() } else { format!("`{place}`") }
    }

    /// Returns the pointer to the current value in the configuration.
    fn pointer(&self) -> String {
        self.path.iter().skip(self.in_base).fold(self.base.clone(), |pointer, step| match step {
            Step::Key(key) => child(&pointer, key),
            Step::Index(index) => format!("{pointer}/{index}"),
        })
    }
}

/// Returns an empty value of this type, in place of a bad one.
fn placeholder(schema: &Value) -> Value {
    let variants = variants(schema);
    let Some(variant) = variants.first() else { return Value::Null };
    if let Some(name) = variant.get("const") {
        return name.clone();
    }
    match type_of(variant) {
        "string" => Value::from(""),
        "array" => Value::Array(Vec::new()),
        "integer" => variant.get("minimum").cloned().unwrap_or_else(|| Value::from(0)),
        "boolean" => Value::Bool(false),
        "object" => {
            let field = |name: &Value| {
                let name = name.as_str()?;
                Some((name.to_owned(), placeholder(variant.get("properties")?.get(name)?)))
            };
            variant.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(field).collect()
        }
        _ => Value::Null,
    }
}

/// Returns all variants of a schema, with references followed and nested choices flattened.
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

/// Returns the new name of a renamed field.
fn renamed(name: &str) -> Option<&'static str> {
    match name {
        "for" => Some("penalty"),
        "told_as" => Some("report_as"),
        _ => None,
    }
}

/// Returns the least and the greatest number that a schema allows.
fn range(schema: &Value) -> (i128, i128) {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64).map(i128::from);
    let by_format = match schema.get("format").and_then(Value::as_str) {
        Some("uint32") => i128::from(u32::MAX),
        _ => i128::from(u64::MAX),
    };
    (bound("minimum").unwrap_or(i128::MIN), bound("maximum").unwrap_or(by_format))
}

/// Returns the hint for a whole number that was written as text, with separators or as a float.
fn whole_number_hint(scalar: &Scalar, (least, most): (i128, i128)) -> String {
    let written = match scalar.kind {
        Type::Float(value) if value.fract() == 0.0 => format!("{value}"),
        _ => scalar.text.replace(['_', ',', ' '], ""),
    };
    match written.parse::<i128>() {
        Ok(number) if (least..=most).contains(&number) && written == *scalar.text => {
            format!("write it without quotes: {number}")
        }
        Ok(number) if (least..=most).contains(&number) => format!("write {number}"),
        _ => format!("it must be a whole number from {least} to {most}"),
    }
}

/// Returns the hint for a flag that was written as another word or in quotes.
fn flag_hint(written: &str) -> String {
    match &*written.to_lowercase() {
        "y" | "yes" | "on" | "true" | "1" => "write `true`".to_owned(),
        "n" | "no" | "off" | "false" | "0" => "write `false`".to_owned(),
        _ => "it must be `true` or `false`".to_owned(),
    }
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

/// Returns the variant of a map if one variant has no required field: that one, unless the map has the field of another.
fn told_apart<'s>(pairs: &[Pair], variants: &[&'s Value]) -> Option<&'s Value> {
    let open = variants.iter().find(|variant| variant.get("required").is_none())?;
    let has_field =
        |variant: &&&Value| only_field(variant).is_some_and(|name| pairs.iter().any(|pair| *pair.key.text == *name));
    Some(variants.iter().find(has_field).unwrap_or(open))
}

/// Returns the required field of a variant with just one.
fn only_field(variant: &Value) -> Option<&str> {
    match variant.get("required")?.as_array()?.as_slice() {
        [only] => only.as_str(),
        _ => None,
    }
}

/// Returns the field that is a list, if there is just one.
fn only_list(variant: &Value) -> Option<&str> {
    let is_list = |schema: &Value| variants(schema).iter().any(|variant| type_of(variant) == "array");
    let properties = variant.get("properties")?.as_object()?;
    let mut lists = properties.iter().filter(|(_, schema)| is_list(schema)).map(|(name, _)| name.as_str());
    lists.next().filter(|_| lists.next().is_none())
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
