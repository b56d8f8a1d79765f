//! The kill switch and shadow mode of each part, and stacks without some of them.

use std::time::Duration;

use tidegate_core::FakeClock;
use tidegate_core::fair::FairConfig;
use tidegate_tower::{ConcurrencyLayer, KeyBy, Mode, Part, RateLimitLayer, StackBuilder, StackLayer};

use super::{Work, class, request, send, status, tenant};

fn all(limit: u64) -> StackBuilder {
    let rate = RateLimitLayer::limit("1/hour".parse().unwrap(), KeyBy::header("tenant")).clock(FakeClock::new());
    let queue = FairConfig { depth_max: 1, total_max: 1, ..FairConfig::default() };
    StackLayer::builder(limit).class(class).rate(rate.build().unwrap()).tenant(tenant).queue(queue)
}

#[tokio::test(start_paused = true)]
async fn a_dark_launch_refuses_nothing_and_counts() {
    let stack = all(1).mode(Mode::Shadow).build().unwrap();
    let (handle, work) = (stack.handle(), Work::held());
    let service = work.behind(&stack);
    for _ in 0..5 {
        send(&service, request("a")).await;
    }
    assert_eq!(work.inside(), 5);
    let stats = handle.stats();
    let counted: Vec<_> =
        stats.parts().map(|part| (part.mode, part.allowed, part.refused, part.would_refuse)).collect();
    // Of the room for two one is for critical requests.
    assert_eq!(counted, [(Mode::Shadow, 5, 0, 4); 4]);
}

/// Which answer four requests of one tenant get, none of which is let go, with only these parts acting.
async fn answers(acting: &[Part]) -> Vec<Option<u16>> {
    let stack = all(1).mode(Mode::Off).build().unwrap();
    for part in acting {
        stack.handle().switch(*part).unwrap().set_mode(Mode::Enforce);
    }
    let work = Work::held();
    let service = work.behind(&stack);
    let mut answers = Vec::new();
    for _ in 0..4 {
        let task = send(&service, request("a")).await;
        answers.push(if task.is_finished() { Some(status(task).await) } else { None });
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn each_part_acts_without_the_others() {
    assert_eq!(answers(&[]).await, [None; 4], "all are in");
    assert_eq!(answers(&[Part::Shed]).await, [None, Some(503), Some(503), Some(503)]);
    assert_eq!(answers(&[Part::Rate]).await, [None, Some(429), Some(429), Some(429)]);
    assert_eq!(answers(&[Part::Fair]).await, [None, None, Some(503), Some(503)], "one waits");
    assert_eq!(answers(&[Part::Concurrency]).await, [None, None, Some(503), Some(503)], "one waits");
    assert_eq!(answers(&[Part::Rate, Part::Concurrency]).await, [None, Some(429), Some(429), Some(429)]);
}

/// With turns switched off while requests wait, the total holds.
#[tokio::test(start_paused = true)]
async fn without_turns_the_semaphore_holds() {
    let stack = StackLayer::builder(2).tenant(tenant).build().unwrap();
    let work = Work::taking(Duration::from_millis(10));
    let service = work.behind(&stack);
    let mut sent = Vec::new();
    for number in 0..20 {
        if number == 10 {
            stack.handle().switch(Part::Fair).unwrap().set_mode(Mode::Off);
        }
        sent.push(send(&service, request("a")).await);
    }
    let mut served = 0;
    for task in sent {
        served += u64::from(task.await.unwrap().status() == 200);
    }
    assert_eq!(work.most(), 2);
    // Two at once, two in line for their turn, and all ten who came later in the other line.
    assert_eq!(served, 14);
}

#[tokio::test(start_paused = true)]
async fn parts_may_be_missing_or_brought_along() {
    let rate = RateLimitLayer::limit("3/hour".parse().unwrap(), KeyBy::everyone()).build().unwrap();
    let alone = StackLayer::builder(1).rate(rate).without_concurrency().build().unwrap();
    let work = Work::held();
    let service = work.behind(&alone);
    for _ in 0..3 {
        send(&service, request("a")).await;
    }
    assert_eq!((work.inside(), alone.handle().stats().parts().count()), (3, 1));
    for part in [StackLayer::builder(1).class(class), StackLayer::builder(1).tenant(tenant)] {
        assert_eq!(part.without_concurrency().build().unwrap().handle().stats().parts().count(), 1);
    }

    let own = StackLayer::builder(100).concurrency(ConcurrencyLayer::new(1).unwrap()).build().unwrap();
    let work = Work::held();
    let service = work.behind(&own);
    send(&service, request("a")).await;
    assert_eq!(status(send(&service, request("b")).await).await, 503);
    let stats = own.handle().stats().concurrency.unwrap();
    assert_eq!((stats.allowed, stats.refused, stats.in_flight, stats.limit), (1, 1, Some(1), Some(1)));
}

/// It compiles: what a server of tonic asks of its layers.
#[test]
fn a_server_of_tonic_takes_it() {
    let mut server = tonic::transport::Server::builder().layer(all(1).build().unwrap());
    let _router = server.add_routes(tonic::service::Routes::default());
}
