//! What is wrong with a configuration, where, and what would do.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it can be used all the same.
    pub severity: Severity,
    /// Where.
    pub location: Location,
    /// What is wrong, with the name of the field and its value.
    pub message: String,
    /// What would do.
    pub hint: String,
}

/// Whether a configuration can be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but it is probably not what was meant.
    Warning,
}

/// A place in a file. Lines and columns count from 1; a line of 0 means the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}", self.file),
            line => write!(formatter, "{}:{line}:{}", self.file, self.column),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(formatter, "{}: {severity}: {}; {}", self.location, self.message, self.hint)
    }
}

/// Collects the problems of a configuration. Values are named by their JSON pointer, like
/// `/domains/api/rules/3/limit`, and whoever read the file knows where those stand.
pub struct Diagnostics<'a> {
    locate: &'a dyn Fn(&str) -> Location,
    /// Values of which everything was said.
    left_out: Option<&'a BTreeSet<String>>,
    found: Vec<Diagnostic>,
}

impl<'a> Diagnostics<'a> {
    /// Nothing wrong yet; `locate` tells where the value of a pointer stands, or the nearest around it.
    pub fn new(locate: &'a dyn Fn(&str) -> Location) -> Diagnostics<'a> {
        Diagnostics { locate, left_out: None, found: Vec::new() }
    }

    /// Says nothing of the values of these pointers: somebody else did. They are not there, or stand-ins are.
    #[must_use]
    pub(crate) fn without(self, left_out: &'a BTreeSet<String>) -> Diagnostics<'a> {
        Diagnostics { left_out: Some(left_out), ..self }
    }

    /// Whether something in the value of this pointer was left out.
    pub(crate) fn is_left_out_within(&self, pointer: &str) -> bool {
        let inside = format!("{pointer}/");
        let next = self.left_out.and_then(|left_out| left_out.range(inside.clone()..).next());
        next.is_some_and(|next| next.starts_with(&inside))
    }

    /// Whether the value of this pointer, or what it is in, was left out.
    pub(crate) fn is_left_out(&self, pointer: &str) -> bool {
        let Some(left_out) = self.left_out.filter(|left_out| !left_out.is_empty()) else { return false };
        let ends = pointer.match_indices('/').map(|(end, _)| end).chain([pointer.len()]);
        ends.filter_map(|end| pointer.get(..end)).any(|around| left_out.contains(around))
    }

    /// Something that cannot be used.
    pub fn error(&mut self, pointer: &str, message: impl fmt::Display, hint: impl fmt::Display) {
        self.push(Severity::Error, pointer, message, hint);
    }

    /// Something that is probably a mistake.
    pub fn warning(&mut self, pointer: &str, message: impl fmt::Display, hint: impl fmt::Display) {
        self.push(Severity::Warning, pointer, message, hint);
    }

    /// Whether anything cannot be used.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.found.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// All of them, in the order of the file.
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
