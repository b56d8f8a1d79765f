//! The parts of an HTTP request that rules use, so that a front end need not prepare the others.

use crate::expression::Expression;
use crate::key::Part;
use crate::matching::Matching;
use crate::rule::Rule;

/// Parts of an HTTP request that are costly to prepare, or that a front end may lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpParts {
    /// The host.
    pub host: bool,
    /// The path.
    pub path: bool,
    /// Headers, including cookies.
    pub headers: bool,
    /// The address of the client.
    pub address: bool,
}

impl HttpParts {
    /// All parts, if it is not known which are used.
    pub const ALL: HttpParts = HttpParts { host: true, path: true, headers: true, address: true };

    /// Returns the parts that are in either.
    #[must_use]
    pub(crate) fn or(self, other: HttpParts) -> HttpParts {
        HttpParts {
            host: self.host || other.host,
            path: self.path || other.path,
            headers: self.headers || other.headers,
            address: self.address || other.address,
        }
    }
}

impl Rule {
    /// Returns the parts that this rule uses to match a request, to count it and for its key.
    pub(crate) fn http_parts(&self) -> HttpParts {
        // All fields are named, so that a new one does not compile unless it is handled here.
        let Matching {
            host,
            path,
            path_case: _,
            headers,
            cookies,
            networks,
            when,
            entries: _,
            method: _,
            query: _,
            around: _,
        } = &self.matching;
        let of_matching = HttpParts {
            host: host.is_some(),
            path: path.is_some(),
            headers: !headers.is_empty() || !cookies.is_empty(),
            address: !networks.is_empty(),
        };
        let expressions = [when, &self.cost, &self.count];
        let of_expressions = expressions.into_iter().flatten().map(|expression| expression.http_parts());
        let of_key = self.key.iter().map(|part| match part {
            Part::Host => HttpParts { host: true, ..HttpParts::default() },
            Part::Path(_) => HttpParts { path: true, ..HttpParts::default() },
            Part::Header(_) | Part::Cookie(_) => HttpParts { headers: true, ..HttpParts::default() },
            Part::Expression(expression) => Expression::http_parts(expression),
            Part::Address { .. } => HttpParts { address: true, ..HttpParts::default() },
            Part::Method | Part::Query(_) | Part::Entry(_) | Part::EntryAt(_) | Part::Fixed(_) => HttpParts::default(),
        });
        of_expressions.chain(of_key).fold(of_matching, HttpParts::or)
    }
}

#[cfg(test)]
mod tests {
    use crate::{HttpParts, LoadOptions, load_text};

    #[track_caller]
    fn check(config: &str, expected: &str) {
        let loaded = load_text("test.yaml", config, &LoadOptions::default());
        let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
        let HttpParts { host, path, headers, address } = policy.http_parts(policy.domain("a").unwrap());
        let named = [(host, "host"), (path, "path"), (headers, "headers"), (address, "address")];
        let names: Vec<&str> = named.iter().filter(|(is_looked_at, _)| *is_looked_at).map(|(_, name)| *name).collect();
        assert_eq!(names.join(" "), expected, "{config}");
    }

    #[track_caller]
    fn check_rule(rule: &str, expected: &str) {
        check(&format!("domains: {{a: {{rules: [{{name: r, limit: 1/s, {rule}}}]}}}}"), expected);
    }

    #[test]
    fn parts_that_nobody_looks_at() {
        check_rule("key: [{entry: user}, method, {query: q}], match: {method: GET, query: {a: b}}", "");
        check_rule("cost: 'cost * 2', match: {when: 'request.method == \"GET\" && entries.a == \"b\"'}", "");
        check("domains: {b: {rules: [{name: r, limit: 1/s, key: path}]}, a: {rules: []}}", "");
    }

    #[test]
    fn parts_that_a_condition_looks_at() {
        check_rule("match: {host: example.com}", "host");
        check_rule("match: {path: /a/*}", "path");
        check_rule("match: {header: {x: y}}", "headers");
        check_rule("match: {cookie: {x: y}}", "headers");
        check_rule("match: {address: 10.0.0.0/8}", "address");
    }

    #[test]
    fn parts_that_a_key_looks_at() {
        check_rule("key: [host, path]", "host path");
        check_rule("key: [address, method]", "address");
        check_rule("key: {header: x-user}", "headers");
        check_rule("key: {cookie: session}", "headers");
        check_rule("key: {expression: 'request.headers[\"x\"]'}", "headers");
    }

    #[test]
    fn parts_that_an_expression_looks_at() {
        check_rule("match: {when: 'request.host == \"a\"'}", "host");
        check_rule("match: {when: 'request.address == \"127.0.0.1\"'}", "address");
        check_rule("cost: 'size(request.path)'", "path");
        check_rule("count: 'request.cookies[\"x\"] == \"y\" ? 1 : 0'", "headers");
    }

    #[test]
    fn all_rules_of_a_domain_count_and_so_does_who_the_client_is() {
        check(
            "domains: {a: {rules: [{name: r, limit: 1/s, key: path}, {name: s, limit: 1/s, key: host}]}}",
            "host path",
        );
        check("client_address: {trusted_hops: 1}\ndomains: {a: {rules: [{name: r, limit: 1/s}]}}", "headers");
    }
}
