//! Who may administer, and what they can do.

use std::time::Duration;

use tidegate_core::Op;
use tidegate_policy::{Descriptor, Entry, Request};

use crate::bench::{Bench, body, status, wrong};

const ADMIN: [(&str, &str); 8] = [
    ("POST /v1/inspect", r#"{"key":"a","limit":"1/s"}"#),
    ("POST /v1/reset", r#"{"key":"a","limit":"1/s"}"#),
    ("POST /v1/grant", r#"{"key":"a","limit":"1/s","units":1}"#),
    ("POST /v1/block", r#"{"domain":"api","descriptors":[{"user":"x"}],"duration":"1m"}"#),
    ("POST /v1/unblock", r#"{"domain":"api","descriptors":[{"user":"x"}]}"#),
    ("GET /v1/rules", ""),
    ("PUT /v1/rules/api/per-user/mode", r#"{"mode":"off"}"#),
    ("GET /rlconfig", ""),
];

#[tokio::test]
async fn a_token_is_needed_once_there_is_one() {
    let bench = Bench::with_token("s3cret");
    for (head, body) in ADMIN {
        for header in [
            "x: y",
            "authorization: s3cret",
            "authorization: Bearer s3cre",
            "authorization: Bearer s3cretx",
            "authorization: Basic czM6",
            "authorization: Bearer ",
            "authorization: Bearer",
        ] {
            // An address has few guesses a minute.
            bench.clock.advance(Duration::from_secs(6));
            let answer = bench.ask(head, &[header], body).await;
            assert_eq!(status(&answer), 401, "{head} {header}");
            assert!(answer.contains("\nwww-authenticate: Bearer realm=\"tidegate admin\"\n"), "{answer}");
        }
        assert_eq!(
            status(&bench.ask(head, &["authorization: bearer s3cret", "origin: https://x.org"], body).await),
            200
        );
    }
    bench.clock.advance(Duration::from_secs(6));
    let twice = ["authorization: Bearer s3cret", "authorization: Bearer x"];
    assert_eq!(status(&bench.ask("GET /v1/rules", &twice, "").await), 401);
    assert_eq!(status(&bench.get("/v1/check?key=a&rate=1/s").await), 200, "checks need none");
}

#[tokio::test]
async fn without_a_token_only_this_machine_may() {
    let bench = Bench::afar();
    for (head, body) in ADMIN {
        let answer = bench.ask(head, &[], body).await;
        assert_eq!(
            wrong(&answer),
            "403 admin: this listener is not on loopback, so administrators need a token; start the server with \
             --admin-token TOKEN (or TIDEGATE_ADMIN_TOKEN) and send Authorization: Bearer TOKEN",
            "{head}"
        );
    }
    assert_eq!(bench.service.engine.rules()[0].counts.hits, 0);
}

#[tokio::test]
async fn without_a_token_no_web_page_and_no_proxy_may() {
    let bench = Bench::new();
    for (head, body) in ADMIN {
        for header in [
            "origin: http://localhost:8080",
            "origin: null",
            "sec-fetch-site: cross-site",
            "x-forwarded-for: 192.0.2.7",
            "forwarded: for=192.0.2.7",
            "via: 1.1 proxy",
            "x-real-ip: 192.0.2.7",
            "x-forwarded-host: example.org",
            "host: rebound.example.org",
            "host: 192.0.2.7",
        ] {
            assert_eq!(status(&bench.ask(head, &[header], body).await), 403, "{head} {header}");
        }
        for host in ["host: 127.0.0.1:8080", "host: localhost", "host: [::1]:8080"] {
            assert_eq!(status(&bench.ask(head, &[host], body).await), 200, "{head} {host}");
        }
    }
}

#[tokio::test]
async fn the_trail_of_a_key() {
    let bench = Bench::new();
    let ask = r#"{"domain":"api","descriptors":[{"trail":"ann"}]}"#;
    for _ in 0..2 {
        bench.post("/v1/check", ask).await;
        bench.clock.advance(Duration::from_millis(1500));
    }
    insta::assert_snapshot!("inspect_rules", bench.post("/v1/inspect", ask).await);
    let own = r#""key":"k","limit":{"algorithm":"sliding_log","limit":5,"window_ns":60000000000}"#;
    bench.post("/v1/check", &format!(r#"{{{own},"cost":2}}"#)).await;
    insta::assert_snapshot!("inspect_own", bench.post("/v1/inspect", &format!("{{{own}}}")).await);
}

#[tokio::test]
async fn every_call_takes_every_form_of_a_descriptor() {
    let bench = Bench::new();
    for descriptor in [
        r#"{"trail":"ann"}"#,
        r#"[{"trail":"ann"}]"#,
        r#"[{"key":"trail","value":"ann"}]"#,
        r#"{"entries":[{"key":"trail","value":"ann"}]}"#,
    ] {
        let request = format!(r#""domain":"api","descriptors":[{descriptor}]"#);
        let post = async |path: &str, more: &str| body(&bench.post(path, &format!("{{{request}{more}}}")).await);
        assert_eq!(post("/v1/check", "").await["remaining"], 4, "{descriptor}");
        assert_eq!(post("/v1/inspect", "").await["rules"][0]["limits"][0]["remaining"], 4, "{descriptor}");
        for (path, more) in [
            ("/v1/grant", r#","units":1"#),
            ("/v1/block", r#","duration":"1m""#),
            ("/v1/unblock", ""),
            ("/v1/reset", ""),
        ] {
            assert_eq!(post(path, more).await["limits"], 1, "{path} {descriptor}");
        }
    }
    // A body for /json can be sent to /v1/inspect as it is.
    let request = r#"{"domain":"api","descriptors":[{"entries":[{"key":"trail","value":"ann"}]}]}"#;
    assert_eq!(status(&bench.post("/json", request).await), 200);
    assert_eq!(body(&bench.post("/v1/inspect", request).await)["rules"][0]["limits"][0]["remaining"], 4);
    // An entry with this name and a text is an entry like any other.
    let named = r#"{"domain":"api","descriptors":[{"entries":"x"}]}"#;
    assert_eq!(body(&bench.post("/v1/check", named).await)["results"], serde_json::json!([]));
}

#[tokio::test]
async fn reset_and_grant() {
    let bench = Bench::new();
    for ask in [r#""domain":"api","descriptors":[{"user":"ann"}]"#, r#""key":"k","limit":"3/minute""#] {
        let check = format!("{{{ask}}}");
        for expected in [200, 200, 200, 429] {
            assert_eq!(status(&bench.post("/v1/check", &check).await), expected);
        }
        let granted = bench.post("/v1/grant", &format!(r#"{{{ask},"units":1}}"#)).await;
        assert!(body(&granted)["limits"].as_u64() > Some(0), "{granted}");
        for expected in [200, 429] {
            assert_eq!(status(&bench.post("/v1/check", &check).await), expected, "{ask}");
        }
        assert_eq!(status(&bench.post("/v1/reset", &check).await), 200);
        assert_eq!(body(&bench.post("/v1/check", &check).await)["remaining"], 2);
    }
}

#[tokio::test]
async fn a_cost_that_nobody_looks_at_is_refused() {
    let rules = "
domains:
  plain: {rules: [{name: all, limit: 3/minute}]}
  large: {rules: [{name: large, match: {when: cost > 10}, limit: 30/minute}]}
  keyed: {rules: [{name: keyed, key: {expression: 'cost > 10'}, limit: 30/minute}]}
";
    let bench = Bench::with(rules);
    for (path, more, remedy) in [
        ("inspect", "", "leave it out"),
        ("reset", "", "leave it out"),
        ("grant", r#","units":1"#, "set units instead"),
        ("block", r#","duration":"1m""#, "leave it out"),
        ("unblock", "", "leave it out"),
    ] {
        let post = async |asked: &str| bench.post(&format!("/v1/{path}"), &format!("{{{asked}{more}}}")).await;
        let refused = format!("400 cost: it has no effect on {path}; {remedy}");
        let plain = r#""domain":"plain","descriptors":[{}]"#;
        assert_eq!(wrong(&post(&format!(r#"{plain},"cost":2"#)).await), refused);
        assert_eq!(status(&post(plain).await), 200, "{path}");
        let own = r#""key":"k","limit":"1/s","cost":2"#;
        assert_eq!(wrong(&post(own).await), refused);
        // Which rules apply, and whom they count on, may depend on it.
        let large = r#""domain":"large","descriptors":[{}]"#;
        let found = body(&post(&format!(r#"{large},"cost":11"#)).await);
        assert!(found["limits"] == 1 || found["rules"][0]["rule"] == "large", "{path}: {found}");
        let not_found = post(large).await;
        assert!(status(&not_found) == 404 || body(&not_found)["rules"] == serde_json::json!([]), "{not_found}");
        assert_eq!(status(&post(r#""domain":"keyed","descriptors":[{}],"cost":11"#).await), 200);
    }
}

#[tokio::test]
async fn a_name_that_nobody_is_told_is_refused() {
    let bench = Bench::new();
    let own = r#""key":"k","limit":{"name":"mine","rate":"3/minute"}"#;
    for (path, more) in [("reset", ""), ("grant", r#","units":1"#)] {
        assert_eq!(
            wrong(&bench.post(&format!("/v1/{path}"), &format!("{{{own}{more}}}")).await),
            format!("400 limit.name: mine has no effect: {path} does not report it; remove it")
        );
    }
    let inspected = body(&bench.post("/v1/inspect", &format!("{{{own}}}")).await);
    assert_eq!(inspected["rules"][0]["limits"][0]["name"], "mine");
}

#[tokio::test]
async fn block() {
    let bench = Bench::new();
    let check = r#"{"domain":"api","descriptors":[{"user":"ann"}]}"#;
    for length in [r#""10m""#, "600"] {
        let blocked = bench
            .post("/v1/block", &format!(r#"{{"domain":"api","descriptors":[{{"user":"ann"}}],"duration":{length}}}"#))
            .await;
        assert_eq!(body(&blocked)["limits"], 2, "{blocked}");
        let denied = bench.post("/v1/check", check).await;
        assert_eq!(status(&denied), 429);
        assert!(denied.contains("\nretry-after: 600\n"), "{denied}");
        assert_eq!(body(&bench.post("/v1/inspect", check).await)["rules"][0]["penalised_ns"], 600_000_000_000_u64);
        bench.clock.advance(Duration::from_secs(600));
        assert_eq!(status(&bench.post("/v1/check", check).await), 200);
        bench.post("/v1/reset", check).await;
    }
}

#[tokio::test]
async fn unblock_leaves_the_count() {
    let bench = Bench::new();
    let ann = r#"{"domain":"api","descriptors":[{"user":"ann"}]}"#;
    let remaining = body(&bench.post("/v1/check", ann).await)["remaining"].as_u64().unwrap();
    let unblock = async || body(&bench.post("/v1/unblock", ann).await);
    assert_eq!(unblock().await, serde_json::json!({"limits": 2, "lifted": 0}), "there is no block");
    bench.post("/v1/block", &ann.replace("}]", r#"}],"duration":"10m""#)).await;
    assert_eq!(status(&bench.post("/v1/check", ann).await), 429);
    assert_eq!(unblock().await, serde_json::json!({"limits": 2, "lifted": 2}));
    assert_eq!(body(&bench.post("/v1/check", ann).await)["remaining"].as_u64(), Some(remaining - 1));
}

#[tokio::test]
async fn a_rule_is_switched() {
    let bench = Bench::new();
    let check = r#"{"domain":"api","descriptors":[{"user":"ann"}],"cost":9}"#;
    let switch =
        async |mode: &str| bench.ask("PUT /v1/rules/api/per-user/mode", &[], &format!(r#"{{"mode":"{mode}"}}"#)).await;
    assert_eq!(status(&bench.post("/v1/check", check).await), 429);
    for (mode, now, expected) in
        [("shadow", "shadow", 200), ("enforce", "enforce", 429), ("off", "off", 200), ("configured", "enforce", 429)]
    {
        let answer = switch(mode).await;
        assert_eq!(body(&answer)["mode"], now, "{answer}");
        assert_eq!(status(&bench.post("/v1/check", check).await), expected, "{mode}");
    }
    assert_eq!(wrong(&switch("on").await), "400 mode: on is unknown; use enforce, shadow, off or configured");
    let unknown = bench.ask("PUT /v1/rules/api/none/mode", &[], r#"{"mode":"off"}"#).await;
    assert_eq!(wrong(&unknown), "404 rule: there is no `none` in domain `api`; GET /v1/rules lists them");
    switch("shadow").await;
    insta::assert_snapshot!(
        "rules",
        serde_json::to_string_pretty(&body(&bench.get("/v1/rules").await)["rules"].as_array().unwrap()[..2]).unwrap()
    );
}

#[tokio::test]
async fn the_hash_of_the_configuration() {
    let rules = "domains: {api: {rules: [{name: all, limit: 3/minute}]}}";
    let hash = async |rules: &str| {
        let bench = Bench::with(rules);
        let hash = body(&bench.get("/v1/rules").await)["hash"].as_str().unwrap().to_owned();
        let page = bench.get("/metrics").await;
        assert!(page.contains(&format!("\ntidegate_policy_info{{hash=\"{hash}\"}} 1\n")), "{page}");
        hash
    };
    let first = hash(rules).await;
    assert_eq!(first.len(), 12);
    assert_eq!(hash(&rules.replace("name: all, limit: 3/minute", "limit: 3/minute, name: all")).await, first);
    assert_ne!(hash(&rules.replace('3', "4")).await, first);
}

#[tokio::test]
async fn what_no_rule_counts_cannot_be_changed() {
    let bench = Bench::new();
    for descriptor in [r#"{"nobody":"x"}"#, r#"{"ban":"x"}"#] {
        for (path, more) in [
            ("/v1/reset", ""),
            ("/v1/grant", r#","units":1"#),
            ("/v1/block", r#","duration":"1m""#),
            ("/v1/unblock", ""),
        ] {
            let answer = bench.post(path, &format!(r#"{{"domain":"api","descriptors":[{descriptor}]{more}}}"#)).await;
            let told = wrong(&answer);
            assert!(
                told.starts_with("404 descriptors: no rule counts this request, so nothing was changed;"),
                "{told}"
            );
        }
    }
}

/// A full store counts newcomers approximately, and cannot forget one of them.
#[tokio::test]
async fn a_reset_that_forgets_nothing_says_so() {
    let bench = Bench::with("domains: {api: {rules: [{name: r, key: {entry: user}, limit: 3/minute}]}}");
    let engine = &bench.service.engine;
    let limit = "3/minute".parse().unwrap();
    for number in 0..60_000 {
        let user = format!("crowd{number}");
        let entries = [Entry { key: "user", value: &user }];
        let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
        engine.check(&Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 }).await.unwrap();
        engine.decide(user.as_bytes(), &limit, Op::Take(1)).await.unwrap();
    }
    for asked in [r#"{"domain":"api","descriptors":[{"user":"new"}]}"#, r#"{"key":"new","limit":"3/minute"}"#] {
        let check = async || status(&bench.post("/v1/check", asked).await);
        while check().await == 200 {}
        let refused = wrong(&bench.post("/v1/reset", asked).await);
        let detail = "409 key: not forgotten under 1 of its limits, since the store in memory is full and counts it \
                      approximately; reset it again later, or give the store more keys";
        assert_eq!(refused, detail);
        assert_eq!(check().await, 429);
    }
    bench.clock.advance(Duration::from_secs(60));
    let asked = r#"{"domain":"api","descriptors":[{"user":"new"}]}"#;
    assert_eq!(
        [status(&bench.post("/v1/check", asked).await), status(&bench.post("/v1/reset", asked).await)],
        [200; 2]
    );
}
