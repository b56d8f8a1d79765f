//! The problems of a load, bounded, and suggestions for misspelt words.

use std::fmt::Display;
use std::sync::Arc;

use super::bounds::{PROBLEMS_MAX, WORD_BYTES_MAX};
use crate::yaml::Mark;
use crate::{Diagnostic, Location, Severity};

/// Problems of all files.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Diagnostic>,
    /// Errors that are reported only if no other error has the same location.
    fallbacks: Vec<Diagnostic>,
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

    /// Adds an error that [`finish`](Self::finish) drops if another error has the same location: the better explanation.
    pub(crate) fn fallback(&mut self, location: Location, message: impl Display, hint: impl Display) {
        self.errors += 1;
        if self.fallbacks.len() < PROBLEMS_MAX {
            let (message, hint) = (message.to_string(), hint.to_string());
            self.fallbacks.push(Diagnostic { severity: Severity::Error, location, message, hint });
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn warning(&mut self, location: Location, message: impl Display, hint: impl Display) {
        let (message, hint) = (message.to_string(), hint.to_string());
        self.push(Diagnostic { severity: Severity::Warning, location, message, hint });
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        self.keep(diagnostic);
    }

    fn keep(&mut self, diagnostic: Diagnostic) {
        if self.found.len() < PROBLEMS_MAX {
            self.found.push(diagnostic);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds a problem, unless it was added before.
    pub(crate) fn push_once(&mut self, diagnostic: Diagnostic) {
        if !self.found.contains(&diagnostic) {
            self.push(diagnostic);
        }
    }

    /// Returns the number of errors so far, including those beyond the bound.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// Returns all problems, sorted by location.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        let is_explained = |place: &Location| {
            self.found.iter().any(|other| other.severity == Severity::Error && other.location == *place)
        };
        let (explained, bare): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.fallbacks).into_iter().partition(|one| is_explained(&one.location));
        self.errors -= explained.len();
        bare.into_iter().for_each(|one| self.keep(one));
        self.found.sort_by(|left, right| left.location.cmp(&right.location));
        if let (1.., Some(last)) = (self.left_out, self.found.last()) {
            // Errors beyond the bound must not go unnoticed.
            let severity = if self.errors > 0 { Severity::Error } else { Severity::Warning };
            let location = Location { line: 0, column: 0, ..last.location.clone() };
            let message = format!("{} more problems", self.left_out);
            self.found.push(Diagnostic { severity, location, message, hint: "fix those above first".to_owned() });
        }
        self.found
    }
}

/// Returns a location in a file.
pub(crate) fn at(file: &Arc<str>, mark: Mark) -> Location {
    Location { file: file.clone(), line: mark.line, column: mark.column }
}

/// Returns the location of a whole file.
pub(crate) fn whole(file: &str) -> Location {
    Location { file: file.into(), line: 0, column: 0 }
}

/// Words that people write for others: each is replaced by the first of its list that is known.
const SYNONYMS: [(&[&str], &[&str]); 12] = [
    (&["deny", "reject", "refuse", "drop", "ban"], &["block", "deny"]),
    (&["block"], &["deny"]),
    (&["allow", "pass", "accept", "bypass", "skip"], &["unlimited", "allow", "skip"]),
    (&["open", "failopen"], &["allow"]),
    (&["closed", "failclosed"], &["deny"]),
    (&["ip", "clientip", "remoteip", "remoteaddress", "remoteaddr", "client", "cidr"], &["address"]),
    (&["dryrun", "monitor", "observe", "report", "logonly"], &["shadow"]),
    (&["on", "enabled", "active", "enforced"], &["enforce"]),
    (&["disabled", "inactive"], &["off"]),
    (&["slidingwindow", "slidingwindowcounter"], &["sliding_counter"]),
    (&["ratelimit", "requestsperunit"], &["limit"]),
    (&["descriptor", "descriptors"], &["entries"]),
];

/// The fewest letters of a word that is completed to a known one.
const PREFIX_CHARS_MIN: usize = 3;

/// Returns the known word that was probably meant: one that differs only in case and separators, the usual word for the
/// same, one that is a slip away, or the only one that begins so.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > WORD_BYTES_MAX {
        return None;
    }
    let allowed = (written.chars().count() / 3).clamp(1, 3);
    let written = plain(written);
    let known: Vec<(String, &str)> = known.into_iter().map(|word| (plain(word), word)).collect();
    if let Some((_, word)) = known.iter().find(|(plain, _)| *plain == written) {
        return Some(word);
    }
    let meant = SYNONYMS.iter().find(|(words, _)| words.contains(&&*written)).map_or(&[][..], |(_, meant)| meant);
    if let Some(word) = meant.iter().find_map(|meant| known.iter().find(|(_, word)| word == meant)) {
        return Some(word.1);
    }
    let near = known.iter().map(|(plain, word)| (distance(&written, plain), *word));
    let near = near.filter(|(distance, _)| *distance <= allowed).min().map(|(_, word)| word);
    let mut longer = known.iter().filter(|(plain, _)| plain.starts_with(&written));
    let is_long_enough = written.chars().count() >= PREFIX_CHARS_MIN;
    let completed = || match (longer.next(), longer.next()) {
        (Some((_, word)), None) if is_long_enough => Some(*word),
        _ => None,
    };
    near.or_else(completed)
}

/// A word without case and separators.
fn plain(word: &str) -> String {
    let letters = word.chars().filter(|letter| !matches!(letter, '_' | '-' | ' ' | '.'));
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns `did you mean x?` if a known word was probably meant, else the list of known words.
pub(crate) fn suggest<'a>(written: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(written, known.clone()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("use one of {}", list(known)),
    }
}

/// Returns `a`, `b` and `c`, in backticks.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match (words.pop(), words.is_empty()) {
        (Some(last), false) => format!("{} and {last}", words.join(", ")),
        (Some(last), true) => last,
        (None, _) => "none".to_owned(),
    }
}

/// Returns the number of letters that must be changed, added, removed or swapped with their neighbour.
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
            ("match_", Some("match")),
            ("Ma-Tch", Some("match")),
            ("mat", Some("match")),
            ("lim", None),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
        assert_eq!(suggest("zzz", ["a", "b"]), "use one of `a` and `b`");
    }
}
