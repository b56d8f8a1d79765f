//! Limits that deny every request, and limits that never deny because another limit of the rule is always stricter.

use super::Both;
use crate::diagnostic::Diagnostics;
use crate::json::quote;
use crate::rule::RuleLimit;

pub(super) fn of_rule(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    too_costly(both, diagnostics);
    let limits = &both.rule.limits;
    for (place, limit) in limits.iter().enumerate() {
        // Limits in different stores cannot be compared: a local one sees only a part of the requests.
        let mut others =
            limits.iter().enumerate().filter(|(other, there)| *other != place && there.store == limit.store);
        // Of two equal limits, only the later one is reported.
        let stricter = others.clone().find(|(other, stricter)| {
            never_denies_beside(limit, stricter) && (*other < place || !never_denies_beside(stricter, limit))
        });
        if let Some((_, stricter)) = stricter {
            let message = format!(
                "limit `{}`: never denies, because `{}` is always stricter",
                quote(&limit.name),
                quote(&stricter.name)
            );
            diagnostics.warning(&both.at_limit(place), message, "remove it, or make it stricter");
        } else if let Some((_, smaller)) = others.find(|(_, other)| holds_less_for_longer(other, limit)) {
            let message = format!(
                "limit `{}`: a burst of {} never passes, because `{}` admits only {}",
                quote(&limit.name),
                limit.limit.units(),
                quote(&smaller.name),
                smaller.limit.units()
            );
            diagnostics.warning(&both.at_limit(place), message, "reduce its burst, or raise the other limit");
        }
    }
}

/// Warns of a constant cost that is higher than a limit.
fn too_costly(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    let Some(cost) = both.rule.cost.as_ref().and_then(|cost| cost.constant_units()) else { return };
    for limit in both.rule.limits.iter().filter(|limit| limit.limit.units() < cost) {
        let message = format!(
            "cost: {cost} units exceed the {1} that limit `{0}` admits at most, so every request is denied",
            quote(&limit.name),
            limit.limit.units()
        );
        diagnostics.warning(&both.at("cost"), message, "raise the limit, or set action: block");
    }
}

fn is_bucket(limit: &RuleLimit) -> bool {
    limit.limit.algorithm().is_bucket()
}

/// Whether a limit cannot deny a request that another limit admitted.
fn never_denies_beside(limit: &RuleLimit, stricter: &RuleLimit) -> bool {
    let product = |units: u64, period: u64| u128::from(units) * u128::from(period);
    if limit.limit.is_estimate() {
        return false;
    }
    if !is_bucket(limit) {
        return stricter.limit.most_in(limit.limit.memory()) <= u128::from(limit.limit.units());
    }
    is_bucket(stricter)
        && stricter.limit.units() <= limit.limit.units()
        && product(stricter.shown.units, limit.shown.period_ns) <= product(limit.shown.units, stricter.shown.period_ns)
}

/// Whether a limit over a longer time admits less than the burst of a bucket.
fn holds_less_for_longer(smaller: &RuleLimit, bucket: &RuleLimit) -> bool {
    is_bucket(bucket)
        && smaller.limit.units() < bucket.limit.units()
        && smaller.shown.period_ns > bucket.shown.period_ns
}

#[cfg(test)]
mod tests {
    use crate::lint::tests::{of_rule, warnings};
    use serde_json::json;

    fn check(limits: serde_json::Value, expected: &[&str]) {
        let all = of_rule(json!({"limits": limits}));
        assert_eq!(all.len(), expected.len(), "{all:?}");
        for (warning, expected) in all.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }

    #[test]
    fn costs_beyond_the_limit() {
        let rule = |cost: &str| json!({"limit": {"rate": "100/minute", "burst": 10}, "cost": cost});
        assert!(of_rule(rule("11"))[0].contains("cost: 11 units exceed the 10 that limit `r` admits at most"));
        assert_eq!(of_rule(rule("10")), [""; 0]);
        assert_eq!(of_rule(rule("cost * 11")), [""; 0]);
    }

    #[test]
    fn limits_that_never_deny() {
        check(json!([{"rate": "10/s"}, {"name": "b", "rate": "100/s"}]), &["limit `b`: never denies, because `r`"]);
        check(json!([{"rate": "10/s"}, {"name": "b", "rate": "10/s"}]), &["limit `b`: never denies, because `r`"]);
        check(json!([{"rate": "10/s"}, {"name": "b", "rate": "100/minute"}]), &[]);
        let day = |limit: &str| json!([{"rate": "1/s"}, {"name": "day", "algorithm": "fixed_window", "rate": limit}]);
        check(day("86401/day"), &["limit `day`: never denies, because `r`"]);
        check(day("86400/day"), &[]);
        let windows = |limit: &str| json!([{"algorithm": "sliding_log", "rate": "10/minute"}, {"name": "h", "algorithm": "sliding_log", "rate": limit}]);
        check(windows("600/hour"), &["limit `h`: never denies"]);
        check(windows("599/hour"), &[]);
    }

    #[test]
    fn limits_in_other_stores_say_nothing() {
        let limits = json!([{"name": "here", "rate": "10/s", "store": "a"}, {"name": "all", "rate": "100/s"}]);
        let rules = json!([{"name": "r", "limits": limits}]);
        assert_eq!(warnings(json!({"stores": {"a": {}}, "domains": {"d": {"rules": rules}}})), [""; 0]);
    }

    #[test]
    fn bursts_that_never_pass() {
        let limits = json!([
            {"name": "burst", "rate": "1/s", "burst": 100},
            {"name": "daily", "algorithm": "fixed_window", "rate": "50/day"},
        ]);
        check(limits, &["limit `burst`: a burst of 100 never passes, because `daily` admits only 50"]);
    }
}
