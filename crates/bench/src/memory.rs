//! Resident bytes a key.
//!
//! A counting allocator would not see a table that comes from `mmap`, and one process could not tell a subject's pages
//! from those that the subject before it gave back. So each subject fills up in a process of its own, which compares
//! its resident memory before and after.

use std::env;
use std::fmt;
use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};

use ::governor::{DefaultKeyedRateLimiter, RateLimiter};
use ::tidegate::Limit;
use clap::ValueEnum;

use crate::harness::Subject;
use crate::report::Footprint;
use crate::scenario::{BASELINE, GOVERNOR_NUMBER, LIMITADOR, PINGORA, THROTTLECRAB};
use crate::subjects::throttlecrab::Throttle;
use crate::subjects::{Terms, governor, limitador, pingora, tidegate};
use crate::workload::{Request, key_name};

const MILLION: u64 = 1_000_000;

/// A limiter whose memory is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Probe {
    TidegateGcra,
    TidegateFixedWindow,
    TidegateSlidingCounter,
    GovernorString,
    GovernorNumber,
    Throttlecrab,
    Pingora,
    Limitador,
}

/// What to measure, with how many keys. limitador would need more than ten gigabytes for ten million keys.
pub(crate) const ALL: &[(Probe, u64)] = &[
    (Probe::TidegateGcra, MILLION),
    (Probe::TidegateGcra, 10 * MILLION),
    (Probe::TidegateFixedWindow, MILLION),
    (Probe::TidegateFixedWindow, 10 * MILLION),
    (Probe::TidegateSlidingCounter, MILLION),
    (Probe::TidegateSlidingCounter, 10 * MILLION),
    (Probe::GovernorString, MILLION),
    (Probe::GovernorString, 10 * MILLION),
    (Probe::GovernorNumber, MILLION),
    (Probe::GovernorNumber, 10 * MILLION),
    (Probe::Throttlecrab, MILLION),
    (Probe::Throttlecrab, 10 * MILLION),
    (Probe::Pingora, MILLION),
    (Probe::Pingora, 10 * MILLION),
    (Probe::Limitador, MILLION),
];

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TidegateGcra => "tidegate gcra",
            Self::TidegateFixedWindow => "tidegate fixed_window",
            Self::TidegateSlidingCounter => "tidegate sliding_counter",
            Self::GovernorString => BASELINE,
            Self::GovernorNumber => GOVERNOR_NUMBER,
            Self::Throttlecrab => THROTTLECRAB,
            Self::Pingora => PINGORA,
            Self::Limitador => LIMITADOR,
        })
    }
}

/// Starts this program again to measure one subject.
pub(crate) fn measure_in_child(probe: Probe, keys: u64) -> Footprint {
    let value = probe.to_possible_value().expect("no probe is skipped");
    let output = Command::new(env::current_exe().expect("this program has a path"))
        .args(["--memory-probe", value.get_name()])
        .args(["--memory-keys", &keys.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("this program can be started again");
    assert!(output.status.success(), "measuring {probe} failed");
    let text = String::from_utf8(output.stdout).expect("a number is text");
    let bytes: u64 = text.trim().parse().expect("the child prints a number");
    Footprint { subject: probe.to_string(), keys, bytes_a_key: bytes as f64 / keys as f64 }
}

/// The growth of this process, in bytes, while one limiter is built and sees `keys` distinct keys.
pub(crate) fn measure_here(probe: Probe, keys: u64) -> u64 {
    match probe {
        Probe::TidegateGcra => tidegate_growth(tidegate::gcra(Terms::DENIED), keys),
        Probe::TidegateFixedWindow => tidegate_growth(tidegate::fixed_window(Terms::DENIED), keys),
        Probe::TidegateSlidingCounter => tidegate_growth(tidegate::sliding_counter(Terms::DENIED), keys),
        Probe::GovernorString => growth(
            keys,
            || DefaultKeyedRateLimiter::<String>::keyed(governor::quota(Terms::DENIED)),
            |limiter, id| limiter.check_key(&key_name(id)).is_ok(),
        ),
        Probe::GovernorNumber => growth(
            keys,
            || RateLimiter::keyed(governor::quota(Terms::DENIED)),
            |limiter: &mut DefaultKeyedRateLimiter<u64>, id| limiter.check_key(&id).is_ok(),
        ),
        Probe::Throttlecrab => {
            growth(keys, || Throttle::new(Terms::DENIED, small(keys)), |throttle, id| throttle.check(&key_name(id)))
        }
        // With limits shared by colliding keys, small terms would deny.
        Probe::Pingora => {
            growth(keys, || pingora::Observe::new(Terms::SPREAD), |observe, id| observe.decide(&Request::of(small(id))))
        }
        Probe::Limitador => growth(
            keys,
            || limitador::InMemory::empty(Terms::DENIED, keys),
            |in_memory, id| in_memory.check(&limitador::context(&key_name(id))),
        ),
    }
}

/// A table sized for the keys.
fn tidegate_growth(limit: Limit, keys: u64) -> u64 {
    growth(keys, || tidegate::limiter(limit, small(keys)), |limiter, id| tidegate::check(limiter, &key_name(id)))
}

/// Every key is made on the fly and dropped: the driver itself holds none.
fn growth<L>(keys: u64, build: impl FnOnce() -> L, mut insert: impl FnMut(&mut L, u64) -> bool) -> u64 {
    let before = resident_bytes();
    let mut limiter = build();
    for id in 0..keys {
        assert!(insert(&mut limiter, id), "a first request is allowed");
    }
    let after = resident_bytes();
    black_box(&limiter);
    after.saturating_sub(before)
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("ten million keys at most")
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux with /proc");
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .expect("a VmRSS line");
    kibibytes.parse::<u64>().expect("a number of kB") * 1024
}
