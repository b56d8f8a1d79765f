//! What an exact decision costs Redis, beside a plain script and a plain INCR.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use tidegate_bench_server::{RedisServer, median, mix};
use tidegate_core::{Charge, Key, Limit};
use tidegate_stores::redis::RedisStore;
use tidegate_stores::{Call, Store};
use tokio::runtime::Builder;

use crate::{Args, patient, progress};

const DEPTHS: [usize; 3] = [1, 16, 64];

/// GCRA in microseconds, as people write it.
const PLAIN: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new_tat = tat + interval * cost
local allow_at = new_tat - interval * burst
if allow_at > now then
  return {0, math.floor((now - (tat - interval * burst)) / interval), allow_at - now, tat - now}
end
redis.call('SET', KEYS[1], string.format('%d', new_tat), 'PX', math.ceil((new_tat - now) / 1000))
return {1, math.floor((now - allow_at) / interval), -1, new_tat - now}
";

#[derive(Clone, Copy, PartialEq)]
enum Subject {
    Tidegate,
    Plain,
    Incr,
}

const SUBJECTS: [(Subject, &str); 3] =
    [(Subject::Tidegate, "tidegate, exact"), (Subject::Plain, "plain EVALSHA GCRA"), (Subject::Incr, "INCR")];

/// Decides so many random keys, so many at a time. Tells CPU seconds of Redis per million, and decisions a second.
fn measure(server: &RedisServer, subject: Subject, depth: usize, count: u64, seed: u64) -> (f64, f64) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection: MultiplexedConnection = server.client().get_multiplexed_async_connection().await.unwrap();
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(PLAIN).query_async(&mut connection).await.unwrap();
        let store = RedisStore::open(&patient(server).parse().unwrap()).unwrap();
        let limit: Limit = "1000/minute".parse().unwrap();
        let warm = Charge::take(Key::new("warm").unwrap(), &limit, 1);
        store.charge(&Call::default(), &[warm]).await.unwrap();
        let (cpu, start, next) = (server.cpu_seconds(), Instant::now(), Arc::new(AtomicU64::new(0)));
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let (mut connection, store, sha) = (connection.clone(), store.clone(), sha.clone());
                let next = Arc::clone(&next);
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= count {
                            return;
                        }
                        let key = format!("key:{}", mix(seed ^ number) % 1_000_000);
                        match subject {
                            Subject::Tidegate => {
                                let charge = Charge::take(Key::new(&key).unwrap(), &limit, 1);
                                store.charge(&Call::default(), &[charge]).await.unwrap();
                            }
                            Subject::Plain => {
                                let mut call = redis::cmd("EVALSHA");
                                call.arg(&sha).arg(1).arg(&key).arg(60_000).arg(1000).arg(1);
                                call.query_async::<redis::Value>(&mut connection).await.unwrap();
                            }
                            Subject::Incr => {
                                let key = format!("incr:{key}");
                                redis::cmd("INCR").arg(&key).query_async::<i64>(&mut connection).await.unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let wall = start.elapsed().as_secs_f64();
        let cpu = server.cpu_seconds() - cpu;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
        (cpu * 1e6 / count as f64, count as f64 / wall)
    })
}

/// Measures, and prints a table.
pub(crate) fn run(server: &RedisServer, args: &Args) {
    let bar = progress(args.rounds as usize * DEPTHS.len() * SUBJECTS.len(), "exact");
    let mut costs = vec![vec![(Vec::new(), Vec::new()); SUBJECTS.len()]; DEPTHS.len()];
    for round in 0..args.rounds {
        for (depth, of_depth) in DEPTHS.iter().zip(&mut costs) {
            // Each round begins with another one.
            for turn in 0..SUBJECTS.len() {
                let place = (turn + round as usize) % SUBJECTS.len();
                let count = args.thousands * 1000 / if *depth == 1 { 4 } else { 1 };
                let (cpu, speed) = measure(server, SUBJECTS[place].0, *depth, count, mix(round.into()));
                of_depth[place].0.push(cpu);
                of_depth[place].1.push(speed);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    println!("Redis CPU seconds per million decisions (decisions per second); medians of {} rounds", args.rounds);
    println!("| in flight | {} | tidegate / plain |", SUBJECTS.map(|(_, name)| name).join(" | "));
    println!("|---|---|---|---|---|");
    for (depth, of_depth) in DEPTHS.iter().zip(costs) {
        let medians: Vec<(f64, f64)> = of_depth.into_iter().map(|(cpu, speed)| (median(cpu), median(speed))).collect();
        let cells: Vec<String> = medians.iter().map(|(cpu, speed)| format!("{cpu:.2} ({speed:.0})")).collect();
        println!("| {depth} | {} | {:.2} |", cells.join(" | "), medians[0].0 / medians[1].0);
    }
}
