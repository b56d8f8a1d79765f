//! Layers that several runtimes share, runtimes that end while somebody waits, and callers who leave at each moment.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use tidegate_core::Key;
use tidegate_core::adaptive::{Aimd, AimdConfig};
use tidegate_tower::{
    AdaptiveLayer, ConcurrencyHandle, ConcurrencyLayer, FairLayer, KeyedConcurrencyLayer, Queue, ShapeLayer, Shaper,
    ShaperConfig, Tenant,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt};

use crate::support::{Slow, read, request};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn queued(limit: u64) -> ConcurrencyLayer {
    ConcurrencyLayer::builder(limit).queue(Queue::new(10_000, Duration::from_secs(60))).build().unwrap()
}

/// Waits in this thread until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let spins = (0..100_000).take_while(|_| !holds()).map(|_| std::thread::sleep(Duration::from_micros(100))).count();
    assert!(spins < 100_000, "{what}");
}

/// A runtime is shut down while its requests are in and in line: those of the other runtime go on.
#[test]
fn a_runtime_that_ends_takes_no_place_along() {
    let (layer, keyed) = (queued(2), KeyedConcurrencyLayer::builder(2, |_| Some(b"ann"[..].into())));
    let keyed = keyed.queue(Queue::new(99, Duration::from_secs(60))).build().unwrap();
    let fair =
        FairLayer::builder(2, |_| Some(Tenant::new(&b"a"[..]))).deadline(Duration::from_secs(60)).build().unwrap();
    let (ends, goes_on) = (runtime(), runtime());
    let stuck = Slow::taking(60_000);
    for _ in 0..20 {
        ends.spawn(layer.layer(stuck.clone()).oneshot(request(&[])));
        ends.spawn(keyed.layer(stuck.clone()).oneshot(request(&[])));
        ends.spawn(fair.layer(stuck.clone()).oneshot(request(&[])));
    }
    let waiting = || [layer.handle().waiting(), keyed.handle().waiting(), fair.handle().waiting()];
    until("eighteen of each wait", || waiting() == [18; 3] && stuck.inside() == 6);
    let quick = Slow::taking(1);
    // Each reads its response itself: a place is held until then, and they do not come into line in this order.
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let response = layer.layer(keyed.layer(fair.layer(quick.clone()))).oneshot(request(&[]));
            goes_on.spawn(async { read(response.await.unwrap()).await.status() })
        })
        .collect();
    until("all are in line", || waiting()[0] == 38);
    ends.shutdown_background();
    let served = goes_on.block_on(async {
        let mut served = 0;
        for task in tasks {
            let status = tokio::time::timeout(Duration::from_secs(30), task).await.expect("somebody was forgotten");
            served += u32::from(status.unwrap() == 200);
        }
        served
    });
    assert_eq!(served, 20);
    let in_flight = || {
        let of_ann = keyed.handle().in_flight(Key::new("ann").unwrap());
        [layer.handle().in_flight(), of_ann, fair.handle().in_flight()]
    };
    until("all places are back", || in_flight() == [0; 3] && waiting() == [0; 3]);
}

/// Without a runtime, or one without timers, waiting panics. Nothing else does, then or later.
#[test]
fn where_nobody_can_wait_the_layers_survive() {
    let layer = queued(1);
    let fair = FairLayer::builder(1, |_| Some(Tenant::new(&b"a"[..]))).build().unwrap();
    let keyed = KeyedConcurrencyLayer::builder(1, |_| Some(b"a"[..].into()));
    let keyed = keyed.queue(Queue::new(9, Duration::from_secs(1))).build().unwrap();
    let timeless = Builder::new_current_thread().build().unwrap();
    for _ in 0..3 {
        let _held = (
            layer.layer(Slow::default()).call(request(&[])),
            fair.layer(Slow::default()).call(request(&[])),
            keyed.layer(Slow::default()).call(request(&[])),
        );
        for enters in [true, false] {
            let call = |waits: &dyn Fn()| {
                let _entered = enters.then(|| timeless.enter());
                assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(waits)).is_err());
            };
            call(&|| drop(layer.layer(Slow::default()).call(request(&[]))));
            call(&|| drop(fair.layer(Slow::default()).call(request(&[]))));
            call(&|| drop(keyed.layer(Slow::default()).call(request(&[]))));
        }
        assert_eq!((layer.handle().waiting(), fair.handle().waiting(), keyed.handle().waiting()), (0, 0, 0));
    }
    let service = layer.layer(fair.layer(keyed.layer(Slow::default())));
    for _ in 0..3 {
        let status = runtime().block_on(async { service.clone().oneshot(request(&[])).await.unwrap().status() });
        assert_eq!(status, 200);
    }
    assert_eq!((layer.handle().in_flight(), fair.handle().in_flight()), (0, 0));
}

/// Threads of two runtimes before one adaptive limit with shares and lines, which moves all the time.
#[test]
fn shares_lose_nothing_between_runtimes() {
    let config = AimdConfig { initial: 4, min: 1, max: 8, backoff: 0.5, ..AimdConfig::default() };
    let layer = AdaptiveLayer::builder(Aimd::new(config).unwrap()).without_window();
    let part = AtomicU64::new(0);
    let layer = layer.queue(Queue::new(5000, Duration::from_secs(60)));
    let layer = layer.partitions([0.5, 0.2], move |_| match part.fetch_add(1, Ordering::Relaxed) % 4 {
        3 => Some(usize::MAX),
        2 => None,
        part => usize::try_from(part).ok(),
    });
    let (layer, runtimes) = (layer.build().unwrap(), [runtime(), runtime()]);
    let slow = Slow::default();
    let mut kept = Vec::new();
    for number in 0..4000 {
        let answer = if number % 7 == 0 { "503" } else { "200" };
        let response = layer.layer(slow.clone()).oneshot(request(&[("answer", answer)]));
        let task = runtimes[number % 2].spawn(async move { read(response.await.unwrap()).await.status() });
        if number % 3 == 0 { task.abort() } else { kept.push(task) }
    }
    runtimes[0].block_on(async {
        for task in kept {
            let status = tokio::time::timeout(Duration::from_secs(50), task).await.expect("somebody was forgotten");
            assert!([200, 503].contains(&status.unwrap().as_u16()));
        }
    });
    until("all places are back", || layer.handle().in_flight() == 0 && layer.handle().waiting() == 0);
    assert!(slow.most() <= 8, "{}", slow.most());
}

type Call = Pin<Box<dyn Future<Output = bool> + Send>>;

fn poll(call: &mut Call) -> Poll<bool> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Of five in a shaper's line each subset leaves, after each number of polls: the others go, in their order and time.
#[tokio::test(start_paused = true)]
async fn whoever_leaves_a_shaper_the_others_go() {
    for leaves in 0..32u32 {
        for polled in [false, true] {
            let shaper = Shaper::new("10/s".parse().unwrap(), ShaperConfig::default()).unwrap();
            let client = ShapeLayer::new(shaper.clone()).layer(Slow::default());
            shaper.acquire(1).await.unwrap();
            let mut line: Vec<(u32, Call)> = Vec::new();
            for place in 0..5 {
                let mut client = client.clone();
                let called = client.ready().await.unwrap().call(request(&[]));
                line.push((place, Box::pin(async move { called.await.is_ok() })));
            }
            if polled {
                assert!(line.iter_mut().all(|(_, call)| poll(call).is_pending()));
            }
            let began = tokio::time::Instant::now();
            line.retain(|(place, _)| leaves >> place & 1 == 0);
            let stays = line.len();
            assert_eq!(shaper.waiting(), stays);
            for (number, (_, call)) in line.into_iter().enumerate() {
                assert!(call.await);
                let took = began.elapsed().as_millis();
                let due = (number as u128 + 1) * 100;
                assert!((due..due + 20).contains(&took), "{leaves:05b}: {number} went after {took} ms");
            }
            assert_eq!(shaper.waiting(), 0);
        }
    }
}

/// Serves a stream that never ends by itself, on loopback.
async fn endless(layer: ConcurrencyLayer) -> std::net::SocketAddr {
    let stream = || {
        let frames = tokio_stream::StreamExt::throttle(
            tokio_stream::iter(std::iter::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"tick\n")))),
            Duration::from_millis(5),
        );
        Body::from_stream(frames)
    };
    let breaks = || {
        let frames = (0..9).map(|number| {
            assert!(number < 2, "broken in the body");
            Ok::<_, std::io::Error>(Bytes::from_static(b"tick\n"))
        });
        Body::from_stream(tokio_stream::iter(frames))
    };
    let panics = async || {
        tokio::task::yield_now().await;
        assert!(std::hint::black_box(false), "broken in the handler");
    };
    let app = Router::new().route("/", get(async move || stream())).route("/body", get(async move || breaks()));
    let app = app.route("/handler", get(panics)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn ask(address: std::net::SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

async fn until_stands(handle: &ConcurrencyHandle, in_flight: u64, waiting: usize) {
    let stands = async {
        while (handle.in_flight(), handle.waiting()) != (in_flight, waiting) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let stood = tokio::time::timeout(Duration::from_secs(10), stands).await;
    assert!(stood.is_ok(), "{handle:?} never came to {in_flight} and {waiting}");
}

/// Connections that break: in the middle of a stream, in line, by a handler and by a body that panic.
#[tokio::test]
async fn connections_that_break_free_their_places() {
    let layer = queued(1);
    let handle = Arc::new(layer.handle());
    let address = endless(layer).await;
    let mut first = ask(address, "/").await;
    first.read_exact(&mut [0; 100]).await.unwrap();
    let second = ask(address, "/").await;
    until_stands(&handle, 1, 1).await;
    let third = ask(address, "/handler").await;
    until_stands(&handle, 1, 2).await;
    drop(second);
    until_stands(&handle, 1, 1).await;
    drop(first);
    until_stands(&handle, 0, 0).await;
    drop(third);
    for path in ["/handler", "/body", "/handler", "/body"] {
        let mut broken = ask(address, path).await;
        let _ = broken.read_to_end(&mut Vec::new()).await;
        until_stands(&handle, 0, 0).await;
    }
    let mut last = ask(address, "/").await;
    last.read_exact(&mut [0; 100]).await.unwrap();
    assert_eq!(handle.in_flight(), 1);
    drop(last);
    until_stands(&handle, 0, 0).await;
}
