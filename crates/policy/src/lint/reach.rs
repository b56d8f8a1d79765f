//! Rules that never match, or never count, because their conditions contradict each other.

use super::Both;
use crate::diagnostic::Diagnostics;
use crate::json::quote;
use crate::matching::{Entries, Named};
use crate::pattern::{Glob, Pattern};
use crate::schema::{self, KeyPart, PathCase};

pub(super) fn of_rule(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    excepted(both, diagnostics);
    paths(both, diagnostics);
    hosts(both, diagnostics);
    expression(both, diagnostics);
    key(both, diagnostics);
}

/// Warns of exceptions that exclude every value.
fn excepted(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    let matching = &both.rule.matching;
    let (Entries::Among(entries) | Entries::Exactly(entries)) = &matching.entries;
    let lists = [
        ("entries", entries),
        ("header", &matching.headers),
        ("cookie", &matching.cookies),
        ("query", &matching.query),
    ];
    let named = lists.into_iter().flat_map(|(field, list)| list.iter().map(move |Named { value, .. }| (field, value)));
    let values = [("method", &matching.method), ("host", &matching.host), ("path", &matching.path)];
    let values = values.into_iter().filter_map(|(field, value)| value.as_ref().map(|value| (field, value)));
    for (field, pattern) in named.chain(values) {
        if let Pattern::But(glob, except) = pattern
            && (except.globs.contains(&Glob::Any) || matches!(glob, Glob::Exact(value) if except.contains(value)))
        {
            let message = format!("{field}: the exceptions exclude every value, so the rule never matches");
            diagnostics.warning(&both.at(&format!("match/{field}")), message, "remove some exceptions");
        }
    }
}

/// Warns of paths that no request has.
fn paths(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    for path in texts(both.written.matching.path.as_ref()) {
        if !path.starts_with(['/', '*']) {
            let message = format!("path: `{}` does not start with a slash, so it never matches", quote(path));
            diagnostics.warning(&both.at("match/path"), message, "start it with a slash, like /api/*");
        } else if path.contains('?') {
            let message =
                format!("path: `{}` has a query, which is not part of the path, so it never matches", quote(path));
            diagnostics.warning(&both.at("match/path"), message, "move the query to match.query");
        } else if path.contains('#') {
            let message =
                format!("path: `{}` has a fragment, which is not part of the path, so it never matches", quote(path));
            diagnostics.warning(&both.at("match/path"), message, "remove the fragment");
        }
    }
    let rule = both.written;
    let is_looked_at = rule.matching.path.is_some() || rule.key.as_slice().contains(&KeyPart::Path);
    if rule.matching.path_case != PathCase::Exact && !is_looked_at {
        let message = "path_case: no effect, because the rule does not use the path";
        diagnostics.warning(&both.at("match/path_case"), message, "remove it, or add path to match or key");
    }
}

/// Warns of hosts with a scheme, port or path.
fn hosts(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    for host in texts(both.written.matching.host.as_ref()) {
        if host.contains(['/', ':']) && !host.starts_with('[') && host.matches(':').count() < 2 {
            let message = format!("host: `{}` has a scheme, port or path, so it never matches", quote(host));
            diagnostics.warning(&both.at("match/host"), message, "write only the host name, like api.example.com");
        }
    }
}

fn expression(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    if both.rule.matching.when.as_ref().is_some_and(|when| when.is_never_true()) {
        let message = "when: never true, so the rule never matches";
        diagnostics.warning(&both.at("match/when"), message, "use mode: off to switch off a rule");
    }
}

/// Warns of entries in the key that no matching request has.
fn key(both: &Both<'_>, diagnostics: &mut Diagnostics<'_>) {
    let Entries::Exactly(entries) = &both.rule.matching.entries else { return };
    for part in both.written.key.as_slice() {
        if let KeyPart::Entry(name) = part
            && !entries.iter().any(|entry| *entry.name == **name)
        {
            let message = format!("key: requests that match have no entry `{}`, so none is counted", quote(name));
            diagnostics.warning(&both.at("key"), message, "use an entry of the list in match.entries");
        }
    }
}

/// Returns the texts of a condition, without its exceptions.
fn texts(value: Option<&schema::Value>) -> &[String] {
    match value {
        None => &[],
        Some(schema::Value::Is(text) | schema::Value::But(schema::But { is: text, .. })) => std::slice::from_ref(text),
        Some(schema::Value::OneOf(list)) => list,
    }
}

#[cfg(test)]
mod tests {
    use crate::lint::tests::of_rule;
    use serde_json::json;

    fn check(matching: serde_json::Value, expected: &[&str]) {
        let all = of_rule(json!({"match": matching, "limit": "1/s"}));
        assert_eq!(all.len(), expected.len(), "{all:?}");
        for (warning, expected) in all.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }

    #[test]
    fn conditions_that_nothing_meets() {
        check(
            json!({"entries": {"user": {"is": "*", "except": ["a", "*"]}}}),
            &["entries: the exceptions exclude every value"],
        );
        check(json!({"method": {"is": "get", "except": ["GET"]}}), &["method: the exceptions exclude every value"]);
        check(json!({"method": {"is": "*", "except": ["GET"]}}), &[]);
        check(json!({"path": ["api/*", "/ok"]}), &["path: `api/*` does not start with a slash"]);
        check(json!({"path": "/search?q=*"}), &["has a query"]);
        check(json!({"path": "/a#b"}), &["has a fragment"]);
        check(json!({"path_case": "ignore"}), &["path_case: no effect, because the rule does not use the path"]);
        check(json!({"path": "/a", "path_case": "ignore"}), &[]);
        check(json!({"host": "example.com:8080"}), &["has a scheme, port or path"]);
        check(json!({"host": "https://example.com"}), &["has a scheme, port or path"]);
        check(json!({"host": "::1"}), &[]);
        check(json!({"when": "1 > 2"}), &["when: never true"]);
        check(json!({"when": "cost > 2"}), &[]);
    }

    #[test]
    fn keys_that_no_request_has() {
        let rule = json!({"match": {"entries": [{"user": "*"}]}, "key": [{"entry": "user"}, {"entry": "tenant"}], "limit": "1/s"});
        let all = of_rule(rule);
        assert_eq!(all.len(), 1);
        assert!(all[0].contains("key: requests that match have no entry `tenant`"));
    }
}
