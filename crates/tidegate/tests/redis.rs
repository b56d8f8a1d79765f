//! A limiter that programs share through a real redis-server.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::time::Duration;

use tidegate::redis::{AskError, Fallback, LimiterError, RedisLimiter};
use tidegate::{KeyError, Limit, Op, Retry, Verdict};
use tidegate_engine::{Engine, Options};
use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Server, Setup};

fn three() -> Limit {
    "3/day".parse().unwrap()
}

fn at(port: u16) -> RedisLimiter {
    RedisLimiter::open(&format!("redis://127.0.0.1:{port}?timeout=5s"), three()).unwrap()
}

#[tokio::test]
async fn limiters_and_servers_count_together() {
    let server = Server::start(&Setup::default());
    let (one, two) = (at(server.port), at(server.port));
    assert_eq!(one.check("ann").await.unwrap().remaining(), 2);
    assert_eq!(two.check("ann").await.unwrap().remaining(), 1);
    let url = format!("redis://127.0.0.1:{}?timeout=5s", server.port);
    let engine = Engine::new(Options { store: Some(url.into()), ..Options::default() }).unwrap();
    assert_eq!(engine.decide(b"ann", &three(), Op::Take(1)).await.unwrap().remaining(), 0);
    let denied = one.check("ann").await.unwrap();
    assert!(!denied.is_allowed() && denied.retry_after().unwrap() > Duration::from_secs(8 * 3600 - 60));
    assert_eq!(one.check("bob").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn what_was_taken_goes_back() {
    let server = Server::start(&Setup::default());
    let limiter = at(server.port);
    let receipt = limiter.check_n("ann", 3).await.unwrap().receipt();
    assert!(receipt.is_some());
    assert_eq!(limiter.decide("ann", Op::Refund(2, receipt)).await.unwrap().remaining(), 2);
    assert_eq!(limiter.decide("ann", Op::Debit(2)).await.unwrap().remaining(), 0);
    assert_eq!(limiter.decide("ann", Op::Reset).await.unwrap().remaining(), 3);
}

#[tokio::test]
async fn without_redis_the_fallback_answers() {
    let limiter = RedisLimiter::open(&format!("redis://127.0.0.1:{}", free_port()), three()).unwrap();
    let answers = async |limiter: &RedisLimiter| {
        let mut answers = Vec::new();
        for _ in 0..4 {
            let decision = limiter.check("ann").await.unwrap();
            assert_eq!(decision.receipt(), None);
            answers.push(decision.is_allowed());
        }
        answers
    };
    assert_eq!(answers(&limiter).await, [true, true, true, false], "the same limit, here");
    let strict = limiter.clone().fallback(Fallback::Local("1/day".parse().unwrap()));
    assert!(strict.check("ann").await.unwrap().is_allowed(), "a limit of its own counts from the start of the outage");
    assert!(!strict.check("ann").await.unwrap().is_allowed());
    assert_eq!(answers(&limiter.clone().fallback(Fallback::Allow)).await, [true; 4]);
    let shut = limiter.clone().fallback(Fallback::Deny);
    assert_eq!(answers(&shut).await, [false; 4]);
    let verdict = shut.check("ann").await.unwrap().verdict();
    assert_eq!(verdict, Verdict::Deny(Retry::Unknown(Duration::from_secs(1))));
    assert!(matches!(limiter.decide("ann", Op::Take(1)).await, Err(AskError::Store(_))));
    assert!(limiter.store().health().totals.not_sent > 0);
}

#[tokio::test]
async fn bad_keys_and_addresses_are_told() {
    let limiter = RedisLimiter::open("redis://localhost", three()).unwrap();
    assert!(matches!(limiter.check("").await, Err(AskError::Key(KeyError::Empty))));
    assert!(matches!(limiter.check([0; 4096]).await, Err(AskError::Key(KeyError::TooLong { .. }))));
    let wrong = RedisLimiter::open("redis:/localhost", three()).unwrap_err();
    assert!(matches!(wrong, LimiterError::Address(_)));
    let told = r#"store URL: two slashes are missing after "redis:": write redis:// before the rest"#;
    assert_eq!(wrong.to_string(), told);
}
