//! Servers that are absent, die, hang or lose replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tidegate_testkit::servers::{Mode, Proxy, Server, Setup};
use tokio::runtime::Builder;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use super::{AMPLE, SLACK, add, add_within, is_not_sent, is_unknown, open, recover, term};
use crate::redis::Address;
use crate::redis::link::bounds::{FAILURES_IN_ROW_MAX, LINKS_DEFAULT, UNANSWERED_FIRST, WAITING_MAX};
use crate::redis::link::dial::Endpoint;
use crate::redis::link::link::{Live, State};
use crate::redis::link::pipe::{Pipe, Trouble};
use crate::redis::link::{Breaker, CallError, Redis, Script, Topology, Why};

const BUDGET: Duration = Duration::from_millis(20);

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}?timeout=20ms&wait=5s")
}

/// Waits until no calls are sent, and says how long that took.
async fn opened(redis: &Redis) -> Duration {
    let start = Instant::now();
    while redis.health().breaker == Breaker::Closed {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", redis.health());
        sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

#[tokio::test]
async fn a_server_that_is_absent_is_not_waited_for_and_found_when_it_comes() {
    let server = Server::prepare(&Setup::default());
    let redis = open(&url(server.port));
    let absent = add(&redis, "k").await.unwrap_err();
    assert!(absent.to_string().contains("refused"), "{absent}");
    let start = Instant::now();
    for _ in 0..1000 {
        assert!(is_not_sent(&add(&redis, "k").await));
    }
    assert!(start.elapsed() < AMPLE, "nobody waits");
    assert_eq!(redis.health().breaker, Breaker::Open);
    server.run();
    let took = recover(&redis, "k").await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(redis.health().breaker, Breaker::Closed);
}

#[tokio::test]
async fn an_attempt_to_connect_that_hangs_is_waited_for_once() {
    // The system accepts connections, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let budget = Duration::from_millis(400);
    let port = silent.local_addr().unwrap().port();
    let redis = open(&format!("redis://127.0.0.1:{port}?timeout=400ms&wait=5s"));
    let start = Instant::now();
    assert!(is_not_sent(&add(&redis, "k").await));
    assert!(start.elapsed() >= budget && start.elapsed() < budget * 2 + SLACK, "{:?}", start.elapsed());
    let start = Instant::now();
    assert!(is_not_sent(&add(&redis, "k").await));
    assert!(start.elapsed() < budget / 2, "{:?}", start.elapsed());
}

#[test]
fn a_caller_does_not_wait_for_an_attempt_whose_runtime_ended() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let redis = open(&format!("redis://127.0.0.1:{port}?timeout=400ms&wait=5s&links=1"));
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let gave_up = tokio::time::timeout(SLACK, add(&redis, "k")).await;
        assert!(gave_up.is_err(), "{gave_up:?}");
    });
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let start = Instant::now();
            let failed = runtime().block_on(add(&redis, "k")).unwrap_err();
            (failed, start.elapsed())
        });
        std::thread::sleep(SLACK);
        drop(first);
        let (failed, took) = second.join().unwrap();
        assert!(failed.to_string().ends_with("still connecting"), "{failed}");
        assert!(took < AMPLE / 2, "{took:?}");
    });
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    assert_eq!(add(&redis, "k").await, Ok(1));
    server.kill();
    sleep(SLACK).await;
    let lost = add(&redis, "k").await;
    assert!(is_not_sent(&lost), "nothing was written: {lost:?}");
    server.run();
    let took = recover(&redis, "k").await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(server.command("GET k"), "1", "nothing came twice");
}

#[tokio::test]
async fn a_call_on_a_connection_that_is_over_was_not_sent() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    let Topology::One(node) = &redis.inner.topology else { panic!("one node") };
    let endpoint = Endpoint::Tcp(Address { host: "127.0.0.1".to_owned(), port: server.port });
    // As when a connection ends and its keeper has not noticed yet.
    let pipe = Pipe::new(BUDGET);
    pipe.close(&Trouble::Broken("it is over".into()), 0, &mut Vec::new());
    let live = Live::new(pipe, endpoint);
    for link in &node.links {
        link.state.send_replace(State::Up(Arc::clone(&live)));
    }
    let failed = add(&redis, "k").await;
    assert!(matches!(&failed, Err(CallError::NotSent { why: Why::Broken(_), .. })), "{failed:?}");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_made_again() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    for sum in 1..=3 {
        assert_eq!(add(&redis, "k").await, Ok(sum));
        server.command("CLIENT KILL TYPE normal");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_server_that_hangs_keeps_nobody_longer_than_the_budget() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    recover(&redis, "k").await;
    server.hang();
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let redis = redis.clone();
        callers.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < Duration::from_secs(1) {
                let called = Instant::now();
                let failed = add(&redis, "k").await.unwrap_err();
                assert!(!matches!(failed, CallError::Refused { .. }), "{failed}");
                times.push(called.elapsed());
                sleep(Duration::from_millis(1)).await;
            }
            times
        });
    }
    let opened = opened(&redis).await;
    assert!(opened < Duration::from_secs(1), "{opened:?}");
    let mut times: Vec<_> = callers.join_all().await.concat();
    times.sort_unstable();
    let longest = times[times.len() - 1];
    println!("opened after {opened:?}; {} calls, the longest {longest:?}", times.len());
    assert!(longest <= BUDGET + SLACK, "{longest:?}");
    let start = Instant::now();
    assert!(matches!(add(&redis, "k").await, Err(CallError::NotSent { .. })));
    assert!(start.elapsed() < SLACK, "while the breaker is open nobody waits");
    server.go_on();
    let took = recover(&redis, "other").await;
    println!("closed after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let applied: u64 = server.command("GET k").parse().unwrap();
    let totals = redis.health().totals;
    assert!(applied <= 1 + totals.unknown, "only what is unknown may have been applied: {applied}, {totals:?}");
}

#[tokio::test]
async fn who_leaves_early_opens_no_breaker_before_the_budget_is_over() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis://127.0.0.1:{}?timeout=400ms", server.port));
    recover(&redis, "k").await;
    server.hang();
    let (script, start) = (Script::new("return 1"), Instant::now());
    for _ in 0..FAILURES_IN_ROW_MAX * 2 {
        let term = term(Duration::from_millis(400)).until(Some((Instant::now() + BUDGET).into_std()));
        let late = redis.call_at(0, &script, &[], &[], term).await;
        assert!(matches!(&late, Err(CallError::Unknown { why: Why::CallerLeft, .. })), "{late:?}");
    }
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!(redis.health().breaker, Breaker::Closed, "{:?}", redis.health());
    // The time of those who left is kept all the same.
    opened_by(&redis, &script).await;
}

/// Goes on leaving early until the breaker is open.
async fn opened_by(redis: &Redis, script: &Script) {
    let start = Instant::now();
    while redis.health().breaker == Breaker::Closed {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", redis.health());
        let term = term(Duration::from_millis(400)).until(Some((Instant::now() + BUDGET).into_std()));
        let _ = redis.call_at(0, script, &[], &[], term).await;
    }
}

#[tokio::test]
async fn a_slow_server_opens_the_breaker_until_it_is_fast() {
    let server = Server::start(&Setup::default());
    let proxy = Proxy::start(server.port).await;
    let redis = open(&url(proxy.port));
    recover(&redis, "k").await;
    proxy.set(Mode::Delay(Duration::from_millis(200)));
    let start = Instant::now();
    while redis.health().breaker == Breaker::Closed {
        let late = add(&redis, "k").await;
        assert!(is_unknown(&late), "{late:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    for _ in 0..60 {
        assert!(is_not_sent(&add(&redis, "k").await), "a probe that is late must not close it");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(redis.health().totals.opened, 1);
    proxy.set(Mode::Pass);
    let took = recover(&redis, "k").await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_reply_that_is_lost_is_unknown_and_applied_once() {
    let server = Server::start(&Setup::default());
    let proxy = Proxy::start(server.port).await;
    let redis = open(&url(proxy.port));
    recover(&redis, "k").await;
    for (mode, sum) in [(Mode::Swallow, "2"), (Mode::CutAtReply, "3")] {
        proxy.set(mode);
        let lost = add(&redis, "k").await;
        assert!(is_unknown(&lost), "{mode:?}: {lost:?}");
        sleep(SLACK).await;
        assert_eq!(server.command("GET k"), sum, "{mode:?}");
        proxy.set(Mode::Cut);
        sleep(SLACK).await;
        proxy.set(Mode::Pass);
        recover(&redis, "other").await;
    }
    assert_eq!(server.command("GET k"), "3", "and not again later");
}

#[tokio::test]
async fn a_connection_that_hangs_is_dropped_and_made_anew() {
    let server = Server::start(&Setup::default());
    let proxy = Proxy::start(server.port).await;
    let redis = open(&url(proxy.port));
    recover(&redis, "k").await;
    // Replies on this connection are gone for good: only another connection can have answers.
    proxy.set(Mode::Swallow);
    while redis.health().breaker == Breaker::Closed {
        let _ = add(&redis, "k").await;
    }
    proxy.set(Mode::Pass);
    let took = recover(&redis, "k").await;
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn calls_that_wait_are_bounded_and_each_has_its_turn_in_time() {
    let server = Server::start(&Setup::default());
    let redis = open(&format!("redis://127.0.0.1:{}?timeout=5s", server.port));
    add(&redis, "k").await.unwrap();
    server.hang();
    let (mut callers, wait) = (JoinSet::new(), Duration::from_millis(300));
    for _ in 0..WAITING_MAX + 100 {
        let redis = redis.clone();
        callers.spawn(async move { (add_within(&redis, "k", wait).await, Instant::now()) });
    }
    let start = Instant::now();
    let refused = u64::try_from(WAITING_MAX + 100 - UNANSWERED_FIRST).unwrap();
    // On a busy machine callers begin to wait late.
    while redis.health().totals.overloaded < refused && start.elapsed() < Duration::from_secs(4) {
        sleep(Duration::from_millis(10)).await;
    }
    server.go_on();
    let answers = callers.join_all().await;
    let refused_for = |expected: Why| {
        let is_it =
            |answer: &Result<i64, CallError>| matches!(answer, Err(CallError::NotSent { why, .. }) if *why == expected);
        answers.iter().filter(|(answer, _)| is_it(answer)).count()
    };
    assert_eq!(refused_for(Why::QueueFull), 100);
    assert_eq!(refused_for(Why::TurnTooLate), WAITING_MAX - UNANSWERED_FIRST);
    assert_eq!(answers.iter().filter(|(answer, _)| answer.is_ok()).count(), UNANSWERED_FIRST);
    let ends = answers.iter().filter(|(answer, _)| answer.is_err()).map(|(_, at)| *at - start);
    assert!(ends.max().unwrap() < wait + SLACK);
    assert_eq!(redis.health().totals.overloaded, refused);
    assert_eq!(server.command("GET k"), (1 + UNANSWERED_FIRST).to_string(), "who was refused is never sent");
}

#[test]
fn a_runtime_that_ended_takes_its_connection_with_it() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    for sum in 1..=3 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(add(&redis, "k")), Ok(sum));
    }
}

#[test]
fn a_breaker_whose_prober_is_gone_is_probed_by_the_next() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(async {
        recover(&redis, "k").await;
        server.hang();
        while redis.health().breaker == Breaker::Closed {
            let _ = add(&redis, "k").await;
        }
    });
    server.go_on();
    runtime().block_on(async {
        let took = recover(&redis, "k").await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    });
}

#[tokio::test]
async fn one_connection_that_hangs_beside_another_is_made_anew() {
    let server = Server::start(&Setup::default());
    let proxy = Proxy::start(server.port).await;
    let redis = open(&format!("{}&links=2", url(proxy.port)));
    // Threads until both links are up: each takes the link of its number.
    let (settled, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut threads = Vec::new();
    while redis.health().nodes.iter().all(|node| node.connections < 2) {
        let (redis, settled, end) = (redis.clone(), Arc::clone(&settled), Arc::clone(&end));
        threads.push(std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut answers_at_last = 0;
                while !end.load(Relaxed) {
                    let answer = add(&redis, "k").await;
                    answers_at_last += usize::from(answer.is_ok() && settled.load(Relaxed));
                    sleep(Duration::from_millis(1)).await;
                }
                answers_at_last
            })
        }));
        sleep(SLACK).await;
    }
    proxy.set(Mode::SwallowFirst);
    sleep(Duration::from_secs(1)).await;
    settled.store(true, Relaxed);
    sleep(Duration::from_millis(500)).await;
    end.store(true, Relaxed);
    for thread in threads {
        let answers = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        assert!(answers > 0, "a thread without answers: {:?}", redis.health());
    }
    assert!(redis.health().totals.unknown >= 5, "{:?}", redis.health());
}

#[tokio::test]
async fn a_server_that_forgets_scripts_under_load_makes_no_errors() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let redis = redis.clone();
        callers.spawn(async move {
            for _ in 0..200 {
                recover(&redis, "k").await;
            }
        });
    }
    while !callers.is_empty() {
        server.command("SCRIPT FLUSH");
        while callers.try_join_next().is_some() {}
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.command("GET k"), "1600", "each was charged once");
    assert!(redis.health().totals.reloaded > 8, "{:?}", redis.health());
}

#[test]
fn threads_share_a_few_connections() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    // A runtime that carries a connection of others must run until they are done.
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                    for _ in 0..50 {
                        recover(&redis, "k").await;
                    }
                    barrier.wait().await;
                    let connections = server.command("CLIENT LIST").matches("name=tidegate").count();
                    assert!((1..=LINKS_DEFAULT).contains(&connections), "{connections}");
                    barrier.wait().await;
                });
            });
        }
    });
    assert_eq!(server.command("GET k"), "400");
}

#[tokio::test]
async fn connections_end_with_the_last_handle() {
    let server = Server::start(&Setup::default());
    let redis = open(&url(server.port));
    recover(&redis, "k").await;
    let named = || server.command("CLIENT LIST").contains("name=tidegate");
    assert!(named());
    drop(redis);
    for _ in 0..100 {
        sleep(Duration::from_millis(10)).await;
        if !named() {
            return;
        }
    }
    panic!("still connected");
}
