//! Numbers at and beyond their ends: limits of nothing, shares of more than all, years that pass at once, and crowds.

use std::time::Duration;

use http::{Request, Response};
use tidegate_core::Key;
use tidegate_core::adaptive::{Aimd, AimdConfig, Gradient2, Gradient2Config, Vegas, VegasConfig, WindowConfig};
use tidegate_core::fair::FairConfig;
use tidegate_core::shed::{ClientThrottleConfig, CoDelConfig, WorkerShedderConfig};
use tidegate_tower::{
    AdaptiveLayer, ConcurrencyLayer, ConfigError, FairLayer, KeyedConcurrencyLayer, Lesson, Measure, MissingKey, Mode,
    Queue, RetryPolicy, ShapeLayer, Shaper, ShaperConfig, ShedLayer, StackLayer, Tenant, ThrottleLayer,
};
use tower::retry::Policy;
use tower::{Layer, Service, ServiceExt};

use crate::support::{Slow, pass, request, send, settle};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[tokio::test(start_paused = true)]
async fn numbers_out_of_range_are_refused_with_a_word() {
    let second = Duration::from_secs(1);
    let queue = |depth, deadline| ConcurrencyLayer::builder(1).queue(Queue::new(depth, deadline)).build().map(drop);
    let key = |limit, keys| KeyedConcurrencyLayer::builder(limit, |_| None).keys(keys).build().map(drop);
    let fair = |limit| FairLayer::builder(limit, |_| None);
    let config = |tenants_max, depth_max, total_max, quantum| FairConfig { quantum, tenants_max, depth_max, total_max };
    let aimd = || AdaptiveLayer::builder(Aimd::new(AimdConfig::default()).unwrap());
    let retry = RetryPolicy::builder;
    let shape = |depth, wait| Shaper::new("1/s".parse().unwrap(), ShaperConfig { depth, wait }).map(drop);
    let codel = CoDelConfig { interval: Duration::ZERO, ..CoDelConfig::default() };
    let refused = [
        ConcurrencyLayer::new(0).map(drop),
        ConcurrencyLayer::new(u64::MAX).map(drop),
        ConcurrencyLayer::builder(1).retry_after(Duration::ZERO).build().map(drop),
        ConcurrencyLayer::builder(1).retry_after(Duration::MAX).build().map(drop),
        queue(0, second),
        queue(usize::MAX, second),
        queue(1, Duration::ZERO),
        queue(1, Duration::MAX),
        key(0, 1),
        key(1, 0),
        key(1, usize::MAX),
        fair(0).build().map(drop),
        fair(u64::MAX).build().map(drop),
        fair(1).deadline(Duration::MAX).build().map(drop),
        fair(1).queue(config(0, 1, 1, 1)).build().map(drop),
        fair(1).queue(config(1, 0, 1, 1)).build().map(drop),
        fair(1).queue(config(1, 1, 0, 1)).build().map(drop),
        fair(1).queue(config(1, 1, 1, 0)).build().map(drop),
        fair(1).queue(config(usize::MAX, 1, 1, 1)).build().map(drop),
        fair(1).queue(config(1, 1, 1, u64::MAX)).build().map(drop),
        aimd().partitions([0.6, 0.6], |_| None).build().map(drop),
        aimd().partitions([f64::NAN], |_| None).build().map(drop),
        aimd().partitions([f64::INFINITY], |_| None).build().map(drop),
        aimd().partitions([-0.0], |_| None).build().map(drop),
        aimd().partitions([1.5], |_| None).build().map(drop),
        aimd().window(WindowConfig { length: Duration::ZERO, ..WindowConfig::default() }).build().map(drop),
        aimd().window(WindowConfig { samples_min: 0, ..WindowConfig::default() }).build().map(drop),
        ShedLayer::fleet(0, 0.1).build().map(drop),
        ShedLayer::fleet(1, f64::NAN).build().map(drop),
        ShedLayer::fleet(1, 1.5).build().map(drop),
        ShedLayer::fleet(1, -0.1).build().map(drop),
        ShedLayer::fleet(u64::MAX, 0.1).build().map(drop),
        ShedLayer::worker(WorkerShedderConfig::default(), Measure::Busy { workers: 0 }).build().map(drop),
        ShedLayer::worker(WorkerShedderConfig::default(), Measure::queue_delay(Duration::default, Duration::ZERO))
            .build()
            .map(drop),
        ThrottleLayer::builder(ClientThrottleConfig { k: f64::NAN, ..Default::default() }).build().map(drop),
        ThrottleLayer::builder(ClientThrottleConfig { k: f64::INFINITY, ..Default::default() }).build().map(drop),
        ThrottleLayer::builder(ClientThrottleConfig { window: Duration::MAX, ..Default::default() }).build().map(drop),
        retry().jitter(f64::NAN).build().map(drop),
        retry().jitter(f64::INFINITY).build().map(drop),
        retry().budget(f64::NAN, 1).build().map(drop),
        retry().budget(1.1, 1).build().map(drop),
        retry().budget(0.1, u64::MAX).build().map(drop),
        retry().retries(u32::MAX).build().map(drop),
        retry().wait_max(Duration::MAX).build().map(drop),
        retry().backoff(Duration::MAX).build().map(drop),
        shape(0, second),
        shape(usize::MAX, second),
        shape(1, Duration::MAX),
        StackLayer::builder(0).build().map(drop),
        StackLayer::builder(u64::MAX).build().map(drop),
        StackLayer::builder(0).without_concurrency().build().map(drop),
        StackLayer::builder(1).name("").build().map(drop),
        StackLayer::builder(1).deadline(Duration::MAX).build().map(drop),
        StackLayer::builder(1).retry_after(Duration::ZERO).build().map(drop),
        ConcurrencyLayer::builder(1).queue(Queue::new(1, second).codel(codel)).build().map(drop),
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        let told = refused.expect_err(&format!("case {place} was accepted")).to_string();
        assert!(told.contains("use ") && told.contains(": "), "case {place}: {told}");
    }
}

/// Numbers of which a layer has several, and times that are given without a unit.
#[test]
fn what_is_at_fault_is_told_apart() {
    let check = |told: String, expected: &str| assert!(told.starts_with(expected), "{told}");
    for (codel, expected) in [
        (CoDelConfig { interval: Duration::ZERO, ..CoDelConfig::default() }, "codel.interval: 0ns is out of range"),
        (CoDelConfig { target: Duration::MAX, ..CoDelConfig::default() }, "codel.target: "),
    ] {
        let queue = Queue::new(1, Duration::from_secs(1));
        for queue in [queue.codel(codel), queue.adaptive_lifo(codel)] {
            check(ConcurrencyLayer::builder(1).queue(queue).build().unwrap_err().to_string(), expected);
        }
    }
    let window = tidegate_core::Limit::sliding_log(5, Duration::ZERO).unwrap_err();
    check(ConfigError::from(window).to_string(), "window: 0 is too small; use at least 1 ns");
    let period = tidegate_core::Rate::new(5, Duration::ZERO).unwrap_err();
    check(ConfigError::from(period).to_string(), "period: 0 is too small; use at least 1 ns");
}

#[test]
fn factors_that_are_no_numbers_are_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        let aimd = AimdConfig::default();
        assert!(Aimd::new(AimdConfig { backoff: bad, ..aimd }).is_err(), "{bad}");
        let vegas = VegasConfig::default();
        assert!(Vegas::new(VegasConfig { smoothing: bad, ..vegas }).is_err(), "{bad}");
        let gradient = Gradient2Config::default();
        assert!(Gradient2::new(Gradient2Config { smoothing: bad, ..gradient }).is_err(), "{bad}");
        assert!(Gradient2::new(Gradient2Config { drop_backoff: bad, ..gradient }).is_err(), "{bad}");
        assert!(
            ThrottleLayer::builder(ClientThrottleConfig { k: bad, ..Default::default() }).build().is_err(),
            "{bad}"
        );
        let worker = WorkerShedderConfig::default();
        for config in [WorkerShedderConfig { high: bad, ..worker }, WorkerShedderConfig { low: bad, ..worker }] {
            assert!(ShedLayer::worker(config, Measure::Busy { workers: 1 }).build().is_err(), "{bad}");
        }
    }
}

/// Hundreds of years pass while requests are under way: limits stay in their bounds, and all goes on.
#[tokio::test(start_paused = true)]
async fn years_may_pass_at_once() {
    let bounds = (1, 50);
    let limits: [tidegate_core::adaptive::AdaptiveLimit; 3] = [
        Aimd::new(AimdConfig { initial: 10, min: bounds.0, max: bounds.1, ..AimdConfig::default() }).unwrap().into(),
        Vegas::new(VegasConfig { initial: 10, max: bounds.1, ..VegasConfig::default() }).unwrap().into(),
        Gradient2::new(Gradient2Config { initial: 10, min: bounds.0, max: bounds.1, ..Gradient2Config::default() })
            .unwrap()
            .into(),
    ];
    for limit in limits {
        for windowed in [false, true] {
            let builder = AdaptiveLayer::builder(limit.clone());
            let layer = if windowed { builder } else { builder.without_window() }.build().unwrap();
            let handle = layer.handle();
            for years in [0u32, 1, 90, 90, 90, 90, 0, 1] {
                let permits = [handle.acquire().await, handle.acquire().await];
                tokio::time::advance(years * YEAR).await;
                for permit in permits.into_iter().flatten() {
                    permit.end(if years == 1 { Lesson::Dropped } else { Lesson::Success });
                }
                assert!((1..=50).contains(&handle.limit()), "{} after {years} years", handle.limit());
            }
            assert_eq!(handle.in_flight(), 0);
            drop(handle.acquire().await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shedders_shapers_and_queues_bear_years() {
    let shaper =
        Shaper::new("1/day".parse().unwrap(), ShaperConfig { depth: 9, wait: Duration::from_secs(3600) }).unwrap();
    let worker = ShedLayer::worker(WorkerShedderConfig::default(), Measure::Busy { workers: 1 }).build().unwrap();
    let throttle = ThrottleLayer::builder(ClientThrottleConfig::default()).seed(1).build().unwrap();
    let codel = CoDelConfig::default();
    let line = Queue::new(9, Duration::from_secs(3600)).codel(codel).adaptive_lifo(codel);
    let limit = ConcurrencyLayer::builder(1).queue(line).build().unwrap();
    let service = worker.layer(limit.layer(Slow::taking(10)));
    for _ in 0..3 {
        assert!(shaper.acquire(1).await.is_ok());
        assert!(shaper.acquire(1).await.is_err(), "a day is longer than anybody waits");
        let sent = [send(&service, request(&[])).await, send(&service, request(&[])).await];
        tokio::time::advance(80 * YEAR).await;
        for task in sent {
            let status = task.await.unwrap().status();
            assert!(status == 200 || status == 503, "{status}");
        }
        let client = throttle.layer(Slow::default());
        assert!(client.oneshot(request(&[])).await.is_ok());
        assert!((0.0..=1.0).contains(&throttle.probability()));
        assert!(worker.handle().level().is_some_and(|level| (0.0..=3.0).contains(&level)));
        assert_eq!((limit.handle().in_flight(), limit.handle().waiting(), worker.handle().in_flight()), (0, 0, 0));
    }
    // A cost beyond all time holds those behind it off, with a word, and breaks nothing.
    let shaper = Shaper::new("1/day".parse().unwrap(), ShaperConfig::default()).unwrap();
    assert!(shaper.acquire(u64::MAX).await.is_err() && shaper.acquire(0).await.is_err());
    assert!(shaper.acquire(1_000_000_000).await.is_ok());
    let error = shaper.acquire(1_000_000_000).await.unwrap_err().to_string();
    assert!(error.contains("wait"), "{error}");
    let cost = ShapeLayer::new(shaper).cost(|_| u64::MAX);
    assert!(cost.layer(Slow::default()).oneshot(request(&[])).await.is_err());
}

/// A hundred thousand tenants come: as many wait as may, the others are refused, and nothing is left of them.
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_tenants() {
    let queue = FairConfig { tenants_max: 1000, depth_max: 10, total_max: 5000, ..FairConfig::default() };
    let layer = FairLayer::builder(1, |head| Some(Tenant::new(head.header("client")?).weight(u64::MAX)));
    let layer = layer.queue(queue).deadline(Duration::from_secs(5)).build().unwrap();
    let (slow, handle) = (Slow::taking(1), layer.handle());
    let mut service = layer.layer(slow.clone());
    let mut calls = Vec::new();
    for tenant in 0..100_000u32 {
        let call = service.ready().await.unwrap().call(request(&[("client", &tenant.to_string())]));
        calls.push(call);
    }
    assert_eq!((handle.in_flight(), handle.waiting()), (1, 1000));
    assert_eq!(handle.switch().refused(), 100_000 - 1001);
    let tasks: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    let mut served = 0;
    for task in tasks {
        served += u32::from(task.await.unwrap().unwrap().status() == 200);
    }
    assert_eq!((served, handle.in_flight(), handle.waiting()), (1001, 0, 0));
    assert_eq!(slow.most(), 1);
}

/// Thousands wait, and their time is up in the same moment.
#[tokio::test(start_paused = true)]
async fn thousands_of_deadlines_at_once() {
    let count = 5000;
    let queue = Queue::new(count, Duration::from_millis(500));
    let one = ConcurrencyLayer::builder(1).queue(queue).build().unwrap();
    let keyed = KeyedConcurrencyLayer::builder(1, |_| Some(b"ann"[..].into())).queue(queue).build().unwrap();
    let fair = FairLayer::builder(1, |_| Some(Tenant::new(&b"a"[..]))).deadline(Duration::from_millis(500));
    let config = FairConfig { depth_max: count, total_max: 2 * count, ..FairConfig::default() };
    let fair = fair.queue(config).build().unwrap();
    let slow = Slow::taking(600);
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(tokio::spawn(one.layer(slow.clone()).oneshot(request(&[])).map_status()));
        tasks.push(tokio::spawn(keyed.layer(slow.clone()).oneshot(request(&[])).map_status()));
        tasks.push(tokio::spawn(fair.layer(slow.clone()).oneshot(request(&[])).map_status()));
    }
    let all = async || {
        for _ in 0..50 {
            settle().await;
        }
    };
    all().await;
    let waiting = || [one.handle().waiting(), keyed.handle().waiting(), fair.handle().waiting()];
    assert_eq!(waiting(), [count - 1; 3]);
    pass(500).await;
    all().await;
    assert_eq!((waiting(), slow.inside()), ([0; 3], 3));
    pass(100).await;
    let mut served = 0;
    for task in tasks {
        served += u32::from(task.await.unwrap() == 200);
    }
    assert_eq!(served, 3);
    let in_flight =
        [one.handle().in_flight(), keyed.handle().in_flight(Key::new("ann").unwrap()), fair.handle().in_flight()];
    assert_eq!(in_flight, [0; 3]);
}

/// The status alone, so that bodies hold nothing.
trait MapStatus {
    fn map_status(self) -> impl Future<Output = u16> + Send;
}

impl<F, B, E> MapStatus for F
where
    F: Future<Output = Result<Response<B>, E>> + Send,
    E: std::fmt::Debug,
{
    async fn map_status(self) -> u16 {
        self.await.unwrap().status().as_u16()
    }
}

/// Keys as attackers write them: very long, empty, of control characters. None is a panic, and none is another's.
#[tokio::test(start_paused = true)]
async fn keys_of_any_bytes() {
    let long = "x".repeat(100_000);
    let keys: [&[u8]; 6] = [b"\0", b"\r\n\x1b[31m", b"\xff\xfe", b" ", b"\"\\", long.as_bytes()];
    for missing in [MissingKey::Share, MissingKey::Skip, MissingKey::Deny] {
        for mode in [Mode::Enforce, Mode::Shadow] {
            for key in keys {
                let owned = key.to_vec();
                let copy = owned.clone();
                let layer = KeyedConcurrencyLayer::builder(1, move |_| Some(copy.clone().into()));
                let layer = layer.mode(mode).missing_key(missing).queue(Queue::new(1, Duration::from_millis(1)));
                let layer = layer.build().unwrap();
                let fair =
                    FairLayer::builder(1, move |_| Some(Tenant::new(owned.clone()))).missing_key(missing).mode(mode);
                let fair = fair.build().unwrap();
                let service = fair.layer(layer.layer(Slow::taking(5)));
                let status = service.oneshot(request(&[])).await.unwrap().status().as_u16();
                let is_denied = key.len() > 4096 && missing != MissingKey::Share && mode == Mode::Enforce;
                assert_eq!(status, if is_denied { 400 } else { 200 }, "{missing:?}, {mode:?}, {} bytes", key.len());
                assert_eq!((fair.handle().in_flight(), fair.handle().waiting(), layer.handle().waiting()), (0, 0, 0));
            }
        }
    }
}

/// Shadow mode tells of requests without a key what would become of them.
#[tokio::test(start_paused = true)]
async fn a_dark_launch_sees_requests_without_a_key() {
    let slow = Slow::default();
    for (missing, would) in [(MissingKey::Share, 0), (MissingKey::Skip, 0), (MissingKey::Deny, 1)] {
        let fair = FairLayer::builder(1, |_| None).missing_key(missing).mode(Mode::Shadow).build().unwrap();
        let keyed =
            KeyedConcurrencyLayer::builder(1, |_| None).missing_key(missing).mode(Mode::Shadow).build().unwrap();
        let response = fair.layer(keyed.layer(slow.clone())).oneshot(request(&[])).await.unwrap();
        assert_eq!(response.status(), 200, "{missing:?}");
        let counted = [fair.handle().in_flight(), keyed.handle().nameless_in_flight()];
        assert_eq!(counted, [u64::from(missing == MissingKey::Share); 2], "{missing:?}");
        for switch in [fair.handle().switch(), keyed.handle().switch()] {
            assert_eq!((switch.refused(), switch.would_refuse()), (0, would), "{missing:?}");
        }
    }
}

/// What servers may write into `Retry-After`: the wait is in its bounds, whatever it is, and never none at all.
#[tokio::test(start_paused = true)]
async fn retries_bear_any_answer() {
    let values = [
        "0",
        "00000000000",
        "99999999999",
        "18446744073709551616",
        "-5",
        "1e9",
        "NaN",
        "inf",
        "",
        " ",
        "\t",
        "soon",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Mon, 32 Foo 2020 99:99:99 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "0x10",
        "5, 10",
        "٣",
        "+3",
    ];
    for value in values {
        let policy = RetryPolicy::builder().budget(1.0, 1000).retries(10).build().unwrap();
        for times in 0..12 {
            let mut policy = policy.clone();
            let mut asked = request(&[]);
            let mut waits = Vec::new();
            for _ in 0..=times {
                let mut response = Response::builder().status(429).body(()).unwrap();
                if let Ok(value) = http::HeaderValue::from_bytes(value.as_bytes()) {
                    response.headers_mut().insert("retry-after", value);
                }
                let mut result = Ok::<_, std::convert::Infallible>(response);
                let retried = Policy::<Request<String>, Response<()>, _>::retry(&mut policy, &mut asked, &mut result);
                let Some(sleep) = retried else { break };
                waits.push(sleep.deadline() - tokio::time::Instant::now());
            }
            let bounds = Duration::from_millis(99)..=Duration::from_millis(30_001);
            assert!(waits.iter().all(|wait| bounds.contains(wait)), "{value}: {waits:?}");
            assert!(waits.len() <= 10, "{value}");
        }
    }
}
