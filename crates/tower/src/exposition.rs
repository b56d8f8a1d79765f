//! The metrics that all layers have.

use tidegate_core::shed::Mode;
use tidegate_engine::exposition::Page;

/// Adds a series for each mode: 1 for the current mode, 0 for the others.
pub(crate) fn modes(page: &mut Page, name: &str, labels: &[(&str, &str)], mode: Mode) {
    for (one, text) in [(Mode::Enforce, "enforce"), (Mode::Shadow, "shadow"), (Mode::Off, "off")] {
        let labels: Vec<_> = labels.iter().copied().chain([("mode", text)]).collect();
        page.line(name, &labels, u64::from(mode == one));
    }
}
