//! Each part fails on its own: with the shared store of the rate gone, the total is still held, and turns are taken.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Engine, Options};
use tidegate_policy::{LoadOptions, Outside, load_text};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Server, Setup};
use tidegate_tower::{KeyBy, Mode, Part, RateLimitLayer, StackLayer};
use tokio::time::timeout;
use tower::ServiceExt;

use super::{Protected, Work, request, tenant};

const LIMIT: u64 = 3;

/// A stack whose rate counts in a Redis on this port, which has so long to answer.
fn stack(port: u16, failure: &str, timeout: &str) -> StackLayer {
    let rules = format!(
        "
domains:
  api:
    rules:
      - {{name: per-tenant, key: {{entry: tenant}}, limit: 5/hour, on_store_failure: {failure}}}
"
    );
    let outside = Outside { default_is_elsewhere: Some(true), ..Outside::default() };
    let loaded = load_text("rules.yaml", &rules, &LoadOptions { outside, ..LoadOptions::default() });
    let store = Some(format!("redis://127.0.0.1:{port}?timeout={timeout}").into());
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let engine = Arc::new(Engine::with_policy(Options { store, ..Options::default() }, policy).unwrap());
    let rate = RateLimitLayer::policy(engine, "api").descriptor([("tenant", KeyBy::header("tenant"))]).build().unwrap();
    StackLayer::builder(LIMIT).rate(rate).tenant(tenant).deadline(Duration::from_secs(30)).build().unwrap()
}

/// How many of so many requests, all at once, hear 200, 429 and 503.
async fn flood(service: &Protected, tenant: &str, count: usize) -> [usize; 3] {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let response = service.clone().oneshot(request(tenant));
            // A body that is kept would keep its place.
            tokio::spawn(async move { response.await.unwrap().status() })
        })
        .collect();
    let mut heard = [0; 3];
    for task in tasks {
        let status = timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
        let place = [200, 429, 503].iter().position(|known| status == *known).unwrap();
        heard[place] += 1;
    }
    heard
}

fn work() -> Work {
    Work::taking(Duration::from_millis(5))
}

#[tokio::test]
async fn when_redis_stops_the_semaphore_holds() {
    let server = Server::start(&Setup::default());
    let (stack, work) = (stack(server.port, "allow", "5s"), work());
    let service = work.behind(&stack);
    assert_eq!(flood(&service, "a", 10).await, [5, 5, 0], "the shared rate counts");
    drop(server);
    work.forget();
    // Three are in and three wait, at most, of one tenant.
    let [served, denied, busy] = flood(&service, "b", 40).await;
    assert!(served >= 6 && denied == 0 && served + busy == 40, "{served} {denied} {busy}");
    assert_eq!(work.most(), LIMIT);
    let stats = stack.handle().stats();
    assert_eq!(stats.rate.unwrap().refused, 5);
    assert_eq!(stats.fair.unwrap().refused, busy as u64);
    assert_eq!(stats.concurrency.unwrap().in_flight, Some(0));
    // Without turns too: it asks nobody. Three are in, and thirty find room in the one line.
    stack.handle().switch(Part::Fair).unwrap().set_mode(Mode::Off);
    work.forget();
    let [served, denied, busy] = flood(&service, "c", 50).await;
    assert!(served >= 33 && denied == 0 && served + busy == 50, "{served} {denied} {busy}");
    assert_eq!(work.most(), LIMIT);
    assert_eq!(stack.handle().stats().concurrency.unwrap().refused, busy as u64);
}

#[tokio::test]
async fn when_redis_hangs_the_semaphore_holds() {
    let server = Server::start(&Setup::default());
    let (stack, work) = (stack(server.port, "allow", "300ms"), work());
    let service = work.behind(&stack);
    assert_eq!(flood(&service, "a", 1).await, [1, 0, 0]);
    server.hang();
    let [served, denied, busy] = flood(&service, "b", 40).await;
    assert!(served >= 6 && denied == 0 && served + busy == 40, "{served} {denied} {busy}");
    assert_eq!(work.most(), LIMIT);
    server.go_on();
}

/// What a rule says of its store's failure concerns the rate alone.
#[tokio::test]
async fn where_nobody_listens_the_rule_chooses_and_the_rest_goes_on() {
    let (strict, work_of_strict) = (stack(free_port(), "deny", "5s"), work());
    let service = work_of_strict.behind(&strict);
    assert_eq!(flood(&service, "a", 10).await, [0, 0, 10]);
    let stats = strict.handle().stats();
    assert_eq!((stats.rate.unwrap().refused, stats.fair.unwrap().refused, work_of_strict.most()), (10, 0, 0));
    // The switch of the rate is the way out.
    strict.handle().switch(Part::Rate).unwrap().set_mode(Mode::Off);
    assert_eq!(flood(&service, "a", 3).await, [3, 0, 0]);

    let (local, work_of_local) = (stack(free_port(), "{local: 2/hour}", "5s"), work());
    assert_eq!(flood(&work_of_local.behind(&local), "a", 10).await, [2, 8, 0]);
}
