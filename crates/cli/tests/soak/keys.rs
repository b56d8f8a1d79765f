//! Millions of keys, which must not reset any limit, and one key with all the load, which must not slow down others.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;

use crate::load::{PLENTY, Server, Stop, probe, resident};
use crate::report::{Progress, Watch};

/// Keys that are sent, and keys that the server has room for.
const KEYS: u64 = 10_000_000;
const ROOM: u64 = 100_000;
/// Commands per pipeline.
const PIPELINE: u64 = 500;
/// Largest growth of the server's memory from its start, in megabytes, whatever the number of keys.
const GROWTH: f64 = 64.0;

/// Sends commands and counts the first numbers of their answers: 0 for allowed, 1 for denied.
pub(crate) struct Throttle(BufReader<TcpStream>);

impl Throttle {
    pub(crate) fn open(address: SocketAddr) -> Throttle {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Throttle(BufReader::with_capacity(64 << 10, stream))
    }

    /// Sends commands and returns how many were denied.
    fn denied(&mut self, commands: &str, count: u64) -> u64 {
        self.0.get_mut().write_all(commands.as_bytes()).unwrap();
        (0..count).map(|_| self.answer()).sum()
    }

    /// The first number of an answer of five.
    fn answer(&mut self) -> u64 {
        let [header, first, ..]: [String; 6] = std::array::from_fn(|_| self.line());
        assert_eq!(header, "*5");
        first[1..].parse().unwrap()
    }

    /// Sends TIDEGATE.CHECK commands and returns how many pass.
    pub(crate) fn passes(&mut self, commands: &str, count: u64) -> u64 {
        self.0.get_mut().write_all(commands.as_bytes()).unwrap();
        let mut passed = 0;
        for _ in 0..count {
            // Five numbers, and a name after its length.
            let lines: [String; 8] = std::array::from_fn(|_| self.line());
            assert_eq!(lines[0], "*6", "{lines:?}");
            passed += u64::from(lines[1] == ":0");
        }
        passed
    }

    /// One line, without its end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns whether one more request of this user, with a limit of five per hour, is denied.
    fn is_limited(&mut self, user: &str) -> bool {
        self.denied(&format!("CL.THROTTLE {user} 4 5 3600\r\n"), 1) == 1
    }
}

pub(crate) fn ten_million_keys_stay_within_bounds(progress: &mut Progress) {
    let tidegate = Tidegate::start(&["--store", &format!("memory:{ROOM}")]);
    let start = resident(&tidegate);
    let mut victims = Throttle::open(tidegate.resp);
    let limit = |victims: &mut Throttle, user: &str| {
        assert!((0..6).any(|_| victims.is_limited(user)), "{user} is not limited at all");
    };
    limit(&mut victims, "early");
    let counted = || tidegate.metric("tidegate_requests_total{protocol=\"resp\"}").unwrap();
    let before = counted();
    let (next, looks, watch) = (AtomicU64::new(0), AtomicU64::new(0), Watch::start());
    let (most, denied) = std::thread::scope(|scope| {
        let senders = [0, 1].map(|_| scope.spawn(|| send_keys(tidegate.resp, &next)));
        let (mut most, mut logged, mut is_late_limited) = (0.0_f64, 0, false);
        while !senders.iter().all(|sender| sender.is_finished()) {
            let sent = next.load(Ordering::Relaxed);
            if sent > KEYS / 4 && !is_late_limited {
                is_late_limited = true;
                limit(&mut victims, "late");
            }
            assert!(victims.is_limited("early"), "the early user is not limited after {sent} keys");
            assert!(!is_late_limited || victims.is_limited("late"), "the late user is not limited after {sent} keys");
            looks.fetch_add(1, Ordering::Relaxed);
            most = most.max(resident(&tidegate));
            if sent / (KEYS / 5) > logged {
                logged = sent / (KEYS / 5);
                progress.log(&format!("{} million keys, {most:.1} MB", sent / 1_000_000));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        (most, senders.into_iter().map(|sender| sender.join().unwrap()).sum::<u64>())
    });
    let rate = next.load(Ordering::Relaxed) as f64 / watch.elapsed().as_secs_f64();
    progress.figure("different keys, with room for 100,000", KEYS, "");
    let counted = counted() - before;
    progress.figure("commands counted by the server", counted, "≥ keys");
    assert!(counted >= KEYS as f64, "{counted}");
    progress.figure("new keys denied for lack of room", denied, "");
    progress.figure("keys per second", format!("{rate:.0}"), "");
    progress.figure("memory at the start / maximum", format!("{start:.1} / {most:.1} MB"), "growth ≤ 64 MB");
    progress.figure("checks of limited users, all denied", looks.load(Ordering::Relaxed), "all");
    assert!(most - start <= GROWTH, "{most} MB");
}

/// Sends its part of the keys, and returns how many were denied.
fn send_keys(address: SocketAddr, next: &AtomicU64) -> u64 {
    let (mut throttle, mut denied) = (Throttle::open(address), 0);
    loop {
        let first = next.fetch_add(PIPELINE, Ordering::Relaxed);
        if first >= KEYS {
            return denied;
        }
        let commands: String =
            (first..first + PIPELINE).map(|key| format!("CL.THROTTLE k{key} 99 100 3600\r\n")).collect();
        denied += throttle.denied(&commands, PIPELINE);
    }
}

/// Keys with a limit of five per day that a client sends: 25 times as many as there is room for.
const CALLERS_KEYS: u64 = 2_500_000;

/// New users under a rule of five per day after that.
const NEWCOMERS: usize = 200;

pub(crate) fn keys_of_callers_shut_no_rule_out(progress: &mut Progress) {
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, FIVE_A_DAY).unwrap();
    let tidegate = Tidegate::with_config(&path, &["--store", &format!("memory:{ROOM}")]);
    let (next, watch) = (AtomicU64::new(0), Watch::start());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| send_five_a_day(tidegate.resp, &next));
        }
    });
    progress.figure("keys of CL.THROTTLE, 5 per day", CALLERS_KEYS, "");
    progress.figure("duration of the flood", format!("{:.1} s", watch.elapsed().as_secs_f64()), "");
    let mut rules = Throttle::open(tidegate.resp);
    let served = |user: &usize| {
        let command = format!("TIDEGATE.CHECK api user new{user}\r\n");
        (0..7).map(|_| rules.passes(&command, 1)).sum::<u64>() == 5
    };
    let served = (0..NEWCOMERS).filter(served).count();
    progress.figure("new users under a rule with 5 of 5 units", served, "all 200");
    assert_eq!(served, NEWCOMERS);
}

const FIVE_A_DAY: &str = "
domains:
  api: {rules: [{name: per-user, key: {entry: user}, limit: {algorithm: gcra, rate: 5/day}}]}
";

/// Sends its part of the keys, each until its limit is used up.
fn send_five_a_day(address: SocketAddr, next: &AtomicU64) {
    let mut throttle = Throttle::open(address);
    loop {
        let first = next.fetch_add(PIPELINE, Ordering::Relaxed);
        if first >= CALLERS_KEYS {
            return;
        }
        let keys = first..first + PIPELINE;
        let commands: String = keys.map(|key| format!("CL.THROTTLE k{key} 4 5 86400 5\r\n")).collect();
        throttle.denied(&commands, PIPELINE);
    }
}

pub(crate) fn a_hot_key_does_not_slow_others(progress: &mut Progress) {
    let server = Server::start(PLENTY, &[]);
    // The same load both times, so that only the number of keys differs.
    let spread = under_load(progress, &server, 10_000);
    let hot = under_load(progress, &server, 1);
    let ratio = hot.0.p99().as_secs_f64() / spread.0.p99().as_secs_f64();
    progress.figure(
        "load on 10,000 keys; p50 / p99 of other clients",
        format!("{:.0}/s; {}", spread.1, spread.0.summary()),
        "",
    );
    progress.figure(
        "load on one key; p50 / p99 of other clients",
        format!("{:.0}/s; {}", hot.1, hot.0.summary()),
        "p99 ≤ 2×",
    );
    progress.figure("p99 ratio", format!("{ratio:.2}"), "");
    assert!(hot.0.p99() <= spread.0.p99() * 2 + Duration::from_millis(20), "{}", hot.0.summary());
}

/// Returns the latencies of other clients while two connections send as much as they can for this many keys, and the rate.
fn under_load(progress: &Progress, server: &Server, keys: u64) -> (crate::load::Latencies, f64) {
    progress.log(&format!("load on {keys} keys for 10 s"));
    let (stop, sent) = (Stop::default(), AtomicU64::new(0));
    let others = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut throttle = Throttle::open(server.resp);
                let command = |number: u64| format!("CL.THROTTLE hot{} 99 100 60\r\n", number % keys);
                while !stop.is_now() {
                    let first = sent.fetch_add(100, Ordering::Relaxed);
                    throttle.denied(&(first..first + 100).map(command).collect::<String>(), 100);
                }
            });
        }
        let _at_the_end = stop.at_the_end();
        probe(server, Duration::from_secs(10))
    });
    (others, sent.load(Ordering::Relaxed) as f64 / 10.0)
}
