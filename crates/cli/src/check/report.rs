//! The output of `tidegate check`, as text and as JSON.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use tidegate_policy::{Diagnostic, Loaded, OneLine, Severity};

const LOCATION: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Skipped files that text names, so that a large directory does not bury the problems. JSON has all.
const SKIPPED_SHOWN_MAX: usize = 10;

/// Writes a line for each problem, one for skipped files, and one with totals. It has styles, which the stream removes if
/// they are unwanted.
pub(super) fn write_text(out: &mut impl Write, loaded: &Loaded) -> io::Result<()> {
    write_problems(out, loaded)?;
    write_skipped(out, &loaded.skipped)?;
    let Totals { errors, warnings } = Totals::of(loaded);
    writeln!(
        out,
        "{}, {}, {}: {}, {}",
        count(loaded.files.len(), "file"),
        count(loaded.config.domains.len(), "domain"),
        count(loaded.rules, "rule"),
        count(errors, "error"),
        count(warnings, "warning"),
    )
}

/// Writes a line for each problem. It has styles, which the stream removes if they are unwanted.
pub(crate) fn write_problems(out: &mut impl Write, loaded: &Loaded) -> io::Result<()> {
    for Diagnostic { severity, location, message, hint } in &loaded.diagnostics {
        let (style, name) = (style(*severity), name(*severity));
        let (message, hint) = (OneLine(message), OneLine(hint));
        writeln!(out, "{LOCATION}{location}{LOCATION:#}: {style}{name}{style:#}: {message}; {hint}")?;
    }
    Ok(())
}

/// Names the files in directories that were not read.
fn write_skipped(out: &mut impl Write, skipped: &[PathBuf]) -> io::Result<()> {
    if skipped.is_empty() {
        return Ok(());
    }
    let name = |path: &PathBuf| OneLine(&path.to_string_lossy()).to_string();
    let shown: Vec<String> = skipped.iter().take(SKIPPED_SHOWN_MAX).map(name).collect();
    let others = match skipped.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    writeln!(out, "skipped, because hidden or not named *.yaml or *.yml: {}{others}", shown.join(", "))
}

fn name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Error => ERROR,
        Severity::Warning => WARNING,
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns one JSON object with the same problems.
pub(super) fn json(loaded: &Loaded) -> serde_json::Result<String> {
    let report = Report {
        files: loaded.files.iter().map(|path| path.to_string_lossy()).collect(),
        skipped: loaded.skipped.iter().map(|path| path.to_string_lossy()).collect(),
        domains: loaded.config.domains.len(),
        rules: loaded.rules,
        totals: Totals::of(loaded),
        diagnostics: loaded.diagnostics.iter().map(DiagnosticReport::from).collect(),
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&report)?))
}

/// The order of the fields is their order in JSON.
#[derive(Serialize)]
struct Report<'a> {
    files: Vec<Cow<'a, str>>,
    skipped: Vec<Cow<'a, str>>,
    domains: usize,
    rules: usize,
    #[serde(flatten)]
    totals: Totals,
    diagnostics: Vec<DiagnosticReport<'a>>,
}

/// The numbers of problems.
#[derive(Serialize)]
pub(super) struct Totals {
    pub(super) errors: usize,
    pub(super) warnings: usize,
}

impl Totals {
    pub(super) fn of(loaded: &Loaded) -> Totals {
        let errors = loaded.diagnostics.iter().filter(|problem| problem.severity == Severity::Error).count();
        Totals { errors, warnings: loaded.diagnostics.len() - errors }
    }
}

#[derive(Serialize)]
struct DiagnosticReport<'a> {
    severity: &'static str,
    file: &'a str,
    /// Missing if the problem concerns the whole file.
    #[serde(flatten)]
    position: Option<Position>,
    message: &'a str,
    hint: &'a str,
}

/// A position in a file; both numbers count from 1.
#[derive(Serialize)]
struct Position {
    line: u32,
    column: u32,
}

impl<'a> From<&'a Diagnostic> for DiagnosticReport<'a> {
    fn from(diagnostic: &'a Diagnostic) -> DiagnosticReport<'a> {
        let Diagnostic { severity, location, message, hint } = diagnostic;
        DiagnosticReport {
            severity: name(*severity),
            file: &location.file,
            position: (location.line > 0).then_some(Position { line: location.line, column: location.column }),
            message,
            hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_styles_a_problem_reads_as_in_logs() {
        let text = "domains: {api: {rules: [{name: x, limt: 5/minute}, {limit: 0/s}], other: {}}";
        let loaded = tidegate_policy::load_text("\u{1b}rules\n.yaml", text, &tidegate_policy::LoadOptions::default());
        let mut bytes = Vec::new();
        write_problems(&mut anstream::StripStream::new(&mut bytes), &loaded).unwrap();
        let expected: String = loaded.diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect();
        assert!(!expected.is_empty());
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
