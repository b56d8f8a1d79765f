//! May it pass?

use crate::bench::{Bench, body, status, wrong};
use std::time::Duration;

#[tokio::test]
async fn a_key_with_its_own_limit() {
    let bench = Bench::new();
    let ask = r#"{"key":"user:42","limit":"2/minute"}"#;
    let (first, _) = (bench.post("/v1/check", ask).await, bench.post("/v1/check", ask).await);
    insta::assert_snapshot!("own_limit_allowed", first);
    insta::assert_snapshot!("own_limit_denied", bench.post("/v1/check", ask).await);
    bench.clock.advance(Duration::from_secs(30));
    assert_eq!(status(&bench.post("/v1/check", ask).await), 200);
    insta::assert_snapshot!(
        "own_limit_never",
        bench.post("/v1/check", r#"{"key":"a","limit":"2/minute","cost":3}"#).await
    );
}

#[tokio::test]
async fn no_answer_may_be_kept() {
    let bench = Bench::new();
    let own = r#"{"key":"user:42","limit":"1/minute"}"#;
    let list = r#"[{"key":"a","limit":"1/minute"},{"key":"b","limit":"1/minute"}]"#;
    let rules = r#"{"domain":"api","descriptors":[{"plain":"x"}]}"#;
    for expected in [200, 429] {
        for ask in [own, list, rules] {
            let answer = bench.post("/v1/check", ask).await;
            assert_eq!(status(&answer), expected, "{ask}");
            assert!(answer.contains("\ncache-control: no-store\n"), "{ask}: {answer}");
        }
        let answer = bench.get("/v1/check?key=query&rate=1/minute").await;
        assert_eq!(status(&answer), expected);
        assert!(answer.contains("\ncache-control: no-store\n"), "{answer}");
    }
}

#[tokio::test]
async fn the_same_in_a_query() {
    let bench = Bench::new();
    insta::assert_snapshot!(bench.get("/v1/check?key=user%3A42&rate=100/minute&burst=20&cost=2&algorithm=gcra").await);
    let post = bench.post("/v1/check", r#"{"key":"user:42","limit":{"rate":"100/minute","burst":20},"cost":0}"#).await;
    assert_eq!(body(&post)["remaining"], 18, "both count on one key");
}

#[tokio::test]
async fn who_waits_is_told_when_its_turn_comes() {
    let bench = Bench::new();
    let ask = |wait: &str| {
        let limit = r#"{"algorithm":"leaky_bucket","rate":"10/second","capacity":4}"#;
        format!(r#"{{"key":"outbound","limit":{limit},"wait":"{wait}"}}"#)
    };
    insta::assert_snapshot!("turn_at_once", bench.post("/v1/check", &ask("0ms")).await);
    insta::assert_snapshot!("turn_after_a_wait", bench.post("/v1/check", &ask("200ms")).await);
    insta::assert_snapshot!("turn_too_late", bench.post("/v1/check", &ask("50ms")).await);
    let query = "key=outbound&rate=10/second&algorithm=leaky_bucket&capacity=4&wait=1s";
    for turn in [200_000_000_u64, 300_000_000] {
        assert_eq!(body(&bench.get(&format!("/v1/check?{query}")).await)["wait_ns"], turn);
    }
    insta::assert_snapshot!("turn_queue_full", bench.post("/v1/check", &ask("1s")).await);
    bench.clock.advance(Duration::from_millis(400));
    assert_eq!(body(&bench.post("/v1/check", &ask("0s")).await)["wait_ns"], 0, "what was denied took nothing");
}

/// The largest cost, and one above it.
#[tokio::test]
async fn costs_have_a_bound() {
    let limit = "{rate: 10000000/second, burst: 9007199254740992}";
    let rules = format!(
        "domains: {{vast: {{rules: [{{name: all, limit: {limit}}}]}}, \
         less: {{rules: [{{name: less, cost: cost - 1, limit: {limit}}}]}}}}"
    );
    let own = r#""key":"k","limit":{"rate":"10000000/second","burst":9007199254740992}"#;
    let of = |domain: &str| format!(r#""domain":"{domain}","descriptors":[{{}}]"#);
    for (asked, left) in [(own, 0), (&of("vast"), 0), (&of("less"), 1)] {
        let bench = Bench::with(&rules);
        let passed = bench.post("/v1/check", &format!(r#"{{{asked},"cost":9007199254740992}}"#)).await;
        assert_eq!((status(&passed), &body(&passed)["remaining"]), (200, &left.into()), "{asked}");
        let refused = bench.post("/v1/check", &format!(r#"{{{asked},"cost":9007199254740993}}"#)).await;
        assert_eq!(
            wrong(&refused),
            "400 cost: 9007199254740993 is too large; use 0 to 9007199254740992 units; 0 takes none"
        );
    }
    let bench = Bench::with(&rules);
    for path in ["/v1/check?key=k&rate=10000000/second&burst=9007199254740992", "/v1/auth?domain=vast"] {
        assert_eq!(status(&bench.get(&format!("{path}&cost=9007199254740992")).await), 200, "{path}");
        assert_eq!(status(&bench.get(&format!("{path}&cost=9007199254740993")).await), 400, "{path}");
    }
}

#[tokio::test]
async fn every_algorithm() {
    let bench = Bench::new();
    for (limit, remaining) in [
        (r#"{"algorithm":"gcra","rate":10,"per_ns":1000000000,"burst":5}"#, 4),
        (r#"{"algorithm":"token_bucket","rate":"10/second","capacity":6}"#, 5),
        (r#"{"algorithm":"leaky_bucket","rate":"10/second","capacity":7}"#, 6),
        (r#"{"algorithm":"fixed_window","limit":8,"window_ns":60000000000,"stagger":true}"#, 7),
        (r#"{"algorithm":"sliding_log","limit":9,"window_ns":60000000000}"#, 8),
        (r#"{"algorithm":"sliding_counter","rate":"10/minute"}"#, 9),
        (r#"{"algorithm":"sliced_window","limit":11,"window_ns":60000000000,"slices":6,"name":"mine"}"#, 10),
    ] {
        let answer = bench.post("/v1/check", &format!(r#"{{"key":"k","limit":{limit}}}"#)).await;
        assert_eq!(status(&answer), 200, "{limit}: {answer}");
        assert_eq!(body(&answer)["remaining"], remaining, "{limit}");
    }
}

#[tokio::test]
async fn a_list_passes_as_a_whole_or_not_at_all() {
    let bench = Bench::new();
    let list = r#"[{"key":"a","limit":{"name":"burst","rate":"2/second"}},{"key":"a","limit":{"name":"day","algorithm":"fixed_window","rate":"3/day"},"cost":2}]"#;
    insta::assert_snapshot!("list_allowed", bench.post("/v1/check", list).await);
    insta::assert_snapshot!("list_denied", bench.post("/v1/check", list).await);
    let burst = bench.post("/v1/check", r#"{"key":"a","limit":"2/second","cost":0}"#).await;
    assert_eq!(body(&burst)["remaining"], 1, "what was denied took nothing");
}

#[tokio::test]
async fn keys_of_any_bytes_are_kept_apart() {
    let bench = Bench::new();
    for key in [r"a\u0000b", r"a\r\nb", "a_b", "{a}", r"a\u0000", "a", "é"] {
        let answer = bench.post("/v1/check", &format!(r#"{{"key":"{key}","limit":"1/minute"}}"#)).await;
        assert_eq!(status(&answer), 200, "{key}: {answer}");
    }
    assert_eq!(status(&bench.get("/v1/check?key=a%00b&rate=1/minute").await), 429, "the first one again");
    assert_eq!(status(&bench.get("/v1/check?key=a%0D%0Ab&rate=1/minute").await), 429, "the second one again");
}

#[tokio::test]
async fn rules() {
    let bench = Bench::new();
    let ask = r#"{"domain":"api","descriptors":[{"user":"42"}],"cost":1}"#;
    insta::assert_snapshot!("rules_allowed", bench.post("/v1/check", ask).await);
    insta::assert_snapshot!("rules_would_deny", bench.post("/v1/check", ask).await);
    bench.post("/v1/check", ask).await;
    insta::assert_snapshot!("rules_denied", bench.post("/v1/check", ask).await);
    for (case, entry) in [("blocked", "ban"), ("unlimited", "staff")] {
        let answer = bench.post("/v1/check", &format!(r#"{{"domain":"api","descriptors":[{{"{entry}":"x"}}]}}"#)).await;
        insta::assert_snapshot!(format!("rules_{case}"), answer);
    }
    for (case, entry) in [("hidden", "quiet"), ("without_problem", "plain")] {
        let ask = format!(r#"{{"domain":"api","descriptors":[{{"{entry}":"x"}}]}}"#);
        let first = bench.post("/v1/check", &ask).await;
        insta::assert_snapshot!(format!("rules_{case}"), format!("{first}\n\n{}", bench.post("/v1/check", &ask).await));
    }
    let nothing = bench.post("/v1/check", r#"{"domain":"api","descriptors":[{"other":"x"}]}"#).await;
    insta::assert_snapshot!("rules_none_apply", nothing);
}

#[tokio::test]
async fn descriptors_in_every_form() {
    let bench = Bench::new();
    for (number, descriptors) in [
        r#"[{"user":"1","plan":"free"}]"#,
        r#"[[{"user":"2"},{"plan":"free"}]]"#,
        r#"[[{"key":"user","value":"3"},{"plan":"free"}]]"#,
        r#"[{"user":"4"},{"user":"5"}]"#,
        r#"[{"\u0075ser":"\u0036"}]"#,
    ]
    .iter()
    .enumerate()
    {
        let answer = bench.post("/v1/check", &format!(r#"{{"domain":"api","descriptors":{descriptors}}}"#)).await;
        assert_eq!(body(&answer)["remaining"], 2, "{number}: {answer}");
    }
    let rules: Vec<u64> = bench.service.engine.rules().iter().map(|rule| rule.counts.hits).collect();
    assert_eq!(rules[0], 6);
}

#[tokio::test]
async fn rules_that_look_at_http() {
    let bench = Bench::new();
    let ask = |address: &str| {
        format!(
            r#"{{"domain":"web","descriptors":[{{}}],"request":{{"method":"POST","path":"/login","headers":{{"User-Agent":"x"}},"address":"{address}"}}}}"#
        )
    };
    for expected in [200, 200, 429] {
        assert_eq!(status(&bench.post("/v1/check", &ask("192.0.2.7")).await), expected);
    }
    assert_eq!(status(&bench.post("/v1/check", &ask("::ffff:192.0.2.7")).await), 429, "the same address in IPv6");
    assert_eq!(status(&bench.post("/v1/check", &ask("192.0.2.8")).await), 200);
}

#[tokio::test]
async fn reports_count_and_penalise() {
    let bench = Bench::new();
    let ask = r#"{"domain":"api","descriptors":[{"guess":"ann"}]}"#;
    let report = |status: u16| {
        format!(
            r#"{{"domain":"api","descriptors":[{{"guess":"ann"}}],"response":{{"status":{status},"bytes":10,"millis":3}}}}"#
        )
    };
    assert_eq!(body(&bench.post("/v1/report", &report(200)).await)["counted"], 0);
    for _ in 0..2 {
        assert_eq!(status(&bench.post("/v1/check", ask).await), 200);
        assert_eq!(body(&bench.post("/v1/report", &report(401)).await)["counted"], 1);
    }
    insta::assert_snapshot!(bench.post("/v1/check", ask).await);
}

const TWO_RULES: &str = "
domains:
  api:
    rules:
    - {name: wide, limit: 10/minute}
    - {name: old, limit: 20/minute, response: {headers: legacy}}
    - {name: secret, match: {entries: {secret: '*'}}, limit: 1/minute, response: {hidden: true}}
    - {name: strict, match: {entries: {strict: '*'}}, limit: 1/minute, penalty: 10m}
    - {name: shut, match: {entries: {shut: '*'}}, action: block}
";

#[tokio::test]
async fn a_hidden_denial_tells_nothing_of_other_rules() {
    let bench = Bench::with(TWO_RULES);
    let ask = r#"{"domain":"api","descriptors":[{"secret":"x"}]}"#;
    assert!(bench.post("/v1/check", ask).await.contains("\nratelimit-policy: \"wide\""));
    let denied = bench.post("/v1/check", ask).await;
    assert_eq!(status(&denied), 429);
    assert!(!denied.contains("ratelimit") && !denied.contains("wide") && !denied.contains("retry"), "{denied}");
}

#[tokio::test]
async fn a_denial_has_the_numbers_of_what_denies_or_none() {
    let bench = Bench::with(TWO_RULES);
    let strict = r#"{"domain":"api","descriptors":[{"strict":"x"}]}"#;
    bench.post("/v1/check", strict).await;
    for (ask, expected, retry) in [
        (strict, 429, serde_json::json!(600_000_000_000_u64)),
        (r#"{"domain":"api","descriptors":[{"shut":"x"}]}"#, 403, serde_json::Value::Null),
    ] {
        let denied = bench.post("/v1/check", ask).await;
        assert_eq!(status(&denied), expected);
        let told = body(&denied);
        assert_eq!(told["retry_after_ns"], retry, "{denied}");
        assert!(told.get("remaining").is_none() && told.get("limit").is_none(), "{denied}");
        assert!(!denied.contains("x-ratelimit"), "{denied}");
    }
}

#[tokio::test]
async fn when_all_is_in_shadow() {
    let bench = Bench::in_shadow(TWO_RULES);
    let ask = r#"{"domain":"api","descriptors":[{"shut":"x"}]}"#;
    let answer = bench.post("/v1/check", ask).await;
    assert_eq!(status(&answer), 200);
    assert!(!answer.contains("ratelimit"), "clients see nothing of it: {answer}");
    let results = &body(&answer)["results"];
    for (place, would_deny) in [(0, false), (1, false), (2, true)] {
        let one = &results[place];
        assert_eq!(one["mode"], "shadow", "{one}");
        assert_eq!((&one["allowed"], &one["would_deny"]), (&true.into(), &would_deny.into()), "{one}");
    }
    let metrics = bench.get("/metrics").await;
    for line in [
        r#"tidegate_decisions_total{domain="api",rule="shut",verdict="denied"} 0"#,
        r#"tidegate_decisions_total{domain="api",rule="shut",verdict="shadow_denied"} 1"#,
        r#"tidegate_rule_mode{domain="api",rule="shut",mode="shadow",action="block"} 1"#,
        r#"tidegate_rule_mode{domain="api",rule="shut",mode="enforce",action="block"} 0"#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let rules = body(&bench.get("/v1/rules").await);
    assert_eq!(
        (&rules["rules"][0]["mode"], &rules["rules"][0]["configured_mode"]),
        (&"shadow".into(), &"enforce".into())
    );
}

#[tokio::test]
async fn a_quota_in_shadow_says_so() {
    let rule = "{name: quota, mode: shadow, quota: true, limit: 1/minute}";
    let bench = Bench::with(&format!("domains: {{api: {{rules: [{rule}]}}}}"));
    let answer = bench.post("/v1/check", r#"{"domain":"api","descriptors":[{}]}"#).await;
    assert_eq!(body(&answer)["results"][0]["mode"], "shadow", "{answer}");
}

#[tokio::test]
async fn several_denials_are_told_as_the_longest() {
    let bench = Bench::new();
    bench.post("/v1/check", r#"{"key":"a","limit":"1/minute"}"#).await;
    let never = r#"[{"key":"a","limit":"1/minute"},{"key":"b","limit":"2/minute","cost":3}]"#;
    let denied = bench.post("/v1/check", never).await;
    let told = body(&denied);
    assert_eq!((&told["remaining"], &told["never"]), (&0.into(), &true.into()), "no wait helps: {denied}");
    assert!(told["retry_after_ns"].is_null() && !denied.contains("retry-after"), "{denied}");
    assert!(denied.contains("\nratelimit: \"request\";r=0\n"), "nor after the time of the other: {denied}");

    // Both have nothing left: the one that resets later is the strictest.
    bench.post("/v1/check", r#"{"key":"c","limit":{"algorithm":"fixed_window","rate":"2/day"},"cost":2}"#).await;
    let two = r#"[{"key":"a","limit":"1/minute"},{"key":"c","limit":{"algorithm":"fixed_window","rate":"2/day"}}]"#;
    assert_eq!(body(&bench.post("/v1/check", two).await)["limit"], 2);
}

#[tokio::test]
async fn the_wait_of_a_hidden_rule_is_told_nowhere() {
    let rules = "{name: open, limit: 1/minute}, {name: secret, limit: 1/hour, response: {hidden: true}}";
    let bench = Bench::with(&format!("domains: {{api: {{rules: [{rules}]}}}}"));
    let ask = r#"{"domain":"api","descriptors":[{}]}"#;
    bench.post("/v1/check", ask).await;
    let denied = bench.post("/v1/check", ask).await;
    assert!(denied.contains("retry-after: 60"), "{denied}");
    assert_eq!(body(&denied)["retry_after_ns"], 60_000_000_000_u64, "{denied}");
}
