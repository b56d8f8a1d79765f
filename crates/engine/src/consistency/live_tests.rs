//! Several nodes on one real Redis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_core::{Charge, Clock, Decision, Decisions, Key, Limit, Op, Placement, Rate};
use tidegate_stores::redis::RedisStore;
use tidegate_stores::{Call, StoreError};
use tidegate_testkit::servers::{Server, Setup};
use tokio::time::{Instant, sleep, timeout};

use super::{Consistency, Consistent};
use crate::bounds::EASED_KEY_BYTES_MAX;

const MODES: [Consistency; 3] = [Consistency::Exact, Consistency::Leased, Consistency::Async];

/// A node of its own, whose calls have this budget.
pub(super) fn node(server: &Server, budget: &str) -> Consistent {
    let url = format!("redis://127.0.0.1:{}?timeout={budget}", server.port);
    Consistent::new(RedisStore::open(&url.parse().unwrap()).unwrap().into(), Clock::system())
}

pub(super) fn nodes<const COUNT: usize>(server: &Server) -> [Consistent; COUNT] {
    std::array::from_fn(|_| node(server, "5s"))
}

pub(super) fn key(name: &str) -> Key<'_> {
    Key::new(name).unwrap()
}

pub(super) fn shared<'a>(name: &'a str, limit: &'a Limit, op: Op, consistency: Consistency) -> Charge<'a> {
    Charge::new(key(name), limit, op).placed(Placement { tag: b"", consistency })
}

pub(super) async fn one(
    node: &Consistent,
    name: &str,
    limit: &Limit,
    op: Op,
    mode: Consistency,
) -> Result<Decision, StoreError> {
    let decisions: Decisions = node.charge(&Call::default(), &[shared(name, limit, op, mode)]).await?;
    Ok(*decisions.iter().next().unwrap())
}

pub(super) async fn take(node: &Consistent, name: &str, limit: &Limit, units: u64, mode: Consistency) -> bool {
    one(node, name, limit, Op::Take(units), mode).await.unwrap().is_allowed()
}

pub(super) fn day() -> Duration {
    Duration::from_secs(86_400)
}

pub(super) async fn remaining(node: &Consistent, name: &str, limit: &Limit) -> u64 {
    node.inspect(&Call::default(), &Charge::new(key(name), limit, Op::Peek)).await.unwrap().decision.remaining()
}

#[tokio::test]
async fn many_tasks_on_many_nodes_get_exactly_the_limit() {
    let server = Server::start(&Setup::default());
    for (limit, short) in [("100/day".parse().unwrap(), 1), (Limit::fixed_window(100, day()).unwrap(), 0)] {
        for mode in [Consistency::Exact, Consistency::Leased] {
            let name = format!("{mode:?}");
            let nodes: [Consistent; 3] = nodes(&server);
            let tasks: Vec<_> = (0..24)
                .map(|number| {
                    let (node, name) = (nodes[number % 3].clone(), name.clone());
                    tokio::spawn(async move {
                        let mut allowed = 0;
                        for _ in 0..50 {
                            allowed += u64::from(take(&node, &name, &limit, 1, mode).await);
                        }
                        allowed
                    })
                })
                .collect();
            let mut allowed = 0;
            for task in tasks {
                allowed += task.await.unwrap();
            }
            // What nodes still hold goes back when they close.
            for node in &nodes {
                node.settle_up().await;
            }
            let [other] = self::nodes(&server);
            while take(&other, &name, &limit, 1, Consistency::Exact).await {
                allowed += 1;
            }
            // A bucket counts leased units as spent at the lease's end, some seconds of the day later.
            let short = if mode == Consistency::Leased { short } else { 0 };
            assert!((100 - short..=100).contains(&allowed), "{allowed} of {limit:?} {mode:?}");
            let spared: Vec<_> = nodes.iter().map(|node| (node.health().calls, node.health().from_leases)).collect();
            println!("{mode:?}: {spared:?}");
        }
    }
}

#[tokio::test]
async fn a_reset_on_one_node_is_seen_on_another_within_a_second() {
    let server = Server::start(&Setup::default());
    let [ann, bob]: [Consistent; 2] = nodes(&server);
    let limit: Limit = "20/day".parse().unwrap();
    for mode in MODES {
        let name = format!("{mode:?}");
        while take(&bob, &name, &limit, 1, mode).await {}
        assert!(!take(&bob, &name, &limit, 1, mode).await, "{mode:?}");
        let calls = bob.health().calls;
        for _ in 0..100 {
            assert!(!take(&bob, &name, &limit, 1, mode).await);
        }
        assert!(bob.health().calls <= calls + 2, "{mode:?}: what is known is not asked");
        one(&ann, &name, &limit, Op::Reset, mode).await.unwrap();
        let reset = Instant::now();
        while !take(&bob, &name, &limit, 1, mode).await {
            sleep(Duration::from_millis(5)).await;
        }
        let late = reset.elapsed();
        assert!(late < Duration::from_millis(1_500), "{mode:?}: {late:?}");
        // On the node itself it is seen at once.
        while take(&bob, &name, &limit, 1, mode).await {}
        one(&bob, &name, &limit, Op::Reset, mode).await.unwrap();
        assert!(take(&bob, &name, &limit, 1, mode).await, "{mode:?}");
    }
}

#[tokio::test]
async fn a_refund_and_a_raised_limit_are_seen_at_once_on_the_node() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let rate = Rate::new(20, day()).unwrap();
    let [limit, raised] = [20, 30].map(|burst| Limit::gcra(rate, burst).unwrap());
    for mode in [Consistency::Exact, Consistency::Leased] {
        let name = format!("{mode:?}");
        while take(&ann, &name, &limit, 1, mode).await {}
        assert!(take(&ann, &name, &raised, 1, mode).await, "{mode:?}");
        assert!(!take(&ann, &name, &limit, 1, mode).await, "{mode:?}");
        one(&ann, &name, &limit, Op::Refund(12, None), mode).await.unwrap();
        assert!(take(&ann, &name, &limit, 1, mode).await, "{mode:?}");
    }
}

#[tokio::test]
async fn what_is_not_spent_comes_back() {
    let server = Server::start(&Setup::default());
    let [ann, bob]: [Consistent; 2] = nodes(&server);
    let limit = Limit::fixed_window(100, day()).unwrap();
    for _ in 0..10 {
        assert!(take(&ann, "quiet", &limit, 1, Consistency::Leased).await);
        assert!(take(&bob, "closed", &limit, 1, Consistency::Leased).await);
    }
    assert!(remaining(&ann, "quiet", &limit).await < 90, "more was leased than spent");
    bob.settle_up().await;
    assert_eq!(remaining(&bob, "closed", &limit).await, 90);
    assert!(take(&bob, "closed", &limit, 1, Consistency::Leased).await, "and it goes on, exactly");
    let began = Instant::now();
    while remaining(&ann, "quiet", &limit).await < 90 {
        assert!(began.elapsed() < Duration::from_secs(8), "half a lease is 5 s");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_denial_tells_what_is_left_after_what_was_admitted_here() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let wide = Limit::fixed_window(1_000, day()).unwrap();
    let tight = Limit::fixed_window(1, Duration::from_secs(3_600)).unwrap();
    for local in [Consistency::Leased, Consistency::Async] {
        let name = format!("{local:?}");
        let both = [shared(&name, &wide, Op::Take(1), local), shared(&name, &tight, Op::Take(1), Consistency::Exact)];
        assert!(ann.charge(&Call::default(), &both).await.unwrap().is_allowed());
        let denied = async || {
            let told = ann.charge(&Call::default(), &both).await.unwrap();
            assert!(!told.is_allowed());
            told.first().unwrap().remaining()
        };
        let before = denied().await;
        assert!(take(&ann, &name, &wide, 10, local).await);
        let after = denied().await;
        assert!(after + 10 <= before, "{local:?}: {before}, then {after}");
    }
}

#[tokio::test]
async fn what_was_taken_here_goes_back_when_the_store_denies_the_rest() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let wide = Limit::fixed_window(1_000, day()).unwrap();
    let tight = Limit::fixed_window(5, Duration::from_secs(3_600)).unwrap();
    for local in [Consistency::Leased, Consistency::Async] {
        let name = format!("{local:?}");
        let both = |units| {
            [shared(&name, &wide, Op::Take(units), local), shared(&name, &tight, Op::Take(units), Consistency::Exact)]
        };
        for _ in 0..5 {
            assert!(ann.charge(&Call::default(), &both(1)).await.unwrap().is_allowed());
        }
        for cost in [1, 1, 2] {
            let denied = ann.charge(&Call::default(), &both(cost)).await.unwrap();
            let each: Vec<bool> = denied.iter().map(Decision::is_allowed).collect();
            assert_eq!((each, denied.is_allowed()), (vec![true, false], false));
            assert!(denied.iter().all(|one| one.receipt().is_none()));
        }
        // And the other way around: the store is not charged when a unit is missing here.
        let never =
            [shared(&name, &wide, Op::Take(1_001), local), shared("other", &tight, Op::Take(1), Consistency::Exact)];
        assert!(!ann.charge(&Call::default(), &never).await.unwrap().is_allowed());
        assert_eq!(remaining(&ann, "other", &tight).await, 5);
    }
    let health = ann.health();
    assert!(health.from_denials > 0 && health.from_leases > 0 && health.from_replicas > 0, "{health:?}");
    assert_eq!(health.store.totals.refused, 0);
    ann.settle_up().await;
    assert_eq!(remaining(&ann, "Leased", &wide).await, 995);
    assert_eq!(remaining(&ann, "Async", &wide).await, 995);
}

#[tokio::test]
async fn a_store_that_hangs_is_an_error_within_the_budget_and_what_was_leased_is_spent() {
    let server = Server::start(&Setup::default());
    let ann = node(&server, "50ms");
    let limit = Limit::fixed_window(1_000, day()).unwrap();
    while take(&ann, "leased", &limit, 1, Consistency::Leased).await {
        if ann.inner.leases.left(&super::Spelling::new(&Charge::take(key("leased"), &limit, 1)), ann.inner.clock.now())
            >= 20
        {
            break;
        }
    }
    assert!(take(&ann, "async", &limit, 1, Consistency::Async).await);
    server.hang();
    for _ in 0..20 {
        assert!(take(&ann, "leased", &limit, 1, Consistency::Leased).await, "it is held here");
        assert!(take(&ann, "async", &limit, 1, Consistency::Async).await);
    }
    for mode in MODES {
        let began = Instant::now();
        let asked = timeout(Duration::from_secs(2), one(&ann, "fresh", &limit, Op::Take(1), mode)).await.unwrap();
        assert!(asked.is_err(), "{mode:?}: {asked:?}");
        assert!(began.elapsed() < Duration::from_millis(150), "{mode:?}: {:?}", began.elapsed());
    }
    // Many who want the same wait for one call, and none for longer.
    let began = Instant::now();
    let ann = Arc::new(ann);
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let ann = Arc::clone(&ann);
            tokio::spawn(async move { one(&ann, "crowd", &limit, Op::Take(1), Consistency::Leased).await.is_err() })
        })
        .collect();
    for task in crowd {
        assert!(task.await.unwrap());
    }
    assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
    server.go_on();
}

#[tokio::test]
async fn what_is_leased_for_a_request_that_goes_away_is_there_for_the_next() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let limit: Limit = "60000/minute".parse().unwrap();
    let name = super::Spelling::new(&Charge::take(key("ann"), &limit, 1));
    // It is dropped as soon as it waits for the store.
    let gone = one(&ann, "ann", &limit, Op::Take(1), Consistency::Leased).now_or_never();
    assert!(gone.is_none());
    while ann.inner.leases.left(&name, ann.inner.clock.now()) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let calls = ann.health().calls;
    assert!(take(&ann, "ann", &limit, 1, Consistency::Leased).await);
    assert_eq!(ann.health().calls, calls, "it was there");
}

#[tokio::test]
async fn the_task_in_the_background_ends_with_the_last_handle() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let limit: Limit = "60000/minute".parse().unwrap();
    for mode in MODES {
        assert!(take(&ann, "ann", &limit, 1, mode).await);
    }
    let (keeper, inner) = (Arc::clone(&ann.inner.keeper), Arc::downgrade(&ann.inner));
    let other = ann.clone();
    drop(ann);
    assert!(keeper.is_running());
    drop(other);
    timeout(Duration::from_secs(2), async {
        while keeper.is_running() {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    assert!(inner.upgrade().is_none());
}

#[tokio::test]
async fn keys_beyond_the_bound_are_decided_exactly() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let limit: Limit = "60000/minute".parse().unwrap();
    let terms = super::Terms::of(&limit).unwrap();
    // A flood of keys, each of which is about to lease.
    let count = crate::bounds::LEASED_KEYS_MAX + 10_000;
    let mut asking = Vec::new();
    for number in 0..count {
        let text = format!("flood{number}");
        let one = shared(&text, &limit, Op::Take(1), Consistency::Leased);
        let name = super::Spelling::new(&one);
        if let super::leases::Turn::Lease(_, landing) =
            ann.inner.leases.take(&name, &limit, terms, 1, ann.inner.clock.now())
        {
            asking.push(landing);
        }
    }
    assert!(asking.len() <= crate::bounds::LEASED_KEYS_MAX && asking.len() < count);
    let mut exact = 0;
    for number in 0..50 {
        let before = ann.health().from_leases;
        assert!(take(&ann, &format!("late{number}"), &limit, 1, Consistency::Leased).await);
        exact += u64::from(ann.health().from_leases == before);
    }
    assert!(exact > 30, "{exact} of 50 keys found no room");
}

#[tokio::test]
async fn long_keys_are_decided_exactly() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let limit: Limit = "60000/minute".parse().unwrap();
    for consistency in [Consistency::Leased, Consistency::Async] {
        let spared = |length: usize| {
            let (ann, limit) = (&ann, &limit);
            async move {
                let before = ann.health();
                for _ in 0..20 {
                    assert!(take(ann, &"x".repeat(length), limit, 1, consistency).await);
                }
                let after = ann.health();
                after.from_leases + after.from_replicas - before.from_leases - before.from_replicas
            }
        };
        assert!(spared(EASED_KEY_BYTES_MAX).await > 0, "{consistency:?}");
        assert_eq!(spared(EASED_KEY_BYTES_MAX + 1).await, 0, "{consistency:?}");
    }
}
