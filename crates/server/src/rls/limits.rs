//! All limits as envoyproxy/ratelimit shows them.

use std::fmt::Write;

use tidegate_policy::Mode;

use super::unit::Unit;
use crate::service::Service;

/// One line for each limit.
pub(crate) fn page(service: &Service) -> String {
    let mut lines = String::new();
    for (rule, view) in service.engine.policy().views() {
        let path = rule.metric_path.join(".");
        let shown = rule.limits.iter().map(|limit| limit.shown).chain(rule.told_as.iter().map(|told_as| told_as.shown));
        for shown in shown {
            // Writing to a string cannot fail.
            let _ = writeln!(
                lines,
                "{}.{path}: unit={} requests_per_unit={}, shadow_mode: {}",
                rule.domain,
                Unit::name_of(shown.period_ns),
                shown.units,
                view.mode == Mode::Shadow,
            );
        }
    }
    lines
}
