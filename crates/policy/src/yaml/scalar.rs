//! The types of plain scalars: the core schema of YAML 1.2.

use std::sync::Arc;

use crate::json::quote;

/// A scalar as written, and its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scalar {
    /// Without its quotes.
    pub(crate) text: Arc<str>,
    pub(crate) kind: Type,
}

/// The type of a scalar, with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Type {
    Null,
    Bool(bool),
    /// Fits in 64 bits, with or without a sign.
    Integer(i128),
    Float(f64),
    Text,
}

impl Scalar {
    /// Makes a scalar that was written in quotes: text.
    pub(crate) fn quoted(text: &str) -> Scalar {
        Scalar { text: text.into(), kind: Type::Text }
    }

    /// Makes a scalar that was written without quotes, of the type that it looks like.
    pub(crate) fn plain(text: &str) -> Scalar {
        Scalar { text: text.into(), kind: resolve(text) }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match self.kind {
            Type::Null => Value::Null,
            Type::Bool(value) => Value::Bool(value),
            Type::Integer(value) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => value.into(),
                (_, Ok(value)) => value.into(),
                _ => Value::String(self.text.to_string()),
            },
            Type::Float(value) => value.into(),
            Type::Text => Value::String(self.text.to_string()),
        }
    }

    /// Describes it in words.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            Type::Null => "blank".to_owned(),
            Type::Bool(value) => value.to_string(),
            Type::Integer(_) | Type::Float(_) => format!("the number {}", quote(&self.text)),
            Type::Text => format!("`{}`", quote(&self.text)),
        }
    }
}

fn resolve(text: &str) -> Type {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Type::Null,
        "true" | "True" | "TRUE" => Type::Bool(true),
        "false" | "False" | "FALSE" => Type::Bool(false),
        // Floats that JSON does not have stay text.
        ".inf" | "-.inf" | "+.inf" | ".nan" | ".NaN" => Type::Text,
        _ => number(text).unwrap_or(Type::Text),
    }
}

fn number(text: &str) -> Option<Type> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    if let Some(value) = integer(text, unsigned) {
        return Some(Type::Integer(value));
    }
    let float = unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
        && unsigned.bytes().any(|byte| byte.is_ascii_digit());
    let value = if float { text.parse::<f64>().ok()? } else { return None };
    value.is_finite().then_some(Type::Float(value))
}

fn integer(text: &str, unsigned: &str) -> Option<i128> {
    let (digits, radix) = match (unsigned.strip_prefix("0x"), unsigned.strip_prefix("0o")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 8),
        _ => (unsigned, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok().map(i128::from)?;
    let value = if text.starts_with('-') { -value } else { value };
    (value >= i128::from(i64::MIN)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Type) {
        assert_eq!(resolve(text), expected, "{text}");
    }

    #[test]
    fn scalars_of_the_core_schema() {
        for null in ["", "~", "null", "NULL"] {
            check(null, Type::Null);
        }
        check("true", Type::Bool(true));
        check("False", Type::Bool(false));
        check("0", Type::Integer(0));
        check("-17", Type::Integer(-17));
        check("+5", Type::Integer(5));
        check("0x1F", Type::Integer(31));
        check("0o17", Type::Integer(15));
        check("18446744073709551615", Type::Integer(u64::MAX.into()));
        check("1.5", Type::Float(1.5));
        check("1e3", Type::Float(1000.0));
        check("18446744073709551616", Type::Float(18_446_744_073_709_551_616.0));
        for text in ["yes", "1/minute", "10.0.0.1", "1_000", "-", ".", "0x", "1e", "1e999", "nullo", ".nan", "e5"] {
            check(text, Type::Text);
        }
    }
}
