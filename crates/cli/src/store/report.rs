//! The output of `tidegate store check`, as text and as JSON.

use std::fmt::Write;

use serde::Serialize;
use tidegate_stores::redis::{Checkup, Finding, Severity};

/// Returns a line for each finding below the name of its store, and a line with the numbers of errors and warnings.
pub(super) fn text(checkups: &[Checkup]) -> String {
    let mut text = String::new();
    for checkup in checkups {
        // Writing to memory does not fail.
        let _ = writeln!(text, "{}", checkup.store);
        checkup.findings.iter().for_each(|finding| line(&mut text, finding));
        text.push('\n');
    }
    let Totals { errors, warnings } = Totals::of(checkups);
    let (stores, errors, warnings) =
        (count(checkups.len(), "store"), count(errors, "error"), count(warnings, "warning"));
    let _ = writeln!(text, "{stores}: {errors}, {warnings}");
    text
}

fn line(text: &mut String, Finding { node, topic, severity, message, fix }: &Finding) {
    let node = node.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
    let fix = fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
    let _ = writeln!(text, "{}: {node}{}: {message}{fix}", severity.name(), topic.name());
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns one JSON object with the same findings.
pub(super) fn json(checkups: &[Checkup]) -> serde_json::Result<String> {
    let stores = checkups.iter().map(|checkup| StoreReport {
        store: &checkup.store,
        findings: checkup.findings.iter().map(FindingReport::from).collect(),
    });
    let report = Report { stores: stores.collect(), totals: Totals::of(checkups) };
    Ok(format!("{}\n", serde_json::to_string_pretty(&report)?))
}

#[derive(Serialize)]
struct Report<'a> {
    stores: Vec<StoreReport<'a>>,
    #[serde(flatten)]
    totals: Totals,
}

#[derive(Serialize)]
struct StoreReport<'a> {
    store: &'a str,
    findings: Vec<FindingReport<'a>>,
}

#[derive(Serialize)]
struct FindingReport<'a> {
    severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    topic: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
}

impl<'a> From<&'a Finding> for FindingReport<'a> {
    fn from(finding: &'a Finding) -> FindingReport<'a> {
        FindingReport {
            severity: finding.severity.name(),
            node: finding.node.as_deref(),
            topic: finding.topic.name(),
            message: &finding.message,
            fix: finding.fix.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct Totals {
    errors: usize,
    warnings: usize,
}

impl Totals {
    fn of(checkups: &[Checkup]) -> Totals {
        let count = |severity| checkups.iter().map(|checkup| checkup.count(severity)).sum();
        Totals { errors: count(Severity::Error), warnings: count(Severity::Warning) }
    }
}
