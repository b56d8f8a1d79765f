//! The queue before a limit: its order, its bounds, and those who leave it.

use std::time::Duration;

use http::Response;
use tidegate_core::shed::CoDelConfig;
use tidegate_tower::{
    ConcurrencyHandle, ConcurrencyLayer, GuardedUnseen, KeyedConcurrencyLayer, Queue, Reason, Refusal,
};
use tokio::task::JoinHandle;
use tower::Layer;

use crate::support::{Slow, pass, request, send, settle, status};

type Service = GuardedUnseen<Slow, ConcurrencyLayer>;

/// One place, each request takes 100 ms.
fn one_place(queue: Queue) -> (Service, ConcurrencyHandle, Slow) {
    let (slow, layer) = (Slow::taking(100), ConcurrencyLayer::builder(1).queue(queue).build().unwrap());
    (layer.layer(slow.clone()), layer.handle(), slow)
}

async fn send_several(service: &Service, count: usize) -> Vec<JoinHandle<Response<String>>> {
    let mut sent = Vec::new();
    for _ in 0..count {
        sent.push(send(service, request(&[])).await);
    }
    sent
}

/// Which of them have ended.
fn done(sent: &[JoinHandle<Response<String>>]) -> Vec<usize> {
    sent.iter().enumerate().filter(|(_, task)| task.is_finished()).map(|(place, _)| place).collect()
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served() {
    let (service, handle, slow) = one_place(Queue::new(3, Duration::from_secs(1)));
    let mut sent = send_several(&service, 5).await;
    assert_eq!(handle.waiting(), 3);
    let full = sent.pop().unwrap().await.unwrap();
    assert_eq!((full.status().as_u16(), &full.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(full.extensions().get::<Refusal>().unwrap().reason(), Reason::QueueFull);
    for finished in 1..=4 {
        pass(100).await;
        assert_eq!(done(&sent), (0..finished).collect::<Vec<_>>());
    }
    assert_eq!((handle.waiting(), handle.in_flight(), slow.most(), slow.served()), (0, 0, 1, 4));
}

#[tokio::test(start_paused = true)]
async fn who_waits_beyond_the_deadline_is_refused() {
    let (service, handle, slow) = one_place(Queue::new(9, Duration::from_millis(150)));
    let sent = send_several(&service, 4).await;
    pass(100).await;
    pass(50).await;
    assert_eq!((done(&sent), handle.waiting()), (vec![0, 2, 3], 0));
    let mut answers = Vec::new();
    for task in sent {
        let response = task.await.unwrap();
        answers.push((response.status().as_u16(), response.extensions().get::<Refusal>().map(Refusal::reason)));
    }
    let late = (503, Some(Reason::WaitedTooLong));
    assert_eq!(answers, [(200, None), (200, None), late, late]);
    assert_eq!((handle.in_flight(), slow.served()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_the_queue() {
    let (service, handle, slow) = one_place(Queue::new(2, Duration::from_secs(1)));
    let sent = send_several(&service, 3).await;
    sent[1].abort();
    settle().await;
    assert_eq!(handle.waiting(), 1);
    let last = send(&service, request(&[])).await;
    assert_eq!(handle.waiting(), 2, "there is room for another");
    pass(100).await;
    pass(100).await;
    assert!(sent[2].is_finished() && !last.is_finished());
    assert_eq!(last.await.unwrap().status(), 200);
    assert_eq!((handle.in_flight(), slow.served()), (0, 3));
}

/// The first in line is given the permit and its caller goes away before it has been polled again: the next gets it.
#[tokio::test(start_paused = true)]
async fn a_permit_that_nobody_takes_goes_to_the_next() {
    let (service, handle, slow) = one_place(Queue::new(9, Duration::from_secs(10)));
    let held = handle.acquire().await.unwrap();
    let sent = send_several(&service, 2).await;
    drop(held);
    // Both happen before any other task runs.
    sent[0].abort();
    settle().await;
    assert_eq!((slow.inside(), handle.waiting(), handle.in_flight()), (1, 0, 1));
    pass(100).await;
    assert!(sent[1].is_finished());
    assert_eq!((handle.in_flight(), slow.served()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn all_who_leave_let_the_next_in_at_once() {
    let (service, handle, _) = one_place(Queue::new(9, Duration::from_secs(10)));
    let sent = send_several(&service, 4).await;
    sent.iter().for_each(JoinHandle::abort);
    settle().await;
    assert_eq!((handle.waiting(), handle.in_flight()), (0, 0));
    let mut next = send(&service, request(&[])).await;
    pass(100).await;
    assert_eq!(status(&mut next).await, Some(200));
}

/// CoDel with a target of 10 ms and an interval of 250 ms: each of ten takes 100 ms, so the queue stands.
fn codel() -> CoDelConfig {
    CoDelConfig { interval: Duration::from_millis(250), target: Duration::from_millis(10) }
}

#[tokio::test(start_paused = true)]
async fn a_standing_queue_is_shed() {
    let (service, handle, _) = one_place(Queue::new(20, Duration::from_secs(60)).codel(codel()));
    let sent = send_several(&service, 10).await;
    // Served at 100, 200 and 300 ms; from 350 ms on the queue is known to stand. At 400 ms the first of the interval
    // passes, and at 500 ms all who are left have waited for more than 20 ms.
    for _ in 0..4 {
        pass(100).await;
    }
    assert_eq!(done(&sent), [0, 1, 2, 3]);
    pass(100).await;
    assert_eq!((done(&sent).len(), handle.waiting(), handle.in_flight()), (10, 0, 0));
    let mut standing = 0;
    for task in sent {
        let response = task.await.unwrap();
        standing +=
            usize::from(response.extensions().get::<Refusal>().map(Refusal::reason) == Some(Reason::QueueStands));
    }
    assert_eq!(standing, 5);
    let mut next = send(&service, request(&[])).await;
    pass(100).await;
    assert_eq!(status(&mut next).await, Some(200), "who comes to an empty queue is served");
}

#[tokio::test(start_paused = true)]
async fn while_it_stands_the_last_is_served_first() {
    let (service, handle, _) = one_place(Queue::new(20, Duration::from_secs(60)).adaptive_lifo(codel()));
    let mut sent = send_several(&service, 8).await;
    for _ in 0..4 {
        pass(100).await;
    }
    assert_eq!(done(&sent), [0, 1, 2, 3], "in their order until it is known that it stands");
    sent.extend(send_several(&service, 2).await);
    // At 400 ms the last in line went in, and from now on those who came after it are before the rest.
    pass(100).await;
    pass(100).await;
    assert_eq!(done(&sent), [0, 1, 2, 3, 7, 9]);
    pass(100).await;
    assert_eq!(done(&sent), [0, 1, 2, 3, 7, 8, 9]);
    assert_eq!(handle.queue_delay(), Duration::from_millis(700));
    for _ in 0..3 {
        pass(100).await;
    }
    assert_eq!((done(&sent).len(), handle.waiting()), (10, 0), "nobody is refused by the order alone");
}

/// A queue that stood, and that everybody left, says nothing of one an hour later.
#[tokio::test(start_paused = true)]
async fn a_queue_that_was_left_is_forgotten() {
    let (service, handle, _) = one_place(Queue::new(20, Duration::from_secs(60)).codel(codel()).adaptive_lifo(codel()));
    let sent = send_several(&service, 8).await;
    for _ in 0..3 {
        pass(100).await;
    }
    // Those who wait first, so that nobody is served on the way.
    sent.iter().rev().for_each(JoinHandle::abort);
    settle().await;
    assert_eq!((handle.waiting(), handle.in_flight()), (0, 0));
    pass(3_600_000).await;
    let burst = send_several(&service, 4).await;
    for finished in 1..=4 {
        pass(100).await;
        assert_eq!(done(&burst), (0..finished).collect::<Vec<_>>(), "in their order");
    }
    for task in burst {
        assert_eq!(task.await.unwrap().status(), 200);
    }
}

/// Each key has a line of its own: its requests wait for each other, and those of another key for none of them.
#[tokio::test(start_paused = true)]
async fn each_key_has_a_line_of_its_own() {
    let queue = Queue::new(2, Duration::from_millis(250));
    let layer = KeyedConcurrencyLayer::builder(1, |head| head.header("client")).queue(queue).too_many_requests();
    let (layer, slow) = (layer.build().unwrap(), Slow::taking(100));
    let (handle, service) = (layer.handle(), layer.layer(slow.clone()));
    let ann = tidegate_core::Key::new("ann").unwrap();
    let mut sent = Vec::new();
    for client in ["ann", "ann", "ann", "ann", "bob", "bob"] {
        sent.push(send(&service, request(&[("client", client)])).await);
    }
    let mut nameless = [send(&service, request(&[])).await, send(&service, request(&[])).await];
    assert_eq!((slow.inside(), handle.waiting(), handle.in_flight(ann)), (3, 4, 1));
    assert_eq!(done(&sent), [3], "the line of ann is full");
    sent[1].abort();
    settle().await;
    assert_eq!(handle.waiting(), 3);
    sent.push(send(&service, request(&[("client", "ann")])).await);
    pass(100).await;
    assert_eq!((done(&sent), slow.inside()), (vec![0, 1, 3, 4], 3));
    pass(100).await;
    assert_eq!(done(&sent), [0, 1, 2, 3, 4, 5]);
    assert_eq!((status(&mut nameless[0]).await, status(&mut nameless[1]).await), (Some(200), Some(200)));
    pass(100).await;
    for (task, expected) in [(sent.remove(6), 200), (sent.remove(3), 429), (sent.remove(0), 200)] {
        assert_eq!(task.await.unwrap().status().as_u16(), expected);
    }
    assert_eq!((handle.in_flight(ann), handle.waiting(), slow.inside()), (0, 0, 0));

    let held = handle.try_acquire(ann).unwrap();
    assert_eq!(handle.try_acquire(ann).unwrap_err().reason(), Reason::ClientBusy);
    let late = send(&service, request(&[("client", "ann")])).await.await.unwrap();
    assert_eq!(late.extensions().get::<Refusal>().unwrap().reason(), Reason::WaitedTooLong);
    drop(held);
    assert_eq!((late.status().as_u16(), handle.in_flight(ann), handle.waiting()), (429, 0, 0));
}

/// Keys come and go in a table with room for three.
#[tokio::test(start_paused = true)]
async fn keys_with_nobody_in_take_no_room() {
    let layer = KeyedConcurrencyLayer::builder(1, |head| head.header("client")).keys(3);
    let layer = layer.queue(Queue::new(2, Duration::from_secs(1))).build().unwrap();
    let service = layer.layer(Slow::taking(100));
    for round in 0..5 {
        let mut sent = Vec::new();
        for client in 0..4 {
            let name = format!("{round}-{client}");
            sent.push(send(&service, request(&[("client", &name)])).await);
            sent.push(send(&service, request(&[("client", &name)])).await);
        }
        // Two go away, one that is in and one that waits.
        sent[0].abort();
        sent[3].abort();
        settle().await;
        for (place, task) in sent.into_iter().enumerate() {
            let answer = task.await.map(|response| response.status().as_u16()).ok();
            let expected = match place {
                0 | 3 => None,
                6 | 7 => Some(503),
                _ => Some(200),
            };
            assert_eq!(answer, expected, "{round}, {place}");
        }
    }
}
