//! Numbers as Prometheus reads them (text format 0.0.4).

use std::fmt::Write;

use tidegate_core::shed::Mode;

/// The content type of a page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page that grows by families of series.
#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    /// Begins a family: its name, its kind and what it means.
    pub(crate) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a series with its labels to the family.
    pub(crate) fn series(&mut self, labels: &[(&str, &str)], number: u64) {
        self.text.push_str(self.family);
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(value));
        }
        let _ = writeln!(self.text, "}} {number}");
    }

    /// Adds a series for each mode: 1 for the one that holds.
    pub(crate) fn modes(&mut self, labels: &[(&str, &str)], mode: Mode) {
        for (one, text) in [(Mode::Enforce, "enforce"), (Mode::Shadow, "shadow"), (Mode::Off, "off")] {
            let labels: Vec<_> = labels.iter().copied().chain([("mode", text)]).collect();
            self.series(&labels, u64::from(mode == one));
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// Names are what somebody chose.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let mut page = Page::default();
        page.family("x", "gauge", "What it is.");
        page.series(&[("stack", "a\"b\\c\nd"), ("part", "fair")], 1);
        let expected = "# HELP x What it is.\n# TYPE x gauge\nx{stack=\"a\\\"b\\\\c\\nd\",part=\"fair\"} 1\n";
        assert_eq!(page.into_text(), expected);
    }
}
