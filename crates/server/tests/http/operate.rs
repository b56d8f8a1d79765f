//! What operators look at, and what the reference server has.

use crate::bench::{Bench, RULES, body, status};

#[tokio::test]
async fn health() {
    let bench = Bench::new();
    let ask = async || {
        let mut all = Vec::new();
        for path in ["/healthz", "/readyz", "/healthcheck"] {
            let answer = bench.get(path).await;
            all.push(format!("{path} {} {:?}", status(&answer), answer.split_once("\n\n").unwrap().1));
        }
        all.join("\n")
    };
    let before = ask().await;
    bench.service.set_ready(false);
    insta::assert_snapshot!(format!("{before}\n\n{}", ask().await));
}

#[tokio::test]
async fn metrics() {
    let bench = Bench::new();
    for _ in 0..4 {
        bench.post("/v1/check", r#"{"domain":"api","descriptors":[{"user":"ann"}]}"#).await;
    }
    // No rule looks for this entry.
    bench.post("/v1/check", r#"{"domain":"api","descriptors":[{"usr":"ann"}]}"#).await;
    let answer = bench.get("/metrics").await;
    assert!(answer.contains("\ncontent-type: text/plain; version=0.0.4; charset=utf-8\n"), "{answer}");
    let (_, page) = answer.split_once("\n\n").unwrap();
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    insta::assert_snapshot!("metric_names", names.join("\n"));
    let of_two_rules = |line: &&str| line.contains("per-user") || line.contains("trial");
    insta::assert_snapshot!("metrics_of_rules", page.lines().filter(of_two_rules).collect::<Vec<_>>().join("\n"));
    assert!(page.contains("\ntidegate_requests_total{protocol=\"http\"} 5\n"), "{page}");
    assert!(page.contains("\ntidegate_unmatched_total{domain=\"api\"} 1\n"), "{page}");
    assert!(page.contains("\ntidegate_http_responses_total{code=\"429\"} 1\n"), "{page}");
    assert!(page.contains("\ntidegate_connections{listener=\"http\"} 1\n"), "{page}");
    for line in [
        // The clock of this server stands still.
        "tidegate_response_time_seconds_bucket{protocol=\"http\",le=\"0.000005\"} 5",
        "tidegate_response_time_seconds_bucket{protocol=\"http\",le=\"2.5\"} 5",
        "tidegate_response_time_seconds_bucket{protocol=\"http\",le=\"+Inf\"} 5",
        "tidegate_response_time_seconds_sum{protocol=\"http\"} 0",
        "tidegate_response_time_seconds_count{protocol=\"http\"} 5",
        "tidegate_response_time_seconds_count{protocol=\"grpc\"} 0",
        // The start of its clock.
        "tidegate_policy_loaded_seconds 1700000000",
        "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 0",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 0",
    ] {
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    }
    assert!(page.contains("\n# HELP tidegate_unknown_domain_total Requests of any protocol for"), "{page}");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<u64>().is_ok() && name.starts_with(|c: char| c.is_ascii_lowercase()), "{line}");
    }
}

#[tokio::test]
async fn values_of_entries_have_series_of_their_own() {
    const RULES: &str = "
domains:
  api:
    rules:
    - {name: per-user, match: {entries: {user: '*'}}, limit: 3/minute, metrics: {by_entries: [user]}}
    - {name: shops, match: {entries: [{shop: eu*}]}, limit: 3/minute, metrics: {by_entries: [shop]}}
    - {name: plan, match: {entries: [{plan: free}, {seat: '*'}]}, limit: 3/minute, metrics: {by_entries: [plan, seat]}}
";
    let bench = Bench::with(RULES);
    for entries in [r#"{"user":"ann"}"#, r#"{"shop":"eu-1"}"#, r#"[{"plan":"free"},{"seat":"7"}]"#] {
        bench.post("/v1/check", &format!(r#"{{"domain":"api","descriptors":[{entries}]}}"#)).await;
    }
    let page = bench.get("/metrics").await;
    for labels in [r#"key1="per-user",key2="user_ann""#, r#"key1="shop_eu-1""#, r#"key1="plan_free",key2="seat_7""#] {
        let line = format!("ratelimit_service_rate_limit_total_hits{{domain=\"api\",{labels}}} 1");
        assert!(page.lines().any(|one| one == line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn the_page_and_the_description() {
    let bench = Bench::that_explains(RULES, false, None);
    insta::assert_snapshot!("page", bench.get("/").await);
    let description = body(&bench.get("/openapi.json").await);
    assert_eq!(description["openapi"], "3.1.0");
    let paths: Vec<&String> = description["paths"].as_object().unwrap().keys().collect();
    insta::assert_snapshot!("described", format!("{paths:#?}"));
    let checked = async || body(&bench.post("/v1/check", r#"{"domain":"api","descriptors":[{"user":"ann"}]}"#).await);
    let mut denied = checked().await;
    while denied["allowed"] == true {
        denied = checked().await;
    }
    let id = format!("explain/{}", denied["decision"].as_str().unwrap());
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let path = path.replace("explain/{id}", &id);
            let path = path.replace("{domain}", "api").replace("{rule}", "per-user").replace("{id}", "6f1c");
            let answer = bench.ask(&format!("{} {path}", method.to_uppercase()), &[], "").await;
            assert!(![404, 405].contains(&status(&answer)), "{method} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn the_reference_servers_json() {
    let bench = Bench::new();
    let ask = r#"{"domain":"api","descriptors":[{"entries":[{"key":"user","value":"ann"}]}],"hitsAddend":2}"#;
    insta::assert_snapshot!("json_ok", bench.post("/json", ask).await);
    insta::assert_snapshot!("json_over_limit", bench.post("/json", &ask.replace("hitsAddend", "hits_addend")).await);
    let own = r#"{"domain":"api","descriptors":[{"entries":[{"key":"a","value":"b"}],"limit":{"requests_per_unit":5,"unit":"HOUR"},"hitsAddend":"2"}]}"#;
    insta::assert_snapshot!("json_own_limit", bench.post("/json", own).await);
    let refund = own.replace(r#""hitsAddend":"2""#, r#""hits_addend":2,"is_negative_hits":true"#);
    let status = &body(&bench.post("/json", &refund).await)["statuses"][0];
    assert_eq!(status["limitRemaining"], 5);
    let unknown = bench.post("/json", r#"{"domain":"nowhere","descriptors":[{}]}"#).await;
    assert_eq!(body(&unknown)["overallCode"], "OK", "as the reference server answers");
}

#[tokio::test]
async fn the_reference_servers_dump() {
    let bench = Bench::new();
    insta::assert_snapshot!(bench.get("/rlconfig").await);
}

#[tokio::test]
async fn the_page_shows_where_it_was_asked_for() {
    let bench = Bench::new();
    let own = format!("Try: curl -i 'http://{}/v1/check", bench.address);
    for (host, expected) in [
        ("host: tide.example.org:8443", "Try: curl -i 'http://tide.example.org:8443/v1/check"),
        ("host: [::1]:8080", "Try: curl -i 'http://[::1]:8080/v1/check"),
        ("host: x';rm -rf '", &own),
        ("host:", &own),
    ] {
        let answer = bench.ask("GET /", &[host], "").await;
        assert!(answer.contains(expected), "{host}: {answer}");
    }
}
