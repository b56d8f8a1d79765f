//! The clock of Redis jumps, as when a machine is set right or another one takes over.

use std::path::{Path, PathBuf};

use crate::ask::Said;
use crate::fleet::{Fleet, PATIENT, check, shared, sleep_millis};
use crate::process::{directory, eventually};
use crate::servers::{Server, Setup};

use Said::{Denied, Passed};

/// What passes in each window, and how long that is.
const LIMIT: usize = 3;
const WINDOW_MILLIS: u64 = 2_000;

/// Each algorithm, with the entry that chooses its rule.
const ALGORITHMS: [&str; 6] =
    ["gcra", "token_bucket", "fixed_window", "sliding_log", "sliding_counter", "sliced_window"];

/// Where Debian keeps the library that shifts a process's clock.
fn faketime() -> PathBuf {
    let machines = std::fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok);
    let libraries = machines.map(|machine| machine.path().join("faketime/libfaketime.so.1"));
    libraries.into_iter().find(|path| path.exists()).expect("libfaketime is missing; `make peers` installs it")
}

/// Shifts the clock of a server by whole seconds. Written aside first, so that it never reads half of it.
fn shift(file: &Path, seconds: &str) {
    let aside = file.with_extension("aside");
    std::fs::write(&aside, seconds).unwrap();
    std::fs::rename(&aside, file).unwrap();
}

/// Uses everything up, has the clock jump, and hands what passes at once afterwards to `after`.
fn jump(seconds: &str, after: impl Fn(&Fleet, &'static str)) {
    let (directory, library) = (directory(), faketime());
    let file = directory.path().join("shift");
    shift(&file, "+0");
    let variables = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let redis = Server::start(&Setup { variables: &variables, ..Setup::default() });
    let rules: Vec<String> = ALGORITHMS
        .iter()
        .map(|name| {
            format!(
                "name: {name}, key: {{entry: {name}}}, on_store_failure: deny, \
                 limit: {{algorithm: {name}, rate: {LIMIT}/{WINDOW_MILLIS}ms}}"
            )
        })
        .collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let fleet = Fleet::start(1, &shared(&format!("redis://127.0.0.1:{}?{PATIENT}", redis.port), &rules));
    for name in ALGORITHMS {
        assert!((0..100).any(|_| check(fleet.node(0), (name, "ann")) == Denied), "{name} denies nobody");
    }
    let time = || redis.command("TIME").split(' ').next().unwrap().parse::<i64>().unwrap();
    let before = time();
    shift(&file, seconds);
    let jumped = time() - before;
    let expected: i64 = seconds.parse().unwrap();
    assert!((jumped - expected).abs() < 100, "the clock of Redis jumped by {jumped} s");
    for name in ALGORITHMS {
        after(&fleet, name);
    }
}

/// Asks until it is denied; how many passed.
fn passed(fleet: &Fleet, name: &'static str) -> usize {
    (0..100).take_while(|_| check(fleet.node(0), (name, "ann")) == Passed).count()
}

#[test]
fn a_clock_that_jumps_back_locks_nobody_out() {
    jump("-3600", |fleet, name| {
        if name == ALGORITHMS[0] {
            // One wait for all of them: by the limits' own windows, and a little for a busy machine.
            sleep_millis(WINDOW_MILLIS * 2);
        }
        assert!(eventually(|| check(fleet.node(0), (name, "ann")) == Passed), "{name} locks out");
        let more = passed(fleet, name);
        assert!(more <= 2 * LIMIT, "{name}: {more} passed");
    });
}

#[test]
fn a_clock_that_jumps_ahead_gives_one_limit_more() {
    jump("3600", |fleet, name| {
        let more = passed(fleet, name);
        // A bucket gives back while we ask.
        assert!((1..=LIMIT + 2).contains(&more), "{name}: {more} passed");
    });
}
