//! `/v1/permits`: so many at once for each key, each for the length of a lease.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tidegate_core::Retry;
use tidegate_engine::bounds::{OWN_KEY_BYTES_MAX, PERMIT_LIMIT_MAX};
use tidegate_engine::{Acquired, Denial};
use tidegate_policy::read_duration;

use super::answer::{Answered, Failure, Reply, add_headers, empty, json, quote};
use super::body::{Fields, text, utf8};
use super::check::once;
use super::query::{Query, decode, whole};
use super::routes::Parameters;
use super::told::{self, nanos};
use crate::headers::{self, OWN_LIMIT_NAME};
use crate::protocol::Via;
use crate::service::Service;

const EXAMPLE: &str = r#"{"key":"job:42","limit":5,"lease":"30s"}"#;
const KEYS: &str = "set the key of the permit, like key=job:42";
const LEASES: &str = r#"write a duration like "30s" or "500ms", or seconds as a number"#;
const IDS: &str = "leave it out to get a new one, or send one as text";

/// A permit that is held.
#[derive(Serialize)]
struct Held<'a> {
    id: &'a str,
    in_use: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    lease_ns: u64,
    /// Whether this node decided by itself because the store did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<bool>,
}

/// What a denial adds to its problem.
#[derive(Serialize)]
struct Full {
    in_use: u64,
    limit: u64,
    retry_after_ns: u64,
    /// As in [`Held`].
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<bool>,
}

/// A permit that is asked for.
struct Asked<'a> {
    key: Cow<'a, str>,
    limit: u64,
    lease: Duration,
    id: Option<Cow<'a, str>>,
}

fn asked(body: &[u8]) -> Result<Asked<'_>, Failure> {
    let mut fields = Fields::parse("body", utf8(body)?, EXAMPLE)?;
    let remedy = format_args!("use text of 1 to {OWN_KEY_BYTES_MAX} bytes");
    let key = fields.text("key", remedy)?.ok_or_else(|| Failure::bad("key", "missing", remedy))?;
    let remedy = format_args!("use 1 to {PERMIT_LIMIT_MAX} permits");
    let limit = fields.whole("limit", remedy)?.ok_or_else(|| Failure::bad("limit", "missing", remedy))?;
    let written = fields.need("lease", LEASES)?;
    let lease = match written.get().starts_with('"') {
        true => lease(&text("lease", written, LEASES)?)?,
        false => Duration::from_secs(whole("lease", written.get(), LEASES)?),
    };
    let id = fields.text("id", IDS)?;
    fields.finish("a permit")?;
    Ok(Asked { key, limit, lease, id })
}

/// Takes a permit, if one is free.
pub(super) async fn acquire(service: &Service, via: Via<'_>, body: &[u8]) -> Answered {
    let Asked { key, limit, lease, id } = asked(body)?;
    let id = id.as_deref().map(str::as_bytes);
    let Acquired { id, permits, local } = service.acquire_permit(via, key.as_bytes(), limit, lease, id).await?;
    let local = local.then_some(true);
    if !permits.done {
        let members = Full { in_use: permits.in_use, limit, retry_after_ns: nanos(permits.next_end), local };
        return Ok(once(full(&members, permits.next_end)));
    }
    let held = Held { id: &id, in_use: permits.in_use, limit: Some(limit), lease_ns: nanos(lease), local };
    Ok(once(json(StatusCode::CREATED, &held)))
}

/// Holds a permit for another lease. The parameter is its name, still encoded.
pub(super) async fn renew(service: &Service, via: Via<'_>, [id, _]: Parameters<'_>, query: Option<&str>) -> Answered {
    let mut query = Query::parse(query)?;
    let (key, written) =
        (query.need("key", KEYS)?, query.need("lease", "set the length of the lease, like lease=30s")?);
    query.finish()?;
    let (id, lease) = (decode(id, false)?, lease(&written)?);
    let permits = service.renew_permit(via, key.as_bytes(), id.as_bytes(), lease).await?;
    match permits.done {
        true => {
            let held = Held { id: &id, in_use: permits.in_use, limit: None, lease_ns: nanos(lease), local: None };
            Ok(once(json(StatusCode::OK, &held)))
        }
        false => Err(gone(&id)),
    }
}

/// Gives a permit back. The parameter is its name, still encoded.
pub(super) async fn release(service: &Service, [id, _]: Parameters<'_>, query: Option<&str>) -> Answered {
    let mut query = Query::parse(query)?;
    let key = query.need("key", KEYS)?;
    query.finish()?;
    let id = decode(id, false)?;
    let permits = service.engine.release_permit(key.as_bytes(), id.as_bytes()).await?;
    if permits.done { Ok(once(empty(StatusCode::NO_CONTENT))) } else { Err(gone(&id)) }
}

/// A time like `30s`, or whole seconds.
fn lease(text: &str) -> Result<Duration, Failure> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = || text.parse().ok().filter(|_| is_digits).map(Duration::from_secs);
    let read = read_duration(text).or_else(seconds);
    read.ok_or_else(|| Failure::bad("lease", format_args!("{} is not a duration", quote(text)), LEASES))
}

/// Too many are at it.
fn full(members: &Full, wait: Duration) -> Reply {
    let (status, problem) =
        headers::problem_of(Denial::OverLimit, Some(Retry::Unknown(wait)), &[OWN_LIMIT_NAME], false);
    let mut reply = told::denied(status, Some(problem), serde_json::to_vec(members).unwrap_or_default());
    add_headers(&mut reply, vec![("retry-after", headers::retry_seconds(wait).to_string())]);
    reply
}

/// Nobody can tell whether it was ever there: what is over is forgotten.
fn gone(id: &str) -> Failure {
    let detail = format!(
        "id: {} holds no permit of this key: its lease has ended, or it was released; acquire a new one with POST /v1/permits",
        quote(id)
    );
    Failure::new(StatusCode::NOT_FOUND, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases() {
        for (text, millis) in [("30s", 30_000), ("500ms", 500), ("1m30s", 90_000), ("7", 7_000)] {
            assert_eq!(lease(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "soon", "-1s", "1.5s", "+7", "99999999999999999999", "s"] {
            assert!(lease(text).is_err(), "{text}");
        }
    }
}
