//! Which part a request comes to first, and what a part that refuses leaves untouched.

use std::time::Duration;

use http_body_util::BodyExt;
use tidegate_core::FakeClock;
use tidegate_core::fair::FairConfig;
use tidegate_tower::{KeyBy, RateLimitLayer, Refusal, Settle, StackBuilder, StackHandle, StackLayer};
use tower::ServiceExt;

use super::{Work, class, critical, grpc, request, send, settle, status, tenant};

/// One at a time. Two may wait, one of each tenant; of the room for three one is for critical requests.
fn small() -> StackBuilder {
    let rate = RateLimitLayer::limit("3/hour".parse().unwrap(), KeyBy::header("tenant")).clock(FakeClock::new());
    StackLayer::builder(1).class(class).rate(rate.build().unwrap()).tenant(tenant).queue(FairConfig {
        depth_max: 1,
        total_max: 2,
        ..FairConfig::default()
    })
}

/// Allowed and refused by each part.
fn counts(handle: &StackHandle) -> [(u64, u64); 4] {
    let stats = handle.stats();
    [stats.shed, stats.rate, stats.fair, stats.concurrency]
        .map(|part| part.map_or((0, 0), |part| (part.allowed, part.refused)))
}

#[tokio::test(start_paused = true)]
async fn each_part_sees_only_what_those_before_it_let_go_on() {
    let stack = small().build().unwrap();
    let (handle, work) = (stack.handle(), Work::held());
    let service = work.behind(&stack);
    let first = send(&service, request("a")).await;
    let second = send(&service, request("a")).await;
    assert_eq!(counts(&handle), [(2, 0), (2, 0), (1, 0), (1, 0)]);
    // Shed: it costs nothing of the rate.
    let shed = send(&service, request("a")).await.await.unwrap();
    assert_eq!((shed.status().as_u16(), &shed.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(counts(&handle), [(2, 1), (2, 0), (1, 0), (1, 0)]);
    // The rate lets the third pass, and its tenant's line is full.
    assert_eq!(status(send(&service, critical("a")).await).await, 503);
    assert_eq!(counts(&handle), [(3, 1), (3, 0), (1, 1), (1, 0)]);
    // The fourth is denied, and comes to no line.
    let denied = send(&service, critical("a")).await.await.unwrap();
    assert_eq!((denied.status().as_u16(), denied.headers().contains_key("retry-after")), (429, true));
    assert_eq!(counts(&handle), [(4, 1), (3, 1), (1, 1), (1, 0)]);
    // Another tenant finds room to wait.
    let other = send(&service, critical("b")).await;
    assert_eq!(counts(&handle), [(5, 1), (4, 1), (1, 1), (1, 0)]);
    work.release(3);
    for task in [first, second, other] {
        assert_eq!(task.await.unwrap().status(), 200);
    }
    assert_eq!(counts(&handle), [(5, 1), (4, 1), (3, 1), (3, 0)]);
    assert_eq!(work.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_numbers_tell_how_it_stands() {
    let stack = small().name("api").build().unwrap();
    let (handle, work) = (stack.handle(), Work::held());
    let service = work.behind(&stack);
    let _in = send(&service, request("a")).await;
    let _waits = send(&service, request("b")).await;
    for _ in 0..2 {
        assert_eq!(status(send(&service, request("c")).await).await, 503);
    }
    insta::assert_snapshot!("metrics", handle.render());
}

/// However many tenants there are, there are as many series.
#[tokio::test(start_paused = true)]
async fn tenants_make_no_series() {
    let stack = StackLayer::builder(1).class(class).tenant(tenant).build().unwrap();
    let service = Work::taking(Duration::ZERO).behind(&stack);
    let before = stack.handle().render().lines().count();
    for number in 0..100 {
        let task = send(&service, request(&format!("tenant-{number}"))).await;
        assert_eq!(task.await.unwrap().status(), 200);
    }
    let page = stack.handle().render();
    assert_eq!(page.lines().count(), before);
    assert!(!page.contains("tenant-"), "{page}");
}

#[test]
fn several_stacks_make_one_page() {
    let stacks = ["http", "grpc"].map(|name| StackLayer::builder(1).name(name).build().unwrap().handle());
    let page = StackHandle::render_all(&stacks);
    assert_eq!(page.matches("# TYPE tidegate_stack_refused_total counter\n").count(), 1, "{page}");
    for name in ["http", "grpc"] {
        let line = format!("tidegate_stack_refused_total{{stack=\"{name}\",part=\"concurrency\"}} 0\n");
        assert!(page.contains(&line), "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_away_leave_nothing_behind() {
    let stack = small().build().unwrap();
    let (handle, work) = (stack.handle(), Work::held());
    let service = work.behind(&stack);
    for task in [send(&service, request("a")).await, send(&service, request("b")).await] {
        task.abort();
    }
    settle().await;
    let stats = handle.stats();
    assert!(stats.parts().all(|part| part.in_flight.unwrap_or(0) == 0 && part.queued.unwrap_or(0) == 0), "{stats:?}");
    assert_eq!(work.inside(), 0);
}

/// What is refused behind the rate can cost nothing of it.
#[tokio::test(start_paused = true)]
async fn the_rate_can_give_back_what_was_refused_behind_it() {
    let rate =
        RateLimitLayer::limit("3/hour".parse().unwrap(), KeyBy::header("tenant"))
            .settle(|response| {
                if response.extensions().get::<Refusal>().is_some() { Settle::Refund(u64::MAX) } else { Settle::Keep }
            })
            .clock(FakeClock::new());
    let queue = FairConfig { depth_max: 1, total_max: 1, ..FairConfig::default() };
    let stack = StackLayer::builder(1).rate(rate.build().unwrap()).tenant(tenant).queue(queue).build().unwrap();
    let work = Work::held();
    let service = work.behind(&stack);
    let _two = [send(&service, request("a")).await, send(&service, request("a")).await];
    for _ in 0..5 {
        assert_eq!(
            status(send(&service, request("a")).await).await,
            503,
            "its line is full, and its third unit is left"
        );
        let call = send(&service, grpc("a")).await.await.unwrap();
        assert!(call.status() == 200 && call.headers()["grpc-status"] == "14", "the same in gRPC");
    }
    work.release(2);
    settle().await;
    let third = send(&service, request("a")).await;
    work.release(1);
    assert_eq!(third.await.unwrap().status(), 200);
    assert_eq!(status(send(&service, request("a")).await).await, 429);
}

/// A stream is work until it has ended, for every part.
#[tokio::test(start_paused = true)]
async fn places_are_held_until_the_body_has_ended() {
    let stack = small().build().unwrap();
    let service = Work::taking(Duration::ZERO).behind(&stack);
    let in_flight = || stack.handle().stats().parts().filter_map(|part| part.in_flight).collect::<Vec<_>>();
    let response = service.oneshot(request("a")).await.unwrap();
    assert_eq!(in_flight(), [1, 1, 1]);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done");
    assert_eq!(in_flight(), [0, 0, 0]);
}

#[test]
fn bad_configurations_are_refused() {
    let check = |builder: StackBuilder, expected: &str| {
        assert_eq!(builder.build().unwrap_err().to_string(), expected);
    };
    check(StackLayer::builder(0), "limit: 0 is out of range; use 1 to 2147483647");
    check(StackLayer::builder(0).tenant(tenant).without_concurrency(), "limit: 0 is out of range; use 1 to 2147483647");
    check(
        StackLayer::builder(1).deadline(Duration::ZERO),
        "deadline: 0ns is out of range; use more than 0 s and at most 3600s",
    );
    let endless = FairConfig { total_max: (1 << 20) + 1, ..FairConfig::default() };
    for builder in [StackLayer::builder(1), StackLayer::builder(1).tenant(tenant)] {
        check(builder.queue(endless), "total_max: 1048577 is out of range; use 1 to 1048576");
    }
    let none = FairConfig { depth_max: 0, ..FairConfig::default() };
    check(StackLayer::builder(1).tenant(tenant).queue(none), "depth_max: 0 is out of range; use 1 to 16777216");
    check(
        StackLayer::builder(1).without_concurrency(),
        "stack: it has no part, and would do nothing; use class, shed, rate, tenant or fair, or leave out \
         without_concurrency",
    );
    check(StackLayer::builder(1).name(""), "name: 0 bytes; use 1 to 128");
    check(StackLayer::builder(1).name("x".repeat(129)), "name: 129 bytes; use 1 to 128");
    // The largest limit that there is makes no line that is too long.
    let largest = tidegate_core::bounds::PERMIT_COUNTER_MAX;
    assert!(StackLayer::builder(largest).class(class).tenant(tenant).build().is_ok());
}
