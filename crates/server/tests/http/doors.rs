//! Who may ask for what: web pages of other sites, those who give units back, and those who guess the admin token.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::bench::{Bench, body, read_all, status, wrong};

/// Everything that changes counts or permits without the token of administrators.
const CALLS: [(&str, &str); 7] = [
    ("POST /v1/check", r#"{"domain":"api","descriptors":[{"user":"ann"}]}"#),
    ("GET /v1/check?key=ann&rate=3/minute", ""),
    ("POST /v1/report", r#"{"domain":"api","descriptors":[{"guess":"ann"}],"response":{"status":401}}"#),
    ("POST /v1/permits", r#"{"key":"ann","limit":3,"lease":"1m"}"#),
    ("PUT /v1/permits/6f1c?key=ann&lease=1m", ""),
    ("DELETE /v1/permits/6f1c?key=ann", ""),
    ("POST /json", r#"{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#),
];

const REFUND: &str =
    r#"{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"ann"}],"isNegativeHits":true}]}"#;

#[tokio::test]
async fn web_pages_of_other_sites_change_nothing() {
    let bench = Bench::new();
    for (head, body) in CALLS {
        for header in [
            "origin: https://example.org",
            "origin: null",
            "origin: http://localhost:3000",
            "sec-fetch-site: cross-site",
            "sec-fetch-site: same-site",
            "host: rebound.example.org",
        ] {
            let answer = bench.ask(head, &[header, "content-type: text/plain"], body).await;
            assert_eq!(status(&answer), 403, "{head} {header}");
            let field = header.split(':').next().unwrap();
            assert!(wrong(&answer).starts_with(&format!("403 {field}: ")), "{answer}");
        }
        let rebound = ["host: rebound.example.org", "origin: http://rebound.example.org"];
        assert_eq!(status(&bench.ask(head, &rebound, body).await), 403, "{head}");
    }
    assert_eq!(bench.service.engine.rules()[0].counts.hits, 0);
    for (head, body) in CALLS {
        for header in [
            "content-type: application/x-www-form-urlencoded",
            "origin: http://localhost",
            "sec-fetch-site: same-origin",
            "sec-fetch-site: none",
            "host: 127.0.0.1:8080",
            "x-forwarded-for: 192.0.2.7",
        ] {
            assert_ne!(status(&bench.ask(head, &[header], body).await), 403, "{head} {header}");
        }
    }
}

#[tokio::test]
async fn a_listener_that_others_reach_may_have_any_name() {
    let bench = Bench::afar();
    for (head, body) in CALLS {
        assert_ne!(status(&bench.ask(head, &["host: tidegate.internal:8080"], body).await), 403, "{head}");
        let page = ["host: tidegate.internal:8080", "origin: https://example.org"];
        assert_eq!(status(&bench.ask(head, &page, body).await), 403, "{head}");
    }
}

/// What a proxy asks has the headers of its client, which may well be a page of another site.
#[tokio::test]
async fn proxies_ask_for_any_page() {
    let bench = Bench::new();
    let headers = ["origin: https://example.org", "sec-fetch-site: cross-site", "host: shop.example.org"];
    assert_eq!(status(&bench.ask("GET /v1/auth?domain=web", &headers, "").await), 200);
}

#[tokio::test]
async fn only_administrators_give_units_back() {
    let remaining = async |bench: &Bench| {
        let answer = bench.post("/json", &REFUND.replace(r#""isNegativeHits":true"#, r#""hitsAddend":0"#)).await;
        body(&answer)["statuses"][0]["limitRemaining"].as_u64().unwrap_or_default()
    };
    let take = REFUND.replace(r#","isNegativeHits":true"#, "");
    for (bench, header, refused) in [
        (Bench::with_token("s3cret"), "x: y", 401),
        (Bench::with_token("s3cret"), "authorization: Bearer wrong", 401),
        (Bench::afar(), "x: y", 403),
        (Bench::new(), "x-forwarded-for: 192.0.2.7", 403),
        (Bench::new(), "origin: http://localhost", 403),
    ] {
        assert_eq!(status(&bench.post("/json", &take).await), 200);
        let answer = bench.ask("POST /json", &[header], REFUND).await;
        assert_eq!(status(&answer), refused, "{header}");
        let told = wrong(&answer);
        assert!(told.contains("isNegativeHits: only administrators may give units back: "), "{told}");
        assert_eq!(remaining(&bench).await, 2, "{header}");
    }
    for (bench, header) in
        [(Bench::with_token("s3cret"), "authorization: Bearer s3cret"), (Bench::new(), "content-type: text/plain")]
    {
        assert_eq!(status(&bench.post("/json", &take).await), 200);
        assert_eq!(status(&bench.ask("POST /json", &[header], REFUND).await), 200, "{header}");
        assert_eq!(remaining(&bench).await, 3, "{header}");
    }
}

#[tokio::test]
async fn reports_can_be_switched_off() {
    let bench = Bench::without_reports();
    let report = r#"{"domain":"api","descriptors":[{"guess":"ann"}],"response":{"status":401}}"#;
    assert_eq!(
        wrong(&bench.post("/v1/report", report).await),
        "404 path: reports are switched off; start the server without --no-reports to send them"
    );
    let check = r#"{"domain":"api","descriptors":[{"guess":"ann"}]}"#;
    assert_eq!(body(&bench.post("/v1/check", check).await)["remaining"], 2);
}

#[tokio::test]
async fn guesses_of_the_token_are_slowed() {
    let bench = Bench::with_token("s3cret");
    let mut stream = bench.connect().await;
    let guess = "GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer guess\r\n\r\n";
    let last = "GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer s3cret\r\n\r\n";
    stream.write_all(format!("{}{last}", guess.repeat(1_000)).as_bytes()).await.unwrap();
    let answers = read_all(&mut stream).await;
    let count = |status: &str| answers.matches(&format!("HTTP/1.1 {status} ")).count();
    assert_eq!((count("401"), count("429"), count("200")), (10, 991, 0), "not even the right one gets in");
    let answer = bench.ask("GET /v1/rules", &["authorization: Bearer s3cret"], "").await;
    assert_eq!(wrong(&answer), "429 authorization: too many wrong tokens from this address; try again in 6 s");
    assert!(answer.contains("\nretry-after: 6\n"), "{answer}");
    assert_eq!(status(&bench.ask("GET /v1/rules", &[], "").await), 401, "who says nothing guesses nothing");
    bench.clock.advance(Duration::from_secs(6));
    assert_eq!(status(&bench.ask("GET /v1/rules", &["authorization: Bearer s3cret"], "").await), 200);
}
