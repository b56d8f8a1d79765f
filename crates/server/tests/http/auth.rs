//! Forward-auth: what proxies ask.

use crate::bench::{Bench, status, wrong};

const LOGIN: [&str; 2] = ["x-original-uri: /login?a=b", "x-original-method: POST"];

#[tokio::test]
async fn a_proxy_asks() {
    let bench = Bench::new();
    insta::assert_snapshot!("auth_allowed", bench.ask("GET /v1/auth?domain=web", &LOGIN, "").await);
    let caddy = ["x-forwarded-uri: /login", "x-forwarded-method: POST", "x-forwarded-host: example.org"];
    assert_eq!(status(&bench.ask("GET /v1/auth?domain=web", &caddy, "").await), 200);
    insta::assert_snapshot!("auth_denied", bench.ask("GET /v1/auth?domain=web", &LOGIN, "").await);
    insta::assert_snapshot!("auth_denied_for_nginx", bench.ask("GET /v1/auth?domain=web&deny=403", &LOGIN, "").await);
    let other = ["x-original-uri: /other", "x-original-method: POST"];
    assert_eq!(status(&bench.ask("GET /v1/auth?domain=web", &other, "").await), 200, "another path");
    for method in ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"] {
        assert_eq!(status(&bench.ask(&format!("{method} /v1/auth?domain=web"), &LOGIN, "").await), 429, "{method}");
    }
    let head = bench.ask("HEAD /v1/auth?domain=web", &LOGIN, "").await;
    assert!(head.ends_with("\n\n"), "no body: {head}");
}

#[tokio::test]
async fn entries_come_from_the_query() {
    let bench = Bench::new();
    for expected in [200, 429] {
        assert_eq!(status(&bench.get("/v1/auth?domain=web&entry.plan=free").await), expected);
    }
    assert_eq!(status(&bench.get("/v1/auth?domain=web&entry.plan=paid").await), 200);
    let cost = bench.get("/v1/auth?domain=api&entry.user=ann&cost=4").await;
    assert_eq!(status(&cost), 429);
    insta::assert_snapshot!("auth_never", cost);
    assert_eq!(status(&bench.get("/v1/auth?domain=api&entry.ban=x").await), 403);
}

#[tokio::test]
async fn a_domain_without_rules_lets_pass_and_says_so() {
    let bench = Bench::new();
    let answer = bench.get("/v1/auth").await;
    assert_eq!(status(&answer), 200);
    assert!(answer.contains("\nx-tidegate-status: unknown-domain\n"), "{answer}");
    assert!(bench.get("/metrics").await.contains("\ntidegate_unknown_domain_total 1\n"));
}

#[tokio::test]
async fn what_a_client_adds_is_not_believed() {
    let bench = Bench::new();
    for number in 0..4 {
        let forged = format!("x-forwarded-for: 192.0.2.{number}");
        let answer =
            bench.ask("GET /v1/auth?domain=web", &[LOGIN[0], LOGIN[1], &forged, "x-tidegate-domain: none"], "").await;
        assert_eq!(status(&answer), if number < 2 { 200 } else { 429 }, "one bucket whatever it claims");
    }
    let contradicting =
        bench.ask("GET /v1/auth?domain=web", &[LOGIN[0], LOGIN[1], "x-forwarded-uri: /other"], "").await;
    assert_eq!(
        wrong(&contradicting),
        "400 x-original-uri: /login?a=b is not /other; let the proxy set one of x-forwarded-uri, x-original-uri, \
         x-original-url and remove the others"
    );
}

#[tokio::test]
async fn behind_a_trusted_proxy_its_word_counts() {
    let rules = format!("client_address: {{trusted_hops: 1}}\n{}", crate::bench::RULES);
    let bench = Bench::with(&rules);
    let ask = async |forwarded: &str| {
        let header = format!("x-forwarded-for: {forwarded}");
        status(&bench.ask("GET /v1/auth?domain=web", &[LOGIN[0], LOGIN[1], &header], "").await)
    };
    for expected in [200, 200, 429] {
        assert_eq!(ask("192.0.2.7").await, expected);
    }
    assert_eq!(ask("10.0.0.1, 192.0.2.7").await, 429, "what stands before the proxy's word is the client's");
    assert_eq!(ask("::ffff:192.0.2.7").await, 429, "the same address in IPv6");
    assert_eq!(ask("192.0.2.8").await, 200);
    assert_eq!(
        [ask("2001:db8::1").await, ask("2001:db8::2").await, ask("2001:db8::3").await],
        [200, 200, 429],
        "one /64"
    );
}

#[tokio::test]
async fn queries_that_cannot_be_read() {
    let bench = Bench::new();
    assert_eq!(wrong(&bench.get("/v1/auth?deny=404").await), "400 deny: 404 is unknown; use 401, 403 or 429");
    assert_eq!(
        wrong(&bench.get("/v1/auth?user=ann").await),
        "400 user: unknown parameter; use domain, entry., cost, deny"
    );
    assert_eq!(wrong(&bench.get("/v1/auth?domain=a&domain=b").await), "400 domain: given twice; give it once");
}
