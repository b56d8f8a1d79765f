//! Why was a request denied, and what would become of one?

use crate::bench::{Bench, body, status, wrong};

const RULES: &str = "
domains:
  api:
    rules:
    - {name: per-user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 1/minute}
    - {name: bare, match: {entries: {bare: '*'}}, limit: 1/minute, response: {headers: none, problem: false}}
    - {name: secret, match: {entries: {secret: '*'}}, limit: 1/minute, response: {hidden: true}}
    - {name: watch, match: {entries: {watch: '*'}}, limit: 1/minute, mode: shadow}
";

/// A request with one entry.
fn of(entry: &str, value: &str) -> String {
    serde_json::json!({"domain": "api", "descriptors": [{entry: value}]}).to_string()
}

/// The second answer to the same request, which is the first that can be a denial.
async fn second(bench: &Bench, entry: &str, value: &str) -> String {
    let request = of(entry, value);
    assert_eq!(status(&bench.post("/v1/check", &request).await), 200);
    bench.post("/v1/check", &request).await
}

fn header(answer: &str) -> Option<&str> {
    answer.lines().find_map(|line| line.strip_prefix("tidegate-decision: "))
}

#[tokio::test]
async fn a_denial_has_an_id_that_explains_it() {
    let bench = Bench::that_explains(RULES, false, None);
    let answer = second(&bench, "user", "ann").await;
    let (id, denied) = (header(&answer).unwrap(), body(&answer));
    assert_eq!((status(&answer), denied["decision"].as_str()), (429, Some(id)), "{answer}");
    assert!(!answer.replace("per-user", "").contains("ann"), "{answer}");
    let explained = bench.get(&format!("/v1/explain/{id}")).await;
    assert!(explained.contains("\ncache-control: no-store\n"), "{explained}");
    let told = body(&explained);
    assert_eq!((&told["domain"], &told["denial"], &told["denials"]), (&"api".into(), &"over_limit".into(), &1.into()));
    assert_eq!(
        (&told["at"], &told["at_ns"]),
        (&"2023-11-14T22:13:20.000000000Z".into(), &1_700_000_000_000_000_000_u64.into())
    );
    assert_eq!(told["policy_hash"], bench.service.engine.policy().hash());
    assert!(told["node"].as_str().unwrap().starts_with(&id[..8]), "{told}");
    let one = &told["denied_by"][0];
    for (name, expected) in
        [("rule", "per-user"), ("policy", "per-user"), ("denial", "over_limit"), ("store", "default")]
    {
        assert_eq!(one[name], expected, "{told}");
    }
    assert_eq!(one["key"], serde_json::json!([{"part": "entry:user", "value": "ann"}]));
    for name in ["limit", "remaining", "retry_after_ns", "reset_after_ns"] {
        assert_eq!(one[name], denied[name], "{name}: {told} {denied}");
    }
    assert_eq!((&one["used"], &one["cost"], &one["local"]), (&1.into(), &1.into(), &false.into()));
    // For proxies and in Envoy's JSON it is the same.
    let envoy = serde_json::json!({"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]});
    let envoy = bench.post("/json", &envoy.to_string()).await;
    let told = &body(&envoy)["responseHeadersToAdd"][0];
    assert_eq!((&told["key"], &told["value"]), (&"tidegate-decision".into(), &id.into()), "{envoy}");
    let auth = bench.get("/v1/auth?domain=api&entry.user=ann").await;
    assert_eq!((header(&auth), body(&auth)["decision"].as_str()), (Some(id), Some(id)), "{auth}");
}

#[tokio::test]
async fn what_is_hidden_or_passes_has_no_id() {
    let bench = Bench::that_explains(RULES, false, None);
    let bare = second(&bench, "bare", "1").await;
    assert!(header(&bare).is_some() && body(&bare).get("decision").is_none(), "{bare}");
    for (entry, expected) in [("secret", 429), ("watch", 200)] {
        let answer = second(&bench, entry, "1").await;
        assert_eq!(status(&answer), expected);
        assert!(!answer.contains("decision"), "{answer}");
    }
    let shadow = Bench::that_explains(RULES, true, None);
    assert!(!second(&shadow, "user", "ann").await.contains("decision"));
    assert!(!second(&Bench::with(RULES), "user", "ann").await.contains("decision"), "no denials are kept");
}

#[tokio::test]
async fn ids_that_cannot_be_explained_say_why() {
    let (bench, other) = (Bench::that_explains(RULES, false, None), Bench::that_explains(RULES, false, None));
    let denied = second(&bench, "user", "ann").await;
    let own = header(&denied).unwrap();
    let foreign = second(&other, "user", "ann").await;
    let foreign = header(&foreign).unwrap();
    let explain = async |id: &str| wrong(&bench.get(&format!("/v1/explain/{id}")).await);
    for (id, expected) in [
        (
            foreign.to_owned(),
            format!("is from node {}, or from one that was stopped since; this is node {}", &foreign[..8], &own[..8]),
        ),
        (format!("{}-00000000000000000001", &own[..8]), "is unknown; node ".to_owned()),
        ("42".to_owned(), "`42` is not the id of a denial, which has 8 hexadecimal digits".to_owned()),
        ("%1b%5b31m".to_owned(), "is not the id of a denial".to_owned()),
        ("x".repeat(5_000), "…` is not the id of a denial".to_owned()),
    ] {
        let told = explain(&id).await;
        assert!(told.starts_with("404 decision: `") && told.contains(&expected), "{told}");
        assert!(!told.contains('\u{1b}') && told.len() < 400, "{told}");
    }
    for number in 0..2_000 {
        second(&bench, "user", &format!("user {number}")).await;
    }
    let told = explain(own).await;
    assert!(told.contains("` is expired, newer denials took its place; to keep more, set --explain-memory"), "{told}");
}

#[tokio::test]
async fn only_administrators_ask() {
    let bench = Bench::that_explains(RULES, false, Some("secret"));
    let answer = second(&bench, "user", "ann").await;
    let id = header(&answer).unwrap();
    let (get, post) = (format!("GET /v1/explain/{id}"), "POST /v1/explain");
    assert_eq!(status(&bench.ask(&get, &[], "").await), 401);
    assert_eq!(status(&bench.ask(post, &[], &of("user", "ann")).await), 401);
    let token = ["authorization: Bearer secret"];
    assert_eq!(status(&bench.ask(&get, &token, "").await), 200);
    assert_eq!(status(&bench.ask(post, &token, &of("user", "ann")).await), 200);
}

#[tokio::test]
async fn a_request_is_explained_and_not_charged() {
    let bench = Bench::that_explains(RULES, false, None);
    for _ in 0..2 {
        let told = body(&bench.post("/v1/explain", &of("user", "ann")).await);
        assert_eq!(told["allowed"], true, "{told}");
    }
    second(&bench, "user", "ann").await;
    let mut told = body(&bench.post("/v1/explain", &of("user", "ann")).await);
    told["policy_hash"] = "".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&told).unwrap());
}

#[tokio::test]
async fn hostile_bytes_are_escaped() {
    let bench = Bench::that_explains(RULES, false, None);
    let hostile = "<b>\u{1b}[31m\u{202e}\0\u{9b}\r\n".to_owned() + &"x".repeat(900);
    let answer = second(&bench, "user", &hostile).await;
    let id = header(&answer).unwrap();
    for answer in
        [bench.get(&format!("/v1/explain/{id}")).await, bench.post("/v1/explain", &of("user", &hostile)).await]
    {
        assert!(
            answer.chars().all(|letter| letter == '\n' || !letter.is_control() && letter != '\u{202e}'),
            "{answer:?}"
        );
        assert!(body(&answer).to_string().contains("x".repeat(900).as_str()), "{answer}");
    }
}

#[tokio::test]
async fn requests_that_cannot_be_explained() {
    let bench = Bench::that_explains(RULES, false, None);
    for (request, expected) in [
        (
            r#"{"key":"a","limit":"1/s"}"#,
            "400 key: only requests for rules can be explained; send domain and descriptors",
        ),
        (r#"{"domain":"apo","descriptors":[{}]}"#, "404 domain: there are no rules for `apo`"),
        (r#"{"domain":"api","descriptors":[{}],"units":1}"#, "400 units: unknown field"),
        (r#"{"domain":"api","descriptors":[]}"#, "400 "),
        ("", "400 body: "),
    ] {
        let told = wrong(&bench.post("/v1/explain", request).await);
        assert!(told.starts_with(expected), "{request}: {told}");
    }
}
