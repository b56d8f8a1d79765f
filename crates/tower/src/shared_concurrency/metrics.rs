//! The counts of layers for Prometheus.
//!
//! Labels are the layer, a mode and a call to the store: never a key, since clients choose those.

use tidegate_engine::exposition::Page;

use super::handle::{SharedConcurrencyCounts, SharedConcurrencyHandle};
use crate::exposition::modes;

/// A family of one series for each layer: its name, type, help text and number.
type Family = (&'static str, &'static str, &'static str, fn(&SharedConcurrencyCounts) -> u64);

const FAMILIES: [Family; 6] = [
    (
        "tidegate_shared_concurrency_in_flight",
        "gauge",
        "Requests in progress in this process, with or without a permit in the store.",
        |counts| counts.in_flight,
    ),
    ("tidegate_shared_concurrency_acquired_total", "counter", "Permits that were granted.", |counts| counts.acquired),
    ("tidegate_shared_concurrency_refused_total", "counter", "Requests that were refused.", |counts| counts.refused),
    (
        "tidegate_shared_concurrency_would_refuse_total",
        "counter",
        "Requests that passed in shadow mode and would have been refused.",
        |counts| counts.would_refuse,
    ),
    ("tidegate_shared_concurrency_renewed_total", "counter", "Leases that were renewed.", |counts| counts.renewed),
    (
        "tidegate_shared_concurrency_lost_total",
        "counter",
        "Permits whose lease had ended while the request was in progress.",
        |counts| counts.lost,
    ),
];

const FAILURES: &str = "tidegate_shared_concurrency_store_failures_total";
const LIMIT: &str = "tidegate_shared_concurrency_limit";
const MODE: &str = "tidegate_shared_concurrency_mode";

pub(super) fn page(layers: &[SharedConcurrencyHandle]) -> String {
    let layers: Vec<_> = layers.iter().map(|layer| (layer, [("layer", layer.name())], layer.counts())).collect();
    let mut page = Page::default();
    for (name, kind, help, number) in FAMILIES {
        page.head(name, kind, help);
        for (_, label, counts) in &layers {
            page.line(name, label, number(counts));
        }
    }
    page.head(FAILURES, "counter", "Calls that the store did not answer.");
    for (_, [label], counts) in &layers {
        let calls = [
            ("acquire", counts.store_failures),
            ("renew", counts.renew_failures),
            ("release", counts.release_failures),
        ];
        for (call, number) in calls {
            page.line(FAILURES, &[*label, ("call", call)], number);
        }
    }
    page.head(LIMIT, "gauge", "Concurrency limit over all processes, of each key if there are keys.");
    for (layer, label, _) in &layers {
        page.line(LIMIT, label, layer.limit());
    }
    page.head(MODE, "gauge", "Current mode of the layer.");
    for (layer, label, _) in &layers {
        modes(&mut page, MODE, label, layer.switch().mode());
    }
    page.into_text()
}
