//! Any text as an expression of each kind: it compiles or is refused, and evaluates without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_policy::{Entry, Http, LoadOptions, Question, Response, load_text};

fuzz_target!(|expression: &str| {
    // A JSON string is a YAML string too, whatever it holds.
    let Ok(quoted) = serde_json::to_string(expression) else { return };
    for field in ["cost", "count", "match: {when", "key: {expression"] {
        let close = if field.contains('{') { "}" } else { "" };
        let rule = format!("{{name: r, limit: 5/minute, {field}: {quoted}{close}}}");
        let text = format!("domains: {{d: {{rules: [{rule}]}}}}");
        let Some(policy) = load_text("fuzz.yaml", &text, &LoadOptions::default()).policy else { continue };
        let entries = [Entry { key: "user", value: "ann" }, Entry { key: "path", value: "/login" }];
        let http = Http { method: "GET", path: "/a", query: "q=1", headers: &[("cookie", "a=b")], ..Http::default() };
        let question = Question { domain: "d", entries: &entries, http: Some(&http), cost: 3 };
        let mut found = Vec::new();
        if let Some(domain) = policy.domain("d") {
            policy.find(domain, &question, &mut found);
        }
        for rule in policy.rules() {
            let _ = rule.key(&question, &mut Vec::new());
            rule.count(&question);
            rule.count_response(&question, &Response { status: 401, bytes: 1 << 40, millis: 3 });
        }
    }
});
