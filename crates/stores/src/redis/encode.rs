//! From charges to the keys and arguments of a script.

use tidegate_core::{Charge, Numbers, Op, Receipt};

use super::link::Arg;

/// Arguments for each charge in `several.lua`.
const WIDTH: usize = 14;

/// Up to here Lua tells whole numbers apart.
const LUA_WHOLE_MAX: u64 = 1 << 53;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The arguments of one charge, for its algorithm's own script.
pub(crate) fn one(charge: &Charge<'_>) -> Vec<Arg<'static>> {
    let mut args = Vec::with_capacity(WIDTH);
    put(charge, &mut args);
    args
}

/// The arguments of several charges, for `several.lua`.
pub(crate) fn several(charges: &[Charge<'_>]) -> Vec<Arg<'static>> {
    let mut args = Vec::with_capacity(WIDTH * charges.len());
    for (number, charge) in charges.iter().enumerate() {
        args.extend([Arg::from(algorithm(charge)), Arg::from(i64::from(charge.veto))]);
        put(charge, &mut args);
        args.resize(WIDTH * (number + 1), Arg::from(""));
    }
    args
}

/// The arguments of a lease: its length, and those of each size.
pub(crate) fn lease<'a>(nanos: u64, sizes: impl Iterator<Item = Charge<'a>>) -> Vec<Arg<'static>> {
    let mut args = Vec::from(time(nanos));
    let sizes: Vec<Vec<Arg<'static>>> = sizes.map(|charge| one(&charge)).collect();
    args.push(Arg::from(sizes.first().map_or(0, Vec::len) as u64));
    args.extend(sizes.into_iter().flatten());
    args
}

/// The numbers of a log, for `inspect_log.lua`.
pub(crate) fn log_numbers(charge: &Charge<'_>) -> Vec<Arg<'static>> {
    // After the op, its units and nothing.
    one(charge).split_off(3)
}

/// The Lua file that does the arithmetic of a charge.
fn algorithm(charge: &Charge<'_>) -> &'static str {
    match charge.limit.numbers(charge.key) {
        Numbers::Bucket { .. } => "bucket",
        Numbers::Window { .. } => "fixed_window",
        Numbers::Counter { .. } => "sliding_counter",
        Numbers::Log { .. } => "log",
    }
}

fn put(charge: &Charge<'_>, args: &mut Vec<Arg<'static>>) {
    let (op, units, receipt) = split(charge.op);
    args.push(Arg::from(op));
    match charge.limit.numbers(charge.key) {
        Numbers::Bucket { interval, span, debt_max } => {
            let amount = units.saturating_mul(interval);
            args.extend(time(amount));
            args.extend(time(debt_max));
            args.extend(match charge.op {
                Op::Take(_) | Op::Ask(_) => {
                    span.checked_sub(amount).map_or([Arg::from(-1_i64), Arg::from(0_u64)], time)
                }
                _ => instant(receipt),
            });
        }
        Numbers::Window { limit, window, phase } => {
            args.extend(amount(units));
            args.push(Arg::from(limit));
            args.extend(time(window));
            args.extend(time(phase));
            args.extend(instant(receipt));
        }
        Numbers::Counter { limit, window } => {
            args.extend(amount(units));
            args.push(Arg::from(limit));
            args.extend(time(window));
            args.extend(instant(receipt));
        }
        Numbers::Log { limit, window, slice, lifetime } => {
            args.extend(amount(units));
            args.push(Arg::from(limit));
            [window, slice, lifetime].into_iter().for_each(|length| args.extend(time(length)));
            args.extend(instant(receipt));
        }
    }
}

/// The letter of an op in the scripts, its units and its receipt.
fn split(op: Op) -> (&'static str, u64, Option<Receipt>) {
    match op {
        Op::Take(0) | Op::Peek => ("p", 0, None),
        Op::Take(units) => ("t", units, None),
        Op::Ask(units) => ("a", units, None),
        Op::Debit(units) => ("d", units, None),
        Op::Refund(units, receipt) => ("r", units, receipt),
        Op::Reset => ("z", 0, None),
    }
}

/// Units, beside the place of a second number. No state holds more units than a number of Lua tells apart, so that more
/// of them make no difference to any op.
fn amount(units: u64) -> [Arg<'static>; 2] {
    [Arg::from(units.min(LUA_WHOLE_MAX)), Arg::from(0_u64)]
}

/// A length as whole seconds and nanoseconds.
fn time(nanos: u64) -> [Arg<'static>; 2] {
    [Arg::from(nanos / NANOS_PER_SECOND), Arg::from(nanos % NANOS_PER_SECOND)]
}

fn instant(receipt: Option<Receipt>) -> [Arg<'static>; 2] {
    receipt.map_or([Arg::from(""); 2], |receipt| time(receipt.to_bits()))
}
