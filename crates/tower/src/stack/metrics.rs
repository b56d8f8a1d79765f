//! What stacks have done, as Prometheus reads it (text format 0.0.4).
//!
//! Labels are the stack, its part, a mode and a class: never a tenant, since whoever sends requests chooses those.

use std::fmt::Write;

use tidegate_core::shed::Mode;

use super::handle::{PartStats, StackStats};

/// A family of series: its name, its kind, what it means, and its number, where a part has one.
type Family = (&'static str, &'static str, &'static str, fn(&PartStats) -> Option<u64>);

const FAMILIES: [Family; 6] = [
    ("tidegate_stack_allowed_total", "counter", "Requests that went on to the next part.", |part| Some(part.allowed)),
    ("tidegate_stack_refused_total", "counter", "Requests that were refused.", |part| Some(part.refused)),
    (
        "tidegate_stack_would_refuse_total",
        "counter",
        "Requests that went on in shadow mode and would have been refused or would have had to wait.",
        |part| Some(part.would_refuse),
    ),
    ("tidegate_stack_in_flight", "gauge", "Requests behind the part.", |part| part.in_flight),
    ("tidegate_stack_queued", "gauge", "Requests that wait before the part.", |part| part.queued),
    (
        "tidegate_stack_limit",
        "gauge",
        "Requests that may be behind the part, for shed besides critical ones.",
        |part| part.limit,
    ),
];

const MODE: &str = "tidegate_stack_mode";
const SHED: &str = "tidegate_stack_shed_total";

pub(super) fn page(stacks: &[(&str, StackStats)]) -> String {
    let mut page = String::new();
    let parts = || stacks.iter().flat_map(|(stack, stats)| stats.parts().map(move |part| (*stack, part)));
    for (name, kind, help, number) in FAMILIES {
        head(&mut page, name, kind, help);
        for (stack, part) in parts() {
            if let Some(number) = number(part) {
                line(&mut page, name, stack, &[("part", part.part.name())], number);
            }
        }
    }
    head(&mut page, MODE, "gauge", "What the part does now.");
    for (stack, part) in parts() {
        for (mode, text) in [(Mode::Enforce, "enforce"), (Mode::Shadow, "shadow"), (Mode::Off, "off")] {
            line(&mut page, MODE, stack, &[("part", part.part.name()), ("mode", text)], u64::from(part.mode == mode));
        }
    }
    head(&mut page, SHED, "counter", "Requests of a class that were shed, or would have been in shadow mode.");
    for (stack, stats) in stacks {
        for (class, number) in stats.shed_by_class.iter().flatten() {
            line(&mut page, SHED, stack, &[("class", class.name())], *number);
        }
    }
    page
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(page: &mut String, name: &str, stack: &str, labels: &[(&str, &str)], number: u64) {
    let _ = write!(page, "{name}{{stack=\"{}\"", escaped(stack));
    for (label, text) in labels {
        let _ = write!(page, ",{label}=\"{text}\"");
    }
    let _ = writeln!(page, "}} {number}");
}

/// The name of a stack is the one label that somebody chose.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let mut page = String::new();
        line(&mut page, "x", "a\"b\\c\nd", &[("part", "fair")], 1);
        assert_eq!(page, "x{stack=\"a\\\"b\\\\c\\nd\",part=\"fair\"} 1\n");
    }
}
