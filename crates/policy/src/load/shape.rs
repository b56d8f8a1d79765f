//! Whether a tree has the shape of the schema: every field that has not is told, each where it stands, and what is good
//! is kept, so that it is looked at further.

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
    /// What messages begin with: the rule they are about.
    pub(crate) subject: String,
    /// The pointer to what is checked, in the configuration that all files make.
    base: String,
    /// The way from there to the value that is looked at.
    path: Vec<Step>,
    /// How much of the path is in the base already: it is only for messages.
    told: usize,
    left_out: Vec<String>,
}

/// One step into a value.
enum Step {
    Key(String),
    Index(usize),
}

/// What a tree is worth.
pub(crate) struct Checked {
    /// What has the shape of the schema, nothing if not even the whole has. Items of lists and fields that must be there
    /// are stand-ins if theirs were bad.
    pub(crate) value: Option<Value>,
    /// Whether nothing was wrong.
    pub(crate) is_good: bool,
    /// Pointers to what was bad or missing.
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
            told: 0,
            left_out: Vec::new(),
        }
    }

    /// Checks a value against a definition of the schema. `path` leads to it in messages, `base` in the configuration.
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

    /// Checks that a value is a map with known keys, and not what is in it.
    pub(crate) fn check_fields(mut self, node: &Node, definition: &Value, path: &[&str]) {
        self.start(path);
        match &node.kind {
            Kind::Map(pairs) => self.unknown_fields(pairs, definition),
            _ => self.mistyped(node, &[definition]),
        }
    }

    fn start(&mut self, path: &[&str]) {
        self.path = path.iter().map(|&part| Step::Key(part.to_owned())).collect();
        self.told = self.path.len();
    }

    /// The value as far as it is good.
    fn value(&mut self, node: &Node, schema: &Value) -> Option<Value> {
        let value = self.good_value(node, schema);
        if value.is_none() {
            self.left_out.push(self.pointer());
        }
        value
    }

    fn good_value(&mut self, node: &Node, schema: &Value) -> Option<Value> {
        let variants = variants(schema);
        // The number alone is no limit, and in quotes it is none either.
        if is_limit(schema)
            && matches!(&node.kind, Kind::Scalar(scalar) if !matches!(scalar.kind, Type::Text | Type::Null))
        {
            let message = format!("{} is {}", self.place(), node.describe());
            self.error(node.mark, message, "write units and a period, like `100/minute`, or a map".to_owned());
            return None;
        }
        // No type at all: anything will do.
        if variants.iter().any(|variant| variant.get("type").is_none()) {
            return Some(node.to_json());
        }
        let fitting: Vec<&Value> = variants.iter().copied().filter(|variant| fits(node, variant)).collect();
        if fitting.is_empty() {
            self.mistyped(node, &variants);
            return None;
        }
        match (&node.kind, fitting.as_slice()) {
            (Kind::Scalar(scalar), _) if scalar.kind == Type::Text => self.text(node, scalar, &fitting, &variants),
            (Kind::Scalar(scalar), _) => self.number(node, scalar, &fitting),
            (Kind::List(items), [variant, ..]) => self.items(items, variant),
            // Beside plain names, a map of one entry is one more of them.
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
            None if maps.contains(&&*scalar.text) => format!("write `{}: …`, with a name", scalar.text),
            None if maps.is_empty() => format!("use one of {}", list(names.iter().copied())),
            None => format!("use one of {}, or a map with one of {}", list(names.iter().copied()), list(maps)),
        };
        self.error(node.mark, format!("{} is {}, which is not known", self.place(), node.describe()), hint);
        None
    }

    fn number(&mut self, node: &Node, scalar: &Scalar, fitting: &[&Value]) -> Option<Value> {
        let (Type::Integer(value), Some(variant)) = (scalar.kind, fitting.first()) else { return Some(node.to_json()) };
        let bound = |name: &str| variant.get(name).and_then(Value::as_u64).map(i128::from);
        let by_format = match variant.get("format").and_then(Value::as_str) {
            Some("uint32") => i128::from(u32::MAX),
            _ => i128::from(u64::MAX),
        };
        let (least, most) = (bound("minimum").unwrap_or(i128::MIN), bound("maximum").unwrap_or(by_format));
        if (least..=most).contains(&value) {
            return Some(node.to_json());
        }
        let message = format!("{} is {}", self.place(), scalar.describe());
        self.error(node.mark, message, format!("use a whole number from {least} to {most}"));
        None
    }

    /// A bad item leaves a stand-in: those after it keep their places.
    fn items(&mut self, items: &[Node], variant: &Value) -> Option<Value> {
        let Some(schema) = variant.get("items") else { return Some(items.iter().map(Node::to_json).collect()) };
        let mut good = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            self.path.push(Step::Index(index));
            good.push(self.value(item, schema).unwrap_or_else(|| stand_in(schema)));
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
            good.insert(name.to_owned(), schema.map_or(Value::Null, stand_in));
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
            self.error(pair.mark, message, suggest(&pair.key.text, known().collect::<Vec<_>>()));
            // Who slipped did not forget: that field is not missing as well.
            let meant = nearest(&pair.key.text, known());
            if let Some(meant) = meant.filter(|meant| !pairs.iter().any(|pair| *pair.key.text == **meant)) {
                self.left_out.push(child(&self.pointer(), meant));
            }
        }
    }

    /// A map of one entry whose key says what it is.
    fn one_of(&mut self, node: &Node, pairs: &[Pair], several: &[&Value]) -> Option<Value> {
        let names = several.iter().filter_map(|variant| only_field(variant));
        let [pair] = pairs else {
            let message = format!("{} is a map of {} entries", self.place(), pairs.len());
            self.error(node.mark, message, format!("write one entry, with one of {}", list(names)));
            return None;
        };
        match several.iter().find(|variant| only_field(variant) == Some(&*pair.key.text)) {
            Some(variant) => {
                let value = self.fields(node, pairs, variant);
                let inner = child(&self.pointer(), &pair.key.text);
                // Without its one entry it is nothing.
                (!self.left_out.contains(&inner)).then_some(value)
            }
            None => {
                let message = format!("unknown field `{}` in {}", quote(&pair.key.text), self.place());
                self.error(pair.mark, message, suggest(&pair.key.text, names.collect::<Vec<_>>()));
                None
            }
        }
    }

    fn mistyped(&mut self, node: &Node, variants: &[&Value]) {
        let message = format!("{} is {}", self.place(), node.describe());
        let wants_text = variants.iter().any(|variant| type_of(variant) == "string" && variant.get("const").is_none());
        let hint = match &node.kind {
            Kind::Scalar(scalar) if scalar.kind == Type::Null => "give it a value, or remove the line".to_owned(),
            Kind::Scalar(scalar) if wants_text => format!("put it in quotes: \"{}\"", quote(&scalar.text)),
            Kind::List(_) => match variants.iter().find_map(|variant| only_list(variant)) {
                Some(name) => format!("it must be {}: write the list under `{name}`", wanted(variants)),
                None => format!("it must be {}", wanted(variants)),
            },
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
        if place.is_empty() { "it".to_owned() } else { format!("`{place}`") }
    }

    /// The same as a pointer into the configuration.
    fn pointer(&self) -> String {
        self.path.iter().skip(self.told).fold(self.base.clone(), |pointer, step| match step {
            Step::Key(key) => child(&pointer, key),
            Step::Index(index) => format!("{pointer}/{index}"),
        })
    }
}

/// A value of this shape that says nothing, for one that cannot be used.
fn stand_in(schema: &Value) -> Value {
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
                Some((name.to_owned(), stand_in(variant.get("properties")?.get(name)?)))
            };
            variant.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(field).collect()
        }
        _ => Value::Null,
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

/// Whether it is a limit, or a choice that a limit is one of.
fn is_limit(schema: &Value) -> bool {
    let reference = schema.get("$ref").and_then(Value::as_str).unwrap_or_default();
    let meant = reference.strip_prefix('#').and_then(|name| SCHEMA.pointer(name)).unwrap_or(schema);
    let choices = meant.get("anyOf").or_else(|| meant.get("oneOf")).and_then(Value::as_array);
    let is_of_choices = || choices.into_iter().flatten().any(is_limit);
    reference == "#/$defs/Limit" || is_of_choices()
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

/// The variant that a map is meant to be where one of them has no field that must be there: it is that one, unless the field
/// of another is there.
fn told_apart<'s>(pairs: &[Pair], variants: &[&'s Value]) -> Option<&'s Value> {
    let open = variants.iter().find(|variant| variant.get("required").is_none())?;
    let has_field =
        |variant: &&&Value| only_field(variant).is_some_and(|name| pairs.iter().any(|pair| *pair.key.text == *name));
    Some(variants.iter().find(has_field).unwrap_or(open))
}

/// The field of a map that has just one.
fn only_field(variant: &Value) -> Option<&str> {
    match variant.get("required")?.as_array()?.as_slice() {
        [only] => only.as_str(),
        _ => None,
    }
}

/// The field of a map that is a list, if just one is.
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
