//! Three times as much as a service can do: critical requests pass, and the lowest class goes first.

use std::time::Duration;

use http::Response;
use tidegate_core::Dice;
use tidegate_core::shed::{Criticality, WorkerShedderConfig};
use tidegate_tower::{ConcurrencyLayer, Measure, Queue, ShedHandle, ShedLayer};
use tokio::time::{Instant, sleep_until};
use tower::{Layer, ServiceExt};

use crate::shed::class;
use crate::support::{Slow, read, request};

/// Ten workers of 100 ms each can do 100 requests a second.
const WORKERS: u64 = 10;
const WORK_MILLIS: u64 = 100;
const CAPACITY: f64 = 100.0;
const LOAD: f64 = 3.0 * CAPACITY;
const SECONDS: u64 = 120;

/// Of a hundred requests, so many of each class.
const SHARES: [(Criticality, u64); 4] =
    [(Criticality::Test, 40), (Criticality::Get, 30), (Criticality::Post, 20), (Criticality::Critical, 10)];

/// What became of the requests of a class.
#[derive(Clone, Copy, Default, Debug)]
struct Fate {
    sent: u64,
    lost: u64,
}

fn drawn(dice: &mut Dice) -> Criticality {
    let mut number = dice.roll() % 100;
    for (class, share) in SHARES {
        if number < share {
            return class;
        }
        number -= share;
    }
    Criticality::Critical
}

/// Sends requests at random instants (Poisson) to a fleet's and a worker's shedder before a limit with a queue. Tells
/// the fate of each class, and when the worker first shed each.
async fn flood(worker: &ShedHandle, service: impl Sends) -> ([Fate; 4], [Option<Duration>; 4]) {
    let mut dice = Dice::new(7);
    let (start, mut at) = (Instant::now(), 0.0);
    let (mut sent, mut first) = (Vec::new(), [None; 4]);
    while at < SECONDS as f64 {
        at += -(1.0 - dice.fraction()).ln() / LOAD;
        sleep_until(start + Duration::from_secs_f64(at)).await;
        let class = drawn(&mut dice);
        sent.push((class, service.send(class)));
        for (first, class) in first.iter_mut().zip(Criticality::ALL) {
            if first.is_none() && worker.shed(class) > 0 {
                *first = Some(start.elapsed());
            }
        }
    }
    let mut fates = [Fate::default(); 4];
    for (class, task) in sent {
        let fate = &mut fates[class as usize];
        fate.sent += 1;
        fate.lost += u64::from(task.await.unwrap().status() != 200);
    }
    (fates, first)
}

/// What can be sent to.
trait Sends {
    fn send(&self, class: Criticality) -> tokio::task::JoinHandle<Response<String>>;
}

impl<S, B> Sends for S
where
    B: http_body::Body<Data = bytes::Bytes, Error = std::convert::Infallible> + Send + 'static,
    S: tower::Service<http::Request<String>, Response = Response<B>, Error = std::convert::Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    fn send(&self, class: Criticality) -> tokio::task::JoinHandle<Response<String>> {
        let response = self.clone().oneshot(request(&[("class", class.name())]));
        tokio::spawn(async move { read(response.await.unwrap()).await })
    }
}

#[tokio::test(start_paused = true)]
async fn at_three_times_the_capacity_critical_requests_pass_and_the_lowest_go_first() {
    let slow = Slow::taking(WORK_MILLIS);
    let limit = ConcurrencyLayer::builder(WORKERS).queue(Queue::new(20, Duration::from_secs(1))).build().unwrap();
    let config = WorkerShedderConfig { ramp: Duration::from_secs(5), ..WorkerShedderConfig::default() };
    let worker = ShedLayer::worker(config, Measure::Busy { workers: WORKERS }).class(class).seed(1).build().unwrap();
    let fleet = ShedLayer::fleet(WORKERS, 0.2).class(class).build().unwrap();
    let service = fleet.layer(worker.layer(limit.layer(slow.clone())));
    let (fates, first) = flood(&worker.handle(), service).await;
    let [test, get, post, critical] = fates.map(|fate| fate.lost as f64 / fate.sent as f64);
    assert!(fates.iter().all(|fate| fate.sent > 3000), "{fates:?}");
    assert!(critical < 0.001, "critical: {critical}");
    assert!(test > get && get > post && post > critical, "{fates:?}");
    let (test, get) = (first[0].expect("test requests are shed"), first[1].expect("reads are shed"));
    assert!(test < get && first[2].is_none_or(|post| get < post) && first[3].is_none(), "{first:?}");
    let served = slow.served() as f64 / SECONDS as f64;
    assert!(served > 0.6 * CAPACITY, "the service is kept busy: {served} a second");
    assert_eq!(slow.most(), WORKERS);
}

/// The same without shedders: the limit alone loses critical requests like all others.
#[tokio::test(start_paused = true)]
async fn a_limit_alone_loses_critical_requests() {
    let limit = ConcurrencyLayer::builder(WORKERS).queue(Queue::new(20, Duration::from_secs(1))).build().unwrap();
    let idle = ShedLayer::fleet(1, 0.0).build().unwrap();
    let (fates, _) = flood(&idle.handle(), limit.layer(Slow::taking(WORK_MILLIS))).await;
    let critical = fates[3].lost as f64 / fates[3].sent as f64;
    assert!(critical > 0.5, "{critical}");
}
