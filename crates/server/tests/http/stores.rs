//! What operators see of stores that several processes share.

use futures_util::future::join_all;
use tidegate_core::Time;
use tidegate_testkit::logs;
use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Server, Setup};

use crate::bench::Bench;

const RULES: &str = "
domains:
  api:
    rules:
    - {name: per-user, match: {entries: {user: '*'}}, key: {entry: user}, limit: 3/minute}
    - {name: strict, match: {entries: {strict: '*'}}, limit: 3/minute, on_store_failure: deny}
";

/// The lines of the page about stores and fallbacks, without histograms, the port as `PORT`.
async fn lines(bench: &Bench, port: u16) -> String {
    let page = bench.get("/metrics").await;
    let wanted = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        ["tidegate_store_", "tidegate_fallbacks", "tidegate_overloaded"].iter().any(|start| name.starts_with(start))
            && !name.contains("_time_")
            && !line.contains("rule=\"banned\"")
    };
    page.lines().filter(wanted).collect::<Vec<_>>().join("\n").replace(&port.to_string(), "PORT")
}

async fn check(bench: &Bench, entry: &str) -> u16 {
    let ask = format!(r#"{{"domain":"api","descriptors":[{{"{entry}":"x"}}]}}"#);
    crate::bench::status(&bench.post("/v1/check", &ask).await)
}

/// The value of a line that begins so.
fn value(page: &str, start: &str) -> u64 {
    let line = page.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_store_that_answers() {
    let server = Server::start(&Setup { password: Some("secret"), ..Setup::default() });
    let bench = Bench::with_store(RULES, &format!("redis://:secret@127.0.0.1:{}?timeout=5s", server.port));
    assert_eq!([check(&bench, "user").await, check(&bench, "strict").await], [200, 200]);
    bench.post("/v1/check", r#"{"key":"ann","limit":"5/minute"}"#).await;
    insta::assert_snapshot!("a_store_that_answers", lines(&bench, server.port).await);
    let page = bench.get("/metrics").await;
    let calls = value(&page, "tidegate_store_calls_total{store=\"default\",result=\"answered\"}");
    assert_eq!(value(&page, "tidegate_store_call_time_seconds_count{store=\"default\"}"), calls);
    assert_eq!(value(&page, "tidegate_store_call_time_seconds_bucket{store=\"default\",le=\"+Inf\"}"), calls);
    assert!(!page.contains("secret"), "{page}");
}

#[tokio::test]
async fn a_store_that_is_not_there() {
    let port = free_port();
    let bench = Bench::with_store(RULES, &format!("redis://:secret@127.0.0.1:{port}?timeout=50ms"));
    assert_eq!([check(&bench, "user").await, check(&bench, "strict").await], [200, 503]);
    bench.post("/v1/check", r#"{"key":"ann","limit":"5/minute"}"#).await;
    let own = r#"{"domain":"api","descriptors":[{"entries":[{"key":"a","value":"b"}],"limit":{"requests_per_unit":5,"unit":"HOUR"}}]}"#;
    bench.post("/json", own).await;
    insta::assert_snapshot!("a_store_that_is_not_there", lines(&bench, port).await);
}

#[tokio::test]
async fn failures_are_told_from_time_to_time_without_the_password() {
    let log = logs::capture();
    let port = free_port();
    let store = format!("127.0.0.1:{port}/");
    let bench = Bench::with_store(RULES, &format!("redis://:secret@127.0.0.1:{port}?timeout=50ms"));
    let told = || {
        assert_eq!(log.lines_with(&["secret"]), [""; 0]);
        let lines = log.lines_with(&[&store, "store call failed"]);
        lines.iter().map(|line| line.replace(&port.to_string(), "PORT")).collect::<Vec<_>>()
    };
    for _ in 0..10 {
        check(&bench, "strict").await;
    }
    let first = told();
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].starts_with("WARN ") && first[0].contains("redis://127.0.0.1:PORT/0"), "{first:?}");
    assert!(first[0].contains("store=\"default\" left_out=0"), "{first:?}");
    assert!(first[0].contains("store call failed: rules follow on_store_failure "), "{first:?}");
    bench.clock.set(Time::from_nanos(1_700_000_010_000_000_000));
    for _ in 0..10 {
        check(&bench, "strict").await;
    }
    let second = told();
    assert_eq!(second.len(), 2, "{second:?}");
    let left_out = second[1].split("left_out=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(left_out.parse::<u64>().unwrap() >= 9, "{second:?}");
    // No rule has a say in these.
    for (seconds, path, body, instead) in [
        (20, "/v1/check", r#"{"key":"ann","limit":"5/minute"}"#, "limits of callers are decided in memory"),
        (30, "/v1/check", r#"[{"key":"bob","limit":"5/minute"}]"#, "limits of callers are decided in memory"),
        (40, "/v1/permits", r#"{"key":"ann","limit":1,"lease":"1m"}"#, "permits are held in memory"),
        (50, "/v1/inspect", r#"{"key":"ann","limit":"5/minute"}"#, "the state of the key is unknown"),
    ] {
        bench.clock.set(Time::from_nanos((1_700_000_000 + seconds) * 1_000_000_000));
        bench.post(path, body).await;
        let last = told().pop().unwrap();
        assert!(last.contains(&format!("store call failed: {instead} ")), "{last}");
    }
}

/// A Redis that hangs answers nothing, so that calls wait in the node for their turn, which does not come.
#[tokio::test]
async fn calls_that_get_no_turn_are_counted_with_their_waits() {
    const REQUESTS: usize = 80;
    let server = Server::start(&Setup::default());
    let bench = Bench::with_store(RULES, &format!("redis://127.0.0.1:{}?timeout=500ms&wait=20ms&links=1", server.port));
    assert_eq!(check(&bench, "strict").await, 200);
    server.hang();
    let by_rule = (0..REQUESTS).map(|number| format!(r#"{{"domain":"api","descriptors":[{{"user":"{number}"}}]}}"#));
    let by_caller = (0..REQUESTS).map(|number| format!(r#"{{"key":"{number}","limit":"5/minute"}}"#));
    let bodies: Vec<String> = by_rule.chain(by_caller).collect();
    let answers = join_all(bodies.iter().map(|body| bench.post("/v1/check", body))).await;
    server.go_on();
    let (rules, callers) = answers.split_at(REQUESTS);
    let overloaded = |answers: &[String]| {
        let is_overload = |answer: &&String| crate::bench::status(answer) == 503 && answer.contains("overloaded");
        answers.iter().filter(is_overload).count() as u64
    };
    let (of_rule, of_callers) = (overloaded(rules), overloaded(callers));
    let page = bench.get("/metrics").await;
    assert_eq!(value(&page, r#"tidegate_overloaded_total{domain="api",rule="per-user"}"#), of_rule);
    assert_eq!(value(&page, r#"tidegate_overloaded_total{domain="api",rule="strict"}"#), 0);
    assert_eq!(value(&page, "tidegate_overloaded_callers_total"), of_callers);
    let calls = value(&page, r#"tidegate_store_calls_total{store="default",result="overloaded"}"#);
    assert_eq!(calls, of_rule + of_callers);
    assert!(calls >= (REQUESTS as u64) / 2, "{calls} calls got no turn");
    let waits = |bound: &str| {
        value(&page, &format!("tidegate_store_wait_time_seconds_bucket{{store=\"default\",le=\"{bound}\"}}"))
    };
    assert!(waits("+Inf") - waits("0.01") >= calls, "they waited 20 ms each:\n{page}");
}

/// Commands of scripts that a server has run.
fn scripts_run(server: &Server) -> u64 {
    let stats = server.command("INFO commandstats");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()).unwrap().parse().unwrap()
}

#[tokio::test]
async fn equal_calls_that_wait_are_counted_as_joined() {
    let server = Server::start(&Setup::default());
    let bench = Bench::with_store(RULES, &format!("redis://127.0.0.1:{}?timeout=5s&links=1", server.port));
    assert_eq!(check(&bench, "strict").await, 200);
    let counts = async || {
        let page = bench.get("/metrics").await;
        let answered = value(&page, r#"tidegate_store_calls_total{store="default",result="answered"}"#);
        (answered, value(&page, r#"tidegate_store_joined_calls_total{store="default"}"#), scripts_run(&server))
    };
    let (answered_before, joined_before, run_before) = counts().await;
    join_all((0..40).map(|_| check(&bench, "user"))).await;
    let (answered, joined, run) = counts().await;
    assert_eq!(joined_before, 0);
    assert!(joined >= 20, "{joined} of {answered} calls were joined");
    assert_eq!(run - run_before, answered - answered_before - joined, "each other call is a command");
}
