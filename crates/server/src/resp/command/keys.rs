//! DEL, EXISTS, TTL: what Redis clients do to keys, for the keys of CL.THROTTLE. What configured rules count is theirs
//! alone, and is reset over HTTP.

use std::time::Duration;

use tidegate_core::bounds::{NANOS_PER_SECOND, SPAN_NANOS_MAX};
use tidegate_core::{Limit, LimitError, Op, Rate};
use tidegate_engine::RequestError;

use super::super::parse::Command;
use super::Context;
use super::throttle::whole;

/// A limit that shows a key's state as it is, whatever limit wrote it: one so wide that no debt is beyond it.
fn widest() -> Result<Limit, LimitError> {
    Limit::gcra(Rate::per_second(1)?, SPAN_NANOS_MAX / NANOS_PER_SECOND)
}

/// How long a key may still be limited.
enum Left {
    /// So many nanoseconds; none if it is as if never seen.
    Exactly(u64),
    /// About so many: the store in memory is full, and cannot delete the key.
    About(u64),
}

impl Left {
    fn nanos(&self) -> u64 {
        let (Left::Exactly(nanos) | Left::About(nanos)) = self;
        *nanos
    }
}

/// How long a key may still be limited, whatever limit wrote it.
async fn left(context: &Context<'_>, key: &[u8], limit: &Limit) -> Result<Left, RequestError> {
    let engine = &context.door.service.engine;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let decision = match engine.administer(key, limit, Op::Peek).await {
        Ok(decision) => decision,
        // A key that is too short or too long was never seen.
        Err(RequestError::Key(_)) => return Ok(Left::Exactly(0)),
        Err(error) => return Err(error),
    };
    if decision.reset_after().is_zero()
        && let Ok(Some(about)) = engine.approximate_left(key)
    {
        return Ok(Left::About(nanos(about)));
    }
    Ok(Left::Exactly(nanos(decision.reset_after())))
}

pub(super) async fn delete(context: &mut Context<'_>, command: &Command<'_>) {
    let deleted = delete_all(context, command).await;
    reply(context, deleted);
}

async fn delete_all(context: &Context<'_>, command: &Command<'_>) -> Result<i64, String> {
    let limit = widest().map_err(told)?;
    let (mut deleted, mut kept) = (0, 0);
    for key in command.from(1) {
        match left(context, key, &limit).await.map_err(told)? {
            Left::Exactly(0) => {}
            Left::Exactly(_) => {
                context.door.service.engine.administer(key, &limit, Op::Reset).await.map_err(told)?;
                deleted += 1;
            }
            Left::About(_) => kept += 1,
        }
    }
    match kept {
        0 => Ok(deleted),
        kept => Err(format!(
            "{kept} of the keys not deleted, since the store in memory is full and counts them approximately; try again \
             later, or give the store more keys"
        )),
    }
}

pub(super) async fn exists(context: &mut Context<'_>, command: &Command<'_>) {
    let found = count(context, command).await;
    reply(context, found);
}

async fn count(context: &Context<'_>, command: &Command<'_>) -> Result<i64, String> {
    let limit = widest().map_err(told)?;
    let mut found = 0;
    for key in command.from(1) {
        found += i64::from(left(context, key, &limit).await.map_err(told)?.nanos() > 0);
    }
    Ok(found)
}

/// How long until a key is as if never seen, in units of so many nanoseconds, rounded up; -2 if it already is.
pub(super) async fn time_left(context: &mut Context<'_>, command: &Command<'_>, unit: u64) {
    let left = match widest() {
        Ok(limit) => left(context, command.get(1), &limit).await.map_err(told),
        Err(error) => Err(told(error)),
    };
    reply(context, left.map(|left| if left.nanos() == 0 { -2 } else { whole(left.nanos().div_ceil(unit)) }));
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn reply(context: &mut Context<'_>, number: Result<i64, String>) {
    match number {
        Ok(number) => context.replies.integer(number),
        Err(error) => context.replies.error(format_args!("ERR {error}")),
    }
}
