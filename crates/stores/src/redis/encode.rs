//! From charges to the keys and arguments of a script.

use std::time::Duration;

use tidegate_core::{ARGUMENTS_MAX, Argument, Charge, ChargeExt, LimitExt, Time};

use super::link::Arg;

/// Arguments for each charge in `several.lua`: the algorithm, whether it vetoes, the op, and what the algorithm takes.
const WIDTH: usize = 3 + ARGUMENTS_MAX;

/// The arguments of one charge, for its algorithm's own script. Windows of a calendar are those around this instant.
///
/// The first says how many equal charges the call stands for.
pub(crate) fn one(charge: &Charge<'_>, around: Time) -> Vec<Arg<'static>> {
    let mut args = Vec::with_capacity(WIDTH);
    args.push(Arg::from(1_u64));
    put(charge, around, &mut args);
    args
}

/// The arguments of several charges, for `several.lua`.
pub(crate) fn several(charges: &[Charge<'_>], around: Time) -> Vec<Arg<'static>> {
    let mut args = Vec::with_capacity(WIDTH * charges.len());
    for (number, charge) in charges.iter().enumerate() {
        args.extend([Arg::from(charge.limit.arithmetic().name()), Arg::from(i64::from(charge.veto))]);
        put(charge, around, &mut args);
        args.resize(WIDTH * (number + 1), Arg::from(""));
    }
    args
}

/// The arguments of a lease: its length, and those of each size.
pub(crate) fn lease<'a>(length: Duration, sizes: impl Iterator<Item = Charge<'a>>) -> Vec<Arg<'static>> {
    let mut args = vec![Arg::from(length.as_secs()), Arg::from(u64::from(length.subsec_nanos()))];
    // No calendar has leases: the instant plays no part.
    let sizes: Vec<Vec<Arg<'static>>> = sizes.map(|charge| one(&charge, Time::default()).split_off(1)).collect();
    args.push(Arg::from(sizes.first().map_or(0, Vec::len) as u64));
    args.extend(sizes.into_iter().flatten());
    args
}

/// The numbers of a log, for `inspect_log.lua`.
pub(crate) fn log_numbers(charge: &Charge<'_>) -> Vec<Arg<'static>> {
    // After the number of charges, the op, its units and nothing.
    one(charge, Time::default()).split_off(4)
}

fn put(charge: &Charge<'_>, around: Time, args: &mut Vec<Arg<'static>>) {
    args.push(Arg::from(charge.letter()));
    args.extend(charge.arguments(around).into_iter().map(|argument| match argument {
        Argument::Whole(number) => Arg::from(number),
        Argument::Negative => Arg::from(-1_i64),
        Argument::Missing => Arg::from(""),
    }));
}
