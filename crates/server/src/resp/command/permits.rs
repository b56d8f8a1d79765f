//! `TIDEGATE.ACQUIRE key limit lease_ms [id]`, `TIDEGATE.RENEW key id lease_ms`, `TIDEGATE.RELEASE key id`: so many at once for
//! each key, each for the length of a lease.
//!
//! The reply to ACQUIRE has, as that of TIDEGATE.CHECK, first 1 if it is limited, and the limit; then the permits in use,
//! milliseconds until the next lease ends (-1 if a permit was acquired) and the name of the permit, or null. RENEW and RELEASE
//! reply 1, or 0 if the permit is not held: its lease has ended, or it was released.

use std::time::Duration;

use tidegate_engine::bounds::PERMIT_LIMIT_MAX;
use tidegate_engine::{PermitError, StoreError};

use crate::bounds::NUMBER_BYTES_TOLD_MAX;
use crate::protocol::Via;

use super::super::RespDoor;
use super::super::parse::Command;
use super::super::reply::{Replies, Shown};
use super::throttle::whole;
use super::{OVERLOADED, integer};

pub(super) const ACQUIRE_USAGE: &str = "ERR usage: TIDEGATE.ACQUIRE key limit lease_ms [id]";
pub(super) const RENEW_USAGE: &str = "ERR usage: TIDEGATE.RENEW key id lease_ms";
pub(super) const RELEASE_USAGE: &str = "ERR usage: TIDEGATE.RELEASE key id";

pub(super) async fn acquire(door: &RespDoor, via: Via<'_>, replies: &mut Replies, command: &Command<'_>) {
    if let Err(text) = try_acquire(door, via, replies, command).await {
        replies.error(text);
    }
}

async fn try_acquire(
    door: &RespDoor,
    via: Via<'_>,
    replies: &mut Replies,
    command: &Command<'_>,
) -> Result<(), String> {
    let id = match command.len() {
        4 => None,
        5 => Some(command.get(4)),
        _ => return Err(ACQUIRE_USAGE.to_owned()),
    };
    let limit = number("limit", command.get(2), PERMIT_LIMIT_MAX)?;
    let lease = lease(door, command.get(3))?;
    let service = &door.service;
    let asked = service.acquire_permit(via, command.get(1), limit, lease, id).await;
    let acquired = asked.map_err(told)?;
    let permits = acquired.permits;
    replies.array(5);
    replies.integer(i64::from(!permits.done));
    replies.integer(whole(limit));
    replies.integer(whole(permits.in_use));
    if permits.done {
        replies.integer(-1);
        replies.bulk(acquired.id.as_bytes());
    } else {
        replies.integer(millis_up(permits.next_end));
        replies.null();
    }
    Ok(())
}

pub(super) async fn renew(door: &RespDoor, via: Via<'_>, replies: &mut Replies, command: &Command<'_>) {
    let renewed = match lease(door, command.get(3)) {
        Ok(lease) => door.service.renew_permit(via, command.get(1), command.get(2), lease).await.map_err(told),
        Err(text) => Err(text),
    };
    match renewed {
        Ok(permits) => replies.integer(i64::from(permits.done)),
        Err(text) => replies.error(text),
    }
}

pub(super) async fn release(door: &RespDoor, replies: &mut Replies, command: &Command<'_>) {
    match door.service.engine.release_permit(command.get(1), command.get(2)).await {
        Ok(permits) => replies.integer(i64::from(permits.done)),
        Err(error) => replies.error(told(error)),
    }
}

fn lease(door: &RespDoor, text: &[u8]) -> Result<Duration, String> {
    let most = u64::try_from(door.service.engine.permit_lease_max().as_millis()).unwrap_or(u64::MAX);
    number("lease_ms", text, most).map(Duration::from_millis)
}

fn number(field: &str, text: &[u8], most: u64) -> Result<u64, String> {
    let read = integer(text).and_then(|number| u64::try_from(number).ok());
    read.filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        let shown = Shown(text, NUMBER_BYTES_TOLD_MAX);
        format!("ERR {field}: `{shown}` is out of bounds; use a whole number from 1 to {most}")
    })
}

fn told(error: PermitError) -> String {
    match error {
        PermitError::Store(StoreError::Overloaded) => OVERLOADED.to_owned(),
        error => format!("ERR {error}"),
    }
}

/// Whole milliseconds, rounded up, so that who waits that long does not come too early.
fn millis_up(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
