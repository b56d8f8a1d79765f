//! Long runs of several nodes on one real Redis: what passes, and what it costs.

use std::time::Duration;

use tidegate_core::{Charge, Clock, Key, Limit, Placement, Rate};
use tidegate_stores::Call;
use tidegate_stores::redis::RedisStore;
use tidegate_testkit::servers::{Server, Setup};
use tokio::time::{Instant, sleep};

use super::{Consistency, Consistent};

/// A source of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn node(server: &Server) -> Consistent {
    let url = format!("redis://127.0.0.1:{}?timeout=5s", server.port);
    Consistent::new(RedisStore::open(&url.parse().unwrap()).unwrap().into(), Clock::system())
}

async fn take(node: &Consistent, name: &str, limit: &Limit, units: u64, consistency: Consistency) -> bool {
    let charge = Charge::take(Key::new(name).unwrap(), limit, units);
    let charge = charge.placed(Placement { tag: b"", consistency });
    node.charge(&Call::default(), &[charge]).await.unwrap().is_allowed()
}

/// Units that were asked for, and two instants between which that was answered, in nanoseconds.
type Asked = (u64, u64, u64);

/// What came of a run.
#[derive(Default)]
struct Ran {
    passed: Vec<Asked>,
    denied: Vec<Asked>,
    /// The longest that this machine, which does other things too, kept a task waiting beyond its pause.
    held_up: Duration,
}

impl Ran {
    fn total(&self) -> u64 {
        self.passed.iter().map(|(units, ..)| units).sum()
    }

    /// What must pass: what the limit gives, or as much of it as was asked for where the machine held the tasks up.
    fn due(&self, of_asked: u64, of_limit: u64) -> u64 {
        if self.held_up < Duration::from_millis(20) { of_limit } else { of_asked }
    }

    /// What would have passed if all had asked one bucket: tasks that are held up ask for less than the limit.
    fn ideal(&self, burst: u64, interval: u64) -> u64 {
        let mut asked: Vec<&Asked> = self.passed.iter().chain(&self.denied).collect();
        asked.sort_by_key(|(_, before, _)| *before);
        let (mut total, mut empty_until) = (0, 0);
        for (units, at, _) in asked {
            let debt = u64::max(empty_until, *at) + units * interval;
            if debt <= at + burst * interval {
                (total, empty_until) = (total + units, debt);
            }
        }
        total
    }
}

/// Lets tasks on each node take at random moments for so long.
async fn run(
    nodes: &[Consistent],
    limit: Limit,
    mode: Consistency,
    tasks: u64,
    pause_us: u64,
    length: Duration,
) -> Ran {
    let began = Instant::now();
    let mut running = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        for task in 0..tasks {
            let node = node.clone();
            let mut dice = Dice(0x9E37_79B9 + 1_000 * number as u64 + task);
            running.push(tokio::spawn(async move {
                let mut ran = Ran::default();
                let nanos = || u64::try_from(began.elapsed().as_nanos()).unwrap();
                while began.elapsed() < length {
                    let (units, before) = (1 + dice.below(3), nanos());
                    let passes = take(&node, "one", &limit, units, mode).await;
                    let answers = if passes { &mut ran.passed } else { &mut ran.denied };
                    answers.push((units, before, nanos()));
                    let (pause, paused) = (Duration::from_micros(dice.below(2 * pause_us)), Instant::now());
                    sleep(pause).await;
                    ran.held_up = ran.held_up.max(paused.elapsed() - pause);
                }
                ran
            }));
        }
    }
    let mut all = Ran::default();
    for task in running {
        let ran = task.await.unwrap();
        all.passed.extend(ran.passed);
        all.denied.extend(ran.denied);
        all.held_up = all.held_up.max(ran.held_up);
    }
    all.passed.sort_by_key(|(_, before, _)| *before);
    all
}

/// The most that passed beyond the burst and what comes back, in any interval.
fn over(passed: &[Asked], burst: u64, interval: u64) -> i64 {
    let mut worst = i64::MIN;
    for (first, (_, start, _)) in passed.iter().enumerate() {
        let mut within: Vec<(u64, u64)> = passed[first..].iter().map(|(units, _, after)| (*after, *units)).collect();
        within.sort_unstable();
        let mut sum = 0;
        for (end, units) in within {
            sum += units;
            let bound = burst + (end - start) / interval;
            worst = worst.max(i64::try_from(sum).unwrap() - i64::try_from(bound).unwrap());
        }
    }
    worst
}

#[tokio::test]
async fn leases_never_let_too_much_pass_and_little_less() {
    let server = Server::start(&Setup::default());
    let nodes: Vec<Consistent> = (0..4).map(|_| node(&server)).collect();
    let (rate, burst) = (200, 200);
    let limit = Limit::gcra(Rate::per_second(rate).unwrap(), burst).unwrap();
    let length = Duration::from_secs(6);
    // About twice the rate: 4 nodes × 4 tasks × 2 units in 80 ms.
    let ran = run(&nodes, limit, Consistency::Leased, 4, 80_000, length).await;
    let (total, interval) = (ran.total(), 1_000_000_000 / rate);
    let (worst, ideal) = (over(&ran.passed, burst, interval), ran.ideal(burst, interval));
    let calls: u64 = nodes.iter().map(|node| node.health().calls).sum();
    println!("{total} units of {ideal} passed in {length:?}, {worst} over, {calls} calls, held up {:?}", ran.held_up);
    assert!(worst <= 0, "{worst} units too many");
    // All but what is late by a lease's length, and what is held at the end.
    assert!(total + burst / 3 >= ran.due(ideal, burst + rate * length.as_secs()), "{total} of {ideal}");
}

#[tokio::test]
async fn async_lets_pass_no_more_too_much_than_it_says() {
    let server = Server::start(&Setup::default());
    let nodes: Vec<Consistent> = (0..3).map(|_| node(&server)).collect();
    let (rate, burst) = (100, 50);
    let limit = Limit::gcra(Rate::per_second(rate).unwrap(), burst).unwrap();
    let length = Duration::from_secs(4);
    // 3 nodes × 4 tasks × 2 units in 80 ms: three times the rate, 100 units a second on each node.
    let ran = run(&nodes, limit, Consistency::Async, 4, 80_000, length).await;
    let (total, interval) = (ran.total(), 1_000_000_000 / rate);
    let (worst, ideal) = (over(&ran.passed, burst, interval), ran.ideal(burst, interval));
    let calls: u64 = nodes.iter().map(|node| node.health().calls).sum();
    println!("{total} units of {ideal} passed in {length:?}, {worst} over, {calls} calls, held up {:?}", ran.held_up);
    // Each of three nodes does not know what the two others let pass within 100 ms and the time of a call, some 20 ms here.
    let blind = 3 * 2 * 100 * (120 + i64::try_from(ran.held_up.as_millis()).unwrap()) / 1_000;
    assert!(worst <= blind, "{worst} units too many, {blind} at most");
    let due = ran.due(ideal * 9 / 10, burst + rate * length.as_secs() * 9 / 10);
    assert!(total >= due, "{total} of {ideal}");
    assert!(calls <= 3 * (4 * 10 + 10) + 12, "{calls} calls: one for each interval and node");
}
