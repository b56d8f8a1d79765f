//! Clients and servers on paused time.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tidegate_core::FakeClock;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt};

use super::*;

/// A server that answers from a list, and then 200; it records the time of each request.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<Vec<Response<()>>>>,
    asked: Arc<Mutex<Vec<Instant>>>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = (u16, Option<&'static str>)>) -> Server {
        let server = Server::default();
        let mut all: Vec<_> = answers.into_iter().map(|(status, wait)| answer(status, wait)).collect();
        all.reverse();
        *server.answers.lock().unwrap() = all;
        server
    }

    /// Milliseconds between the requests.
    fn pauses(&self) -> Vec<u128> {
        self.asked.lock().unwrap().windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

impl Service<Request<&'static str>> for Server {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<&'static str>) -> Self::Future {
        self.asked.lock().unwrap().push(Instant::now());
        ready(Ok(self.answers.lock().unwrap().pop().unwrap_or_default()))
    }
}

fn answer(status: u16, retry_after: Option<&'static str>) -> Response<()> {
    let mut builder = Response::builder().status(status);
    if let Some(wait) = retry_after {
        builder = builder.header("retry-after", wait);
    }
    builder.body(()).unwrap()
}

async fn send(policy: &RetryPolicy, server: &Server, method: Method) -> StatusCode {
    let request = Request::builder().method(method).body("question").unwrap();
    let client = ServiceBuilder::new().retry(policy.clone()).service(server.clone());
    client.oneshot(request).await.unwrap().status()
}

fn policy() -> RetryBuilder {
    RetryPolicy::builder().seed(7)
}

#[tokio::test(start_paused = true)]
async fn waits_as_long_as_told_and_a_little_more() {
    let server = Server::new([(429, Some("2")), (503, Some("4"))]);
    assert_eq!(send(&policy().build().unwrap(), &server, Method::GET).await, 200);
    let pauses = server.pauses();
    assert_eq!(pauses.len(), 2);
    assert!((2_000..=2_501).contains(&pauses[0]) && (4_000..=5_001).contains(&pauses[1]), "{pauses:?}");
    let exact = Server::new([(429, Some("2"))]);
    assert_eq!(send(&policy().jitter(0.0).build().unwrap(), &exact, Method::GET).await, 200);
    assert_eq!(exact.pauses(), [2_000]);
}

#[tokio::test(start_paused = true)]
async fn waits_until_a_date() {
    // 1994-11-06 08:49:37 UTC.
    let clock = FakeClock::at(tidegate_core::Time::from_nanos(784_111_777_000_000_000));
    let server = Server::new([(429, Some("Sun, 06 Nov 1994 08:49:47 GMT"))]);
    let policy = policy().clock(clock).jitter(0.0).build().unwrap();
    assert_eq!(send(&policy, &server, Method::GET).await, 200);
    assert_eq!(server.pauses(), [10_000]);
}

#[tokio::test(start_paused = true)]
async fn not_told_it_waits_longer_each_time() {
    let server = Server::new([(429, None), (429, None), (429, Some("0"))]);
    assert_eq!(send(&policy().jitter(0.0).build().unwrap(), &server, Method::POST).await, 200);
    assert_eq!(server.pauses(), [100, 200, 400]);
}

#[tokio::test(start_paused = true)]
async fn not_all_come_back_at_once() {
    let policy = policy().build().unwrap();
    let headers = answer(429, Some("10")).headers().clone();
    let waits: Vec<_> =
        (0..100).map(|_| policy.wait(&Method::GET, StatusCode::TOO_MANY_REQUESTS, &headers).unwrap()).collect();
    assert!(waits.iter().all(|wait| (10.0..=12.5).contains(&wait.as_secs_f64())), "{waits:?}");
    let early = waits.iter().filter(|wait| wait.as_secs_f64() < 11.25).count();
    assert!((30..=70).contains(&early), "{early} of 100 in the first half");
}

#[tokio::test(start_paused = true)]
async fn gives_up() {
    let check =
        async |policy: RetryBuilder, method: Method, answers: Vec<(u16, Option<&'static str>)>, expected: u16| {
            let server = Server::new(answers);
            assert_eq!(send(&policy.build().unwrap(), &server, method).await, expected);
            server.pauses().len()
        };
    // Too long a wait, too many retries, an error of the handler, and what may have been done.
    assert_eq!(check(policy(), Method::GET, vec![(429, Some("31"))], 429).await, 0);
    assert_eq!(check(policy(), Method::GET, vec![(429, None); 10], 429).await, 3);
    assert_eq!(check(policy().retries(0), Method::GET, vec![(429, None)], 429).await, 0);
    assert_eq!(check(policy(), Method::GET, vec![(500, Some("1"))], 500).await, 0);
    assert_eq!(check(policy(), Method::POST, vec![(503, Some("1"))], 503).await, 0);
    assert_eq!(check(policy(), Method::PUT, vec![(503, Some("1"))], 200).await, 1);
    assert_eq!(check(policy(), Method::POST, vec![(429, Some("1"))], 200).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_all_gets_a_tenth_more() {
    let clock = FakeClock::new();
    let policy = policy().budget(0.1, 0).clock(clock).build().unwrap();
    let server = Server::new(vec![(429, None); 5_000]);
    for _ in 0..1_000 {
        assert_eq!(send(&policy, &server, Method::GET).await, 429);
    }
    let asked = server.asked.lock().unwrap().len();
    assert!((1_090..=1_100).contains(&asked), "{asked} questions for 1,000 requests");
}

#[test]
fn numbers_out_of_bounds_are_named() {
    let check = |builder: RetryBuilder, expected: &str| assert_eq!(builder.build().unwrap_err().to_string(), expected);
    check(policy().retries(11), "retries: 11 is out of range; use at most 10");
    check(policy().jitter(1.5), "jitter: 1.5 is out of range; use a share from 0 to 1");
    check(policy().budget(f64::NAN, 1), "budget: NaN is out of range; use a share from 0 to 1");
    check(policy().wait_max(Duration::ZERO), "wait_max: 0ns is out of range; use more than 0 s and at most 3600s");
    check(
        policy().backoff(Duration::MAX),
        "backoff: 18446744073709551615.999999999s is out of range; use more than 0 s and at most 3600s",
    );
}
