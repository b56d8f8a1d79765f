//! Paths that servers read differently: every rule that may be for one counts it, and none of them gives it an advantage.

use http::{HeaderMap, Method, Uri};
use tidegate_engine::HttpRequest;
use tidegate_policy::{Descriptor, HttpParts, Request};

use crate::bench::{Bench, at_once};

/// How many of ten requests pass.
fn passed(rules: &str, path: &str) -> usize {
    let bench = Bench::new(rules);
    let uri: Uri = path.parse().unwrap();
    let headers = HeaderMap::new();
    let received = HttpRequest::received(&Method::GET, &uri, &headers, HttpParts::ALL);
    let http = received.http(None);
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: Some(&http), cost: 1 };
    (0..10).filter(|_| at_once(bench.engine.check(&request)).unwrap().is_allowed()).count()
}

#[test]
fn an_odd_path_replaces_no_limit_but_its_own() {
    let rules = "
- {name: all, limit: 2/minute}
- {name: bulk, match: {path: /bulk/*}, limit: 5/minute, replaces: [all]}
- {name: staff, match: {path: /Staff/*, path_case: ignore}, action: unlimited, replaces: [all]}
- {name: login, match: {path: /login}, limit: 1/minute, replaces: [all]}
";
    for (path, expected) in [
        ("/", 2),
        ("/bulk/x", 5),
        ("/bulk/a%20b", 5),
        ("/bulk/..%2fx", 2),
        ("/bulk/../x", 2),
        ("/staff/x", 10),
        ("/staff%2f..%2fx", 2),
        ("/login", 1),
        ("/x/..%2flogin", 1),
        ("/bulk/..%2flogin", 1),
    ] {
        assert_eq!(passed(rules, path), expected, "{path}");
    }
}

#[test]
fn an_odd_path_passes_by_no_quota_of_another_place() {
    let rules = "
- {name: bulk, match: {path: /bulk/*}, quota: true, limit: 9/minute}
- {name: login, match: {path: /login}, quota: true, limit: 1/minute}
- {name: both, match: {path: [/login, /bulk/*]}, quota: true, limit: 3/minute}
";
    for (path, expected) in [("/bulk/x", 9), ("/login", 3), ("/bulk/..%2flogin", 1)] {
        assert_eq!(passed(rules, path), expected, "{path}");
    }
}
