//! Tests of expressions.

use proptest::prelude::*;

use super::*;
use crate::bounds::EXPRESSION_TEXT_MAX;
use crate::request::{Entry, Http};

fn compile(source: &str, purpose: Purpose) -> Result<Expression, Problem> {
    Expression::compile(source, purpose, &Arc::default())
}

fn holds(source: &str) -> bool {
    let expression = compile(source, Purpose::When).unwrap();
    let headers = [("x-plan", "free"), ("x-plan", "paid"), ("cookie", "session=s1")];
    let http = Http {
        method: "POST",
        host: "Example.com.",
        path: "/v2/orders",
        odd_path: None,
        query: "page=2&name=%41+b",
        headers: &headers,
        address: Some("10.0.0.1".parse().unwrap()),
    };
    let entries = [Entry { key: "user", value: "42" }];
    expression.holds(&Question { domain: "api", entries: &entries, http: Some(&http), cost: 3 })
}

#[test]
fn requests_are_looked_at() {
    let all = [
        "domain == 'api' && cost == 3",
        "entries.user == '42'",
        "entries['user'].startsWith('4')",
        "'user' in entries && !('tenant' in entries)",
        "has(entries.user) && !has(entries.tenant)",
        "size(entries) == 1",
        "request.method in ['GET', 'POST']",
        "request.host == 'example.com' && request.address == '10.0.0.1'",
        "request.path.matches('^/v[0-9]+/') && matches(request.path, 'orders$')",
        "request.headers['x-plan'] == 'free'",
        "has(request.headers.cookie) && request.cookies.session == 's1'",
        "request.query.name == 'A b' && int(request.query.page) + 1 == 3",
        "{'free': 1, 'paid': 2}[request.headers['x-plan']] == 1",
        "size(request.headers) == 2",
        "(cost > 2 ? 'many' : 'few') == 'many'",
        "'x' + string(cost) == 'x3'",
    ];
    for source in all {
        assert!(holds(source), "{source}");
    }
}

#[test]
fn what_is_missing_is_not_true() {
    let errors = Arc::default();
    let question = Question { domain: "d", entries: &[], http: None, cost: 1 };
    for source in ["entries.user == 'x'", "request.path == '/'", "1 / (cost - 1) == 0", "entries['a'] > 3"] {
        assert!(!Expression::compile(source, Purpose::When, &errors).unwrap().holds(&question), "{source}");
    }
    assert_eq!(errors.load(Ordering::Relaxed), 4);
}

#[test]
fn mistakes_are_told() {
    let cases = [
        ("", Purpose::When, "the expression is empty"),
        ("request.", Purpose::When, "invalid expression at character"),
        ("user == 1", Purpose::When, "unknown variable `user`"),
        ("request == 1", Purpose::When, "`request` has no value without a field"),
        ("request.body == ''", Purpose::When, "unknown variable `request.body`"),
        ("response.status == 401", Purpose::When, "`response` is not available here"),
        ("response.code == 401", Purpose::Count, "unknown variable `response.code`"),
        ("lower(domain) == ''", Purpose::When, "unknown function `lower`"),
        ("matches0(domain)", Purpose::When, "unknown function `matches0`"),
        ("[1].all(x, x > 0)", Purpose::When, "a loop (map, filter, all, exists) is not allowed"),
        ("[1].map(x, x)", Purpose::When, "a loop (map, filter, all, exists) is not allowed"),
        ("domain.matches(request.path)", Purpose::When, "matches: the regular expression must be a literal"),
        ("domain.matches('(')", Purpose::When, "matches: cannot use `(`: unclosed group"),
        ("domain.matches('(a{99}){99}')", Purpose::When, "matches: cannot use `(a{99}){99}`"),
        ("request.headers['X-A'] == ''", Purpose::When, "header name `X-A` has capital letters"),
        ("has(request.headers.Accept)", Purpose::When, "header name `Accept` has capital letters"),
        ("domain", Purpose::When, "the expression gives text"),
        ("1.5", Purpose::Cost, "the expression gives a value that is no text"),
        ("domain == 'a'", Purpose::Cost, "the expression gives true or false"),
        ("entries", Purpose::Key, "the expression gives a value that is no text"),
        ("request.path", Purpose::Count, "the expression gives text"),
        ("google.protobuf.Duration{seconds: 1}", Purpose::When, "a structure is not allowed"),
    ];
    for (source, purpose, message) in cases {
        let problem = compile(source, purpose).unwrap_err();
        assert!(problem.message.starts_with(message), "{source}: {problem:?}");
        assert!(!problem.hint.is_empty(), "{source}");
    }
}

#[test]
fn size_is_bounded() {
    let deep = format!("{}1{} == 1", "(".repeat(200), ")".repeat(200));
    let long = format!("domain == '{}'", "x".repeat(1024));
    let joins = vec!["domain"; 18].join(" + ");
    let chain = format!("entries{}", ".a".repeat(100));
    let sums = format!("cost{} == 1", " - 1".repeat(100));
    for source in [deep, long, joins, chain, sums] {
        assert!(compile(&source, Purpose::Key).is_err() && compile(&source, Purpose::When).is_err(), "{source}");
    }
}

#[test]
fn units_are_whole_and_bounded() {
    let question = Question { domain: "d", entries: &[], http: None, cost: 7 };
    let cases = [
        ("cost * 10", Some(70)),
        ("0", Some(0)),
        ("5u", Some(5)),
        ("9007199254740985 + cost", Some(9_007_199_254_740_992)),
        ("0 - cost", None),
        ("9007199254740986 + cost", None),
        ("cost * 10000000000000000", None),
        ("{'d': 1.5}[domain]", None),
        ("9223372036854775807 + cost", None),
    ];
    for (source, units) in cases {
        assert_eq!(compile(source, Purpose::Cost).unwrap().cost(&question), units, "{source}");
    }
    assert_eq!(compile("2 * 50", Purpose::Cost).unwrap().constant_units(), Some(100));
    assert_eq!(compile("cost", Purpose::Cost).unwrap().constant_units(), None);
}

#[test]
fn what_counts() {
    let question = Question { domain: "d", entries: &[], http: None, cost: 1 };
    let response = Response { status: 401, bytes: 5000, millis: 12 };
    let units = |source| compile(source, Purpose::Count).unwrap().units(&question, Some(&response), 3);
    assert_eq!(units("response.status == 401"), 3);
    assert_eq!(units("response.status == 200"), 0);
    assert_eq!(units("response.bytes / 1000"), 5);
    assert_eq!(units("response.millis > 10 ? cost * 2 : 0"), 6);
    assert_eq!(units("response.bytes / 0"), 3);
}

#[test]
fn texts_for_keys() {
    let long = "x".repeat(EXPRESSION_TEXT_MAX + 1);
    let entries = [Entry { key: "a", value: "1" }, Entry { key: "long", value: &long }];
    let question = Question { domain: "d", entries: &entries, http: None, cost: 1 };
    let text = |source| compile(source, Purpose::Key).unwrap().key_text(&question);
    assert_eq!(text("entries.a"), KeyText::Made(b"s1".to_vec()));
    assert_eq!(text("int(entries.a)"), KeyText::Made(b"i1".to_vec()));
    assert_eq!(text("entries.a == '1'"), KeyText::Made(b"btrue".to_vec()));
    assert_eq!(text("entries.b"), KeyText::Missing);
    assert_eq!(text("entries.long"), KeyText::TooLong);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(source in any::<String>()) {
        let _ = compile(&source, Purpose::When);
    }

    #[test]
    fn anything_like_an_expression_is_read_or_refused(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "request", "entries", ".", "path", "(", ")", "[", "]", "{", "}", "'a'", "\"", "'", "1", "-", "+", "/", "%", "==",
            "&&", "||", "?", ":", ",", "!", "in", "has", "size", "matches", "cost", "9223372036854775807", "1e400", "0x", "b'",
            "\\", "r'", "'''", "null", "true", "1u", ".all(x, x)", "\n", "//", "`a`", "é",
        ]), 0..30),
    ) {
        let source = tokens.concat();
        if let Ok(expression) = compile(&source, Purpose::Count) {
            expression.units(&Question { domain: "d", entries: &[], http: None, cost: 1 }, None, 1);
        }
    }
}
