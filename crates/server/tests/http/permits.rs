//! So many at once.

use std::time::Duration;

use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Server, Setup};

use crate::bench::{Bench, body, status, wrong};

const ASK: &str = r#"{"key":"job:42","limit":2,"lease":"30s"}"#;

/// The same for a permit of this name.
fn named(id: &str) -> String {
    format!(r#"{{"key":"job:42","limit":2,"lease":"30s","id":"{id}"}}"#)
}

async fn acquire(bench: &Bench, ask: &str) -> u16 {
    status(&bench.post("/v1/permits", ask).await)
}

async fn renew(bench: &Bench, id: &str, lease: &str) -> String {
    bench.ask(&format!("PUT /v1/permits/{id}?key=job:42&lease={lease}"), &[], "").await
}

async fn release(bench: &Bench, id: &str) -> String {
    bench.ask(&format!("DELETE /v1/permits/{id}?key=job%3A42"), &[], "").await
}

/// The counts on the page, by event.
async fn counts(bench: &Bench) -> Vec<String> {
    let page = bench.get("/metrics").await;
    let told = page.lines().filter_map(|line| line.strip_prefix("tidegate_permits_"));
    told.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_permit_from_first_to_last() {
    let bench = Bench::new();
    insta::assert_snapshot!("acquired", bench.post("/v1/permits", &named("first")).await);
    assert_eq!(acquire(&bench, &named("first")).await, 201, "asked again, since the answer was lost");
    bench.clock.advance(Duration::from_secs(10));
    insta::assert_snapshot!("acquired_beside", bench.post("/v1/permits", &named("second")).await);
    insta::assert_snapshot!("all_in_use", bench.post("/v1/permits", ASK).await);
    insta::assert_snapshot!("renewed", renew(&bench, "first", "1m").await);
    insta::assert_snapshot!("released", release(&bench, "second").await);
    insta::assert_snapshot!("not_held", release(&bench, "second").await);
    assert_eq!(status(&renew(&bench, "second", "30s").await), 404);
    insta::assert_snapshot!("counted", counts(&bench).await.join("\n"));
}

#[tokio::test]
async fn names_are_made_that_nobody_guesses() {
    let bench = Bench::new();
    let (first, second) = (bench.post("/v1/permits", ASK).await, bench.post("/v1/permits", ASK).await);
    let id = |answer: &str| body(answer)["id"].as_str().unwrap().to_owned();
    let (first, second) = (id(&first), id(&second));
    for id in [&first, &second] {
        assert!(id.len() == 32 && id.bytes().all(|byte| b"0123456789abcdef".contains(&byte)), "{id}");
    }
    assert_ne!(first, second);
    assert_eq!(status(&renew(&bench, &first, "5").await), 200);
    assert_eq!(status(&release(&bench, &first).await), 204);
    assert_eq!(status(&renew(&bench, &second, "500ms").await), 200, "others go on");
}

#[tokio::test]
async fn a_holder_that_died_frees_its_place_at_the_end_of_its_lease() {
    let bench = Bench::new();
    assert_eq!([acquire(&bench, &named("a")).await, acquire(&bench, &named("b")).await], [201, 201]);
    bench.clock.advance(Duration::from_nanos(29_999_999_999));
    assert_eq!(status(&renew(&bench, "b", "30s").await), 200);
    assert_eq!(acquire(&bench, &named("c")).await, 429);
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(acquire(&bench, &named("c")).await, 201, "a died");
    assert_eq!(status(&renew(&bench, "a", "30s").await), 404, "and comes too late");
    assert_eq!(acquire(&bench, &named("d")).await, 429, "b lives");
    let other = r#"{"key":"job:43","limit":1,"lease":30}"#;
    assert_eq!([acquire(&bench, other).await, acquire(&bench, other).await], [201, 429], "each key by itself");
}

#[tokio::test]
async fn what_cannot_be_read() {
    let bench = Bench::new();
    let long_key = format!(r#"{{"key":"{}","limit":1,"lease":"1s"}}"#, "k".repeat(4096));
    let long_id = format!(r#"{{"key":"a","limit":1,"lease":"1s","id":"{}"}}"#, "i".repeat(65));
    let mut table = String::new();
    for case in [
        "",
        "[]",
        "{}",
        r#"{"key":"a"}"#,
        r#"{"key":"a","limit":1}"#,
        r#"{"key":"","limit":1,"lease":"1s"}"#,
        r#"{"key":7,"limit":1,"lease":"1s"}"#,
        r#"{"key":"a","limit":0,"lease":"1s"}"#,
        r#"{"key":"a","limit":-1,"lease":"1s"}"#,
        r#"{"key":"a","limit":"5/s","lease":"1s"}"#,
        r#"{"key":"a","limit":1000001,"lease":"1s"}"#,
        r#"{"key":"a","limit":1,"lease":"0s"}"#,
        r#"{"key":"a","limit":1,"lease":0}"#,
        r#"{"key":"a","limit":1,"lease":1.5}"#,
        r#"{"key":"a","limit":1,"lease":"soon"}"#,
        r#"{"key":"a","limit":1,"lease":"25h"}"#,
        r#"{"key":"a","limit":1,"lease":18446744073709551615}"#,
        r#"{"key":"a","limit":1,"lease":"1s","id":7}"#,
        r#"{"key":"a","limit":1,"lease":"1s","id":""}"#,
        r#"{"key":"a","limit":1,"lease":"1s","id":"a/b"}"#,
        r#"{"key":"a","limit":1,"lease":"1s","id":"é\r\n"}"#,
        r#"{"key":"a","limit":1,"lease":"1s","cost":2}"#,
        &long_key,
        &long_id,
    ] {
        let shown: String = case.chars().take(70).collect();
        table += &format!("{shown}\n  {}\n", wrong(&bench.post("/v1/permits", case).await));
    }
    for head in [
        "PUT /v1/permits/a",
        "PUT /v1/permits/a?key=b",
        "PUT /v1/permits/a?key=b&lease=soon",
        "PUT /v1/permits/a?key=b&lease=0",
        "PUT /v1/permits/a?key=&lease=1s",
        "PUT /v1/permits/a?key=b&lease=1s&limit=5",
        "PUT /v1/permits/a.b?key=b&lease=1s",
        "PUT /v1/permits/%ff?key=b&lease=1s",
        "DELETE /v1/permits/a",
        "DELETE /v1/permits/a?key=b&lease=1s",
        "DELETE /v1/permits/",
        "DELETE /v1/permits/a/b?key=b",
        "GET /v1/permits",
        "POST /v1/permits/a",
        "DELETE /v1/permits",
    ] {
        table += &format!("{head}\n  {}\n", wrong(&bench.ask(head, &[], "").await));
    }
    insta::assert_snapshot!(table);
    assert!(counts(&bench).await.iter().all(|line| line.ends_with(" 0")), "nothing of it counts");
}

#[tokio::test]
async fn without_its_store_each_process_counts_by_itself() {
    let bench = Bench::with_store("domains: {}", &format!("redis://127.0.0.1:{}?timeout=50ms", free_port()));
    assert_eq!([acquire(&bench, &named("a")).await, acquire(&bench, &named("b")).await], [201, 201]);
    assert_eq!(acquire(&bench, &named("c")).await, 429);
    assert_eq!(status(&renew(&bench, "a", "30s").await), 200);
    assert_eq!(status(&release(&bench, "b").await), 204);
    // The store may know it, and cannot be asked.
    insta::assert_snapshot!("release_unknown", release(&bench, "other").await);
    assert_eq!(status(&renew(&bench, "other", "30s").await), 200, "who holds one of the store goes on");
    assert_eq!(acquire(&bench, &named("c")).await, 429, "and is counted");
    let page = bench.get("/metrics").await;
    assert!(page.contains("\ntidegate_fallbacks_total 8\n"), "{page}");
}

#[tokio::test]
async fn a_permit_of_the_store_that_is_released_without_it_is_free_here() {
    let bench = Bench::with_store("domains: {}", &format!("redis://127.0.0.1:{}?timeout=50ms", free_port()));
    assert_eq!(status(&renew(&bench, "other", "30s").await), 200);
    assert_eq!([acquire(&bench, &named("a")).await, acquire(&bench, &named("b")).await], [201, 429]);
    assert_eq!(status(&release(&bench, "other").await), 503, "the store has to hear of it");
    assert_eq!(acquire(&bench, &named("b")).await, 201);
    assert_eq!([status(&release(&bench, "a").await), status(&release(&bench, "other").await)], [204, 503]);
}

#[tokio::test]
async fn what_was_acquired_without_the_store_is_still_held_when_it_comes() {
    let server = Server::prepare(&Setup::default());
    let bench = Bench::with_store("domains: {}", &format!("redis://127.0.0.1:{}?timeout=2s", server.port));
    assert_eq!(acquire(&bench, &named("a")).await, 201);
    server.run();
    let fallbacks = async || {
        let page = bench.get("/metrics").await;
        let told = page.lines().find_map(|line| line.strip_prefix("tidegate_fallbacks_total "));
        told.unwrap().parse::<u64>().unwrap()
    };
    loop {
        let before = fallbacks().await;
        acquire(&bench, r#"{"key":"probe","limit":1,"lease":"1ms"}"#).await;
        if fallbacks().await == before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status(&renew(&bench, "a", "30s").await), 200);
    assert_eq!(status(&release(&bench, "a").await), 204);
    assert_eq!(status(&release(&bench, "a").await), 404);
    assert_eq!([acquire(&bench, &named("b")).await, acquire(&bench, &named("c")).await], [201, 201]);
    assert_eq!(acquire(&bench, &named("d")).await, 429);
    assert_eq!([status(&release(&bench, "b").await), status(&release(&bench, "b").await)], [204, 404]);
}
