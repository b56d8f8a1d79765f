//! Metrics in the Prometheus text format 0.0.4, for all front ends.

use std::fmt::{self, Write};

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics in the text format.
#[derive(Clone, Debug, Default)]
pub struct Page(String);

impl Page {
    /// Starts a metric: its name, type and help text.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a series: its name, its labels and its value.
    pub fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            self.0.push_str(if number == 0 { "{" } else { "," });
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.escaped(text);
            self.0.push('"');
        }
        let end = if labels.is_empty() { " " } else { "} " };
        let _ = writeln!(self.0, "{end}{value}");
    }

    /// Adds the series of a histogram of durations. Bounds and the sum are in nanoseconds; `within` counts the
    /// durations up to each bound, and last all of them.
    pub fn histogram(&mut self, name: &str, label: (&str, &str), bounds: &[u64], within: &[u64], nanos: u64) {
        let bounds = bounds.iter().map(|bound| Seconds(*bound).to_string()).chain(["+Inf".to_owned()]);
        let bucket = format!("{name}_bucket");
        for (bound, count) in bounds.zip(within) {
            self.line(&bucket, &[label, ("le", &bound)], count);
        }
        self.line(&format!("{name}_sum"), &[label], Seconds(nanos));
        self.line(&format!("{name}_count"), &[label], within.last().copied().unwrap_or_default());
    }

    /// Returns the text of the page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    fn escaped(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }
}

/// Nanoseconds, written as seconds without trailing zeros.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NANOS: u64 = 1_000_000_000;
        let rest = format!("{:09}", self.0 % NANOS);
        match rest.trim_end_matches('0') {
            "" => write!(formatter, "{}", self.0 / NANOS),
            rest => write!(formatter, "{}.{rest}", self.0 / NANOS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.line("a", &[("b", "c\\\"\nd\r"), ("e", "é")], 7);
        page.line("f", &[], 8_u64);
        assert_eq!(page.into_text(), "a{b=\"c\\\\\\\"\\nd\r\",e=\"é\"} 7\nf 8\n");
    }

    #[test]
    fn a_metric_begins_with_its_meaning() {
        let mut page = Page::default();
        page.head("x", "gauge", "What it is.");
        page.line("x", &[("part", "fair")], 1);
        assert_eq!(page.into_text(), "# HELP x What it is.\n# TYPE x gauge\nx{part=\"fair\"} 1\n");
    }

    #[test]
    fn times_are_told_in_seconds() {
        for (nanos, told) in
            [(0, "0"), (5_000, "0.000005"), (1_500_000_000, "1.5"), (10_000_000_000, "10"), (1, "0.000000001")]
        {
            assert_eq!(Seconds(nanos).to_string(), told);
        }
    }
}
