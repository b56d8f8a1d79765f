//! Keys that a client can leave out of its request to evade the rule.

use super::Both;
use crate::diagnostic::Diagnostics;
use crate::expression::Expression;
use crate::json::quote;
use crate::key::Part;
use crate::matching::Named;
use crate::schema::Action;

pub(super) fn of_rule(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    if both.written.missing.is_some() || both.written.action != Action::Limit {
        return;
    }
    let Some(part) = both.rule.key.iter().find_map(|part| left_out(both, part)) else { return };
    let message = format!("key: requests without {part} are not counted by this rule");
    let hint = "add missing: share to count them together, missing: deny to deny them, or missing: skip if another rule limits \
                them";
    diagnostics.warning(&both.at("key"), message, hint);
}

/// Returns what a client can leave out of a request that the rule matches, if a part of the key is missing then.
fn left_out(both: &Both<'_>, part: &Part) -> Option<String> {
    let matching = &both.rule.matching;
    let asks = |conditions: &[Named], name: &str| conditions.iter().any(|one| *one.name == *name);
    let when =
        |looks: fn(&Expression, &str) -> bool, name: &str| matching.when.as_ref().is_some_and(|when| looks(when, name));
    let (kind, name, is_asked) = match part {
        Part::Header(name) => {
            ("header", name, asks(&matching.headers, name) || when(Expression::looks_at_header, name))
        }
        Part::Cookie(name) => {
            ("cookie", name, asks(&matching.cookies, name) || when(Expression::looks_at_cookie, name))
        }
        Part::Query(name) => {
            ("query parameter", name, asks(&matching.query, name) || when(Expression::looks_at_parameter, name))
        }
        Part::Expression(expression) => {
            let conditions = [&matching.headers, &matching.cookies, &matching.query];
            let asks_nothing = matching.when.is_none() && conditions.iter().all(|list| list.is_empty());
            let is_needed = asks_nothing && expression.needs_what_clients_send();
            return is_needed.then(|| "the values that its expression uses".to_owned());
        }
        // The other parts come with every request, or from the caller.
        Part::Address { .. } | Part::Method | Part::Host | Part::Path(_) => return None,
        Part::Entry(_) | Part::EntryAt(_) | Part::Fixed(_) => return None,
    };
    (!is_asked).then(|| format!("{kind} `{}`", quote(name)))
}

#[cfg(test)]
mod tests {
    use crate::lint::tests::of_rule;
    use serde_json::{Value, json};

    fn check(fields: Value, expected: Option<&str>) {
        let mut rule = json!({"limit": "1/s"});
        rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let expected = expected.map(|part| format!("/key: key: requests without {part} are not counted by this rule"));
        assert_eq!(of_rule(rule), Vec::from_iter(expected), "{fields}");
    }

    #[test]
    fn keys_that_clients_can_leave_out() {
        check(json!({"key": ["address", {"cookie": "session"}]}), Some("cookie `session`"));
        check(json!({"key": {"header": "X-Api-Key"}}), Some("header `x-api-key`"));
        check(json!({"key": {"query": "token"}, "match": {"query": {"page": "*"}}}), Some("query parameter `token`"));
        check(
            json!({"key": {"expression": "request.headers['x-key'] + 'x'"}}),
            Some("the values that its expression uses"),
        );
        check(json!({"key": {"expression": "'x' in request.headers ? request.headers['x'] : 'none'"}}), None);
        check(json!({"key": ["address", "method", "path", {"entry": "user"}]}), None);
        for missing in ["skip", "share", "deny"] {
            check(json!({"key": {"cookie": "session"}, "missing": missing}), None);
        }
    }

    #[test]
    fn a_part_that_the_rule_asks_for_is_there() {
        check(json!({"key": {"header": "x-key"}, "match": {"header": {"X-Key": "*"}}}), None);
        check(json!({"key": {"cookie": "c"}, "match": {"cookie": {"c": "*"}}}), None);
        check(json!({"key": {"query": "q"}, "match": {"when": "'q' in request.query"}}), None);
        check(json!({"key": {"header": "x-key"}, "match": {"when": "cost > 1"}}), Some("header `x-key`"));
    }
}
