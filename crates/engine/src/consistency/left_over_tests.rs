//! What is left over when a call is denied, a task ends or a store is let go, on a real Redis: it goes back, and only once.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_core::{Charge, Clock, Limit, Op, Placement, Rate};
use tidegate_policy::{Descriptor, LoadOptions, Outside, Policy, Request, StorePlace, StoreSpec, load_text};
use tidegate_stores::Call;
use tidegate_testkit::servers::{Server, Setup};
use tokio::time::{Instant, sleep};

use super::live_tests::{day, key, node, nodes, remaining, shared, take};
use super::name::Spelling;
use super::{Consistency, Consistent};
use crate::store::Stores;
use crate::{Engine, Options};

/// Waits for the store to have so many units left of a key, for a few seconds.
async fn comes_to(node: &Consistent, name: &str, limit: &Limit, units: u64) {
    let began = Instant::now();
    loop {
        let left = remaining(node, name, limit).await;
        if left == units {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(4), "{name}: {left} left, not {units}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_denied_call_gives_nothing_back_and_counts_nothing() {
    let server = Server::start(&Setup::default());
    let [ann, bob]: [Consistent; 2] = nodes(&server);
    let wide = Limit::fixed_window(100, day()).unwrap();
    let tight = Limit::fixed_window(1, Duration::from_secs(3_600)).unwrap();
    assert!(take(&ann, "tight", &tight, 1, Consistency::Exact).await);
    let mut all = Vec::new();
    for local in [Consistency::Leased, Consistency::Async] {
        for (op, done) in [(Op::Refund(3, None), 98), (Op::Reset, 100), (Op::Debit(3), 92)] {
            for (other, left) in [("tight", 95), ("free", done)] {
                let name = format!("{local:?} {op:?} {other}");
                for _ in 0..5 {
                    assert!(take(&ann, &name, &wide, 1, local).await);
                }
                let other = if other == "tight" { other } else { &name };
                let both = [shared(&name, &wide, op, local), shared(other, &tight, Op::Take(1), Consistency::Exact)];
                assert_eq!(ann.charge(&Call::default(), &both).await.unwrap().is_allowed(), left == done, "{name}");
                all.push((name, left));
            }
        }
    }
    ann.settle_up().await;
    for (name, left) in all {
        assert_eq!(remaining(&bob, &name, &wide).await, left, "{name}");
    }
}

#[tokio::test]
async fn what_a_slow_limit_gets_back_does_not_wait_for_the_end() {
    let server = Server::start(&Setup::default());
    let [ann]: [Consistent; 1] = nodes(&server);
    let slow = Limit::gcra(Rate::new(20, day()).unwrap(), 20).unwrap();
    let tight = Limit::fixed_window(1, Duration::from_secs(3_600)).unwrap();
    assert!(take(&ann, "slow", &slow, 1, Consistency::Exact).await);
    assert!(take(&ann, "tight", &tight, 1, Consistency::Exact).await);
    let both = [
        shared("slow", &slow, Op::Take(1), Consistency::Leased),
        shared("tight", &tight, Op::Take(1), Consistency::Exact),
    ];
    assert!(!ann.charge(&Call::default(), &both).await.unwrap().is_allowed());
    comes_to(&ann, "slow", &slow, 19).await;
}

/// Both nodes have slices under old numbers when new ones come. What goes back of them takes nothing from what is owed
/// under the new ones, which give all of it within the period.
async fn slices_go_back_under_new_numbers(old: &str, new: &str, period: Duration) {
    let server = Server::start(&Setup::default());
    let [ann, bob]: [Consistent; 2] = nodes(&server);
    let [old, new]: [Limit; 2] = [old, new].map(|limit| limit.parse().unwrap());
    for node in [&ann, &bob] {
        for _ in 0..4 {
            assert!(take(node, "ann", &old, 1, Consistency::Leased).await);
        }
    }
    let name = Spelling::new(&Charge::take(key("ann"), &old, 1));
    let held = [&ann, &bob].map(|node| node.inner.leases.left(&name, node.inner.clock.now()));
    assert!(held.iter().all(|units| *units > 0), "{held:?} held");
    // Ann's go back; then all is spent.
    take(&ann, "ann", &new, 1, Consistency::Leased).await;
    sleep(Duration::from_millis(50)).await;
    while take(&ann, "ann", &new, 1, Consistency::Exact).await {}
    let (spent, before) = (Instant::now(), remaining(&ann, "ann", &new).await);
    take(&bob, "ann", &new, 1, Consistency::Leased).await;
    sleep(Duration::from_millis(50)).await;
    let after = remaining(&ann, "ann", &new).await;
    let came_back = spent.elapsed().as_nanos() * u128::from(new.units()) / period.as_nanos();
    let most = before + held[1] + u64::try_from(came_back).unwrap() + 1;
    assert!(after <= most, "{before} were left, now {after}, {most} at most");
}

#[tokio::test]
async fn slices_of_a_slow_limit_are_worth_no_more_under_a_fast_one() {
    slices_go_back_under_new_numbers("80/hour", "80/second", Duration::from_secs(1)).await;
}

#[tokio::test]
async fn slices_of_a_fast_limit_cut_no_debt_of_a_slow_one() {
    slices_go_back_under_new_numbers("600/hour", "600/day", day()).await;
}

#[test]
fn a_push_that_ends_with_its_runtime_is_not_waited_for() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = Server::start(&Setup::default());
    let limit = Limit::fixed_window(100, day()).unwrap();
    let ann = node(&server, "5s");
    let first = runtime();
    first.block_on(async {
        assert!(take(&ann, "ann", &limit, 1, Consistency::Async).await);
        server.hang();
        let calls = ann.health().calls;
        assert!(take(&ann, "ann", &limit, 50, Consistency::Async).await);
        while ann.health().calls == calls {
            sleep(Duration::from_millis(1)).await;
        }
    });
    drop(first);
    server.go_on();
    runtime().block_on(async {
        // Whether the push was counted nobody knows.
        let before = remaining(&ann, "ann", &limit).await;
        assert!(take(&ann, "ann", &limit, 10, Consistency::Async).await);
        comes_to(&ann, "ann", &limit, before - 10).await;
    });
}

#[tokio::test]
async fn a_store_that_is_let_go_is_closed() {
    let server = Server::start(&Setup::default());
    let [bob]: [Consistent; 1] = nodes(&server);
    let limit = Limit::fixed_window(100, day()).unwrap();
    let spec = |name: &str, place| StoreSpec { name: name.into(), place: Some(place), ..StoreSpec::default() };
    let at =
        |budget: &str| StorePlace::At(format!("redis://127.0.0.1:{}?timeout={budget}", server.port).into_boxed_str());
    let default = StoreSpec { keys: Some(10), ..spec("default", StorePlace::Memory) };
    let (stores, _) = Stores::new(Clock::system(), &default, HashMap::new()).unwrap();
    let before = [default.clone(), spec("far", at("5s"))];
    let renamed = vec![default.clone(), spec("renamed", at("5s"))];
    let moved = vec![default.clone(), spec("far", at("4s"))];
    for (number, after) in [renamed, moved, vec![default.clone()]].into_iter().enumerate() {
        let mut found = stores.install(&before, &Policy::default()).unwrap().stores;
        let far = found.pop().unwrap();
        for consistency in [Consistency::Leased, Consistency::Async] {
            let name = format!("{consistency:?} {number}");
            for _ in 0..7 {
                let charge = Charge::take(key(&name), &limit, 1).placed(Placement { tag: b"", consistency });
                far.charge(&Call::default(), &[charge]).await.unwrap();
            }
        }
        drop((far, found));
        stores.install(&after, &Policy::default()).unwrap();
        for consistency in [Consistency::Leased, Consistency::Async] {
            comes_to(&bob, &format!("{consistency:?} {number}"), &limit, 93).await;
        }
    }
}

/// Two nodes with a rule that penalises whom it denies.
fn strict(server: &Server) -> [Engine; 2] {
    let text = format!(
        "stores: {{far: {{url: \"redis://127.0.0.1:{}?timeout=5s\"}}}}
domains: {{api: {{rules: [{{name: strict, store: far, limit: 1/30d, penalty: 1h, on_store_failure: deny}}]}}}}",
        server.port
    );
    [(); 2].map(|()| {
        let outside = Outside { check_store: Some(crate::check_store_url), ..Outside::default() };
        let options = LoadOptions { outside, ..LoadOptions::default() };
        let loaded = load_text("test.yaml", &text, &options);
        let policy = loaded.policy.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
        Engine::with_policy(Options::default(), policy).unwrap()
    })
}

#[tokio::test]
async fn who_is_penalised_costs_few_calls_and_is_free_when_that_is_lifted() {
    let server = Server::start(&Setup::default());
    let [ann, bob] = strict(&server);
    let request = Request { domain: "api", descriptors: &[Descriptor::default()], http: None, cost: 1 };
    let passes = async |engine: &Engine| engine.check(&request).await.unwrap().denial().is_none();
    let left = async || bob.inspect(&request).await.unwrap()[0].penalised.unwrap();
    assert!(passes(&ann).await && !passes(&ann).await);
    let (began, at_first) = (Instant::now(), left().await);
    for _ in 0..100 {
        assert!(!passes(&ann).await);
        sleep(Duration::from_millis(1)).await;
    }
    let spared = ann.shared_stores()[0].from_denials;
    assert!(spared >= 190, "{spared} of 200 charges were spared");
    let passed = began.elapsed() - Duration::from_millis(50);
    assert!(left().await + passed <= at_first, "no penalty is lengthened by what is known");
    // On this node at once.
    ann.reset(&request).await.unwrap();
    assert!(passes(&ann).await && !passes(&ann).await && !passes(&ann).await);
    // On another one within a second.
    assert!(!passes(&bob).await && !passes(&bob).await);
    ann.reset(&request).await.unwrap();
    let reset = Instant::now();
    while !passes(&bob).await {
        assert!(reset.elapsed() < Duration::from_millis(1_500), "{:?}", reset.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
}
