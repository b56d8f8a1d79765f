//! Shedders behind layers: for services, and for clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::shed::{ClientThrottleConfig, Criticality, Mode, QueueRejectionConfig, WorkerShedderConfig};
use tidegate_tower::{
    Backlog, Ended, Head, Measure, Reason, Refusal, ShedBuilder, ShedLayer, ThrottleLayer, Throttled,
};
use tower::{Layer, ServiceExt};

use crate::support::{Slow, pass, request, send, settle};

/// The header `class` tells it.
pub(crate) fn class(head: Head<'_>) -> Criticality {
    let name = head.headers().get("class").map_or(&b"get"[..], |class| class.as_bytes());
    let found = Criticality::ALL.into_iter().find(|class| class.name().as_bytes() == name);
    found.unwrap_or(Criticality::Get)
}

fn fleet() -> ShedBuilder {
    ShedLayer::fleet(5, 0.4).class(class).retry_after(Duration::from_secs(7))
}

#[tokio::test(start_paused = true)]
async fn the_fleet_keeps_a_share_for_critical_requests() {
    let (slow, layer) = (Slow::taking(100), fleet().build().unwrap());
    let (service, handle) = (layer.layer(slow.clone()), layer.handle());
    for _ in 0..3 {
        send(&service, request(&[("class", "post")])).await;
    }
    let shed = service.clone().oneshot(request(&[("class", "post")])).await.unwrap();
    assert_eq!((shed.status().as_u16(), &shed.headers()["retry-after"]), (503, &"7".parse().unwrap()));
    assert_eq!(shed.extensions().get::<Refusal>().unwrap().reason(), Reason::Shed(Criticality::Post));
    for _ in 0..4 {
        send(&service, request(&[("class", "critical")])).await;
    }
    assert_eq!((slow.inside(), handle.in_flight(), handle.shed(Criticality::Post)), (7, 7, 1));
    pass(100).await;
    assert_eq!(handle.in_flight(), 0);
    let passing = send(&service, request(&[("class", "test")])).await;
    passing.abort();
    settle().await;
    assert_eq!(handle.in_flight(), 0, "who goes away is not in progress");
    handle.set_capacity(1);
    let shed = service.oneshot(request(&[("class", "post")])).await.unwrap();
    assert_eq!(shed.status(), 503, "of one, nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_shedder_is_watched_before_it_acts() {
    let (slow, layer) = (Slow::taking(100), fleet().mode(Mode::Shadow).build().unwrap());
    let (service, handle) = (layer.layer(slow.clone()), layer.handle());
    for _ in 0..5 {
        send(&service, request(&[])).await;
    }
    assert_eq!((slow.inside(), handle.switch().would_refuse(), handle.switch().refused()), (5, 2, 0));
    assert_eq!(handle.shed(Criticality::Get), 2);
    pass(100).await;
    handle.switch().set_mode(Mode::Enforce);
    for _ in 0..5 {
        send(&service, request(&[])).await;
    }
    assert_eq!((slow.inside(), handle.switch().refused()), (3, 2), "what passed in the shadow took nothing along");
    handle.switch().set_mode(Mode::Off);
    for _ in 0..5 {
        send(&service, request(&[])).await;
    }
    assert_eq!((slow.inside(), handle.switch().refused()), (8, 2));
}

/// From twice the limit on test requests go, and at three times all.
#[tokio::test(start_paused = true)]
async fn a_queue_that_grows_gives_up_the_lowest_first() {
    let told = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&told);
    let backlog = move || Backlog { waiting: seen.load(Ordering::Relaxed), limit: 100 };
    let layer = ShedLayer::queue(QueueRejectionConfig::default(), backlog).class(class).build().unwrap();
    let (service, handle) = (layer.layer(Slow::taking(0)), layer.handle());
    for (waiting, passing) in [(0, 4), (200, 4), (225, 3), (250, 2), (275, 1), (300, 0), (u64::MAX, 0)] {
        told.store(waiting, Ordering::Relaxed);
        for (place, class) in Criticality::ALL.into_iter().enumerate() {
            let response = service.clone().oneshot(request(&[("class", class.name())])).await.unwrap();
            let expected = if place >= Criticality::ALL.len() - passing { 200 } else { 503 };
            assert_eq!(response.status(), expected, "{waiting} wait, {class:?}");
        }
    }
    assert_eq!((handle.shed(Criticality::Test), handle.shed(Criticality::Critical), handle.in_flight()), (5, 2, 0));
    assert_eq!((handle.level(), handle.room()), (None, None));
    let upside_down = QueueRejectionConfig { start: 3.0, full: 2.0 };
    let refused = ShedLayer::queue(upside_down, || Backlog { waiting: 0, limit: 1 }).build().unwrap_err();
    assert_eq!(refused.to_string(), "start: 3 is not below full, 2; use a smaller start, or a larger full");
}

/// Each measure: what it is told to be at, and the level after two ramps.
#[tokio::test(start_paused = true)]
async fn the_worker_goes_by_what_it_is_told() {
    for (percent, expected) in [(100, 2.0), (90, 1.0), (75, 0.0), (10, 0.0)] {
        let told = Arc::new(AtomicU64::new(percent));
        let again = Arc::clone(&told);
        for measure in [
            Measure::utilisation(move || told.load(Ordering::Relaxed) as f64 / 100.0),
            Measure::queue_delay(
                move || Duration::from_millis(again.load(Ordering::Relaxed)),
                Duration::from_millis(100),
            ),
        ] {
            let layer =
                ShedLayer::worker(WorkerShedderConfig::default(), measure).class(class).seed(1).build().unwrap();
            let service = layer.layer(Slow::taking(0));
            for _ in 0..=240 {
                service.clone().oneshot(request(&[("class", "critical")])).await.unwrap();
                pass(1000).await;
            }
            let level = layer.handle().level().unwrap();
            assert!((level - expected).abs() < 0.02, "{percent} %: {level} is not {expected}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_refused_holds_back() {
    let layer = ThrottleLayer::builder(ClientThrottleConfig::default()).seed(1).build().unwrap();
    let slow = Slow::taking(1);
    let client = layer.layer(slow.clone());
    let mut held_back = 0;
    for _ in 0..1000 {
        let answer = client.clone().oneshot(request(&[("answer", "503")])).await;
        held_back += u64::from(matches!(answer, Err(Throttled::HeldBack)));
    }
    assert_eq!((slow.served(), layer.switch().refused()), (1000 - held_back, held_back));
    assert!(held_back > 980, "{held_back}");
    assert!(layer.probability() > 0.99);
    layer.switch().set_mode(Mode::Shadow);
    for _ in 0..1000 {
        assert!(client.clone().oneshot(request(&[])).await.is_ok());
    }
    assert!(layer.switch().would_refuse() > 0);
    assert_eq!(layer.probability(), 0.0, "it has heard of those that were accepted");
    layer.switch().set_mode(Mode::Enforce);
    assert!(client.oneshot(request(&[("answer", "500")])).await.is_ok(), "an error of the server is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_off_is_not_asked_what_was_accepted() {
    let never = |_: Ended<'_>| panic!("it is off");
    let layer =
        ThrottleLayer::builder(ClientThrottleConfig::default()).accepted(never).mode(Mode::Off).build().unwrap();
    let client = layer.layer(Slow::taking(1));
    assert!(client.oneshot(request(&[("answer", "503")])).await.is_ok());
    assert_eq!(layer.probability(), 0.0, "it counts nothing");
}

#[test]
fn bad_configurations_are_refused() {
    let worker = |config, measure| ShedLayer::worker(config, measure).build();
    let config = WorkerShedderConfig::default();
    for (built, expected) in [
        (ShedLayer::fleet(0, 0.2).build(), "capacity: 0 is out of range; use 1 to 4294967295"),
        (ShedLayer::fleet(10, 1.2).build(), "reserved: 1.2 is out of range; use 0 to 1"),
        (worker(config, Measure::Busy { workers: 0 }), "workers: 0 is out of range; use 1 to 4294967295"),
        (
            worker(config, Measure::queue_delay(|| Duration::ZERO, Duration::ZERO)),
            "acceptable: 0ns is out of range; use more than 0 s and at most 3600s",
        ),
        (
            worker(WorkerShedderConfig { low: 0.9, ..config }, Measure::Busy { workers: 1 }),
            "low: 0.9 is not below high, 0.8; use a smaller low, or a larger high",
        ),
    ] {
        assert_eq!(built.unwrap_err().to_string(), expected);
    }
}
