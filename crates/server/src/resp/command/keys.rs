//! DEL, EXISTS, TTL: what Redis clients do to keys, for the keys of CL.THROTTLE. What configured rules count is theirs
//! alone, and is reset over HTTP.

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

/// Nanoseconds until a key is as if never seen; 0 if it already is.
async fn left(context: &Context<'_>, key: &[u8], limit: &Limit) -> Result<u64, RequestError> {
    match context.door.service.engine.administer(key, limit, Op::Peek).await {
        Ok(decision) => Ok(u64::try_from(decision.reset_after().as_nanos()).unwrap_or(u64::MAX)),
        // A key that is too short or too long was never seen.
        Err(RequestError::Key(_)) => Ok(0),
        Err(error) => Err(error),
    }
}

pub(super) async fn delete(context: &mut Context<'_>, command: &Command<'_>) {
    let deleted = delete_all(context, command).await;
    reply(context, deleted);
}

async fn delete_all(context: &Context<'_>, command: &Command<'_>) -> Result<i64, String> {
    let limit = widest().map_err(told)?;
    let mut deleted = 0;
    for key in command.from(1) {
        if left(context, key, &limit).await.map_err(told)? > 0 {
            context.door.service.engine.administer(key, &limit, Op::Reset).await.map_err(told)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

pub(super) async fn exists(context: &mut Context<'_>, command: &Command<'_>) {
    let found = count(context, command).await;
    reply(context, found);
}

async fn count(context: &Context<'_>, command: &Command<'_>) -> Result<i64, String> {
    let limit = widest().map_err(told)?;
    let mut found = 0;
    for key in command.from(1) {
        found += i64::from(left(context, key, &limit).await.map_err(told)? > 0);
    }
    Ok(found)
}

/// How long until a key is as if never seen, in units of so many nanoseconds, rounded up; -2 if it already is.
pub(super) async fn time_left(context: &mut Context<'_>, command: &Command<'_>, unit: u64) {
    let left = match widest() {
        Ok(limit) => left(context, command.get(1), &limit).await.map_err(told),
        Err(error) => Err(told(error)),
    };
    reply(context, left.map(|left| if left == 0 { -2 } else { whole(left.div_ceil(unit)) }));
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
