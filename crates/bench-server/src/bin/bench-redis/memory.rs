//! What a key takes of Redis's memory, beside a counter as programs make it by INCRBY and EXPIRE.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use indicatif::ProgressBar;
use tidegate_bench_server::RedisServer;
use tidegate_core::{Charge, KeyBuf, Limit, Namespace, Purpose};
use tidegate_stores::redis::RedisStore;
use tidegate_stores::{Call, Store};
use tokio::runtime::Builder;

use crate::{patient, progress, start_redis};

/// A power of two, so that the tables of Redis are full.
const KEYS: u64 = 131_072;
const DEPTH: u64 = 64;
/// The first user; each has eleven digits.
const FIRST: u64 = 10_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// Longest time until Redis has put its tables and buffers in order.
const SETTLING_MAX: u32 = 50;
const SETTLING_PAUSE: Duration = Duration::from_millis(200);

/// Counts one for each user, in a window of a day of the rule `user_id` in the domain `perf`, through the store.
fn count_by_store(server: &RedisServer, bar: &ProgressBar) {
    let store = RedisStore::open(&patient(server).parse().unwrap()).unwrap();
    let limit = Limit::fixed_window(1000, DAY).unwrap();
    let namespace = Namespace::named(Purpose::Rule, &["perf", "user_id", ""]);
    let next = Arc::new(AtomicU64::new(0));
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let tasks: Vec<_> = (0..DEPTH)
            .map(|_| {
                let (store, namespace, next, bar) = (store.clone(), namespace.clone(), Arc::clone(&next), bar.clone());
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= KEYS {
                            return;
                        }
                        let key = KeyBuf::from_parts([format!("{:011}", FIRST + number)]).unwrap();
                        let charge = Charge::take(key.as_key(), &limit, 1).within(&namespace);
                        store.charge(&Call::default(), &[charge]).await.unwrap();
                        bar.inc(1);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Counts one for each user as envoyproxy/ratelimit does: the window stands in the name.
fn count_plainly(server: &RedisServer, bar: &ProgressBar) {
    let mut connection = server.connection();
    for batch in 0..KEYS / DEPTH {
        let mut pipe = redis::pipe();
        for number in 0..DEPTH {
            let name = format!("perf_user_id_{:011}_1667520000", FIRST + batch * DEPTH + number);
            pipe.cmd("INCRBY").arg(&name).arg(1).ignore().cmd("EXPIRE").arg(&name).arg(DAY.as_secs()).ignore();
        }
        pipe.exec(&mut connection).unwrap();
        bar.inc(DEPTH);
    }
}

/// Bytes that Redis has in use, once they do not change any more.
fn used(server: &RedisServer) -> f64 {
    let read = || server.info("used_memory").unwrap().parse::<f64>().unwrap();
    let mut last = read();
    for _ in 0..SETTLING_MAX {
        std::thread::sleep(SETTLING_PAUSE);
        let now = read();
        if (now - last).abs() < 1.0 {
            return now;
        }
        last = now;
    }
    last
}

/// Bytes that a key takes, and the name of one of them.
fn measure(count: fn(&RedisServer, &ProgressBar), bar: &ProgressBar) -> (f64, String) {
    let server = start_redis();
    let empty = used(&server);
    count(&server, bar);
    let full = used(&server);
    let mut connection = server.connection();
    let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, KEYS, "keys in Redis");
    ((full - empty) / KEYS as f64, redis::cmd("RANDOMKEY").query(&mut connection).unwrap())
}

/// The version and the allocator. The one that comes with Redis has sizes in steps of 8 bytes, that of some distributions in
/// steps of 16, so that what needs 24 or 40 bytes takes 32 or 48.
fn about(server: &RedisServer) -> String {
    let field = |name: &str| server.info(name).unwrap_or_default();
    let statistics: String = redis::cmd("MEMORY").arg("MALLOC-STATS").query(&mut server.connection()).unwrap();
    let steps = statistics.lines().find_map(|line| line.strip_prefix("Quantum size: "));
    let steps = steps.map_or("unknown", str::trim);
    format!("Redis {} with {}, sizes in steps of {steps} bytes", field("redis_version"), field("mem_allocator"))
}

/// Measures, and prints a table.
pub(crate) fn run() {
    let bar = progress(2 * KEYS as usize, "memory");
    let (by_store, name) = measure(count_by_store, &bar);
    let (plain, plain_name) = measure(count_plainly, &bar);
    bar.finish_and_clear();
    println!("{}: bytes of used_memory per key, with {KEYS} keys", about(&start_redis()));
    println!("| | bytes | target | example |\n|---|---|---|---|");
    println!("| tidegate, fixed_window | {by_store:.1} | ≤ 130 | `{name}` |");
    println!("| INCRBY and EXPIRE | {plain:.1} | | `{plain_name}` |");
}
