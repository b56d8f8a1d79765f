//! From the reply of a script to decisions.

use std::time::Duration;

use tidegate_core::bounds::NANOS_PER_SECOND;
use tidegate_core::{
    Arithmetic, Charge, Decisions, DecisionsExt, Disagreement, Found, FromLog, LimitExt, LogVerdict, Snapshot, Spent,
    Time,
};

use super::link::Reply;
use crate::{Posted, Posting};

/// Why a reply is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// It has another form than the scripts of this version reply.
    #[error("unexpected script reply; do all nodes run the same version?")]
    Unreadable,
    /// None of the windows that came with the charges is that of the store's time.
    #[error("the script rejects the calendar windows for its own time, {0:?}; do all nodes run the same version?")]
    OtherTime(Time),
    /// The numbers do not fit the verdict.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
}

/// Reads the reply to one charge, which has this place among equal ones that were decided one after the other.
pub(crate) fn one(charge: &Charge<'_>, reply: &Reply, place: usize) -> Result<Decisions, ReplyError> {
    let (passed, now, found) = parts_of(reply)?;
    let is_taken = (place as u64) < passed;
    let charges = std::slice::from_ref(charge);
    match (found, charge.limit.arithmetic()) {
        // Those after one that did not pass have its answer.
        ([.., last], Arithmetic::Log) => {
            let found = found_of(charge, found.get(place).unwrap_or(last), now)?;
            Ok(Decisions::of_found(charges, now, &[found], is_taken)?)
        }
        ([before], _) => {
            let found = found_of(charge, before, now)?;
            let earlier = passed.min(place as u64);
            Ok(Decisions::of_joined(charge, now, found, earlier, is_taken)?)
        }
        _ => Err(ReplyError::Unreadable),
    }
}

/// Reads the reply to charges that were decided together.
pub(crate) fn decisions(charges: &[Charge<'_>], reply: &Reply) -> Result<Decisions, ReplyError> {
    let (taken, now, found) = parts_of(reply)?;
    if found.len() != charges.len() {
        return Err(ReplyError::Unreadable);
    }
    let found: Result<Vec<Found>, ReplyError> =
        charges.iter().zip(found).map(|(charge, value)| found_of(charge, value, now)).collect();
    Ok(Decisions::of_found(charges, now, &found?, taken == 1)?)
}

/// Takes the reply to charges apart: how many passed, or whether they were taken; now; and what was found.
fn parts_of(reply: &Reply) -> Result<(u64, Time, &[Reply]), ReplyError> {
    let Reply::Array(parts) = reply else { return Err(ReplyError::Unreadable) };
    let [passed, seconds, nanos, found @ ..] = &parts[..] else { return Err(ReplyError::Unreadable) };
    let now = Time::from_nanos(time(seconds, nanos)?);
    match passed {
        Reply::Int(-1) => Err(ReplyError::OtherTime(now)),
        passed => Ok((number(passed)?, now, found)),
    }
}

/// Reads the reply to a lease: the number of the size that was taken or 0, now, and the state before. That to a single
/// charge has the same form, with 1 if it passed.
pub(crate) fn leased(charge: &Charge<'_>, reply: &Reply) -> Result<(usize, Time, [u64; 3]), ReplyError> {
    let Reply::Array(parts) = reply else { return Err(ReplyError::Unreadable) };
    let [taken, seconds, nanos, found] = &parts[..] else { return Err(ReplyError::Unreadable) };
    let now = Time::from_nanos(time(seconds, nanos)?);
    let Found::Words(words) = found_of(charge, found, now)? else { return Err(ReplyError::Unreadable) };
    let taken = usize::try_from(number(taken)?).map_err(|_| ReplyError::Unreadable)?;
    Ok((taken, now, words))
}

/// Reads the reply to a look at a log.
pub(crate) fn log_snapshot(charge: &Charge<'_>, reply: &Reply) -> Result<Snapshot, ReplyError> {
    let Reply::Array(parts) = reply else { return Err(ReplyError::Unreadable) };
    let [head @ .., Reply::Array(flat)] = &parts[..] else { return Err(ReplyError::Unreadable) };
    let lifetime = u64::try_from(charge.limit.memory().as_nanos()).unwrap_or(u64::MAX);
    let decisions = decisions(std::slice::from_ref(charge), &Reply::Array(head.to_vec()))?;
    let decision = *decisions.iter().next().ok_or(ReplyError::Unreadable)?;
    let spent = |entry: &[Reply]| match entry {
        [seconds, nanos, units] => {
            let at = Time::from_nanos(time(seconds, nanos)?.saturating_sub(lifetime));
            Ok(Spent { at, units: number(units)? })
        }
        _ => Err(ReplyError::Unreadable),
    };
    Ok(Snapshot { decision, entries: flat.chunks(3).map(spent).collect::<Result<_, _>>()? })
}

/// Reads the reply to an op on permits: whether it was done, the permits in use, microseconds until the next lease ends.
pub(crate) fn permits(reply: &Reply) -> Result<(bool, u64, u64), ReplyError> {
    let Reply::Array(parts) = reply else { return Err(ReplyError::Unreadable) };
    let [done, in_use, micros] = &parts[..] else { return Err(ReplyError::Unreadable) };
    Ok((number(done)? == 1, number(in_use)?, number(micros)?))
}

/// Reads which nodes have a notice, each with its version.
pub(crate) fn posted(reply: &Reply) -> Result<Vec<Posted>, ReplyError> {
    let Reply::Array(flat) = reply else { return Err(ReplyError::Unreadable) };
    let posted = |pair: &[Reply]| match pair {
        [node, version] => Ok(Posted::new(node.text().ok_or(ReplyError::Unreadable)?, number(version)?)),
        _ => Err(ReplyError::Unreadable),
    };
    flat.chunks(2).map(posted).collect()
}

/// Reads the notice of a node: its version, its age in microseconds and its bytes; nothing if there is none.
pub(crate) fn posting(reply: Reply) -> Result<Option<Posting>, ReplyError> {
    let Reply::Array(parts) = reply else {
        return if reply == Reply::Nil { Ok(None) } else { Err(ReplyError::Unreadable) };
    };
    let Ok([version, age, Reply::Bulk(bytes)]) = <[Reply; 3]>::try_from(parts) else {
        return Err(ReplyError::Unreadable);
    };
    Ok(Some(Posting::new(number(&version)?, Duration::from_micros(number(&age)?), bytes.into_vec())))
}

fn found_of(charge: &Charge<'_>, value: &Reply, now: Time) -> Result<Found, ReplyError> {
    match (charge.limit.arithmetic(), value) {
        (Arithmetic::Log, Reply::Array(answer)) => log(answer).map(Found::Log),
        (Arithmetic::Log, _) => Err(ReplyError::Unreadable),
        (_, Reply::Nil) => Ok(Found::Words([0; 3])),
        (_, Reply::Bulk(state)) => {
            let words = str::from_utf8(state).ok().and_then(|state| charge.limit.read_state(state, now));
            words.map(Found::Words).ok_or(ReplyError::Unreadable)
        }
        _ => Err(ReplyError::Unreadable),
    }
}

fn log(answer: &[Reply]) -> Result<FromLog, ReplyError> {
    let [verdict, wait_s, wait_n, used, reset_s, reset_n, out_s, out_n] = answer else {
        return Err(ReplyError::Unreadable);
    };
    let verdict = match number(verdict)? {
        0 => LogVerdict::DenyFor(time(wait_s, wait_n)?),
        1 => LogVerdict::Allow,
        2 => LogVerdict::DenyAlways,
        3 => LogVerdict::AllowAlone,
        _ => return Err(ReplyError::Unreadable),
    };
    Ok(FromLog { verdict, used: number(used)?, reset_after: time(reset_s, reset_n)?, out_at: time(out_s, out_n)? })
}

fn time(seconds: &Reply, nanos: &Reply) -> Result<u64, ReplyError> {
    let whole = number(seconds)?.checked_mul(NANOS_PER_SECOND).ok_or(ReplyError::Unreadable)?;
    whole.checked_add(number(nanos)?).ok_or(ReplyError::Unreadable)
}

fn number(value: &Reply) -> Result<u64, ReplyError> {
    match value {
        Reply::Int(number) => u64::try_from(*number).map_err(|_| ReplyError::Unreadable),
        _ => Err(ReplyError::Unreadable),
    }
}
