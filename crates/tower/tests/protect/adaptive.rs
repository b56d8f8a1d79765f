//! Limits that learn, behind a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::adaptive::{Aimd, AimdConfig, WindowConfig};
use tidegate_core::shed::Mode;
use tidegate_tower::{AdaptiveBuilder, AdaptiveLayer, ConcurrencyLayer, Ended, Lesson, Queue, Reason, Refusal};
use tower::{Layer, ServiceExt};

use crate::support::{Slow, pass, request, send, settle, status};

/// Up by one for each that is done, down by half for each drop.
fn aimd(initial: u64) -> AdaptiveBuilder {
    let config = AimdConfig { initial, min: 1, max: 10, backoff: 0.5, ..AimdConfig::default() };
    AdaptiveLayer::builder(Aimd::new(config).unwrap()).without_window()
}

/// Sends one request and tells the limit afterwards, which was 4.
async fn limit_after(builder: AdaptiveBuilder, headers: &[(&str, &str)]) -> u64 {
    let layer = builder.build().unwrap();
    let service = layer.layer(Slow::taking(100));
    let others = [layer.handle().acquire().await.unwrap(), layer.handle().acquire().await.unwrap()];
    service.oneshot(request(headers)).await.unwrap();
    drop(others);
    assert_eq!(layer.handle().in_flight(), 0);
    layer.handle().limit()
}

#[tokio::test(start_paused = true)]
async fn what_is_done_raises_and_what_is_dropped_lowers() {
    for (answer, expected) in [("200", 5), ("404", 4), ("500", 4), ("503", 2), ("429", 2), ("504", 2)] {
        assert_eq!(limit_after(aimd(4), &[("answer", answer)]).await, expected, "{answer}");
    }
    let judged = aimd(4).judge(|_| Lesson::Dropped);
    assert_eq!(limit_after(judged, &[("answer", "200")]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_teaches_nothing() {
    let layer = aimd(1).build().unwrap();
    let service = layer.layer(Slow::taking(100));
    send(&service, request(&[])).await.abort();
    settle().await;
    assert_eq!((layer.handle().in_flight(), layer.handle().limit()), (0, 1));
    drop(layer.handle().acquire().await.unwrap());
    assert_eq!(layer.handle().limit(), 1);
}

/// With the usual judge, with the user's, and with partitions: how many were judged by the user's afterwards.
#[tokio::test(start_paused = true)]
async fn who_is_in_is_answered_though_the_layer_is_gone() {
    let judged = Arc::new(AtomicU64::new(0));
    let count = |builder: AdaptiveBuilder| {
        let judged = Arc::clone(&judged);
        builder.judge(move |_| {
            judged.fetch_add(1, Ordering::Relaxed);
            Lesson::Success
        })
    };
    for (builder, expected) in [
        (aimd(2), 0),
        (count(aimd(2)), 1),
        (aimd(2).partitions([0.5], |_| Some(0)), 1),
        (count(aimd(2).partitions([0.5], |_| Some(0))), 2),
    ] {
        let layer = builder.build().unwrap();
        let slow = Slow::taking(100);
        let service = layer.layer(slow.clone());
        let sent = send(&service, request(&[])).await;
        let place = layer.handle().acquire().await.unwrap();
        assert_eq!((layer.handle().in_flight(), slow.inside()), (2, 1));
        drop((layer, service));
        pass(100).await;
        assert_eq!((sent.await.unwrap().status().as_u16(), judged.load(Ordering::Relaxed)), (200, expected));
        place.end(Lesson::Dropped);
        let (given, learnt) = (ConcurrencyLayer::new(3).unwrap().handle(), aimd(3).build().unwrap().handle());
        assert_eq!((given.limit(), given.in_flight()), (3, 0));
        assert_eq!((learnt.limit(), learnt.in_flight()), (3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn clones_and_the_users_judge_teach_one_limit() {
    let layer = aimd(3).judge(|_| Lesson::Success).build().unwrap();
    let (clone, handle) = (layer.clone(), layer.handle());
    for (layer, expected) in [(layer, 4), (clone, 5)] {
        let others = [handle.acquire().await.unwrap(), handle.acquire().await.unwrap()];
        layer.layer(Slow::taking(100)).oneshot(request(&[("answer", "503")])).await.unwrap();
        drop(others);
        assert_eq!((handle.limit(), handle.in_flight()), (expected, 0));
    }
    handle.acquire().await.unwrap().end(Lesson::Dropped);
    assert_eq!(handle.limit(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_rises_lets_in_who_waits() {
    a_rise_lets_in_who_waits(aimd(1)).await;
}

/// A limit of one becomes two.
async fn a_rise_lets_in_who_waits(builder: AdaptiveBuilder) {
    let layer = builder.queue(Queue::new(10, Duration::from_secs(10))).build().unwrap();
    let (handle, slow) = (layer.handle(), Slow::taking(100));
    let service = layer.layer(slow.clone());
    let mut sent = Vec::new();
    for headers in [&[][..], &[], LIVE, &[]] {
        sent.push(send(&service, request(headers)).await);
    }
    assert_eq!((handle.in_flight(), handle.waiting()), (1, 3));
    pass(100).await;
    assert_eq!((handle.limit(), handle.in_flight(), handle.waiting(), slow.inside()), (2, 2, 1, 2));
    for task in sent {
        assert_eq!(task.await.unwrap().status(), 200);
    }
    assert_eq!((handle.in_flight(), handle.waiting()), (0, 0));
}

/// The head of a response teaches. Its body is unread, so that no place comes back: who waits gets the one that is new.
#[tokio::test(start_paused = true)]
async fn a_rise_before_any_place_is_free_lets_in_who_waits() {
    for builder in [aimd(1), aimd(1).partitions([0.5], |_| Some(0))] {
        let layer = builder.queue(Queue::new(10, Duration::from_secs(10))).build().unwrap();
        let handle = layer.handle();
        let first = tokio::spawn(layer.layer(Slow::taking(100)).oneshot(request(&[])));
        settle().await;
        let waiting = tokio::spawn({
            let handle = handle.clone();
            async move { handle.acquire().await }
        });
        settle().await;
        assert_eq!((handle.in_flight(), handle.waiting()), (1, 1));
        pass(100).await;
        let unread = first.await.unwrap().unwrap();
        settle().await;
        assert_eq!((handle.limit(), handle.in_flight(), handle.waiting()), (2, 2, 0));
        drop(unread);
        assert_eq!((handle.limit(), handle.in_flight()), (2, 1));
        drop(waiting.await.unwrap());
        assert_eq!(handle.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_falls_lets_nobody_in_until_there_is_room() {
    let layer = aimd(4).build().unwrap();
    let (handle, service) = (layer.handle(), layer.layer(Slow::taking(100)));
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(send(&service, request(&[])).await);
    }
    handle.acquire().await.unwrap_err();
    sent.remove(0).abort();
    settle().await;
    handle.acquire().await.unwrap().end(Lesson::Dropped);
    assert_eq!((handle.limit(), handle.in_flight()), (2, 3));
    let refused = service.clone().oneshot(request(&[])).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    assert_eq!(refused.extensions().get::<Refusal>().unwrap().reason(), Reason::Busy);
    sent.remove(0).abort();
    sent.remove(0).abort();
    settle().await;
    assert_eq!(handle.in_flight(), 1);
    let mut next = send(&service, request(&[])).await;
    assert_eq!((status(&mut next).await, handle.in_flight()), (None, 2));
}

#[tokio::test(start_paused = true)]
async fn windows_make_one_sample_of_many() {
    let window = WindowConfig { length: Duration::from_secs(1), samples_min: 3, ..WindowConfig::default() };
    let layer = aimd(1).window(window).build().unwrap();
    let (handle, service) = (layer.handle(), layer.layer(Slow::taking(300)));
    for (sent, expected) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2)] {
        service.clone().oneshot(request(&[])).await.unwrap();
        // The first begins the window at 300 ms; the fifth ends at 1,500 ms, after a second of it.
        assert_eq!(handle.limit(), expected, "after {sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn shares_are_guaranteed_and_the_total_holds() {
    let layer = aimd(4)
        .judge(|_| Lesson::Ignored)
        .partitions([0.5], |head| head.headers().get("live").map(|_| 0))
        .build()
        .unwrap();
    let (handle, slow) = (layer.handle(), Slow::taking(100));
    let service = layer.layer(slow.clone());
    for _ in 0..4 {
        send(&service, request(&[])).await;
    }
    let live = [("live", "1")];
    assert_eq!(service.clone().oneshot(request(&live)).await.unwrap().status(), 503, "all is in use");
    pass(100).await;
    // What has become free is kept for who was refused below its guarantee: two of four.
    let mut batch = Vec::new();
    for _ in 0..4 {
        batch.push(send(&service, request(&[])).await);
    }
    let mut admitted = 0;
    for task in &mut batch {
        admitted += usize::from(status(task).await.is_none());
    }
    assert_eq!(admitted, 2);
    let (mut first, mut second) = (send(&service, request(&live)).await, send(&service, request(&live)).await);
    assert_eq!((status(&mut first).await, status(&mut second).await), (None, None));
    assert_eq!((handle.in_flight(), slow.most()), (4, 4));
    pass(100).await;
    assert_eq!(handle.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_learns_in_the_shadow_and_not_when_it_is_off() {
    let layer = aimd(1).mode(Mode::Shadow).build().unwrap();
    let (handle, slow) = (layer.handle(), Slow::taking(100));
    let service = layer.layer(slow.clone());
    for _ in 0..3 {
        send(&service, request(&[])).await;
    }
    assert_eq!((slow.inside(), handle.switch().would_refuse()), (3, 2));
    pass(100).await;
    assert_eq!((handle.limit(), handle.in_flight()), (4, 0));
    handle.switch().set_mode(Mode::Off);
    service.oneshot(request(&[("answer", "503")])).await.unwrap();
    assert_eq!(handle.limit(), 4);
}

#[tokio::test(start_paused = true)]
async fn in_the_shadow_who_finds_no_place_of_its_partition_teaches_and_is_judged() {
    let judged = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&judged);
    let judge = move |_: Ended<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
        Lesson::Success
    };
    let layer = aimd(1).partitions([0.5], |_| Some(0)).judge(judge).mode(Mode::Shadow).build().unwrap();
    let (handle, service) = (layer.handle(), layer.layer(Slow::taking(100)));
    for _ in 0..3 {
        send(&service, request(&[])).await;
    }
    assert_eq!((handle.in_flight(), handle.switch().would_refuse()), (1, 2));
    pass(100).await;
    assert_eq!((handle.limit(), handle.in_flight(), judged.load(Ordering::Relaxed)), (4, 0, 3));
}

#[test]
fn bad_configurations_are_refused() {
    for (built, expected) in [
        (
            aimd(1).partitions([0.5, 0.6], |_| None).build(),
            "shares: the sum is 1.1; use shares with a sum of at most 1",
        ),
        (
            aimd(1).partitions([], |_| None).build(),
            "partitions: it has no effect without shares; give a share for each, or leave it out",
        ),
        (aimd(1).partitions([1.5], |_| None).build(), "share: 1.5 is out of range; use 0.000001 to 1"),
        (
            aimd(1).partitions([0.5], |_| None).queue(Queue::new(0, Duration::from_secs(1))).build(),
            "queue depth: 0 is out of range; use 1 to 1048576",
        ),
        (
            aimd(1).window(WindowConfig { samples_min: 0, ..WindowConfig::default() }).build(),
            "samples_min: 0 is too small; use at least 1",
        ),
    ] {
        assert_eq!(built.unwrap_err().to_string(), expected);
    }
}

/// Half of the places are guaranteed to live traffic; batch traffic has none.
fn divided(initial: u64, depth: usize, wait: Duration) -> AdaptiveLayer {
    let builder = aimd(initial).judge(|_| Lesson::Ignored).queue(Queue::new(depth, wait));
    builder.partitions([0.5], |head| head.headers().get("live").map(|_| 0)).build().unwrap()
}

const LIVE: &[(&str, &str)] = &[("live", "1")];

#[tokio::test(start_paused = true)]
async fn who_is_below_its_guarantee_is_served_first_and_then_who_came_first() {
    let layer = divided(4, 10, Duration::from_secs(10));
    let (handle, slow) = (layer.handle(), Slow::taking(100));
    let service = layer.layer(slow.clone());
    let mut places = Vec::new();
    for _ in 0..4 {
        places.push(handle.acquire().await.unwrap());
    }
    let mut sent = Vec::new();
    for headers in [&[][..], &[], LIVE, LIVE, LIVE, &[]] {
        sent.push(send(&service, request(headers)).await);
        pass(1).await;
    }
    assert_eq!((handle.in_flight(), handle.waiting(), handle.queue_delay()), (4, 6, Duration::from_millis(6)));
    // Of six who wait, two of the live ones come first, then the batch that came first.
    for served in 1..=3 {
        drop(places.pop());
        settle().await;
        assert_eq!((handle.in_flight(), slow.inside()), (4, served));
    }
    pass(100).await;
    for (number, is_done) in [(2, true), (3, true), (0, true), (1, false), (4, false), (5, false)] {
        assert_eq!(sent[number].is_finished(), is_done, "{number}");
    }
    drop(places);
    for task in sent {
        assert_eq!(task.await.unwrap().status(), 200);
    }
    assert_eq!((handle.in_flight(), handle.waiting(), slow.most()), (0, 0, 3));
}

/// What is free lies idle for nobody: who waited below its guarantee and left has no claim.
#[tokio::test(start_paused = true)]
async fn a_line_that_was_left_keeps_nothing() {
    let layer = divided(2, 1, Duration::from_millis(50));
    let (handle, service) = (layer.handle(), layer.layer(Slow::taking(1000)));
    let places = [handle.acquire().await.unwrap(), handle.acquire().await.unwrap()];
    let mut live = send(&service, request(LIVE)).await;
    let full = service.clone().oneshot(request(LIVE)).await.unwrap();
    assert_eq!(full.extensions().get::<Refusal>().unwrap().reason(), Reason::QueueFull);
    let mut batch = send(&service, request(&[])).await;
    assert_eq!(handle.waiting(), 2, "each has a line of its own");
    batch.abort();
    pass(50).await;
    assert_eq!((status(&mut live).await, handle.waiting()), (Some(503), 0));
    let [first, second] = places;
    drop(first);
    batch = send(&service, request(&[])).await;
    assert_eq!((status(&mut batch).await, handle.in_flight()), (None, 2));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_divided_limit_that_rises_lets_in_who_waits() {
    a_rise_lets_in_who_waits(aimd(1).partitions([0.5], |head| head.headers().get("live").map(|_| 0))).await;
}
