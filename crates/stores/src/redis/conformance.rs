//! The conformance suite on the Lua files, in process and on a live Redis.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

mod in_process;
mod joined;
mod leases;
mod live;
mod log_costs;
mod permits;

use crate::redis::link::Reply;
use tidegate_core::{Charge, Decision, Decisions, Key, Limit, Op, Time};
use tidegate_testkit::conformance::{self, Subject, histories, traces, transactions};

use super::link::{Arg, Script};
use super::script::Scripts;
use super::{decode, encode};
use in_process::InProcess;
use live::Live;

/// The scripts with a clock that is told the time, and states that live so many milliseconds longer than they count.
fn told_the_time(spare: u64) -> Scripts {
    Scripts::on(&format!(
        "local now_n, now_s, spare = table.remove(ARGV) + 0, table.remove(ARGV) + 0, {spare}\nlocal OTHER_LAYOUT = 'TIDEGATE other'\n",
    ))
}

/// Whatever runs a script.
trait Runs {
    fn scripts(&self) -> &'static Scripts;
    /// Forgets every key.
    fn restart(&mut self);
    fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Vec<u8>]) -> Reply;
    /// When a key expires on the clock that the scripts were told, and whether the last run said so; nothing if it is not
    /// known.
    fn end_of(&self, key: &[u8]) -> Option<End>;
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no such key.
    Gone,
    At {
        nanos: u64,
        told_now: bool,
    },
}

/// A state is there until it equals never seen, and no longer than three milliseconds after, as far as a charge made it.
fn check_end(subject: &impl Runs, charge: &Charge<'_>, now: Time, decision: &Decision) {
    let Some(end) = subject.end_of(charge.key.as_bytes()) else { return };
    let counts_until = now.as_nanos() + decision.reset_after().as_nanos() as u64;
    let said = || format!("{end:?}, but it counts until {counts_until}: {charge:?} at {now:?}");
    match end {
        End::Gone => assert!(decision.reset_after().is_zero(), "{}", said()),
        End::At { nanos, told_now } => {
            assert!(nanos >= counts_until || decision.reset_after().is_zero(), "too early: {}", said());
            let has_charged = told_now && decision.receipt().is_some();
            if has_charged && matches!(charge.op, Op::Take(1..) | Op::Debit(1..)) {
                assert!(nanos <= counts_until + 3_000_000, "too late: {}", said());
            }
        }
    }
}

/// The arguments as bytes, and the instant after them.
fn bytes(args: &[Arg<'_>], now: Time) -> Vec<Vec<u8>> {
    let text = |arg: &Arg<'_>| match arg {
        Arg::Bytes(bytes) => bytes.to_vec(),
        Arg::Signed(number) => number.to_string().into_bytes(),
        Arg::Unsigned(number) => number.to_string().into_bytes(),
    };
    let (seconds, nanos) = (now.as_nanos() / 1_000_000_000, now.as_nanos() % 1_000_000_000);
    args.iter().map(text).chain([seconds.to_string().into_bytes(), nanos.to_string().into_bytes()]).collect()
}

/// Decides all charges with the script for one of them or that for several.
fn charge(subject: &mut impl Runs, now: Time, charges: &[Charge<'_>]) -> Decisions {
    let keys: Vec<&[u8]> = charges.iter().map(|charge| charge.key.as_bytes()).collect();
    let scripts = subject.scripts();
    let reply = match charges {
        [one] => subject.run(scripts.one(one.limit), &keys, &bytes(&encode::one(one, now), now)),
        several => subject.run(&scripts.several, &keys, &bytes(&encode::several(several, now), now)),
    };
    let decisions = match charges {
        [one] => decode::one(one, &reply, 0),
        several => decode::decisions(several, &reply),
    };
    let decisions = decisions.unwrap_or_else(|error| panic!("{error}: {reply:?} to {charges:?} at {now:?}"));
    for (number, (charge, decision)) in charges.iter().zip(decisions.iter()).enumerate() {
        // The last of several decisions about one state is about what is left of it.
        if charges.iter().skip(number + 1).all(|later| later.key != charge.key) {
            check_end(subject, charge, now, decision);
        }
    }
    decisions
}

fn decide(subject: &mut impl Runs, key: &str, limit: &Limit, now: Time, op: Op) -> Decision {
    let charges = [Charge::new(Key::new(key).unwrap(), limit, op)];
    *charge(subject, now, &charges).iter().next().unwrap()
}

/// The scripts as what the suite asks.
struct Scripted<R>(R);

impl<R: Runs> Subject for Scripted<R> {
    fn restart(&mut self) {
        self.0.restart();
    }

    fn charge(&mut self, now: Time, charges: &[Charge<'_>]) -> Decisions {
        charge(&mut self.0, now, charges)
    }
}

fn in_process() -> Scripted<InProcess> {
    Scripted(InProcess::new())
}

#[test]
fn traces_in_process() {
    traces::check(&mut in_process());
}

#[test]
fn histories_in_process() {
    histories::check(&mut in_process(), 2_000);
}

#[test]
fn jumps_in_process() {
    transactions::check_jumps(&mut in_process());
}

#[test]
fn transactions_in_process() {
    transactions::check(&mut in_process(), 1_500);
}

fn check_live(live: Live, cases: u32) {
    let mut subject = Scripted(live);
    conformance::check(&mut subject, cases);
    permits::check(&mut subject, cases);
}

#[test]
fn all_on_a_redis_alone() {
    check_live(Live::alone(), 300);
}

#[test]
fn all_on_a_valkey() {
    check_live(Live::on_valkey(), 100);
}

#[test]
fn all_on_a_redis_behind_sentinels() {
    check_live(Live::behind_sentinels(), 50);
}

#[test]
fn all_on_a_cluster() {
    check_live(Live::as_cluster(), 100);
}
