//! A limit that learns, behind its layer, before a service that is asked for three times what it can do.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tidegate_core::Dice;
use tidegate_core::adaptive::{AdaptiveLimit, Aimd, AimdConfig, Vegas, VegasConfig, WindowConfig};
use tidegate_tower::AdaptiveLayer;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::request;

const WORKERS: usize = 10;
const WORK: Duration = Duration::from_millis(80);
const CAPACITY: f64 = 125.0;
const SECONDS: f64 = 40.0;

/// Ten workers, and a line before them that has no end.
fn workers()
-> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send> + Clone + Send {
    let workers = Arc::new(Semaphore::new(WORKERS));
    service_fn(move |_| {
        let workers = Arc::clone(&workers);
        async move {
            let _worker = workers.acquire().await;
            sleep(WORK).await;
            Ok(Response::default())
        }
    })
}

/// What was served a second in the second half, and the time that 99 of 100 of them did not exceed.
async fn flood<S, B>(service: S) -> (f64, Duration)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let (mut dice, start, mut at) = (Dice::new(5), Instant::now(), 0.0);
    let mut sent = Vec::new();
    while at < SECONDS {
        at += -(1.0 - dice.fraction()).ln() / (3.0 * CAPACITY);
        sleep_until(start + Duration::from_secs_f64(at)).await;
        let response = service.clone().oneshot(request(&[]));
        sent.push(tokio::spawn(async move {
            let sent = Instant::now();
            let served = response.await.unwrap().status() == 200;
            (served, start.elapsed().as_secs_f64(), sent.elapsed())
        }));
    }
    let mut times = Vec::new();
    for task in sent {
        let (served, ended, took) = task.await.unwrap();
        if served && (SECONDS / 2.0..SECONDS).contains(&ended) {
            times.push(took);
        }
    }
    times.sort_unstable();
    (times.len() as f64 / (SECONDS / 2.0), times[times.len() * 99 / 100])
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_workers_busy_and_their_line_short() {
    let vegas = Vegas::new(VegasConfig::default()).unwrap();
    // Nothing is dropped here, so it needs a time that counts as one: half as much again as the work, as in the guide.
    let aimd = AimdConfig { min: 5, timeout: WORK.mul_f64(1.5), ..AimdConfig::default() };
    let limits = [AdaptiveLimit::from(vegas), AdaptiveLimit::from(Aimd::new(aimd).unwrap())];
    for limit in limits {
        let name = limit.name();
        let window = WindowConfig { length: Duration::from_millis(100), ..WindowConfig::default() };
        let layer = AdaptiveLayer::builder(limit).window(window).build().unwrap();
        let (throughput, p99) = flood(layer.layer(workers())).await;
        let found = layer.handle().limit();
        assert!(throughput >= 0.85 * CAPACITY, "{name}: {throughput} a second with {found}");
        assert!(p99 <= WORK.mul_f64(2.5), "{name}: {p99:?} with {found}");
    }
    let (_, without) = flood(workers()).await;
    assert!(without > 10 * WORK, "{without:?}");
}
