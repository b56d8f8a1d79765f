//! `CL.THROTTLE key max_burst count period [quantity]`: takes from a limit that the command brings, as the module
//! redis-cell does.
//!
//! The reply has five integers: 1 if it is limited, the limit (`max_burst` + 1), what remains, seconds until it passes (-1
//! if it passes now or never will) and seconds until the key is as if never seen. Seconds are rounded up. A quantity of 0
//! looks and takes nothing. Errors begin as those of the module do, and leave the connection as it is.

use std::time::Duration;

use tidegate_core::bounds::{NANOS_PER_SECOND, SPAN_NANOS_MAX};
use tidegate_core::{Decision, KeyError, Limit, LimitError, Rate};
use tidegate_engine::{Batch, RequestError, StoreError};

use crate::bounds::NUMBER_BYTES_TOLD_MAX;
use crate::headers;
use crate::protocol::{Protocol, Via};

use super::super::RespDoor;
use super::super::parse::Command;
use super::super::reply::{Replies, Shown};
use super::super::session::Session;
use super::{Context, OVERLOADED, integer};

/// Commands that are decided together: neighbours in a pipeline that take as much from the same limit.
#[derive(Default)]
pub(crate) struct Pending {
    /// The limit, also after they were decided: most connections use one.
    limit: Option<Remembered>,
    units: u64,
    keys: Batch,
    decisions: Vec<Decision>,
}

/// A limit and the numbers it was made of.
struct Remembered {
    numbers: [i64; 3],
    limit: Limit,
}

/// Why a command is not decided. Nothing was taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ThrottleError {
    #[error("Usage: CL.THROTTLE <key> <max_burst> <count per period> <period> [<quantity>]")]
    Usage,
    #[error("Couldn't parse as integer: {field}: `{text}`; use a whole number up to {}", i64::MAX)]
    NotInteger { field: &'static str, text: String },
    #[error("{field}: {value} is negative; use at least {min}")]
    Negative { field: &'static str, value: i64, min: i64 },
    #[error("Zero rates are not supported: {field}: 0 lets nothing pass; use at least 1")]
    ZeroRate { field: &'static str },
    #[error("{field}: {value} is too large; use at most {max}")]
    TooLarge { field: &'static str, value: u64, max: u64 },
    #[error(transparent)]
    Limit(LimitError),
    #[error(transparent)]
    Key(KeyError),
    #[error(transparent)]
    Request(RequestError),
}

/// What is wrong with a command that has too few arguments.
pub(super) fn usage() -> String {
    told(&ThrottleError::Usage)
}

fn told(error: &ThrottleError) -> String {
    format!("Cell error: {error}")
}

/// Decides a command by itself, and answers.
pub(super) async fn alone(door: &RespDoor, via: Via<'_>, replies: &mut Replies, command: &Command<'_>) {
    let decide = async || {
        let (numbers, units) = read(command)?;
        let limit = limit(numbers)?;
        let decided = door.service.decide(via, command.get(1), (None, &limit), units).await;
        Ok(decided.map_err(ThrottleError::Request)?.answer)
    };
    match decide().await {
        Ok(decision) => replies.five(numbers(&decision)),
        Err(ThrottleError::Request(RequestError::Store(StoreError::Overloaded))) => replies.error(OVERLOADED),
        Err(error) => replies.error(told(&error)),
    }
}

/// Adds the command to those that are decided together, in memory. Those that cannot be decided with it are answered first.
#[inline]
pub(super) fn add(context: &mut Context<'_>, command: &Command<'_>) {
    let added = match read(command) {
        Ok((numbers, units)) => {
            if !context.session.pending.takes(numbers, units) {
                settle(context);
            }
            context.session.pending.push(command.get(1), numbers, units)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = added {
        settle(context);
        context.replies.error(told(&error));
    }
}

/// Decides and answers all that was added.
#[inline]
pub(super) fn settle(context: &mut Context<'_>) {
    let Session { pending, peer, .. } = &mut *context.session;
    let Pending { limit: Some(last), units, keys, decisions } = pending else { return };
    if keys.is_empty() {
        return;
    }
    let via = Via::from_peer(Protocol::Resp, peer);
    context.door.service.decide_batch(via, keys, &last.limit, *units, decisions);
    for decision in decisions.iter() {
        context.replies.five(numbers(decision));
    }
    keys.clear();
    decisions.clear();
}

impl Pending {
    /// Whether a command with these numbers can be decided with those that are here.
    #[inline]
    fn takes(&self, numbers: [i64; 3], units: u64) -> bool {
        self.keys.is_empty()
            || !self.keys.is_full()
                && self.units == units
                && self.limit.as_ref().is_some_and(|last| last.numbers == numbers)
    }

    #[inline]
    fn push(&mut self, key: &[u8], numbers: [i64; 3], units: u64) -> Result<(), ThrottleError> {
        if self.limit.as_ref().is_none_or(|last| last.numbers != numbers) {
            self.limit = Some(Remembered { numbers, limit: limit(numbers)? });
        }
        self.units = units;
        self.keys.push(key).map_err(ThrottleError::Key)
    }
}

/// The numbers of a command: what makes its limit, and how many units it takes.
#[inline]
fn read(command: &Command<'_>) -> Result<([i64; 3], u64), ThrottleError> {
    let quantity = match command.len() {
        5 => 1,
        6 => number("quantity", command.get(5))?,
        _ => return Err(ThrottleError::Usage),
    };
    let numbers =
        [number("max_burst", command.get(2))?, number("count", command.get(3))?, number("period", command.get(4))?];
    Ok((numbers, not_negative("quantity", quantity, 0)?))
}

#[inline]
fn number(field: &'static str, text: &[u8]) -> Result<i64, ThrottleError> {
    integer(text)
        .ok_or_else(|| ThrottleError::NotInteger { field, text: Shown(text, NUMBER_BYTES_TOLD_MAX).to_string() })
}

fn not_negative(field: &'static str, value: i64, min: i64) -> Result<u64, ThrottleError> {
    u64::try_from(value).map_err(|_| ThrottleError::Negative { field, value, min })
}

/// The limit that the numbers of a command make.
#[cold]
fn limit([max_burst, count, period]: [i64; 3]) -> Result<Limit, ThrottleError> {
    const PERIOD_SECONDS_MAX: u64 = SPAN_NANOS_MAX / NANOS_PER_SECOND;
    let max_burst = not_negative("max_burst", max_burst, 0)?;
    let count = not_negative("count", count, 1)?;
    let period = not_negative("period", period, 1)?;
    for (field, value) in [("count", count), ("period", period)] {
        if value == 0 {
            return Err(ThrottleError::ZeroRate { field });
        }
    }
    if period > PERIOD_SECONDS_MAX {
        return Err(ThrottleError::TooLarge { field: "period", value: period, max: PERIOD_SECONDS_MAX });
    }
    let rate = Rate::new(count, Duration::from_secs(period)).map_err(ThrottleError::Limit)?;
    Limit::gcra(rate, max_burst + 1).map_err(|error| match error {
        // The command counts one less than the limit does.
        LimitError::TooLarge { value, max, .. } => {
            ThrottleError::TooLarge { field: "max_burst", value: value - 1, max: max.saturating_sub(1) }
        }
        other => ThrottleError::Limit(other),
    })
}

/// The five integers of the reply.
#[inline]
fn numbers(decision: &Decision) -> [i64; 5] {
    [
        i64::from(!decision.is_allowed()),
        whole(decision.limit()),
        whole(decision.remaining()),
        decision.retry_after().map_or(-1, seconds_up),
        seconds_up(decision.reset_after()),
    ]
}

/// A number of units as the reply tells it.
#[inline]
pub(super) fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Whole seconds, rounded up, so that who waits that long does not come too early.
#[inline]
pub(super) fn seconds_up(time: Duration) -> i64 {
    whole(headers::seconds(time))
}
