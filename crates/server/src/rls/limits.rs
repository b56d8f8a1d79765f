//! All limits as envoyproxy/ratelimit shows them.

use std::fmt::Write;

use tidegate_policy::{Action, Mode};

use super::unit::Unit;
use crate::service::Service;

/// One line for each limit.
pub(crate) fn page(service: &Service) -> String {
    let mut lines = String::new();
    for (rule, view) in service.engine.policy().views() {
        let path = rule.metric_path.join(".");
        let limits =
            rule.limits.iter().map(|limit| limit.shown).chain(rule.report_as.iter().map(|report_as| report_as.shown));
        let limits = limits.map(|shown| (Unit::name_of(shown.period_ns), shown.units));
        // What has no limit is told as one without a unit.
        let none = (rule.action == Action::Unlimited).then(|| ("UNKNOWN".into(), 0));
        for (unit, units) in limits.chain(none) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                lines,
                "{}.{path}: unit={unit} requests_per_unit={units}, shadow_mode: {}, quota_mode: {}",
                rule.domain,
                view.mode == Mode::Shadow,
                rule.quota,
            );
        }
    }
    lines
}
