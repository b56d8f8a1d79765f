//! Calls at an even pace.

use std::time::Duration;

use tidegate_tower::{ShapeError, ShapeLayer, Shaped, Shaper, ShaperConfig};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::support::{Slow, request, settle};

fn shaper(rate: &str, depth: usize, millis: u64) -> Shaper {
    let config = ShaperConfig { depth, wait: Duration::from_millis(millis) };
    Shaper::new(rate.parse().unwrap(), config).unwrap()
}

/// Asks in a task of its own; it stands in line when this returns. The answer is when it may go, in milliseconds.
async fn ask(shaper: &Shaper, cost: u64, start: Instant) -> JoinHandle<Result<u128, ShapeError>> {
    let shaper = shaper.clone();
    let task = tokio::spawn(async move { shaper.acquire(cost).await.map(|()| start.elapsed().as_millis()) });
    settle().await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_burst_becomes_an_even_line_in_its_order() {
    let (shaper, start) = (shaper("10/s", 100, 10_000), Instant::now());
    let mut sent = Vec::new();
    for cost in [1, 1, 3, 1, 1] {
        sent.push(ask(&shaper, cost, start).await);
    }
    assert_eq!(shaper.waiting(), 4);
    let mut went = Vec::new();
    for task in sent {
        went.push(task.await.unwrap().unwrap());
    }
    assert_eq!(went, [0, 100, 200, 500, 600]);
    assert_eq!(shaper.waiting(), 0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    let (first, second) = (ask(&shaper, 1, start).await, ask(&shaper, 1, start).await);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(0), Ok(100)), "a pause is not caught up");
}

#[tokio::test(start_paused = true)]
async fn those_behind_move_up_when_one_leaves() {
    for (left, expected) in [(1, [100, 200]), (2, [100, 200]), (3, [100, 200])] {
        let (shaper, start) = (shaper("10/s", 100, 10_000), Instant::now());
        let mut sent = Vec::new();
        for _ in 0..4 {
            sent.push(ask(&shaper, 1, start).await);
        }
        tokio::time::advance(Duration::from_millis(50)).await;
        sent.remove(left).abort();
        settle().await;
        let mut went = Vec::new();
        for task in sent.into_iter().skip(1) {
            went.push(task.await.unwrap().unwrap());
        }
        assert_eq!(went, expected, "without {left}");
    }
}

#[tokio::test(start_paused = true)]
async fn depth_and_wait_are_bounded() {
    let (shallow, start) = (shaper("10/s", 2, 10_000), Instant::now());
    let _waiting = [ask(&shallow, 1, start).await, ask(&shallow, 1, start).await, ask(&shallow, 1, start).await];
    assert_eq!(shallow.acquire(1).await, Err(ShapeError::Full { max: 2 }));

    let hasty = shaper("10/s", 100, 200);
    let _waiting = [ask(&hasty, 1, start).await, ask(&hasty, 1, start).await, ask(&hasty, 1, start).await];
    let (wait, max) = (Duration::from_millis(300), Duration::from_millis(200));
    assert_eq!(hasty.acquire(1).await, Err(ShapeError::TooLong { wait, max }));
    assert_eq!(hasty.waiting(), 2, "who is refused takes nothing");
    assert_eq!(hasty.acquire(0).await, Err(ShapeError::Cost { cost: 0 }));
    assert_eq!(hasty.acquire(u64::MAX).await, Err(ShapeError::Cost { cost: u64::MAX }));
}

/// Timers are a millisecond fine; the rate is reached all the same, by one caller after another and by many at once.
#[tokio::test(start_paused = true)]
async fn a_rate_faster_than_the_timers_is_reached() {
    let (shaper, start) = (shaper("5000/s", 10_000, 10_000), Instant::now());
    for _ in 0..2500 {
        shaper.acquire(1).await.unwrap();
    }
    let alone = start.elapsed().as_millis();
    assert!((498..=502).contains(&alone), "{alone} ms");
    let mut sent = Vec::new();
    for _ in 0..2500 {
        let shaper = shaper.clone();
        sent.push(tokio::spawn(async move { shaper.acquire(1).await }));
    }
    for task in sent {
        task.await.unwrap().unwrap();
    }
    let together = start.elapsed().as_millis();
    assert!((998..=1002).contains(&together), "{together} ms");
}

#[tokio::test(start_paused = true)]
async fn a_client_behind_the_layer_sends_at_that_pace() {
    let slow = Slow::taking(0);
    let layer = ShapeLayer::new(shaper("10/s", 2, 10_000)).cost(|head| if head.uri() == "/big" { 2 } else { 1 });
    let client = layer.layer(slow.clone());
    let start = Instant::now();
    let mut big = request(&[]);
    *big.uri_mut() = "/big".parse().unwrap();
    let mut sent = Vec::new();
    for request in [big, request(&[]), request(&[]), request(&[])] {
        let client = client.clone();
        sent.push(tokio::spawn(async move { client.oneshot(request).await.map(|_| start.elapsed().as_millis()) }));
        settle().await;
    }
    let full = sent.pop().unwrap().await.unwrap();
    assert!(matches!(full, Err(Shaped::Refused(ShapeError::Full { max: 2 }))), "{full:?}");
    let mut went = Vec::new();
    for task in sent {
        went.push(task.await.unwrap().unwrap());
    }
    assert_eq!((went, slow.served()), (vec![0, 200, 300], 3));
}

#[test]
fn bad_configurations_are_refused() {
    let rate = "1/s".parse().unwrap();
    for (depth, wait, expected) in [
        (0, 1, "depth: 0 is out of range; use 1 to 1048576"),
        (1, 0, "wait: 0ns is out of range; use more than 0 s and at most 3600s"),
        (1, 3601, "wait: 3601s is out of range; use more than 0 s and at most 3600s"),
    ] {
        let config = ShaperConfig { depth, wait: Duration::from_secs(wait) };
        assert_eq!(Shaper::new(rate, config).unwrap_err().to_string(), expected);
    }
}
