//! What connections cost Redis: the same threads with the same calls in flight, over few links and over many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_bench_server::{RedisServer, median, mix};
use tidegate_core::{Charge, Key, Limit};
use tidegate_stores::redis::RedisStore;
use tidegate_stores::{Call, Store};
use tokio::runtime::Builder;
use tokio::sync::Barrier;

use crate::{Args, patient, progress};

const THREADS: usize = 8;
/// The first is the one that others are compared with.
const LINKS: [usize; 2] = [2, 8];
/// Calls in flight, of all threads together.
const DEPTHS: [usize; 2] = [128, 512];

/// What all threads of a run share.
struct Run {
    store: RedisStore,
    limit: Limit,
    /// All connections are up; all decisions are made. The thread that owns a link stays until nobody needs it.
    met: Barrier,
    next: AtomicU64,
    count: u64,
    seed: u64,
}

impl Run {
    async fn decide(&self, number: u64) {
        let key = format!("key:{}", mix(self.seed ^ number) % 1_000_000);
        let charge = Charge::take(Key::new(&key).unwrap(), &self.limit, 1);
        self.store.charge(&Call::default(), &[charge]).await.unwrap();
    }

    /// Decides until all is decided, this many at a time.
    async fn serve(self: Arc<Run>, depth: usize) {
        self.decide(u64::MAX).await;
        self.met.wait().await;
        self.met.wait().await;
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let run = Arc::clone(&self);
                tokio::spawn(async move {
                    loop {
                        let number = run.next.fetch_add(1, Relaxed);
                        if number >= run.count {
                            return;
                        }
                        run.decide(number).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        self.met.wait().await;
        self.met.wait().await;
    }
}

/// CPU seconds of Redis for a million decisions over this many links.
fn measure(server: &RedisServer, links: usize, depth: usize, count: u64, seed: u64) -> f64 {
    server.flush();
    let store = RedisStore::open(&format!("{}&links={links}", patient(server)).parse().unwrap()).unwrap();
    let (limit, met) = ("1000/minute".parse().unwrap(), Barrier::new(THREADS + 1));
    let run = Arc::new(Run { store, limit, met, next: AtomicU64::new(0), count, seed });
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (cost, up) = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let run = Arc::clone(&run);
            scope.spawn(move || runtime().block_on(run.serve(depth / THREADS)));
        }
        runtime().block_on(async {
            run.met.wait().await;
            // A thread whose link is not up yet got its answer over another one.
            let up = wait_for_links(&run.store, links).await;
            let before = server.cpu_seconds();
            run.met.wait().await;
            run.met.wait().await;
            let after = server.cpu_seconds();
            run.met.wait().await;
            ((after - before) * 1e6 / count as f64, up)
        })
    });
    assert_eq!(up, links, "connections that were up when the run began");
    cost
}

/// Waits until so many links are up, for two seconds at most. Returns how many are.
async fn wait_for_links(store: &RedisStore, links: usize) -> usize {
    let up = || store.health().nodes.iter().map(|node| node.connections).sum();
    for _ in 0..200 {
        if up() == links {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    up()
}

/// Measures, and prints a table.
pub(crate) fn run(server: &RedisServer, args: &Args) {
    let bar = progress(DEPTHS.len() * LINKS.len() * args.rounds as usize, "links");
    println!("Redis CPU seconds per million decisions of {THREADS} threads; medians of {} rounds", args.rounds);
    println!(
        "| in flight | {} connections | {} connections | ratio | target |\n|---|---|---|---|---|",
        LINKS[0], LINKS[1]
    );
    for depth in DEPTHS {
        let mut costs = LINKS.map(|_| Vec::new());
        for round in 0..args.rounds {
            for turn in 0..LINKS.len() {
                let place = (turn + round as usize) % LINKS.len();
                let cost = measure(server, LINKS[place], depth, args.thousands * 1000, mix(round.into()));
                costs[place].push(cost);
                bar.inc(1);
            }
        }
        let [few, many] = costs.map(median);
        bar.suspend(|| println!("| {depth} | {few:.2} | {many:.2} | {:.2} | ≤ 1.1 |", many / few));
    }
    bar.finish_and_clear();
}
