//! How many at once, for all or for each key.

use std::time::Duration;

use tidegate_core::Key;
use tidegate_core::shed::{CoDelConfig, Mode};
use tidegate_tower::{ConcurrencyLayer, FairLayer, KeyedConcurrencyLayer, MissingKey, Queue, Reason, Refusal, Tenant};
use tower::{Layer, ServiceExt};

use crate::support::{Slow, pass, read, request, send, settle, status};

#[tokio::test(start_paused = true)]
async fn more_than_the_limit_are_refused_with_503() {
    let (slow, layer) = (Slow::taking(100), ConcurrencyLayer::new(2).unwrap());
    let service = layer.layer(slow.clone());
    let first = send(&service, request(&[])).await;
    let second = send(&service, request(&[])).await;
    let third = service.clone().oneshot(request(&[])).await.unwrap();
    assert_eq!((third.status().as_u16(), &third.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(third.extensions().get::<Refusal>().unwrap().reason(), Reason::Busy);
    assert_eq!(
        (first.await.unwrap().status(), second.await.unwrap().status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    assert_eq!(read(service.oneshot(request(&[])).await.unwrap()).await.body(), "done");
    assert_eq!((slow.most(), slow.served(), layer.handle().switch().refused()), (2, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn grpc_hears_unavailable() {
    let service = ConcurrencyLayer::new(1).unwrap().layer(Slow::taking(100));
    let _first = send(&service, request(&[])).await;
    let refused = service.oneshot(request(&[("content-type", "application/grpc+proto")])).await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["grpc-status"]), (200, &"14".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_frees_its_place() {
    let (slow, layer) = (Slow::taking(100), ConcurrencyLayer::new(1).unwrap());
    let service = layer.layer(slow.clone());
    let first = send(&service, request(&[])).await;
    assert_eq!((slow.inside(), layer.handle().in_flight()), (1, 1));
    first.abort();
    settle().await;
    assert_eq!((slow.inside(), layer.handle().in_flight()), (0, 0));
    assert_eq!(service.oneshot(request(&[])).await.unwrap().status(), 200);
}

fn keyed(limit: u64) -> tidegate_tower::KeyedConcurrencyBuilder {
    KeyedConcurrencyLayer::builder(limit, |head| head.header("client"))
}

#[tokio::test(start_paused = true)]
async fn each_client_has_its_own_limit() {
    for (layer, expected, grpc) in [(keyed(1).build(), 503, "14"), (keyed(1).too_many_requests().build(), 429, "8")] {
        let layer = layer.unwrap();
        let service = layer.layer(Slow::taking(100));
        let ann = send(&service, request(&[("client", "ann")])).await;
        let bob = send(&service, request(&[("client", "bob")])).await;
        assert_eq!(layer.handle().in_flight(Key::new("ann").unwrap()), 1);
        let refused = service.clone().oneshot(request(&[("client", "ann")])).await.unwrap();
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (expected, &"1".parse().unwrap()));
        let call = [("client", "ann"), ("content-type", "application/grpc")];
        let refused = service.clone().oneshot(request(&call)).await.unwrap();
        assert_eq!(refused.headers()["grpc-status"], grpc);
        assert_eq!(
            (ann.await.unwrap().status(), bob.await.unwrap().status()),
            (200.try_into().unwrap(), 200.try_into().unwrap())
        );
        assert_eq!(layer.handle().in_flight(Key::new("ann").unwrap()), 0);
        assert_eq!(service.oneshot(request(&[("client", "ann")])).await.unwrap().status(), 200);
    }
}

/// A table that is full is no fault of the client that finds no place in it.
#[tokio::test(start_paused = true)]
async fn only_who_is_above_its_own_limit_hears_429() {
    let service = keyed(1).keys(1).too_many_requests().build().unwrap().layer(Slow::taking(100));
    let mut sent = Vec::new();
    for client in 0..100 {
        sent.push(send(&service, request(&[("client", &client.to_string())])).await);
    }
    let again = service.clone().oneshot(request(&[("client", "0")])).await.unwrap();
    let nameless = [send(&service, request(&[])).await, send(&service, request(&[])).await];
    let mut counts = std::collections::BTreeMap::new();
    for task in sent {
        *counts.entry(task.await.unwrap().status().as_u16()).or_insert(0) += 1;
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [200, 503], "{counts:?}");
    assert_eq!(again.status(), 429);
    let [first, second] = nameless;
    assert_eq!((first.await.unwrap().status().as_u16(), second.await.unwrap().status().as_u16()), (200, 429));
}

/// Three requests at once of callers without a name: what each is answered.
#[tokio::test(start_paused = true)]
async fn those_without_a_key_share_one_or_pass_or_are_refused() {
    for (missing, expected) in
        [(MissingKey::Share, [200, 503, 503]), (MissingKey::Skip, [200, 200, 200]), (MissingKey::Deny, [400, 400, 400])]
    {
        let service = keyed(1).missing_key(missing).build().unwrap().layer(Slow::taking(100));
        let _named = send(&service, request(&[("client", "-")])).await;
        let mut sent = Vec::new();
        for headers in [&[][..], &[("client", "")], &[]] {
            sent.push(send(&service, request(headers)).await);
        }
        for (task, expected) in sent.into_iter().zip(expected) {
            assert_eq!(task.await.unwrap().status().as_u16(), expected, "{missing:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_switched_off_and_watched() {
    let queue = Queue::new(10, Duration::from_secs(1));
    let (slow, layer) =
        (Slow::taking(100), ConcurrencyLayer::builder(1).queue(queue).mode(Mode::Shadow).build().unwrap());
    let (service, handle) = (layer.layer(slow.clone()), layer.handle());
    for _ in 0..3 {
        send(&service, request(&[])).await;
    }
    assert_eq!((slow.inside(), handle.in_flight()), (3, 3), "nobody waits in the shadow");
    assert_eq!((handle.switch().refused(), handle.switch().would_refuse()), (0, 2));
    handle.switch().set_mode(Mode::Enforce);
    let mut waits = send(&service, request(&[])).await;
    assert_eq!((status(&mut waits).await, handle.waiting()), (None, 1));
    handle.switch().set_mode(Mode::Off);
    send(&service, request(&[])).await;
    assert_eq!((slow.inside(), handle.in_flight()), (4, 3), "it is not even counted");
    pass(100).await;
    assert_eq!((slow.inside(), handle.waiting()), (1, 0), "who waited is in");
    assert_eq!(waits.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn permits_are_guards_without_a_service_too() {
    let layer = ConcurrencyLayer::builder(1).queue(Queue::new(1, Duration::from_millis(50))).build().unwrap();
    let handle = layer.handle();
    let permit = handle.acquire().await.unwrap();
    assert_eq!(handle.acquire().await.unwrap_err().reason(), Reason::WaitedTooLong);
    assert!(handle.try_acquire().is_err());
    drop(permit);
    assert!(handle.acquire().await.is_ok());
    assert_eq!(handle.in_flight(), 0);
}

#[test]
fn a_permit_that_outlives_its_layer_is_nobody_elses() {
    let layer = |limit| ConcurrencyLayer::new(limit).unwrap().handle();
    let gone = layer(2);
    let (first, second) = (gone.try_acquire().unwrap(), gone.try_acquire().unwrap());
    drop(gone);
    let others: Vec<_> = (0..100).map(|_| layer(1)).collect();
    let taken: Vec<_> = others.iter().map(|other| other.try_acquire().unwrap()).collect();
    drop((first, second));
    // What those two were counted in is now used again.
    let later: Vec<_> = (0..100).map(|_| layer(3)).collect();
    let taken_later: Vec<_> = later.iter().map(|one| one.try_acquire().unwrap()).collect();
    assert!(others.iter().all(|one| (one.limit(), one.in_flight()) == (1, 1)));
    assert!(later.iter().all(|one| (one.limit(), one.in_flight()) == (3, 1)), "no two of them are one");
    drop((taken, taken_later));
    assert!(others.iter().chain(&later).all(|one| one.in_flight() == 0));
}

#[test]
fn layers_come_and_go_while_permits_of_others_are_given_back() {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                for round in 0..5_000 {
                    let handle = ConcurrencyLayer::new(2).unwrap().handle();
                    assert_eq!(handle.in_flight(), 0, "a new layer has nobody in");
                    held.push_back(handle.try_acquire().unwrap());
                    let other = handle.try_acquire().unwrap();
                    assert!(handle.try_acquire().is_err());
                    if (round + thread) % 3 == 0 {
                        held.push_back(other);
                    }
                    drop(handle);
                    while held.len() > 5 {
                        held.pop_front();
                    }
                }
            });
        }
    });
}

/// Whether it counts requests or has tenants take turns: who chose too long a key hears how long it may be.
#[tokio::test(start_paused = true)]
async fn too_long_a_key_is_called_so() {
    let long = "x".repeat(5000);
    let layer = keyed(1).missing_key(MissingKey::Skip).build().unwrap();
    let fair = FairLayer::builder(1, |head| Some(Tenant::new(head.header("client")?))).missing_key(MissingKey::Skip);
    let fair = fair.build().unwrap().layer(Slow::default());
    let refused = [
        read(layer.layer(Slow::default()).oneshot(request(&[("client", &long)])).await.unwrap()).await,
        read(fair.oneshot(request(&[("client", &long)])).await.unwrap()).await,
    ];
    for refused in refused {
        let told = refused.extensions().get::<Refusal>().unwrap();
        assert_eq!((refused.status().as_u16(), told.reason()), (400, Reason::KeyTooLong { max: 4096 }));
        assert!(refused.body().contains("is too long; use at most 4096 bytes"), "{}", refused.body());
    }
}

#[test]
fn bad_configurations_are_refused() {
    let line = |depth, millis| Queue::new(depth, Duration::from_millis(millis));
    let queue = |depth, millis| ConcurrencyLayer::builder(1).queue(line(depth, millis));
    let hasty = CoDelConfig { target: Duration::from_millis(1), ..CoDelConfig::default() };
    let two_minds = Queue::new(1, Duration::from_secs(1)).codel(hasty).adaptive_lifo(CoDelConfig::default());
    for (built, expected) in [
        (ConcurrencyLayer::new(0), "limit: 0 is out of range; use 1 to 2147483647"),
        (ConcurrencyLayer::new(1 << 31), "limit: 2147483648 is out of range; use 1 to 2147483647"),
        (queue(0, 1).build(), "queue depth: 0 is out of range; use 1 to 1048576"),
        (queue(1, 0).build(), "queue deadline: 0ns is out of range; use more than 0 s and at most 3600s"),
        (
            queue(1, 1).retry_after(Duration::ZERO).build(),
            "retry_after: 0ns is out of range; use more than 0 s and at most 86400s",
        ),
        (
            ConcurrencyLayer::builder(1).queue(two_minds).build(),
            "codel: its numbers differ from those of adaptive_lifo; give both the same numbers",
        ),
    ] {
        assert_eq!(built.unwrap_err().to_string(), expected);
    }
    for (built, expected) in [
        (keyed(0).build(), "limit: 0 is out of range; use 1 to 2147483647"),
        (keyed(1 << 31).build(), "limit: 2147483648 is out of range; use 1 to 2147483647"),
        (keyed(1).keys(0).build(), "keys: 0 is too small; use at least 1"),
        (keyed(1).queue(line(0, 1)).build(), "queue depth: 0 is out of range; use 1 to 1048576"),
        (keyed(1).queue(line(1, 1)).keys(0).build(), "keys: 0 is out of range; use 1 to 4294967296"),
        (
            keyed(1).retry_after(Duration::ZERO).build(),
            "retry_after: 0ns is out of range; use more than 0 s and at most 86400s",
        ),
    ] {
        assert_eq!(built.unwrap_err().to_string(), expected);
    }
}
