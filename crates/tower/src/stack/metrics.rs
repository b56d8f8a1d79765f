//! The metrics of stacks for Prometheus (text format 0.0.4).
//!
//! Labels are the stack, its part, a mode and a class: never a tenant, since clients choose those.

use tidegate_engine::exposition::Page;

use super::handle::{PartStats, StackStats};
use crate::exposition::modes;

/// A family of series: its name, type, help text and number, if a part has one.
type Family = (&'static str, &'static str, &'static str, fn(&PartStats) -> Option<u64>);

const FAMILIES: [Family; 6] = [
    ("tidegate_stack_allowed_total", "counter", "Requests that went on to the next part.", |part| Some(part.allowed)),
    ("tidegate_stack_refused_total", "counter", "Requests that were refused.", |part| Some(part.refused)),
    (
        "tidegate_stack_would_refuse_total",
        "counter",
        "Requests that passed in shadow mode and would have been refused or queued.",
        |part| Some(part.would_refuse),
    ),
    ("tidegate_stack_in_flight", "gauge", "Requests behind the part.", |part| part.in_flight),
    ("tidegate_stack_queued", "gauge", "Requests in the queue of the part.", |part| part.queued),
    (
        "tidegate_stack_limit",
        "gauge",
        "Limit on requests behind the part; for the shedder, without critical requests.",
        |part| part.limit,
    ),
];

const MODE: &str = "tidegate_stack_mode";
const SHED: &str = "tidegate_stack_shed_total";

pub(super) fn page(stacks: &[(&str, StackStats)]) -> String {
    let mut page = Page::default();
    let parts = || stacks.iter().flat_map(|(stack, stats)| stats.parts().map(move |part| (*stack, part)));
    for (name, kind, help, number) in FAMILIES {
        page.head(name, kind, help);
        for (stack, part) in parts() {
            if let Some(number) = number(part) {
                page.line(name, &[("stack", stack), ("part", part.part.name())], number);
            }
        }
    }
    page.head(MODE, "gauge", "Current mode of the part.");
    for (stack, part) in parts() {
        modes(&mut page, MODE, &[("stack", stack), ("part", part.part.name())], part.mode);
    }
    page.head(SHED, "counter", "Requests of a class that were shed, or would have been in shadow mode.");
    for (stack, stats) in stacks {
        for (class, number) in stats.shed_by_class.iter().flatten() {
            page.line(SHED, &[("stack", stack), ("class", class.name())], *number);
        }
    }
    page.into_text()
}
