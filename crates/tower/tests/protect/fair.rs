//! Turns among tenants.

use std::time::Duration;

use http::Response;
use tidegate_core::fair::FairConfig;
use tidegate_core::shed::Mode;
use tidegate_testkit::tenants::{self, PLACES};
use tidegate_tower::{ConcurrencyLayer, FairBuilder, FairLayer, MissingKey, Queue, Reason, Refusal, Tenant};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Slow, pass, request, send, settle};

fn fair(limit: u64) -> FairBuilder {
    FairLayer::builder(limit, |head| {
        let weight = head.headers().get("weight").map_or(1, |weight| weight.to_str().unwrap().parse().unwrap());
        Some(Tenant::new(head.header("tenant")?).weight(weight))
    })
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns_by_their_weight() {
    let layer = fair(1).build().unwrap();
    let (handle, service) = (layer.handle(), layer.layer(Slow::taking(100)));
    let mut sent = Vec::new();
    for (tenant, weight) in [("a", "1"); 4].into_iter().chain([("b", "2"); 3]).chain([("c", "1"); 2]) {
        sent.push((tenant, send(&service, request(&[("tenant", tenant), ("weight", weight)])).await));
    }
    assert_eq!((handle.in_flight(), handle.waiting()), (1, 8));
    let mut order = String::new();
    for _ in 0..9 {
        pass(100).await;
        let done = sent.iter().position(|(_, task)| task.is_finished()).unwrap();
        let (tenant, task) = sent.remove(done);
        assert_eq!(task.await.unwrap().status(), 200);
        order.push_str(tenant);
    }
    assert_eq!((order.as_str(), handle.in_flight(), handle.waiting()), ("aabbcabca", 0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_room_or_waits_too_long_is_refused() {
    let queue = FairConfig { depth_max: 2, ..FairConfig::default() };
    let layer = fair(1).queue(queue).deadline(Duration::from_millis(150)).build().unwrap();
    let (handle, service) = (layer.handle(), layer.layer(Slow::taking(100)));
    let mut sent = Vec::new();
    for tenant in ["a", "a", "a", "a", "b"] {
        sent.push(send(&service, request(&[("tenant", tenant)])).await);
    }
    assert_eq!(handle.waiting(), 3);
    sent[4].abort();
    settle().await;
    assert_eq!(handle.waiting(), 2, "who goes away leaves the line");
    let mut reasons = Vec::new();
    for task in sent.into_iter().take(4) {
        let response = task.await.unwrap();
        reasons.push((response.status().as_u16(), response.extensions().get::<Refusal>().map(Refusal::reason)));
    }
    let late = (503, Some(Reason::WaitedTooLong));
    assert_eq!(reasons, [(200, None), (200, None), late, (503, Some(Reason::QueueFull))]);
    assert_eq!((handle.in_flight(), handle.waiting(), handle.switch().refused()), (0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn those_without_a_tenant_are_one_or_pass_or_are_refused() {
    for (missing, waiting, answers) in
        [(MissingKey::Share, 2, [200, 200]), (MissingKey::Skip, 0, [200, 200]), (MissingKey::Deny, 0, [400, 400])]
    {
        let layer = fair(1).missing_key(missing).build().unwrap();
        let service = layer.layer(Slow::taking(100));
        let _named = send(&service, request(&[("tenant", "a")])).await;
        let sent = [send(&service, request(&[])).await, send(&service, request(&[])).await];
        assert_eq!(layer.handle().waiting(), waiting, "{missing:?}");
        for (task, expected) in sent.into_iter().zip(answers) {
            assert_eq!(task.await.unwrap().status().as_u16(), expected, "{missing:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_switched_off_and_watched() {
    let layer = fair(1).mode(Mode::Shadow).build().unwrap();
    let (handle, slow) = (layer.handle(), Slow::taking(100));
    let service = layer.layer(slow.clone());
    for _ in 0..3 {
        send(&service, request(&[("tenant", "a")])).await;
    }
    assert_eq!((slow.inside(), handle.switch().would_refuse()), (3, 2));
    handle.switch().set_mode(Mode::Off);
    send(&service, request(&[("tenant", "a")])).await;
    assert_eq!((slow.inside(), handle.in_flight()), (4, 3));
}

/// Shadow mode tells what would become of those without a tenant: who would pass uncounted takes no place.
#[tokio::test(start_paused = true)]
async fn in_shadow_those_without_a_tenant_are_judged_as_they_would_be() {
    for (missing, in_flight, would_refuse) in
        [(MissingKey::Share, 3, 2), (MissingKey::Skip, 1, 0), (MissingKey::Deny, 1, 2)]
    {
        let layer = fair(1).missing_key(missing).mode(Mode::Shadow).build().unwrap();
        let (handle, slow) = (layer.handle(), Slow::taking(100));
        let service = layer.layer(slow.clone());
        for headers in [&[("tenant", "a")][..], &[], &[]] {
            send(&service, request(headers)).await;
        }
        assert_eq!(slow.inside(), 3, "{missing:?}");
        let counted = (handle.in_flight(), handle.switch().would_refuse(), handle.switch().refused());
        assert_eq!(counted, (in_flight, would_refuse, 0), "{missing:?}");
    }
}

/// What the worst off of ten tenants gets in ten seconds, while the first asks for a hundred times its share.
async fn worst_share<S, B>(service: S) -> f64
where
    S: Service<http::Request<String>, Response = Response<B>, Error = std::convert::Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    tenants::worst_share(10.0, 1, |tenant| {
        let response = service.clone().oneshot(request(&[("tenant", &tenant)]));
        async move { response.await.unwrap().status() == 200 }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn one_tenant_at_a_hundred_times_takes_nothing_from_the_others() {
    let worst = worst_share(fair(PLACES).build().unwrap().layer(Slow::taking(10))).await;
    assert!(worst >= 0.95, "{worst}");
}

/// The same with one line for all: the tenant that asks for the most has it all.
#[tokio::test(start_paused = true)]
async fn one_line_for_all_is_not_fair() {
    let layer = ConcurrencyLayer::builder(PLACES).queue(Queue::new(100, Duration::from_secs(1))).build().unwrap();
    let worst = worst_share(layer.layer(Slow::taking(10))).await;
    assert!(worst < 0.5, "{worst}");
}

/// Who a request is from is asked when all places are taken, and a closure that panics then takes none along.
#[tokio::test(start_paused = true)]
async fn nobody_is_asked_for_a_tenant_while_there_is_room() {
    let layer = FairLayer::builder(1, |_| panic!("asked")).build().unwrap();
    let service = layer.layer(Slow::taking(100));
    let first = send(&service, request(&[])).await;
    assert_eq!((layer.handle().in_flight(), layer.handle().waiting()), (1, 0));
    assert!(send(&service, request(&[])).await.await.unwrap_err().is_panic());
    pass(100).await;
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!((layer.handle().in_flight(), layer.handle().waiting()), (0, 0));
}

#[test]
fn bad_configurations_are_refused() {
    for (built, expected) in [
        (fair(0).build(), "limit: 0 is out of range; use 1 to 2147483647"),
        (
            fair(1).queue(FairConfig { depth_max: 0, ..FairConfig::default() }).build(),
            "depth_max: 0 is out of range; use 1 to 16777216",
        ),
        (
            fair(1).queue(FairConfig { total_max: (1 << 20) + 1, ..FairConfig::default() }).build(),
            "total_max: 1048577 is out of range; use 1 to 1048576",
        ),
        (
            fair(1).deadline(Duration::ZERO).build(),
            "deadline: 0ns is out of range; use more than 0 s and at most 3600s",
        ),
    ] {
        assert_eq!(built.unwrap_err().to_string(), expected);
    }
}
