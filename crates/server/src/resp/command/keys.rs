//! DEL, EXISTS, TTL: what Redis clients do to keys, for the keys of CL.THROTTLE. What configured rules count is theirs
//! alone, and is reset over HTTP.

use tidegate_core::bounds::{NANOS_PER_SECOND, SPAN_NANOS_MAX};
use tidegate_core::{Limit, LimitError, Op, Rate};

use super::super::parse::Command;
use super::Context;
use super::throttle::whole;

/// A limit that shows a key's state as it is, whatever limit wrote it: one so wide that no debt is beyond it.
fn widest() -> Result<Limit, LimitError> {
    Limit::gcra(Rate::per_second(1)?, SPAN_NANOS_MAX / NANOS_PER_SECOND)
}

/// Nanoseconds until a key is as if never seen; 0 if it already is.
async fn left(context: &Context<'_>, key: &[u8], limit: &Limit) -> u64 {
    // A key that is too short or too long was never seen.
    let decision = context.door.service.engine.decide(key, limit, Op::Peek).await;
    decision.map_or(0, |decision| u64::try_from(decision.reset_after().as_nanos()).unwrap_or(u64::MAX))
}

pub(super) async fn delete(context: &mut Context<'_>, command: &Command<'_>) {
    let limit = match widest() {
        Ok(limit) => limit,
        Err(error) => return context.replies.error(format_args!("ERR {error}")),
    };
    let mut deleted = 0;
    for key in command.from(1) {
        if left(context, key, &limit).await > 0 {
            // Whether it was there tells how many there were; that it is gone now is all that counts.
            let _ = context.door.service.engine.decide(key, &limit, Op::Reset).await;
            deleted += 1;
        }
    }
    context.replies.integer(deleted);
}

pub(super) async fn exists(context: &mut Context<'_>, command: &Command<'_>) {
    let limit = match widest() {
        Ok(limit) => limit,
        Err(error) => return context.replies.error(format_args!("ERR {error}")),
    };
    let mut found = 0;
    for key in command.from(1) {
        found += i64::from(left(context, key, &limit).await > 0);
    }
    context.replies.integer(found);
}

/// How long until a key is as if never seen, in units of so many nanoseconds, rounded up; -2 if it already is.
pub(super) async fn time_left(context: &mut Context<'_>, command: &Command<'_>, unit: u64) {
    let limit = match widest() {
        Ok(limit) => limit,
        Err(error) => return context.replies.error(format_args!("ERR {error}")),
    };
    let left = left(context, command.get(1), &limit).await;
    context.replies.integer(if left == 0 { -2 } else { whole(left.div_ceil(unit)) });
}
