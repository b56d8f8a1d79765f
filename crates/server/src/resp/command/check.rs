//! `TIDEGATE.CHECK domain key value [key value ...] [COST n]`: takes from the configured limits that apply to a
//! descriptor of these entries.
//!
//! The reply has the five integers of CL.THROTTLE, in its order and meaning, and then the name of the rule that binds:
//! 1 if it is limited, the limit, what remains, seconds until it passes (-1 if it passes now or never will), seconds until
//! the key is as if never seen, and the name, or null if no rule applies. Without a limit, as where no rule applies, both
//! limit and remaining are -1. A blocked key has a limit of 0 that does not come back: -1 seconds.

use tidegate_core::Retry;
use tidegate_engine::{Answer, Denial, Judgement, Outcome, RequestError, StoreError};
use tidegate_policy::{Descriptor, Entry, Request};

use crate::bounds::{COMMAND_BYTES_TOLD_MAX, NUMBER_BYTES_TOLD_MAX};
use crate::protocol::Via;

use super::super::RespDoor;
use super::super::parse::Command;
use super::super::reply::{Replies, Shown};
use super::throttle::{seconds_up, whole};
use super::{OVERLOADED, integer};

pub(super) const USAGE: &str = "ERR usage: TIDEGATE.CHECK domain key value [key value ...] [COST n]";

pub(super) async fn run(door: &RespDoor, via: Via<'_>, replies: &mut Replies, command: &Command<'_>) {
    if let Err(text) = check(door, via, replies, command).await {
        replies.error(text);
    }
}

async fn check(door: &RespDoor, via: Via<'_>, replies: &mut Replies, command: &Command<'_>) -> Result<(), String> {
    let (pairs_end, cost) = cost(command)?;
    let domain = text("domain", command.get(1))?;
    let mut entries = Vec::with_capacity(command.len() / 2);
    for number in (2..pairs_end).step_by(2) {
        let key = text("key", command.get(number))?;
        let value = text("value", command.get(number + 1))?;
        entries.push(Entry { key, value });
    }
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let request = Request { domain, descriptors: &descriptors, http: None, cost };
    let checked = door.service.check_known(via, &request).await;
    let Some(outcome) = checked.map_err(told)? else {
        let shown = Shown(domain.as_bytes(), COMMAND_BYTES_TOLD_MAX);
        return Err(format!("ERR domain: there are no rules for `{shown}`; use a domain of the configuration"));
    };
    if outcome.denial() == Some(Denial::Overloaded) {
        return Err(OVERLOADED.to_owned());
    }
    reply(replies, &outcome);
    Ok(())
}

fn told(error: RequestError) -> String {
    match error {
        RequestError::Store(StoreError::Overloaded) => OVERLOADED.to_owned(),
        error => format!("ERR {error}"),
    }
}

/// Where the pairs end, and the cost behind them. After at least one pair, the word COST is not an entry.
fn cost(command: &Command<'_>) -> Result<(usize, u64), String> {
    let count = command.len();
    if count < 4 || !count.is_multiple_of(2) {
        return Err(USAGE.to_owned());
    }
    if count < 6 || !command.get(count - 2).eq_ignore_ascii_case(b"COST") {
        return Ok((count, 1));
    }
    let given = command.get(count - 1);
    let cost = integer(given).and_then(|cost| u64::try_from(cost).ok());
    let refused = || {
        let shown = Shown(given, NUMBER_BYTES_TOLD_MAX);
        format!("ERR COST: `{shown}` is not a number of units; use a whole number of 0 or more")
    };
    Ok((count - 2, cost.ok_or_else(refused)?))
}

fn text<'a>(field: &str, bytes: &'a [u8]) -> Result<&'a str, String> {
    let shown = || bytes.get(..COMMAND_BYTES_TOLD_MAX).unwrap_or(bytes).escape_ascii();
    std::str::from_utf8(bytes).map_err(|_| format!("ERR {field}: `{}` is not UTF-8", shown()))
}

fn reply(replies: &mut Replies, outcome: &Outcome) {
    let limited = !outcome.is_allowed();
    // Of a hidden rule no numbers, no name and no time to retry are told.
    let is_told = |judgement: &Judgement<'_>| !crate::headers::options(judgement).hidden;
    let judgement = outcome.strictest(0).filter(is_told);
    let (limit, remaining, reset) = judgement.as_ref().map_or((-1, -1, 0), numbers);
    let retry = match outcome.retry_among(is_told) {
        Some(Retry::After(wait) | Retry::Unknown(wait)) => seconds_up(wait).max(1),
        Some(Retry::Never) | None => -1,
    };
    replies.array(6);
    for value in [i64::from(limited), limit, remaining, retry, reset] {
        replies.integer(value);
    }
    match judgement.and_then(|judgement| judgement.rule) {
        Some(rule) => replies.bulk(rule.name.as_bytes()),
        None => replies.null(),
    }
}

/// Limit, remaining and seconds until the key is as if never seen.
fn numbers(judgement: &Judgement<'_>) -> (i64, i64, i64) {
    let limit = judgement.limit.map_or(0, |limit| whole(limit.limit.units()));
    match judgement.answer {
        Answer::Decided(decision) => {
            (whole(decision.limit()), whole(decision.remaining()), seconds_up(decision.reset_after()))
        }
        Answer::Blocked => (0, 0, -1),
        Answer::Unlimited | Answer::Failed { allowed: true } | Answer::NotAsked => (-1, -1, 0),
        Answer::CostFailed => (limit, 0, -1),
        Answer::Penalised(_) | Answer::Failed { allowed: false } | Answer::Overloaded => {
            (limit, 0, seconds_up(judgement.answer.retry_after().unwrap_or_default()))
        }
    }
}
