//! The JSON Schema of the configuration: for editors, the reference and the checks of files.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// Returns the JSON Schema of a configuration file of Tidegate.
#[must_use]
pub fn json_schema() -> Value {
    SCHEMA.clone()
}

/// Returns the configuration reference: the JSON Schema as tables, in Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    crate::reference::markdown()
}

/// The schema that each file is checked with.
pub(crate) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = schemars::schema_for!(crate::schema::Config).to_value();
    without_null(&mut schema);
    schema["title"] = "Tidegate configuration".into();
    schema
});

/// Removes `null` from all types: a field without a value is a mistake.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Object(fields) => {
            fields.values_mut().for_each(without_null);
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(variants)) = fields.get_mut("anyOf") {
                variants.retain(|variant| variant.get("type") != Some(&"null".into()));
                if let [Value::Object(only)] = variants.as_slice() {
                    let only = only.clone();
                    fields.remove("anyOf");
                    flatten(fields, only);
                }
            }
        }
        _ => {}
    }
}

fn flatten(fields: &mut Map<String, Value>, only: Map<String, Value>) {
    for (name, value) in only {
        fields.entry(name).or_insert(value);
    }
}
