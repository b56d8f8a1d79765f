//! Problems of a configuration, with their locations and remedies.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// A problem in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the configuration can still be used.
    pub severity: Severity,
    /// The location of the problem.
    pub location: Location,
    /// The problem, with the field and its value.
    pub message: String,
    /// A remedy.
    pub hint: String,
}

/// Whether a configuration with the problem can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but probably contains a mistake.
    Warning,
}

/// A location in a file. Line and column count from 1. Line 0 means the whole file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The path of the file, as given.
    pub file: Arc<str>,
    /// The line, from 1, or 0 for the whole file.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = OneLine(&self.file);
        match self.line {
            0 => write!(formatter, "{file}"),
            line => write!(formatter, "{file}:{line}:{}", self.column),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let (message, hint) = (OneLine(&self.message), OneLine(&self.hint));
        write!(formatter, "{}: {severity}: {message}; {hint}", self.location)
    }
}

/// Displays text on one line: control characters are escaped, so that names of files and values in them can neither start
/// a line in a log nor control a terminal.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter.is_control() {
                true => write!(formatter, "{}", letter.escape_debug())?,
                false => formatter.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Collects the problems of a configuration. Values are identified by JSON pointers, like `/domains/api/rules/3/limit`,
/// which the caller maps to locations.
pub struct Diagnostics<'a> {
    locate: &'a dyn Fn(&str) -> Location,
    /// Values whose problems were reported already.
    left_out: Option<&'a BTreeSet<String>>,
    found: Vec<Diagnostic>,
}

impl<'a> Diagnostics<'a> {
    /// Makes an empty collection. `locate` returns the location of the value at a JSON pointer, or of the nearest value
    /// around it.
    pub fn new(locate: &'a dyn Fn(&str) -> Location) -> Diagnostics<'a> {
        Diagnostics { locate, left_out: None, found: Vec::new() }
    }

    /// Ignores problems of the values at these pointers, which are missing or placeholders.
    #[must_use]
    pub(crate) fn without(self, left_out: &'a BTreeSet<String>) -> Diagnostics<'a> {
        Diagnostics { left_out: Some(left_out), ..self }
    }

    /// Whether a value inside of the value at this pointer is ignored.
    pub(crate) fn is_left_out_within(&self, pointer: &str) -> bool {
        let inside = format!("{pointer}/");
        let next = self.left_out.and_then(|left_out| left_out.range(inside.clone()..).next());
        next.is_some_and(|next| next.starts_with(&inside))
    }

    /// Whether the value at this pointer, or one around it, is ignored.
    pub(crate) fn is_left_out(&self, pointer: &str) -> bool {
        let Some(left_out) = self.left_out.filter(|left_out| !left_out.is_empty()) else { return false };
        let ends = pointer.match_indices('/').map(|(end, _)| end).chain([pointer.len()]);
        ends.filter_map(|end| pointer.get(..end)).any(|around| left_out.contains(around))
    }

    /// Adds an error.
    pub fn error(&mut self, pointer: &str, message: impl fmt::Display, hint: impl fmt::Display) {
        self.push(Severity::Error, pointer, message, hint);
    }

    /// Adds a warning.
    pub fn warning(&mut self, pointer: &str, message: impl fmt::Display, hint: impl fmt::Display) {
        self.push(Severity::Warning, pointer, message, hint);
    }

    /// Returns whether there is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.found.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Returns all problems, sorted by location.
    #[must_use]
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.found.sort_by(|left, right| left.location.cmp(&right.location));
        self.found
    }

    fn push(&mut self, severity: Severity, pointer: &str, message: impl fmt::Display, hint: impl fmt::Display) {
        if self.is_left_out(pointer) {
            return;
        }
        let location = (self.locate)(pointer);
        self.found.push(Diagnostic { severity, location, message: message.to_string(), hint: hint.to_string() });
    }
}

impl fmt::Debug for Diagnostics<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Diagnostics").field(&self.found).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadOptions, load_text};

    #[test]
    fn a_problem_is_one_line_whatever_the_file_and_its_values_contain() {
        let text = r#"domains: {api: {rules: [{name: ä, limit: "1/s\u001b[31m\nb.yaml"}]}}"#;
        let loaded = load_text("a\nb\u{7}.yaml", text, &LoadOptions::default());
        let problems: Vec<String> = loaded.diagnostics.iter().map(Diagnostic::to_string).collect();
        let expected = r"a\nb\u{7}.yaml:1:42: error: limit: cannot read `1/s\u{1b}[31m\nb.yaml`; ";
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
        assert_eq!(OneLine("ä\u{2028}`\\\"\t").to_string(), "ä\u{2028}`\\\"\\t", "only control characters are escaped");
    }
}
