//! Sliding logs of ten thousand entries, asked without a pause: others are answered as fast as beside any other limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::keys::Throttle;
use crate::load::{Latencies, PLENTY, Server, Stop, probe};
use crate::report::Progress;

/// Entries of a log, and the units of each limit.
const ENTRIES: u64 = 10_000;
/// Commands that are sent at once.
const PIPELINE: u64 = 100;
/// How long others are looked at.
const LOOK: Duration = Duration::from_secs(8);
/// What a busy machine adds to the slowest answers by itself.
const SLACK: Duration = Duration::from_millis(5);

/// The rule of the probes, and those that are hammered: by a bucket, by a log whose entries come and go, and by one that stays
/// full.
fn rules() -> String {
    format!(
        "
domains:
  api: {{rules: [{{name: per-user, key: {{entry: user}}, limit: {PLENTY}/hour}}]}}
  hammered:
    rules:
    - {{name: bucket, match: {{entries: {{bucket: '*'}}}}, key: {{entry: bucket}}, limit: {{algorithm: gcra, rate: {ENTRIES}/hour}}}}
    - {{name: moving, match: {{entries: {{moving: '*'}}}}, key: {{entry: moving}}, limit: {{algorithm: sliding_log, rate: {ENTRIES}/100ms}}}}
    - {{name: full, match: {{entries: {{full: '*'}}}}, key: {{entry: full}}, limit: {{algorithm: sliding_log, rate: {ENTRIES}/hour}}}}
"
    )
}

/// What is asked of which rule.
struct Hammer {
    what: &'static str,
    command: String,
}

/// What others see while two connections send as much as they can, how much that was a second, and the share that passed.
fn under(server: &Server, command: &str) -> (Latencies, f64, f64) {
    let (stop, sent, passed) = (Stop::default(), AtomicU64::new(0), AtomicU64::new(0));
    let others = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut throttle = Throttle::open(server.resp);
                let pipeline = command.repeat(usize::try_from(PIPELINE).unwrap());
                while !stop.is_now() {
                    passed.fetch_add(throttle.passes(&pipeline, PIPELINE), Ordering::Relaxed);
                    sent.fetch_add(PIPELINE, Ordering::Relaxed);
                }
            });
        }
        let _at_the_end = stop.at_the_end();
        probe(server, LOOK)
    });
    let sent = sent.into_inner() as f64;
    (others, sent / LOOK.as_secs_f64(), passed.into_inner() as f64 / sent.max(1.0))
}

pub(crate) fn long_logs_do_not_slow_others(progress: &mut Progress) {
    let server = Server::with_rules(&rules(), &[]);
    let quiet = probe(&server, LOOK);
    progress.figure("alone: p50 / p99", quiet.summary(), "");
    let mut throttle = Throttle::open(server.resp);
    let fill = "TIDEGATE.CHECK hammered full x\r\n";
    let filled: u64 = (0..ENTRIES / PIPELINE)
        .map(|_| throttle.passes(&fill.repeat(usize::try_from(PIPELINE).unwrap()), PIPELINE))
        .sum();
    assert_eq!(filled, ENTRIES);
    let hammers = [
        ("a bucket, denied", "TIDEGATE.CHECK hammered bucket x\r\n".to_owned()),
        ("a log whose entries come and go", "TIDEGATE.CHECK hammered moving x\r\n".to_owned()),
        ("a full log, denied", fill.to_owned()),
        ("a full log, denied nearly all of it at once", fill.replace("\r\n", &format!(" COST {}\r\n", ENTRIES - 1))),
    ]
    .map(|(what, command)| Hammer { what, command });
    let mut base = None;
    for Hammer { what, command } in &hammers {
        progress.log(&format!("{what}, for {} s", LOOK.as_secs()));
        let (others, rate, passed) = under(&server, command);
        let beside = format!("{:.0}/s, {:.0} % passed", rate, passed * 100.0);
        progress.figure(&format!("beside {what}: p50 / p99"), format!("{}; {beside}", others.summary()), "p99 ≤ 2×");
        let base = *base.get_or_insert(others.p99());
        let ratio = others.p99().as_secs_f64() / base.as_secs_f64();
        progress.figure("  ratio to the p99 beside a bucket", format!("{ratio:.2}"), "");
        assert!(others.p99() <= base * 2 + SLACK, "{what}: {}", others.summary());
    }
}
