//! What was found wrong, bounded, and words that were probably meant.

use std::fmt::Display;
use std::sync::Arc;

use super::bounds::{PROBLEMS_MAX, WORD_BYTES_MAX};
use crate::yaml::Mark;
use crate::{Diagnostic, Location, Severity};

/// Problems of all files.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Diagnostic>,
    errors: usize,
    left_out: usize,
}

impl Problems {
    pub(crate) fn error(&mut self, location: Location, message: impl Display, hint: impl Display) {
        self.push(Diagnostic {
            severity: Severity::Error,
            location,
            message: message.to_string(),
            hint: hint.to_string(),
        });
    }

    pub(crate) fn warning(&mut self, location: Location, message: impl Display, hint: impl Display) {
        let (message, hint) = (message.to_string(), hint.to_string());
        self.push(Diagnostic { severity: Severity::Warning, location, message, hint });
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        if self.found.len() < PROBLEMS_MAX {
            self.found.push(diagnostic);
        } else {
            self.left_out += 1;
        }
    }

    /// The same, unless it was told before.
    pub(crate) fn push_once(&mut self, diagnostic: Diagnostic) {
        if !self.found.contains(&diagnostic) {
            self.push(diagnostic);
        }
    }

    /// How many errors so far, also those that are not told.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// All of them, in the order of the files.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.found.sort_by(|left, right| left.location.cmp(&right.location));
        if let (1.., Some(last)) = (self.left_out, self.found.last()) {
            // An error among those that are left out must not be missed.
            let severity = if self.errors > 0 { Severity::Error } else { Severity::Warning };
            let location = Location { line: 0, column: 0, ..last.location.clone() };
            let message = format!("{} more problems", self.left_out);
            self.found.push(Diagnostic { severity, location, message, hint: "see to those above first".to_owned() });
        }
        self.found
    }
}

/// A place in a file.
pub(crate) fn at(file: &Arc<str>, mark: Mark) -> Location {
    Location { file: file.clone(), line: mark.line, column: mark.column }
}

/// A file as a whole.
pub(crate) fn whole(file: &str) -> Location {
    Location { file: file.into(), line: 0, column: 0 }
}

/// The word of a list that was probably meant, if any is near enough.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    if written.len() > WORD_BYTES_MAX {
        return None;
    }
    let allowed = (written.chars().count() / 3).clamp(1, 3);
    let near = known.into_iter().map(|word| (distance(&written, word), word));
    near.filter(|(distance, _)| *distance <= allowed).min().map(|(_, word)| word)
}

/// `did you mean x?` if a known word is near, else all of them.
pub(crate) fn suggest<'a>(written: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(written, known.clone()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known are {}", list(known)),
    }
}

/// `a`, `b` and `c`.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match (words.pop(), words.is_empty()) {
        (Some(last), false) => format!("{} and {last}", words.join(", ")),
        (Some(last), true) => last,
        (None, _) => "none".to_owned(),
    }
}

/// How many letters must be changed, added, left out or swapped with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let width = right.len() + 1;
    let mut rows = vec![(0..width).collect::<Vec<usize>>()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let cell =
                |back: usize, column: usize| rows.get((i + 1).wrapping_sub(back)).and_then(|row| row.get(column));
            let mut best = cell(1, j).map_or(usize::MAX, |&cost| cost + usize::from(a != b));
            best = best.min(cell(1, j + 1).map_or(usize::MAX, |&cost| cost + 1));
            best = best.min(row.get(j).map_or(usize::MAX, |&cost| cost + 1));
            let swapped = i > 0 && j > 0 && left.get(i - 1) == Some(b) && right.get(j - 1) == Some(a);
            if swapped {
                best = best.min(cell(2, j - 1).map_or(usize::MAX, |&cost| cost + 1));
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let known = ["limit", "limits", "match", "mode", "name"];
        for (written, meant) in [
            ("limt", Some("limit")),
            ("ilmit", Some("limit")),
            ("Limits", Some("limits")),
            ("mod", Some("mode")),
            ("matches", Some("match")),
            ("rate", None),
            ("algorithm", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
        assert_eq!(suggest("zzz", ["a", "b"]), "known are `a` and `b`");
    }
}
